"""The intermediate representation against lists: zones, granularities, summaries, what is kept and what goes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from naive import promising as naive
from tocsin.jit import enabled
from tocsin.stages.promising.count_sketch import CountSketch, hash_numbers
from tocsin.stages.promising.exact_counter import ExactCounter
from tocsin.stages.promising.histogram import Histogram
from tocsin.stages.promising.layout import Layout
from tocsin.stages.promising.representation import Representation, bucket_all
from tocsin.stages.promising.stored import HEAD, NEXT, NODE, OLDEST, SHED, ZONES

SKETCH = CountSketch(3, 8, 5)
NUMBERS = hash_numbers(3, 5).tolist()


def confidence(values: list[int]) -> float:
    """That of the sketch, from its definition."""
    table = naive.sketch(values, NUMBERS, 8)
    squares = sum(count**2 for row in table for count in row)
    return 1 / (1 + sqrt(squares / 3 / 8)) if values else 1.0


@st.composite
def layouts(draw: st.DrawFn, scheme: Any = SKETCH) -> Layout:
    window = draw(st.sampled_from([None, 0, 5, 20, 100]))
    return Layout(
        variant=draw(st.sampled_from(["T2", "T3", "T4", "T4"])),
        granularity_us=draw(st.sampled_from([1, 4, 10])),
        rate=draw(st.integers(1, 3)),
        depth=draw(st.integers(1, 3)),
        window_us=window,
        memory=draw(st.integers(1, 30)) if window is None or draw(st.booleans()) else None,
        buckets=draw(st.integers(1, 4)),
        zones=draw(st.integers(1, 4)),
        theta=draw(st.sampled_from([0.0, 0.3, 0.5, 1.0])),
        max_length_us=draw(st.sampled_from([None, 1, 3, 50])),
        scheme=scheme,
    )


# As many values as make the table of an exact counter grow.
arrivals = st.lists(st.tuples(st.integers(0, 6) | st.integers(0, 40), st.sampled_from([0, 0, 1, 1, 2, 7])), max_size=60)


def oracle(layout: Layout) -> naive.Stream:
    limits = layout.limits()
    return naive.Stream(
        zone_us=limits.zone_us, zones=limits.zones, rate=limits.rate, grain_us=limits.grain_us.tolist(),
        theta=layout.theta if layout.variant == "T4" else 0.0,
        window_us=limits.window_us, memory=limits.memory, confidence=confidence,
    )  # fmt: skip


@given(layouts(), arrivals)
def test_every_tuple_finds_the_state_of_the_definition(layout: Layout, given_: Any) -> None:
    plain, stream, time = oracle(layout), Representation(layout), 0
    for number, (key, step) in enumerate(given_):
        time += step
        plain.insert(key, time)
        stream.insert(np.array([key]), np.array([time]), np.array([number]))
        stream.check()
        wanted = [(zone[0], [n for n in zone[3] if n in plain.alive]) for zone in plain.zones]
        assert stream.zones() == wanted
        nodes = stream.stored.zone[: stream.stored.facts[ZONES], NODE]
        for node, zone in zip(nodes.tolist(), plain.zones, strict=True):
            values = [plain.tuples[n][0] for n in zone[3]]
            assert stream.stored.tables[node].tolist() == naive.sketch(values, NUMBERS, 8)
        assert stream.stored.facts[OLDEST] == (plain.alive[0] if plain.alive else number + 1)
        assert len(nodes) <= layout.most_zones - 1


def alone(layout: Layout) -> Representation:
    """A stream whose scheme learns from no other one."""
    return Representation(replace(layout, scheme=layout.scheme.fresh()))


@given(st.one_of(layouts(), layouts(ExactCounter())), arrivals, st.integers(1, 20))
def test_no_cut_into_batches_and_no_page_shows(layout: Layout, given_: Any, size: int) -> None:
    keys = np.array([key for key, _ in given_], np.int64)
    times = np.cumsum([step for _, step in given_], dtype=np.int64)
    whole, cut = alone(layout), alone(layout)
    whole.insert(keys, times, np.arange(len(keys)))
    for begin in range(0, len(keys), size):
        part = slice(begin, begin + size)
        cut.insert(keys[part], times[part], np.arange(len(keys))[part])
        page, cut = cut.page(), alone(layout)
        cut.read(page)
    cut.check()
    assert cut.page() == whole.page()


@given(layouts(), arrivals)
def test_the_tuples_of_a_cell_are_found_along_its_bucket(layout: Layout, given_: Any) -> None:
    stream = Representation(layout)
    keys = np.array([key for key, _ in given_], np.int64)
    stream.insert(keys, np.cumsum([step for _, step in given_], dtype=np.int64), np.arange(len(keys)))
    stored, buckets = stream.stored, bucket_all(keys, layout.parts)
    nodes = stored.zone[: stored.facts[ZONES], NODE].tolist()
    for node, (_, numbers) in zip(nodes, stream.zones(), strict=True):
        for bucket in range(layout.parts):
            first, head = int(stored.first[node, bucket]), int(stored.ends[bucket, HEAD])
            at = max(first, head) if first >= 0 else -1
            found = []
            while at >= 0 and at <= numbers[-1]:
                found.append(at)
                at = int(stored.tuples[at % len(stored.tuples), NEXT])
            assert found == [number for number in numbers if buckets[number] == bucket]


def test_a_change_of_behaviour_ends_a_zone() -> None:
    # 40 values once each, then one value again and again: the sum of squares jumps.
    keys = np.concatenate([np.arange(40), np.full(60, 7)])
    layout = Layout(theta=0.4, zones=50, max_length_us=10**9, scheme=CountSketch(5, 64))
    stream = Representation(layout)
    stream.insert(keys, np.arange(100) * 1000, np.arange(100))
    zones = stream.zones()
    assert len(zones[0][1]) > 40
    assert all(len(numbers) < 20 for _, numbers in zones[1:])


@pytest.mark.skipif(not enabled(), reason="300,000 tuples are too many for plain Python")
@pytest.mark.parametrize("scheme", [CountSketch(5, 256), Histogram(0, 1000, 50), ExactCounter()])
def test_memory_stays_as_declared_over_a_long_stream(scheme: Any) -> None:
    layout = Layout(granularity_us=1_000, rate=3, depth=3, window_us=20_000, zones=6, theta=0.2, scheme=scheme)
    stream, rng, most = Representation(layout), np.random.default_rng(1), 0
    for begin in range(0, 300_000, 30_000):
        keys = rng.zipf(1.3, 30_000) % 1000
        stream.insert(keys, np.arange(begin, begin + 30_000), np.arange(begin, begin + 30_000))
        most = max(most, stream.size)
        summaries = sum(getattr(stream.stored, name).nbytes for name in ("tables", "first"))
        assert summaries <= layout.summary_bytes
        stream.check()
    # 20,000 tuples of the window and the 8,192 of a block fit into 2^15 slots.
    per_tuple = 8 * (6 + scheme.rows)
    assert most <= layout.summary_bytes + (1 << 15) * per_tuple + 10_000


def test_a_whole_stream_is_kept_as_far_as_memory_goes() -> None:
    layout = Layout(window_us=None, memory=100, scheme=SKETCH)
    stream = Representation(layout)
    stream.insert(np.arange(250), np.arange(250), np.arange(250))
    assert (stream.stored.facts[OLDEST], stream.stored.facts[SHED]) == (150, 150)
    assert not layout.exact
    assert Layout().exact


def test_a_page_has_what_an_exact_counter_learnt() -> None:
    stream, back = (Representation(Layout(scheme=ExactCounter())) for _ in range(2))
    for part in (slice(0, 70), slice(70, 100)):
        back.read(stream.page())
        for one in (stream, back):
            one.insert((np.arange(100)[part] * 7) % 40, np.arange(100)[part], np.arange(100)[part])
    assert back.page() == stream.page()
    counts, scheme, top = (
        Counter((number * 7) % 40 for number in range(100)),
        back.layout.scheme,
        back.stored.tables[-1],
    )
    places = scheme.places(np.arange(41), learn=False)[:, 0]
    assert top[0, places].tolist() == [counts[value] for value in range(41)]


def test_t1_has_no_summaries() -> None:
    layout = Layout("T1")
    stream = Representation(layout)
    stream.insert(np.arange(50), np.arange(50), np.arange(50))
    stream.check()
    assert (layout.summary_bytes, stream.stored.tables.size, stream.zones()) == (0, 0, [])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"variant": "T5"}, "`variant` must be one of SHJ, T1, T2, T3, T4; got 'T5'"),
        ({"rate": 0}, "`rate` must be at least 1; got 0"),
        ({"theta": 1.5}, "`theta` must be a confidence from 0 to 1; got 1.5"),
        ({"window_us": None}, "needs `memory`, the largest number of retained tuples; the result is then not exact"),
        ({"memory": 0}, "`memory` must be at least 1; got 0"),
        ({"window_us": -1}, "`window_us` must be at least 0; got -1"),
    ],
)
def test_what_cannot_be_meant_is_refused(settings: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Layout(**settings)


def test_times_that_fall_are_refused() -> None:
    stream = Representation(Layout(scheme=SKETCH))
    with pytest.raises(ValueError, match="`times` must not decrease: sort the rows first; row 2 has 4"):
        stream.insert(np.zeros(3, np.int64), np.array([5, 6, 4]), np.arange(3))
    stream.insert(np.zeros(1, np.int64), np.array([9]), np.arange(1))
    with pytest.raises(ValueError, match="row 0 has 8"):
        stream.insert(np.zeros(1, np.int64), np.array([8]), np.arange(1))
