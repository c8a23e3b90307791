"""Engine on Apache Spark: DataFrames in, a DataFrame of alerts out, streaming or bounded like its inputs."""

from tocsin.spark.alerts import alerts, counts_of

__all__ = ["alerts", "counts_of"]
