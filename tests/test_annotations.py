"""Annotations: an alert event has the texts of its own rule, not of another rule with the same name."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from delivery.alerts import row
from tests.alert_batches import batch_of
from tocsin import Rule
from tocsin.run_directory.annotations import annotations_of, encode_annotated, find_rule

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
    assert find_rule("Hot", labels, [PLAIN, LOW, SITE]) == rule


def test_alert_has_the_rendered_annotations_of_its_own_rule() -> None:
    low = replace(LOW, annotations={"summary": "{{ $labels.machine }} is {{ $labels.level }}"})
    rules = [replace(PLAIN, annotations={"summary": "plain"}), low]
    alert = row(alert="Hot", labels={"machine": "m", "level": "low"})
    other = row(alert="Hot", labels={"machine": "m", "level": "high"})
    assert annotations_of(batch_of(alert), rules) == [{"summary": "m is low"}]
    assert annotations_of(batch_of(other), rules) == []
    lines = encode_annotated([batch_of(alert), batch_of(other)], rules).splitlines()
    assert [json.loads(line)["annotations"] for line in lines] == [{"summary": "m is low"}, {}]
