"""One Spark session for all tests, started by the first that needs it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

# Little data on few cores: tasks cost more than they gain, and times must not depend on where the tests run.
_SETTINGS = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[object]:
    """Give the session."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("tocsin-tests")
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()
