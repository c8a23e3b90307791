"""What a test file may say: one table per part of it, from which checks, messages and the reference page are made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tocsin.rules.options import Field, markdown

STATES = ("firing", "pending", "match")

FILE = (
    Field("rule_files", "part", "rule files, from the folder of this file; `*` and `?` match", required=True),
    Field("evaluation_interval", "duration", "the default of `interval`; nothing else", default="1m", least=1),
    Field(
        "fuzzy_compare",
        "word",
        "let numbers differ by a billionth of their size",
        default="false",
        words=("true", "false"),
    ),
    Field("tests", "part", "the tests", required=True),
)
TEST = (
    Field("name", "text", "name of the test, for messages and `--run`; default: `test` and its number"),
    Field("interval", "duration", "time between the samples of a series; default: `evaluation_interval`", least=1),
    Field("start_timestamp", "text", "time 0, in Unix seconds or as in RFC 3339", default="0"),
    Field("input_series", "part", "the samples; a stream without any has no rows"),
    Field("alert_rule_test", "part", "what is expected, and when", required=True),
)
SERIES = (
    Field("series", "text", 'a stream and its key columns: `air{machine="m1"}`, or `air.temp{...}`', required=True),
    Field("values", "text", "samples in expanding notation", required=True),
    Field("delay", "text", "how much later than its time each sample arrives", default="0s"),
)
CASE = (
    Field("eval_time", "duration", "when, counted from time 0", required=True),
    Field("alertname", "text", "which alert", required=True),
    Field("exp_alerts", "part", "the alerts firing at that time; nothing: none"),
)
ALERT = (
    Field("exp_labels", "map", "all labels but `alertname`: key columns, the rule's, its group's"),
    Field("exp_annotations", "map", "all annotations, templates filled in"),
    Field("exp_state", "word", "state of the alert; default: `firing`, with `emit: all` `match`", words=STATES),
    Field("exp_value", "number", "its value"),
    Field("exp_margin", "number", "its margin"),
    Field("exp_starts_at", "duration", "when its life began, counted from time 0"),
    Field("exp_witness", "part", "values of the witness, as in `{air: 21, surface.temp: 4}`"),
)

# Keys of promtool that have no meaning here, and what to use instead.
REFUSED: Mapping[str, Mapping[str, str]] = {
    "file": {
        "group_eval_order": "rules read streams and not each other, so groups have no order; leave it out",
    },
    "test": {
        "promql_expr_test": "there are no recording rules; test the alert, with `exp_value`, `exp_margin` and "
        "`exp_witness` of `alert_rule_test`",
        "expr_test": "an expression is tested by its alert, with `exp_value`, `exp_margin` and `exp_witness` of "
        "`alert_rule_test`",
        "external_labels": "alerts have the labels of their rule, its group and its keys; leave it out",
        "external_url": "templates know no URL; leave it out",
    },
}

TABLES: Mapping[str, tuple[Field, ...]] = {
    "file": FILE,
    "tests": TEST,
    "input_series": SERIES,
    "alert_rule_test": CASE,
    "exp_alerts": ALERT,
}


def sections() -> Iterator[tuple[str, str]]:
    """Give every table of the reference page, with its title."""
    for title, fields in TABLES.items():
        yield title, markdown(fields)
