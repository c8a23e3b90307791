"""Condensation: two streams of arrays, evaluated in this process without Spark and without a JVM."""

import numpy as np

import tocsin

rule = tocsin.Rule(
    "Condensation",
    "dew_point > surface",
    within="5m",
    on="machine",
    keep_firing_for="1m",
)

seconds = np.arange(0, 3600, 10)
streams = {
    "dew_point": {
        "ts": seconds * 1_000_000,  # microseconds since 1970, or datetimes
        "machine": np.full(len(seconds), "press-7"),
        "value": np.where((seconds >= 1200) & (seconds < 1500), 16.0, 9.5),
    },
    "surface": {
        "ts": seconds * 1_000_000,
        "machine": np.full(len(seconds), "press-7"),
        "value": np.full(len(seconds), 14.0),
    },
}

print(tocsin.explain(streams, rule))
for row in tocsin.run_local(streams, rule):
    print(row["state"], row["labels"]["machine"], row["startsAt"], row["endsAt"], row["value"])
