"""One Spark session for all tests, started by the first that needs it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from servers import kafka, mosquitto

__all__ = ["kafka", "mosquitto"]

# Workers must have the packages of this interpreter, whatever `python3` is on the path.
os.environ["PYSPARK_PYTHON"] = sys.executable

SETTINGS = {
    # Little data: tasks cost more than they gain. Two, so that keys do meet a shuffle.
    "spark.sql.shuffle.partitions": "2",
    # Else Spark would join these two again, and hide what the partition of a bucket decides.
    "spark.sql.adaptive.enabled": "false",
    # Times must not depend on where the tests run.
    "spark.sql.session.timeZone": "UTC",
    # No port, no page, no progress bar in the output of the tests.
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Like the session of a run: Spark records no place in the code for each operation on columns.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # A test machine has little memory, and Python workers need some beside the JVM.
    "spark.driver.memory": "1g",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Give the session; tables of the memory sink leave nothing in the working folder."""
    from pyspark.sql import SparkSession

    from tocsin.spark import LOCAL_DISK_CONF, LOCAL_MASTER_CONF

    builder = SparkSession.builder.master("local[2]").appName("tocsin-tests")
    builder = builder.config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
    for name, value in (SETTINGS | LOCAL_DISK_CONF | LOCAL_MASTER_CONF).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()
