"""Condensation: two Spark DataFrames. Streaming DataFrames are used in the same way."""

from pyspark.sql import SparkSession

import tocsin

spark = SparkSession.builder.master("local[2]").config("spark.sql.session.timeZone", "UTC").getOrCreate()

minutes = "select 'press-7' as machine, timestamp_seconds(60 * id) as ts"
dew_point = spark.sql(f"{minutes}, if(id between 20 and 24, 16.0D, 9.5D) as value from range(60)")
surface = spark.sql(f"{minutes}, 14.0D as value from range(60)")

rule = tocsin.Rule(
    "Condensation",
    "dew_point > surface",
    within="5m",
    on="machine",
    keep_firing_for="1m",
)

alerts = tocsin.alerts({"dew_point": dew_point, "surface": surface}, rule)
alerts.select("state", "labels.machine", "startsAt", "endsAt", "value", "witness.time").show(truncate=False)
