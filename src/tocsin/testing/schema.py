"""Schema of a test file: a pydantic model of each of its mappings.

Checks, messages, the JSON Schema (`tocsin schema test`) and the reference page come from these models.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any

from tocsin.rules.compose import Node
from tocsin.rules.part import TEXT, Kind, Nested, Part, list_of, option

STATES = ("firing", "pending", "match")

RULE_FILES = Nested({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]})
WITNESS = Nested({"type": "object", "additionalProperties": TEXT})


class ExpectedOptions(Part):
    """Expected alert."""

    exp_labels: Annotated[dict[str, Any] | None, Kind("map")] = option(
        "all labels except `alertname`: key columns, labels of the rule and of its group"
    )
    exp_annotations: Annotated[dict[str, Any] | None, Kind("map")] = option("all annotations, with rendered templates")
    exp_state: Annotated[str | None, Kind("word", words=STATES)] = option(
        "state of the alert; default: `firing`, with `emit: all` `match`"
    )
    exp_value: Annotated[float | None, Kind("number")] = option("its value")
    exp_margin: Annotated[float | None, Kind("number")] = option("its margin")
    exp_starts_at: Annotated[timedelta | None, Kind("duration")] = option("start of the alert, counted from time 0")
    exp_witness: Annotated[Node | None, WITNESS] = option("values of the witness, as in `{air: 21, surface.temp: 4}`")


class CaseOptions(Part):
    """Expected alerts of a rule at a time."""

    eval_time: Annotated[timedelta | None, Kind("duration")] = option(
        "evaluation time, counted from time 0", required=True
    )
    alertname: Annotated[str | None, Kind("text")] = option("name of the alert", required=True)
    exp_alerts: Annotated[Node | None, list_of(ExpectedOptions)] = option(
        "the alerts that fire at that time; empty if no alert fires"
    )


class SeriesOptions(Part):
    """Samples of a stream."""

    series: Annotated[str | None, Kind("text")] = option(
        'a stream and its key columns: `air{machine="m1"}`, or `air.temp{...}`', required=True
    )
    values: Annotated[str | None, Kind("text")] = option("samples in the expanding notation of promtool", required=True)
    delay: Annotated[str | None, Kind("text")] = option("delay of the arrival of each sample", default="0s")


class TestOptions(Part):
    """Test."""

    name: Annotated[str | None, Kind("text")] = option(
        "name of the test, for messages and `--run`; default: `test` and its number"
    )
    interval: Annotated[timedelta | None, Kind("duration", least=1)] = option(
        "time between the samples of a series; default: `evaluation_interval`"
    )
    start_timestamp: Annotated[str | None, Kind("text")] = option(
        "time 0, in Unix seconds or as in RFC 3339", default="0"
    )
    input_series: Annotated[Node | None, list_of(SeriesOptions)] = option(
        "the samples; a stream without a series has no rows"
    )
    alert_rule_test: Annotated[Node | None, list_of(CaseOptions)] = option(
        "expected alerts at given times", required=True
    )


class TestFileOptions(Part):
    """Test file."""

    rule_files: Annotated[Node | None, RULE_FILES] = option(
        "rule files, relative to the directory of the test file; `*` and `?` are wildcards", required=True
    )
    evaluation_interval: Annotated[timedelta | None, Kind("duration", least=1)] = option(
        "default of `interval`; it has no other effect", default="1m"
    )
    fuzzy_compare: Annotated[str | None, Kind("word", words=("true", "false"))] = option(
        "accept relative differences of numbers up to 1e-9", default="false"
    )
    tests: Annotated[Node | None, list_of(TestOptions)] = option("the tests", required=True)


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

PARTS: Mapping[str, type[Part]] = {
    "file": TestFileOptions,
    "tests": TestOptions,
    "input_series": SeriesOptions,
    "alert_rule_test": CaseOptions,
    "exp_alerts": ExpectedOptions,
}
