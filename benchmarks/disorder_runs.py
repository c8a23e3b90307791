"""One run of the disorder benchmark: interval by interval rows are ordered, joined and counted, and K is chosen."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from benchmarks.disorder_data import SECOND, VALUES, Dataset
from benchmarks.papers.p004.window_join import Equal, Near, Star, WindowJoin, completed_results
from tocsin.operators.reorder.k_slack import NEVER_IDLE
from tocsin.operators.reorder.model_wait import ModelWait
from tocsin.operators.reorder.observed_wait import ObservedWait
from tocsin.operators.reorder.reorder_rows import new_clocks, reorder_rows
from tocsin.operators.reorder.wait_policy import FixedWait, MaxWait, RecallConfig, WaitPolicy
from tocsin.runtime.contract import NEVER_SEEN, Float, Int

# P, L, g and b as in the paper; and the longest wait, in grains and in microseconds, which it does not bound.
PAPER = {"over_us": 60 * SECOND, "every_us": SECOND, "grain_us": 10_000, "basic_us": 10_000, "bins": 8192}
MOST_US = PAPER["bins"] * PAPER["grain_us"]
CONDITIONS = {"near": Near(5.0), "equal": Equal(VALUES + 1), "star": Star(VALUES + 1)}


class Truth(NamedTuple):
    """Times of all rows in order, and the results that were due before each place."""

    time_us: Int
    results: Float

    def within(self, end_us: Int, over_us: int) -> Float:
        """Results with times in (end - over, end]."""
        last, first = (np.searchsorted(self.time_us, at, side="right") for at in (end_us, end_us - over_us))
        return self.results[last] - self.results[first]


class Done(NamedTuple):
    """What a run gave, by interval: K, recall over the last P, CPU seconds of choosing K; then latencies of results."""

    wait_us: Int
    recall: Float
    step_s: Float
    latency_us: Float
    weight: Float


def true_results(data: Dataset) -> Truth:
    """The results of the rows in order of time."""
    order = np.lexsort((data.stream, data.time_us))
    taken = joining(data).take(data.stream[order], data.time_us[order], data.attributes[order])
    assert bool(taken.in_order.all())
    return Truth(data.time_us[order], np.concatenate(([0.0], np.cumsum(taken.results))))


def joining(data: Dataset) -> WindowJoin:
    """The join of a dataset; late rows are counted, for the strategy that asks for it."""
    return WindowJoin(data.windows_us, CONDITIONS[data.query], count_late=True)


def cuts(data: Dataset, every_us: int) -> Int:
    """Where each interval L of stream time ends: the first row at which the newest time has reached its end."""
    newest = np.maximum.accumulate(data.time_us)
    ends = np.arange(newest[0] + every_us, newest[-1], every_us)
    return np.searchsorted(newest, ends, side="left")


def run(
    data: Dataset, truth: Truth, wait: WaitPolicy, over_us: int = PAPER["over_us"], every_us: int = PAPER["every_us"]
) -> Done:
    """Let all rows arrive, one interval after the other."""
    clocks, join = new_clocks(1, len(data.windows_us)), joining(data)
    newest = np.maximum.accumulate(data.time_us)
    delay, skews = np.empty((2, data.time_us.size), np.int64)
    held, stage = np.empty(0, np.int64), np.empty(0, np.int64)
    waits, reached, steps, out = [], [], [], []
    last, joined = 0, NEVER_SEEN
    for cut in cuts(data, every_us).tolist():
        rows, was = np.concatenate((held, np.arange(last, cut))), len(held)
        stages = np.concatenate((stage, np.zeros(cut - last, np.int64)))
        group = np.zeros(rows.size, np.int64)
        left, by, stages, late, skew = reorder_rows(
            clocks, group, data.stream[rows], data.time_us[rows], stages, wait.wait_us, NEVER_IDLE
        )
        delay[last:cut], skews[last:cut] = late[was:], skew[was:]
        taken = rows[left]
        cross, results, in_order, _ = join.take(data.stream[taken], data.time_us[taken], data.attributes[taken])
        completed = completed_results(
            data.windows_us, data.stream[taken], data.time_us[taken], results, in_order, joined
        )
        waits.append(wait.wait_us)
        joined = int(data.time_us[taken].max(initial=joined))
        reached.append(joined)
        out.append((taken[in_order], newest[rows[by[in_order]]], results[in_order]))
        wait.note_arrivals(data.stream[last:cut], late[was:], skew[was:])
        wait.note_results(delay[taken], skews[taken], cross, completed, in_order)
        start = time.thread_time_ns()
        wait.adapt()
        steps.append((time.thread_time_ns() - start) / 1e9)
        held, stage, last = rows[stages > 0], stages[stages > 0], cut
    taken, seen, produced = (np.concatenate(part) for part in zip(*out, strict=True))
    made = Truth(data.time_us[taken], np.concatenate(([0.0], np.cumsum(produced))))
    recall = recalls(made, truth, np.array(reached), over_us, every_us)
    latency = (seen - data.time_us[taken]).astype(np.float64)
    return Done(np.array(waits), recall, np.array(steps), latency, produced)


def recalls(made: Truth, truth: Truth, ends: Int, over_us: int, every_us: int) -> Float:
    """Recall over the last P right before each adaptation, without the first P and where nothing was due."""
    ends = ends[over_us // every_us :]
    due = truth.within(ends, over_us)
    return made.within(ends, over_us)[due > 0] / due[due > 0]


def waiting(name: str, recall: float, data: Dataset, **settings: Any) -> WaitPolicy:
    """A way to wait by name: `none`, `max`, seconds, or a strategy that keeps a recall."""
    if name == "max":
        return MaxWait(MOST_US)
    if name == "none":
        return FixedWait(0)
    if name.endswith("s"):
        return FixedWait(int(float(name[:-1]) * SECOND))
    if name == "Observed":
        return ObservedWait(RecallConfig(recall, **(PAPER | settings)), data.windows_us)
    return ModelWait(RecallConfig(recall, **(PAPER | settings)), data.windows_us, name.lower())


def told(done: Done, wanted: float) -> dict[str, float]:
    """The figures of a run."""
    order = np.argsort(done.latency_us)
    weight = np.cumsum(done.weight[order])
    late = done.latency_us[order][np.searchsorted(weight, 0.99 * weight[-1])]
    seconds = done.wait_us / SECOND
    figures = {
        "mean_k_s": seconds.mean(), "sd_k_s": seconds.std(), "max_k_s": seconds.max(),
        "mean_step_k_s": np.abs(np.diff(seconds)).mean(),
        "mean_recall": done.recall.mean(), "min_recall": done.recall.min(),
        "phi": (done.recall >= wanted).mean(), "phi_99": (done.recall >= 0.99 * wanted).mean(),
        "latency_s": np.average(done.latency_us, weights=done.weight) / SECOND, "latency_p99_s": late / SECOND,
        "adapt_ms": 1000 * done.step_s.mean(), "adapt_p99_ms": 1000 * np.quantile(done.step_s, 0.99),
    }  # fmt: skip
    return {name: round(float(value), 5) for name, value in figures.items()}


def warm_up(data: Dataset, strategies: tuple[str, ...]) -> None:
    """Compile what is compiled at a first call."""
    head = data.head(5)
    truth = true_results(head)
    for name in strategies:
        run(head, truth, waiting(name, 0.9, head))
