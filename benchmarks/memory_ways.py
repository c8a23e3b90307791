"""Which way to sample would be the closest for rules, if UNIFORM were among them: the choice on every kind of stream.

A monitor learns from a stream as one in a rule does. Then `approach.choose` has EQ-CLUSTER, PPS-CLUSTER and UNIFORM to
choose from, each with what it needs per row: a row of a rule takes 32 bytes (time, a value, its chance, no text), with
the counters of UNIFORM at least 40. Errors are those of COUNT over a window, as rules predict them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from benchmarks import memory_data as data
from benchmarks.memory_automatic import recordings
from benchmarks.memory_data import W1, Int
from benchmarks.memory_runs import Row
from benchmarks.papers.p001.shedding_join import equi
from tocsin.operators.retention.cluster_sampling import EQ_CLUSTER, PPS_CLUSTER, UNIFORM
from tocsin.operators.retention.utility.sampling_choice import Aggregate, choose
from tocsin.operators.retention.utility.stream_monitor import Monitor

PERCENTS = (5, 10, 20, 30, 50, 70)
NAMES = {UNIFORM: "UNIFORM", EQ_CLUSTER: "EQ-CLUSTER", PPS_CLUSTER: "PPS-CLUSTER"}
# Bytes of a row in a rule, and with the counters of UNIFORM: compact, and as columns of a page are.
BYTES, BYTES_UNIFORM = 32, (40, 48)


class Watched(NamedTuple):
    """A stream that a monitor has watched, and the windows whose rows are remembered."""

    name: str
    monitor: Monitor
    windows: list[int]


def watched(*, quick: bool) -> Iterator[Watched]:
    """Streams by key and by age, and recordings."""
    units = 3_000 if quick else 20_000
    for case in ("DC", "IC", "UC"):
        for z in (1.0, 2.0):
            yield _watch(f"{case}, Z = {z:g}", data.drawn(*data.frequencies(case, z, 1), units, 1))
    for shape in ("INC", "DEC", "BELL"):
        yield _watch(shape, data.aged(data.age_shape(shape), units, 1))
    for of in recordings(quick=quick):
        windows = [length or None for length in of.lengths]
        monitor = Monitor((windows[0], windows[1]), share=of.share, counters=of.counters, by_tuples=of.by_tuples)
        clock = np.ascontiguousarray(of.arrivals.clock.max(axis=1))
        monitor.take(of.arrivals.stream, clock, of.arrivals.key)
        yield Watched(of.name, monitor, [i for i, length in enumerate(of.lengths) if length])


def _watch(name: str, streams: data.Streams) -> Watched:
    arrivals, monitor = equi(*streams), Monitor((W1, None), share=0.1)
    time: Int = np.ascontiguousarray(arrivals.clock[:, 0])
    monitor.take(arrivals.stream, time, arrivals.key)
    return Watched(name, monitor, [0])


def ways(part: str, *, quick: bool) -> Iterator[Row]:
    """What is chosen by memory, the errors foretold of each way, and by how much UNIFORM's is below the best of others.

    Where no model fits nothing is foretold, and the way is EQ-CLUSTER.
    """
    for of in watched(quick=quick):
        for percent in (10, 50) if quick else PERCENTS:
            for each in BYTES_UNIFORM:
                yield {"part": part, "data": of.name, "memory_percent": percent, "bytes_uniform": each} | _chosen(
                    of, percent / 100, each
                )


def _chosen(of: Watched, share: float, bytes_uniform: int) -> Row:
    lengths = [float(of.monitor.windows[i] or 1) for i in of.windows]
    whole = [of.monitor.rate(i) * length for i, length in zip(of.windows, lengths, strict=True)]
    asked = zip(of.windows, whole, lengths, strict=True)
    prospects = [of.monitor.prospect(i, share * rows, Aggregate(length)) for i, rows, length in asked]
    errors, rows = {}, [share * one.room for one in prospects]
    for kind, name in NAMES.items():
        room = [{kind: each * (BYTES / bytes_uniform if kind == UNIFORM else 1)} for each in rows]
        fits = all(one.fits for one in prospects)
        errors[name] = choose(prospects, room)[0].error if fits else None
    known = {name: error for name, error in errors.items() if error is not None}
    others = min((error for name, error in known.items() if name != "UNIFORM"), default=None)
    gain = known["UNIFORM"] / others if others else None
    return {"chosen": min(known, key=lambda name: known[name], default="EQ-CLUSTER"), "errors": errors, "ratio": gain}
