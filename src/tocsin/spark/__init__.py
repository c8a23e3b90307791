"""Engine on Apache Spark: DataFrames in, a DataFrame of alerts out, streaming or bounded like its inputs."""

from tocsin.spark.alerts import alerts, counts_of
from tocsin.spark.stateful import ON_LOCAL_DISK

__all__ = ["ON_LOCAL_DISK", "alerts", "counts_of"]
