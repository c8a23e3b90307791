"""Spark's server of Python workers, with what they import already there: each is a fork of it."""

from __future__ import annotations

import numba  # noqa: F401
from pyspark.daemon import manager

import tocsin.spark.stateful  # noqa: F401

if __name__ == "__main__":
    manager()
