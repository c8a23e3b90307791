"""Fields of a test file: one table per part. Checks, messages and the reference page use these tables."""

from __future__ import annotations

from collections.abc import Mapping

from tocsin.rules.options import Field

STATES = ("firing", "pending", "match")

FILE = (
    Field(
        "rule_files",
        "part",
        "rule files, relative to the directory of the test file; `*` and `?` are wildcards",
        required=True,
    ),
    Field("evaluation_interval", "duration", "default of `interval`; it has no other effect", default="1m", least=1),
    Field(
        "fuzzy_compare",
        "word",
        "accept relative differences of numbers up to 1e-9",
        default="false",
        words=("true", "false"),
    ),
    Field("tests", "part", "the tests", required=True),
)
TEST = (
    Field("name", "text", "name of the test, for messages and `--run`; default: `test` and its number"),
    Field("interval", "duration", "time between the samples of a series; default: `evaluation_interval`", least=1),
    Field("start_timestamp", "text", "time 0, in Unix seconds or as in RFC 3339", default="0"),
    Field("input_series", "part", "the samples; a stream without a series has no rows"),
    Field("alert_rule_test", "part", "expected alerts at given times", required=True),
)
SERIES = (
    Field("series", "text", 'a stream and its key columns: `air{machine="m1"}`, or `air.temp{...}`', required=True),
    Field("values", "text", "samples in the expanding notation of promtool", required=True),
    Field("delay", "text", "delay of the arrival of each sample", default="0s"),
)
CASE = (
    Field("eval_time", "duration", "evaluation time, counted from time 0", required=True),
    Field("alertname", "text", "name of the alert", required=True),
    Field("exp_alerts", "part", "the alerts that fire at that time; empty if no alert fires"),
)
ALERT = (
    Field("exp_labels", "map", "all labels except `alertname`: key columns, labels of the rule and of its group"),
    Field("exp_annotations", "map", "all annotations, with rendered templates"),
    Field("exp_state", "word", "state of the alert; default: `firing`, with `emit: all` `match`", words=STATES),
    Field("exp_value", "number", "its value"),
    Field("exp_margin", "number", "its margin"),
    Field("exp_starts_at", "duration", "start of the alert, counted from time 0"),
    Field("exp_witness", "part", "values of the witness, as in `{air: 21, surface.temp: 4}`"),
)

# Keys of promtool that Tocsin does not support, and their replacement.
UNSUPPORTED: Mapping[str, Mapping[str, str]] = {
    "file": {
        "group_eval_order": "groups have no evaluation order, because rules do not read each other; remove it",
    },
    "test": {
        "promql_expr_test": "there are no recording rules; test the alert with `exp_value`, `exp_margin` and "
        "`exp_witness` of `alert_rule_test`",
        "expr_test": "test the expression through its alert, with `exp_value`, `exp_margin` and `exp_witness` of "
        "`alert_rule_test`",
        "external_labels": "alerts have the labels of their rule, its group and its keys; remove it",
        "external_url": "templates have no URL; remove it",
    },
}

TABLES: Mapping[str, tuple[Field, ...]] = {
    "file": FILE,
    "tests": TEST,
    "input_series": SERIES,
    "alert_rule_test": CASE,
    "exp_alerts": ALERT,
}
