"""What is recorded of an alert: the annotations of the rule that raised it, and of no other of its name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tocsin import Rule
from tocsin.rundir.annotate import annotated, rule_of

PLAIN = Rule("Hot", "air > 30", on="machine")
LOW = Rule("Hot", "air > 10", on="machine", labels={"level": "low"})
SITE = Rule("Hot", "air > 20", on=["machine", "site"])


@pytest.mark.parametrize(
    ("labels", "rule"),
    [
        ({"machine": "m"}, PLAIN),
        ({"machine": "m", "level": "low"}, LOW),
        ({"machine": "m", "site": "n"}, SITE),
        ({"machine": "m", "level": "high"}, None),
    ],
)
def test_rules_of_one_name_are_told_apart_by_labels_and_keys(labels: dict[str, str], rule: Rule | None) -> None:
    assert rule_of({"alert": "Hot", "labels": labels}, [PLAIN, LOW, SITE]) == rule


def test_an_alert_has_the_texts_of_its_own_rule_filled_in() -> None:
    low = replace(LOW, annotations={"summary": "{{ $labels.machine }} is {{ $labels.level }}"})
    rules = [replace(PLAIN, annotations={"summary": "plain"}), low]
    alert = {"alert": "Hot", "labels": {"machine": "m", "level": "low"}, "witness": [], "value": 1.0}
    assert annotated(alert, rules) == {**alert, "annotations": {"summary": "m is low"}}
    other = {**alert, "labels": {"machine": "m", "level": "high"}}
    assert annotated(other, rules) == {**other, "annotations": {}}
