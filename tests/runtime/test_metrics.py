"""Metrics: merge rules as laws, sections, and outcomes that add up to the received rows."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.runtime.contract import Out
from tocsin.runtime.metrics import (
    BY_NAME,
    METRICS,
    OUTCOMES,
    LatestMetrics,
    Merge,
    Metrics,
    RowOutcome,
    Unit,
)

STORED = [metric for metric in METRICS if metric.place]
LABELS = st.sampled_from(["air", "a/b", "*", ""])


@st.composite
def recorded(draw: st.DrawFn) -> Metrics:
    """Draw metrics as one bucket records them."""
    metrics = Metrics()
    for metric in draw(st.lists(st.sampled_from(STORED), max_size=6)):
        # Sums of these fractions are exact, so that their order does not matter.
        ratio = st.none() | st.integers(-8, 8).map(lambda eighths: eighths / 8)
        value = draw(ratio if metric.unit is Unit.RATIO else st.integers(-9, 9))
        metrics.record(metric.name, value, *(draw(LABELS) for _ in metric.labels))
    return metrics


def merged(*parts: Metrics) -> Metrics:
    whole = Metrics()
    for part in parts:
        whole.merge(part)
    return whole


def advanced(*parts: Metrics) -> Metrics:
    whole = Metrics()
    for part in parts:
        whole.advance(part)
    return whole


@given(recorded(), recorded(), recorded())
def test_merge_over_buckets_is_commutative_and_associative(one: Metrics, two: Metrics, three: Metrics) -> None:
    assert merged(one, two) == merged(two, one)
    assert merged(merged(one, two), three) == merged(one, merged(two, three))
    assert merged(one, Metrics()) == one


@given(recorded(), recorded(), recorded())
def test_merge_over_time_is_associative(one: Metrics, two: Metrics, three: Metrics) -> None:
    assert advanced(advanced(one, two), three) == advanced(one, advanced(two, three))
    assert advanced(one, Metrics()) == one == advanced(Metrics(), one)


@given(recorded())
def test_metrics_are_read_from_their_json(metrics: Metrics) -> None:
    assert Metrics(**json.loads(json.dumps(metrics.to_json()))) == metrics
    assert Metrics(**json.loads(json.dumps(metrics.to_json()))).to_json() == metrics.to_json()


@pytest.mark.parametrize(
    ("rule", "values", "expected"),
    [
        (Merge.SUM, (3, 4), 7),
        (Merge.LATEST, (3, 4), 4),
        (Merge.MIN, (3, 4), 3),
        (Merge.MIN, (math.nan, 4), 4),
        (Merge.MIN, (3, math.nan), 3),
        (Merge.MAX, (3, math.nan), 3),
        (Merge.MAX_OF_ALL, (3, 4), 4),
        (Merge.MIN_OF_ALL, (3, 4), 3),
        (Merge.MIN_OF_ALL, (math.nan, 4), None),
        (Merge.MAX_OF_ALL, (3, math.nan), None),
    ],
)
def test_merge_rule_handles_unknown_values(rule: Merge, values: tuple[float, float], expected: float | None) -> None:
    found = rule.apply(*values)
    assert found == expected if expected is not None else math.isnan(found)


def test_each_metric_has_its_own_name_and_place() -> None:
    assert len(BY_NAME) == len(METRICS)
    places = [metric.place for metric in STORED]
    assert len(set(places)) == len(places)
    for metric in STORED:
        assert metric.place.split("/").count("*") == len(metric.labels)
    assert len({metric.exported for metric in METRICS if metric.exported}) == sum(bool(m.exported) for m in METRICS)


def test_each_row_outcome_is_a_metric() -> None:
    assert [outcome.label for outcome in RowOutcome] == list(OUTCOMES)
    assert all(BY_NAME[outcome.label].place == f"counts/*/{outcome.label}" for outcome in RowOutcome)


@given(
    st.lists(
        st.tuples(LABELS, st.dictionaries(st.sampled_from(RowOutcome), st.integers(-5, 9), max_size=3)), max_size=6
    )
)
def test_received_rows_are_the_sum_of_the_outcomes(changes: list[tuple[str, dict[RowOutcome, int]]]) -> None:
    out = Out()
    for stream, outcomes in changes:
        out.metrics.count_rows(stream, outcomes)
    assert set(out.counts) == {stream for stream, _ in changes}
    for counts in out.counts.values():
        assert counts["received"] == sum(counts.get(outcome, 0) for outcome in OUTCOMES)


def test_latest_values_of_a_bucket_remain_valid_when_other_buckets_are_called() -> None:
    def quality(**values: Any) -> Metrics:
        return Metrics(cpu={"pair": values})

    latest = LatestMetrics()
    latest.receive(1, quality(rows=0.5, results=0.25))
    latest.receive(2, quality(rows=0.75, results=None))
    latest.receive(2, Metrics(memory={"kept": {"predicted": 0.9, "reached": 0.8}}, rows={"air": 5}))
    assert latest.merged().to_json() == {
        "memory": {"kept": {"predicted": 0.9, "reached": 0.8}},
        "cpu": {"pair": {"rows": 0.5, "results": 0.25}},
    }
    latest.receive(2, quality(rows=0.25, results=0.5))
    assert latest.merged().section("cpu") == {"pair": {"rows": 0.25, "results": 0.25}}
    latest.receive(1, quality(rows=1.0, results=1.0))
    assert latest.merged().section("cpu") == {"pair": {"rows": 0.25, "results": 0.5}}
    latest.receive(3, Metrics(memory={"kept": {"predicted": None, "reached": 0.9}}))
    assert latest.merged().section("memory") == {"kept": {"predicted": None, "reached": 0.8}}


def test_recalls_are_unknown_without_results() -> None:
    metrics = Metrics(waits={name: {"wait_us": 5, "recall": 0.5} for name in ("Hot", "Cold")})
    metrics.drop_recalls({"Hot"})
    assert metrics.section("waits") == {
        "Hot": {"wait_us": 5, "recall": 0.5},
        "Cold": {"wait_us": 5, "recall": None},
    }
    assert list(metrics.items("wait_recall")) == [(("Hot",), 0.5)]


@given(recorded())
def test_prefix_marks_the_metrics_with_labels(metrics: Metrics) -> None:
    prefixed = metrics.with_prefix("0:")
    prefixed.merge(Metrics(rows={"1:air": 9}))
    labelled = {metric.place.split("/")[0] for metric in METRICS if metric.labels}
    expected = {name: section for name, section in metrics.to_json().items() if name in labelled}
    assert prefixed.without_prefix("0:").to_json() == expected


@pytest.mark.parametrize(
    "sections",
    [{"rows": 5}, {"rows": {"air": 1.5}}, {"rows": {"air": True}}, {"rows": {"air": None}}, {"batches": 1 << 63},
     {"counts": {"air": {"held": "1"}}}, {"cpu": {"pair": {"rows": math.inf}}}, {"cpu": {"pair": 1}}],
)  # fmt: skip
def test_invalid_values_are_rejected(sections: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must be (an object|an integer|a finite number)"):
        Metrics(**sections)
