"""Worker daemon: the server of Spark's Python workers, which imports Tocsin before it forks them.

Spark starts this module in place of `pyspark.daemon` (the setting `spark.python.daemon.module`). A fork has NumPy,
pyarrow, pandas and Tocsin at once; a worker of `pyspark.daemon` imports them again, which takes a second of processor
time each.
"""

from __future__ import annotations

import gc

import pandas  # noqa: F401
from pyspark import worker  # noqa: F401
from pyspark.daemon import manager

import tocsin.spark.stateful  # noqa: F401

if __name__ == "__main__":
    # A collection in a worker would otherwise touch, and so copy, all pages that it shares with the daemon.
    gc.collect()
    gc.freeze()
    manager()
