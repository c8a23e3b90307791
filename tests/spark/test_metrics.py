"""Metrics: one table for code and page, and numbers that are those of the progress."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs pyspark: install tocsin[spark]")

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from spark.child import free_port
from tocsin import NoData, Rule
from tocsin.errors import RunError
from tocsin.plan import Plan, make_plan
from tocsin.run_directory import Progress, Tally
from tocsin.runtime.metrics import METRICS
from tocsin.spark.metrics import Meter
from tocsin.spark.metrics_server import serve_metrics

COLUMNS = {"air": ["machine", "ts", "temp", "hum"], "oil": ["machine", "ts", "value"]}
SINKS = {"webhook-1": {"delivered": 3, "retries": 2, "rejected": 1, "pending": 7, "failing": True}}
PROGRESS = Progress(
    4,
    "2026-01-01T00:00:00.500000Z",
    Tally(rows={"air": 5}, batches=1),
    Tally(
        rows={"air": 50, "oil": 9},
        counts={"air": {"received": 50, "retained": 8, "omitted": 40, "late": 2}, "oil": {"received": 9, "held": 9}},
        alerts={'Hot "one"': {"firing": 3, "resolved": 1}},
        dead={"oil": 4},
        state_bytes=1234,
        batches=5,
        unreadable={"air": 1},
        delays={"air": {"12": 3}},
        dropped_results={"Damp": 6},
        newest_us={"air": 1_500_000},
        waits={'Hot "one"': {"wait_us": 2_500_000, "recall": 0.97}, "Damp": {"wait_us": 0, "recall": None}},
        cpu={"Damp": {"rows": None, "results": 0.75}, 'Hot "one"': {"rows": 0.25, "results": 0.5}},
        shares={"Damp": 5000},
        memory={
            "Damp": {"predicted": 0.9, "predicted_low": 0.8, "predicted_high": 0.95, "reached": 0.875},
            'Hot "one"': {"predicted": None, "reached": 0.5, "error_predicted": 0.02, "error_reached": 0.03},
        },
    ),
)
EXPORTED = {metric.public_name: metric for metric in METRICS if metric.exported}


def numbers(meter: Meter) -> dict[tuple[str, tuple[str, ...]], float]:
    text = generate_latest(meter.registry).decode()
    families = list(text_string_to_metric_families(text))
    assert len({family.name for family in families}) == len(families)
    return {(s.name, tuple(s.labels.values())): s.value for family in families for s in family.samples}


def test_exposition_has_the_names_types_labels_and_help_of_the_table() -> None:
    meter = Meter(lambda: SINKS, PROGRESS, Plan(()), lambda: {"air": False})
    meter.seconds.observe(0.3)
    families = text_string_to_metric_families(generate_latest(meter.registry).decode())
    found = {family.name + "_total" * (family.type == "counter"): family for family in families}
    found.pop("tocsin_batch_seconds_created")  # The client library adds the start time of each histogram.
    assert found.keys() == EXPORTED.keys()
    for name, metric in EXPORTED.items():
        family = found[name]
        assert (family.type, family.documentation) == (metric.kind, metric.help)
        labels = {frozenset(sample.labels.keys() - {"le"}) for sample in family.samples}
        assert labels == {frozenset(metric.labels)}


def test_names_follow_the_rules_of_prometheus() -> None:
    for name, metric in EXPORTED.items():
        assert re.fullmatch(r"tocsin_[a-z_]+", name)
        assert name.endswith("_total") == (metric.kind == "counter")
        assert metric.help[0].islower() or metric.help[0].isdigit()


def test_metric_names_are_the_words_of_the_glossary() -> None:
    rows = {"buffered", "out_of_order_total", "late_dropped_total", "dead_letter_total"}
    names = {f"rows_{name}" for name in rows} | {"keys_expired_total", "memory_recall_measured"}
    names |= {"cpu_rows_processed_ratio", "cpu_recall_ratio"}
    assert {f"tocsin_{name}" for name in names} <= EXPORTED.keys()


def test_every_metric_is_served_with_the_numbers_of_the_progress() -> None:
    meter = Meter(lambda: SINKS, None, Plan(()), lambda: {"air": False, "oil": True})
    assert {name for name, _ in numbers(meter)} >= {"tocsin_build_info", "tocsin_sink_backlog"}
    meter.progress = PROGRESS
    meter.seconds.observe(0.3)
    found = numbers(meter)
    assert EXPORTED.keys() <= {name.removesuffix("_count") for name, _ in found}
    wanted: dict[tuple[str, tuple[str, ...]], float] = {
        ("tocsin_rows_received_total", ("air",)): 50,
        ("tocsin_rows_retained", ("air",)): 8,
        ("tocsin_rows_omitted_total", ("air",)): 40,
        ("tocsin_rows_omitted_total", ("oil",)): 0,
        ("tocsin_rows_buffered", ("oil",)): 9,
        ("tocsin_rows_dead_letter_total", ("oil",)): 4,
        ("tocsin_alerts_total", ('Hot "one"', "firing")): 3,
        ("tocsin_alerts_firing", ('Hot "one"',)): 2,
        ("tocsin_batches_total", ()): 5,
        ("tocsin_batch_rows", ()): 5,
        ("tocsin_batch_seconds_count", ()): 1,
        ("tocsin_state_bytes", ()): 1234,
        ("tocsin_newest_event_timestamp_seconds", ("air",)): 1.5,
        ("tocsin_wait_seconds", ('Hot "one"',)): 2.5,
        ("tocsin_wait_seconds", ("Damp",)): 0,
        ("tocsin_late_results_dropped_total", ("Damp",)): 6,
        ("tocsin_recall_estimated", ('Hot "one"',)): 0.97,
        ("tocsin_memory_recall_predicted", ("Damp",)): 0.9,
        ("tocsin_memory_recall_predicted_low", ("Damp",)): 0.8,
        ("tocsin_memory_recall_predicted_high", ("Damp",)): 0.95,
        ("tocsin_memory_recall_measured", ("Damp",)): 0.875,
        ("tocsin_memory_recall_measured", ('Hot "one"',)): 0.5,
        ("tocsin_cpu_rows_processed_ratio", ('Hot "one"',)): 0.25,
        ("tocsin_cpu_recall_ratio", ("Damp",)): 0.75,
        ("tocsin_cpu_recall_ratio", ('Hot "one"',)): 0.5,
        ("tocsin_memory_error_predicted", ('Hot "one"',)): 0.02,
        ("tocsin_memory_error_reached", ('Hot "one"',)): 0.03,
        ("tocsin_source_up", ("air",)): 0,
        ("tocsin_source_up", ("oil",)): 1,
        ("tocsin_sink_delivered_total", ("webhook-1",)): 3,
        ("tocsin_sink_failures_total", ("webhook-1",)): 2,
        ("tocsin_sink_backlog", ("webhook-1",)): 7,
        ("tocsin_sink_failing", ("webhook-1",)): 1,
    }
    assert {key: found.get(key) for key in wanted} == wanted
    assert found["tocsin_lag_seconds", ("air",)] > 1e9


def test_metrics_have_no_lag_when_a_stream_holds_history() -> None:
    meter = Meter(dict, replace(PROGRESS, historic=("air",)), Plan(()))
    found = numbers(meter)
    assert found["tocsin_newest_event_timestamp_seconds", ("air",)] == 1.5
    assert ("tocsin_lag_seconds", ("air",)) not in found


def test_what_a_plan_will_count_is_nought_before_the_first_row_and_adds_nothing_later() -> None:
    rules = [
        Rule("Hot", "air.temp > 40", on="machine", for_="1m"),
        Rule("Damp", "air.hum > 40", on="machine"),
        Rule("Pair", "air.temp > oil", on="machine", within="5s", emit="all"),
        NoData("oil", "5m", on="machine"),
    ]
    meter = Meter(dict, None, make_plan(rules, COLUMNS))
    found = numbers(meter)
    noughts = {key for key, number in found.items() if number == 0}
    states = {("Hot", state) for state in ("pending", "inactive", "firing", "resolved")}
    states |= {
        ("Damp", "firing"),
        ("Damp", "resolved"),
        ("Pair", "match"),
        ("NoData", "firing"),
        ("NoData", "resolved"),
    }
    assert {labels for name, labels in noughts if name == "tocsin_alerts_total"} == states
    assert {labels for name, labels in noughts if name == "tocsin_rows_received_total"} == {("air",), ("oil",)}
    assert {labels for name, labels in noughts if name == "tocsin_rows_late_dropped_total"} >= {("air(hum)",), ("oil",)}
    assert ("tocsin_batches_total", ()) in noughts
    # When the last micro-batch was is not known before there was one.
    assert not {"tocsin_batch_timestamp_seconds", "tocsin_lag_seconds"} & {name for name, _ in found}
    meter.note(PROGRESS)
    after = numbers(meter)
    assert after["tocsin_rows_received_total", ("oil",)] == 9
    assert after["tocsin_alerts_total", ('Hot "one"', "firing")] == 3
    assert after["tocsin_alerts_total", ("Hot", "firing")] == 0


def test_the_endpoint_is_there_while_it_is_served_and_a_busy_port_is_one_sentence() -> None:
    meter, port = Meter(dict, PROGRESS, Plan(())), free_port()
    with serve_metrics(meter.registry, "127.0.0.1", port):
        assert b"tocsin_state_bytes 1234.0" in _get(port)
        with pytest.raises(
            RunError, match=f"`--metrics-port` {port} cannot be opened on 127.0.0.1; address already in use"
        ):
            serve_metrics(meter.registry, "127.0.0.1", port).__enter__()
    with pytest.raises(urllib.error.URLError):
        _get(port)
    with serve_metrics(meter.registry, "127.0.0.1", 0), pytest.raises(urllib.error.URLError):
        _get(port)


def _get(port: int) -> Any:
    return urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read()
