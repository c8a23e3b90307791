"""Annotations: an alert event has the texts of its own rule, not of another rule with the same name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tocsin import Rule
from tocsin.run_directory.annotations import annotate_alert, find_rule

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
def test_rule_is_found_by_labels_and_keys_when_rules_have_the_same_name(
    labels: dict[str, str], rule: Rule | None
) -> None:
    assert find_rule({"alert": "Hot", "labels": labels}, [PLAIN, LOW, SITE]) == rule


def test_alert_has_the_rendered_annotations_of_its_own_rule() -> None:
    low = replace(LOW, annotations={"summary": "{{ $labels.machine }} is {{ $labels.level }}"})
    rules = [replace(PLAIN, annotations={"summary": "plain"}), low]
    alert = {"alert": "Hot", "labels": {"machine": "m", "level": "low"}, "witness": [], "value": 1.0}
    assert annotate_alert(alert, rules) == {**alert, "annotations": {"summary": "m is low"}}
    other = {**alert, "labels": {"machine": "m", "level": "high"}}
    assert annotate_alert(other, rules) == {**other, "annotations": {}}
