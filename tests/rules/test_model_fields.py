"""The fields of a rule that files brought: annotations, recovery, limits; and where a mistake says it is."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from tocsin import Rule, RuleError
from tocsin.rules import Limits

TABLE = Limits("limits.csv", ("machine", "site"), ("most",), {("p1", "north"): (5.0,)})
PLACE = 'rule "hot": '
# What is given, the sentence, and the path to the field.
REFUSED: dict[str, tuple[dict[str, Any], str, tuple[object, ...]]] = {
    "annotations that are no mapping": (
        {"annotations": "x"}, "`annotations` must map names to settings", ("annotations",)),
    "a misnamed annotation": (
        {"annotations": {"a-b": "x"}}, "annotation names must look like `summary_1`; got 'a-b'",
        ("annotations", "a-b", "name")),
    "an annotation that is no text": (
        {"annotations": {"a": 5}}, "`annotations['a']` must be text; got 5", ("annotations", "a")),
    "a template that cannot be read": (
        {"annotations": {"a": "x {{ y }}"}}, "`annotations['a']`: a template must name", ("annotations", "a")),
    "a template with an unknown label": (
        {"annotations": {"a": "{{ $labels.site }}"}},
        "`annotations['a']` must name labels of the alert; got `$labels.site`", ("annotations", "a")),
    "a reserved label": (
        {"labels": {"alertname": "x"}}, "label and key names must not be alertname or alertstate, nor begin with `__`",
        ("labels", "alertname", "name")),
    "a reserved key": ({"on": ["__name__"]}, "label and key names must not be alertname", ("on", "__name__")),
    "a value in a label": (
        {"labels": {"a": "{{ $value }}"}}, "label 'a' must be plain text: a value would",
        ("labels", "a")),
    "a value behind a pipe in a label": (
        {"labels": {"a": '{{ printf "%.1f" $values.a }}'}}, "label 'a' must be plain text: a value would",
        ("labels", "a")),
    "a recovery that is no number": (
        {"recovery": "low"}, "`recovery` must be a finite number; got 'low'", ("recovery",)),
    "a recovery that is a truth": ({"recovery": True}, "`recovery` must be a finite number; got True", ("recovery",)),
    "a recovery that is endless": (
        {"recovery": math.inf}, "`recovery` must be a finite number; got inf", ("recovery",)),
    "a recovery without lives": ({"recovery": 1, "emit": "all"}, "`recovery` needs `emit: witness`", ("recovery",)),
    "limits that are no table": (
        {"limits": {"t": 5}}, "`limits['t']` must be a table of limits; got 5", ("limits", "t")),
    "limits with keys of their own": (
        {"limits": {"t": TABLE}, "on": "machine"},
        "`on` must have the key columns of the limits 't' (machine, site); add 'site'", ("limits", "t")),
    "a pair": ({"within": {("a", "b"): ("1s", 0)}}, "`within[('a', 'b')]` must have lower", ("within", ("a", "b"))),
    "a duration": ({"for_": "soon"}, "`for` must be a duration", ("for",)),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    given, sentence, path = REFUSED[name]
    with pytest.raises(RuleError, match="^" + re.escape(PLACE + sentence)) as caught:
        Rule(**{"alert": "hot", "expr": "a > t.most"} | given)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.path == path
    assert diagnostic.sentence == str(caught.value).splitlines()[0].removeprefix(PLACE)


def test_a_mistake_in_a_template_has_its_place_in_the_text() -> None:
    with pytest.raises(RuleError, match="a template must name") as caught:
        Rule("hot", "a > 1", annotations={"a": "x {{ y }}"})
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.span == (len("x {{ "), len("x {{ y"))


def test_what_is_right_is_kept() -> None:
    rule = Rule(
        "hot",
        "a > t.most",
        on=["machine", "site"],
        labels={"team": "x"},
        annotations={"summary": "{{ $labels.alertname }} {{ $labels.team }} {{ $labels.site }} {{ $values.a }}"},
        recovery=-1,
        limits={"t": TABLE},
    )
    assert (rule.recovery, rule.limits["t"].column("most")) == (-1, [5.0])
