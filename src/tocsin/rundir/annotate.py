"""Annotations: an alert as the log has it, with the texts of the rule that raised it filled in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tocsin.rules import Ranges, Rule
from tocsin.rules.ranges import QUERY
from tocsin.rules.template import parse_template


def annotated(alert: Mapping[str, Any], rules: Iterable[Rule | Ranges]) -> dict[str, Any]:
    """An alert with its annotations."""
    rule = rule_of(alert, rules)
    texts = {} if rule is None else rule.annotations
    return {**alert, "annotations": {name: parse_template(text).render(alert) for name, text in texts.items()}}


def rule_of(alert: Mapping[str, Any], rules: Iterable[Rule | Ranges]) -> Rule | Ranges | None:
    """The rule that raised an alert: the one of that name whose labels and key columns the alert has, and no others."""
    labels = alert["labels"]
    for rule in rules:
        given = {name: str(text) for name, text in rule.labels.items()}
        names = {*given, *rule.on, *([QUERY] if isinstance(rule, Ranges) else [])}
        if rule.alert == alert["alert"] and labels.keys() == names and given.items() <= labels.items():
            return rule
    return None
