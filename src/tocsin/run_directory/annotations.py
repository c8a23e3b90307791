"""Annotations: the texts of a rule, rendered for an alert event that the rule raised."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tocsin.rules import RangeRule, Rule
from tocsin.rules.ranges import QUERY
from tocsin.rules.template import parse_template


def annotate_alert(alert: Mapping[str, Any], rules: Iterable[Rule | RangeRule]) -> dict[str, Any]:
    """Return an alert event with its rendered annotations."""
    rule = find_rule(alert, rules)
    texts = {} if rule is None else rule.annotations
    return {**alert, "annotations": {name: parse_template(text).render(alert) for name, text in texts.items()}}


def find_rule(alert: Mapping[str, Any], rules: Iterable[Rule | RangeRule]) -> Rule | RangeRule | None:
    """Return the rule that raised an alert event: it has the same name, labels and key columns; None if no rule has."""
    labels = alert["labels"]
    for rule in rules:
        fixed = {name: str(text) for name, text in rule.labels.items()}
        names = {*fixed, *rule.on, *([QUERY] if isinstance(rule, RangeRule) else [])}
        if rule.alert == alert["alert"] and labels.keys() == names and fixed.items() <= labels.items():
            return rule
    return None
