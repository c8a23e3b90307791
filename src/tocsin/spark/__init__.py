"""Engine on Apache Spark: DataFrames in, a DataFrame of alerts out, streaming or bounded like its inputs."""

from tocsin.spark.alerts import alerts, row_outcomes
from tocsin.spark.stateful import LOCAL_DISK_CONF, LOCAL_MASTER_CONF

__all__ = ["LOCAL_DISK_CONF", "LOCAL_MASTER_CONF", "alerts", "row_outcomes"]
