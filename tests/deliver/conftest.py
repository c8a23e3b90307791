"""Servers that tests of delivery may ask for."""

from __future__ import annotations

from servers import alertmanager, kafka

__all__ = ["alertmanager", "kafka"]
