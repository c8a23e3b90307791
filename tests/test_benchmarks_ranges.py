"""The benchmark of range thresholding: its workloads follow the recipe, all methods agree, a quick run gives all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import ranges
from benchmarks.ranges_bars import bars
from benchmarks.ranges_baselines import (
    Baseline,
    IntervalTreeStab,
    PackedRTree,
    ScanPerBatch,
    ScanPerElement,
    SegmentIntervalTree,
)
from benchmarks.ranges_data import DOMAIN, MODES, Setting, ending, make, trades
from benchmarks.ranges_runs import SAMPLED, Feed, alike, estimate, state_bytes, whole
from naive.ranges import Element, Event, Register, Terminate, naive, run

pytestmark = pytest.mark.slow

DIMS = {
    ScanPerElement: (1, 2, 3),
    ScanPerBatch: (1, 2, 3),
    IntervalTreeStab: (1,),
    SegmentIntervalTree: (2,),
    PackedRTree: (2,),
}
EACH = [pytest.param(kind, dims, id=f"{kind.__name__}-{dims}") for kind, all_dims in DIMS.items() for dims in all_dims]
ENDS = st.sampled_from([-np.inf, 0.0, 1.0, 2.0, 2.5, 3.0, np.inf])


@st.composite
def streams(draw: Any) -> tuple[int, list[Event]]:
    """Requests and elements with many ties; an id comes again only after it was terminated."""
    dims = draw(st.integers(1, 3))
    events: list[Event] = []
    taken: set[int] = set()
    for kind in draw(st.lists(st.sampled_from("rrteee"), max_size=60)):
        key = draw(st.integers(0, 9))
        if kind == "r" and key not in taken:
            ends = [sorted((draw(ENDS), draw(ENDS))) for _ in range(dims)]
            low, high = tuple(low for low, _ in ends), tuple(high for _, high in ends)
            events.append(Register(key, low, high, draw(st.integers(1, 9))))
            taken.add(key)
        elif kind == "t":
            events.append(Terminate(key))
            taken.discard(key)
        elif kind == "e":
            value = tuple(float(draw(st.integers(0, 3))) for _ in range(dims))
            events.append(Element(value, draw(st.integers(1, 3))))
    return dims, events


def answers(index: Any, events: list[Event], size: int) -> tuple[Any, list[tuple[int, int, int]]]:
    """What an index gives in batches of a size, put away and taken up again between them; elements have one count."""
    found, begin, elements = [], 0, []
    for event in [*events, None]:
        at = len(elements)
        if isinstance(event, Register):
            index.register([event.id], [event.low], [event.high], event.threshold, at)
        elif isinstance(event, Terminate):
            index.terminate([event.id], at)
        elif isinstance(event, Element):
            elements.append(event)
        if len(elements) == size or event is None:
            index = type(index).restore(index.snapshot())
            values = np.array([element.value for element in elements]).reshape(-1, index.dims)
            matured = index.push(values, np.array([element.weight for element in elements], dtype=np.int64))
            found += zip(matured.id.tolist(), (matured.index + begin).tolist(), matured.total.tolist(), strict=True)
            begin, elements = begin + len(elements), []
    return index, found


@given(streams(), st.integers(1, 9))
def test_every_baseline_answers_what_the_definition_says(stream: tuple[int, list[Event]], size: int) -> None:
    dims, events = stream
    expected, totals = run(events)
    for kind in (kind for kind, all_dims in DIMS.items() if dims in all_dims):
        eager: Any = type(kind.__name__, (kind,), {"most_beside": 2})  # Builds its structure after every few queries.
        index, found = answers(eager(dims), events, size)
        assert found == expected
        assert len(index) == len(totals)
        asked = np.arange(10)
        assert index.progress(asked).tolist() == [totals.get(key, -1) for key in asked.tolist()]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dims", [1, 2])
def test_all_methods_agree_on_a_small_workload(mode: str, dims: int) -> None:
    workload = make(Setting(mode, dims, 2500, 20_000, elements=4000))
    index = ranges.INDEXES["RangeIndex"](dims)
    first = whole(index, workload, sampled=SAMPLED)
    assert first.whole
    assert first.matured[0].size > 100
    assert len(first.samples) >= 2
    assert first.operations == first.elements + 2 * first.registered - len(index)
    for name, method in (ranges.INDEXES | ranges.SCANS | ranges.TREES[dims]).items():
        assert alike(whole(method(dims), workload, size=100), first), name
    for name, method in (ranges.SCANS | ranges.TREES[dims]).items():
        guess = estimate(method, workload, first)
        assert guess["agrees"], name
        assert guess["alive_at"] == [sample.alive.size for sample in first.samples], name


def test_a_baseline_that_answers_something_else_is_seen() -> None:
    class Wrong(ScanPerElement):
        def push(self, values: Any, weights: Any = None) -> Any:
            return super().push(values, np.maximum(weights - 1, 1) if weights is not None else None)

    workload = make(Setting("static", 1, 500, 20_000))
    first = whole(ScanPerBatch(1), workload, sampled=SAMPLED)
    assert not estimate(Wrong, workload, first)["agrees"]
    assert not alike(whole(Wrong(1), workload), first)


def test_a_static_stream_gives_what_the_definition_says() -> None:
    w = make(Setting("static", 2, 100, 10_000))
    events: list[Event] = [
        Register(i, tuple(w.low[i]), tuple(w.high[i]), int(w.threshold[i])) for i in range(w.low.shape[0])
    ]
    ends: dict[int, list[int]] = {}
    for key, at in zip(w.terminate_id.tolist(), w.terminate_at.tolist(), strict=True):
        ends.setdefault(at, []).append(key)
    for i in range(w.weights.size):
        events += [Terminate(key) for key in ends.get(i, [])]
        events.append(Element(tuple(w.values[i]), int(w.weights[i])))
    done = whole(ScanPerElement(2), w, size=7)
    assert list(zip(*(column.tolist() for column in done.matured), strict=True)) == naive(events)
    assert done.operations == done.elements + 2 * 100


def test_workloads_follow_the_recipe() -> None:
    setting = Setting(dims=2, queries=20_000, threshold=200_000)
    w, again, other = make(setting), make(setting), make(setting._replace(seed=2))
    assert (w.values == again.values).all()
    assert not (w.low == other.low).all()
    assert set(np.unique(w.high - w.low)) == {31_623.0}
    assert w.low.min() >= 0
    assert w.high.max() <= DOMAIN
    assert ((w.low + w.high) / 2).mean() == pytest.approx(50_000, rel=0.01)
    assert (w.values.min() >= 0, w.values.max() <= DOMAIN) == (True, True)
    assert (w.values % 1 == 0).all()
    assert w.weights.min() >= 1
    assert w.weights.mean() == pytest.approx(100, rel=0.01)
    assert w.weights.std() == pytest.approx(15, rel=0.05)
    # Nine in ten end before the element at which they are expected to mature, the 20,000th.
    assert (w.terminate_at <= 20_000).sum() / 20_000 == pytest.approx(0.9, abs=0.01)
    assert (1 - ending(setting)) ** 20_000 == pytest.approx(0.1)


def test_ranges_shrink_and_have_real_ends_where_asked() -> None:
    w = make(Setting(queries=1000, threshold=2000, volume=1e-4, real=True))
    assert (w.high - w.low).ravel() == pytest.approx(10.0)
    assert np.unique(w.low).size == 1000
    assert np.unique(w.values).size == w.values.size


def test_a_fixed_load_stays_as_it_is() -> None:
    workload = make(Setting("fixed", 1, 400, 20_000, elements=6000))
    feed, index = Feed(workload), ScanPerBatch(1)
    name, arguments = feed.first()
    getattr(index, name)(*arguments)
    for begin in range(0, 6000, 1000):
        for name, arguments in feed.calls(begin, begin + 1000, 1000):
            matured = getattr(index, name)(*arguments)
        feed.took(matured.id)
        # Who matured is replaced at the beginning of the next batch.
        assert len(index) + feed.waiting.size == 400
    assert feed.registered > 1500


def test_stochastic_queries_come_in_the_first_two_thirds() -> None:
    workload = make(Setting("stochastic", 1, 100, 20_000, elements=9000, insert=0.25))
    assert workload.register_at[100:].max() < 6000
    assert workload.register_at.size == pytest.approx(100 + 1500, rel=0.1)
    begun = workload.register_at[workload.terminate_id]
    assert (workload.terminate_at > begun).all()


@pytest.mark.recordings
def test_trades_of_a_day_have_ranges_inside_its_prices() -> None:
    workload = trades("IBM", 200)
    assert (np.diff(workload.values[:, 0]) != 0).any()
    assert workload.low.min() >= workload.values.min() - 0.01
    assert (workload.low <= workload.high).all()
    first = whole(ScanPerBatch(1), workload)
    assert 0 < first.matured[0].size < 200
    assert alike(whole(IntervalTreeStab(1), workload), first)


def test_memory_counts_an_array_once() -> None:
    index = Baseline(1)
    before = state_bytes(index)
    index.extra = [np.zeros(100), None]  # type: ignore[attr-defined]
    index.view = index.extra[0][10:]  # type: ignore[attr-defined]
    assert 800 <= state_bytes(index) - before < 1000


def test_bars_say_what_was_reached() -> None:
    row = {"part": "static", "dims": 1, "agrees": True, "bytes_per_alive": [90.0]}
    runs = [row | {"method": "RangeIndex", "us_per_operation": 0.5}]
    runs.append(row | {"method": "interval tree", "us_per_operation": 40.0})
    found = {bar["what"].split(":")[0] + bar["what"][-20:]: bar["met"] for bar in bars(runs)}
    assert list(found.values()) == [True, False, True, True]


def test_quick_run_writes_results_and_plots_of_all_synthetic_parts(tmp_path: Path) -> None:
    file, parts = tmp_path / "ranges.json", set(ranges.PARTS) - {"trades"}
    assert ranges.main(["--quick", "--only", ",".join(parts), "--json", str(file), "--plots", str(tmp_path)]) == 0
    results = json.loads(file.read_text(encoding="utf-8"))
    assert {row["part"] for row in results["runs"]} == parts
    assert all(row["agrees"] for row in results["runs"] if "agrees" in row)
    assert {bar["met"] for bar in results["bars"]} <= {True, False}
    assert {file.name for file in tmp_path.glob("*.png")} == {f"ranges_figure_{n}.png" for n in (3, 4, 5, 6, 7, 8)}


@pytest.mark.recordings
def test_quick_run_writes_results_of_recorded_trades(tmp_path: Path) -> None:
    file = tmp_path / "ranges.json"
    assert ranges.main(["--quick", "--only", "trades", "--json", str(file)]) == 0
    runs = json.loads(file.read_text(encoding="utf-8"))["runs"]
    assert {row["part"] for row in runs} == {"trades"}
    assert all(row["agrees"] for row in runs if "agrees" in row)


def test_a_run_that_is_stopped_at_once_has_a_cost_per_operation() -> None:
    done = whole(ScanPerBatch(1), make(Setting(queries=200, threshold=20_000)), limit_s=0.0)
    assert not done.whole
    assert ranges.figures(done)["us_per_operation"] > 0
