"""What is recorded of an alert: the annotations of the rule that raised it, and of no other of its name."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="needs pyspark: install tocsin[spark]")

from tocsin import Rule
from tocsin.spark.record import rule_of

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
