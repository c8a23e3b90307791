"""A small example on this machine: a stream falls silent for hours, little is kept meanwhile, no alarm is missed."""

from tocsin.demo.plant import Factory
from tocsin.demo.play import RUN, main

__all__ = ["Factory", "RUN", "main"]
