"""Annotations: the texts of a rule, rendered for each alert row of the rule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tocsin.delivery.alert_json import encode_batch
from tocsin.rules import RangeRule, Rule
from tocsin.rules.ranges import QUERY
from tocsin.rules.template import parse_template
from tocsin.runtime.alert_batch import AlertBatch


def encode_annotated(batches: Iterable[AlertBatch], rules: Sequence[Rule | RangeRule]) -> bytes:
    """Return the lines of the alert log for batches, with annotations."""
    return b"".join(encode_batch(batch, annotations_of(batch, rules)) for batch in batches)


def annotations_of(batch: AlertBatch, rules: Sequence[Rule | RangeRule]) -> list[dict[str, str]]:
    """Return the rendered annotations of each row, or an empty list if the batch has no annotations."""
    found = [find_rule(batch.source.alert, labels, rules) for labels in batch.labels()]
    texts = [{} if rule is None else rule.annotations for rule in found]
    if not any(texts):
        return []
    return [
        {name: parse_template(text).render(row) for name, text in texts[key].items()}
        for key, row in zip(batch.key.tolist(), batch.rows(), strict=True)
    ]


def find_rule(alert: str, labels: Mapping[str, str], rules: Iterable[Rule | RangeRule]) -> Rule | RangeRule | None:
    """Return the rule of an alert: it has the same name, labels and key columns. Return None if no rule matches."""
    for rule in rules:
        fixed = {name: str(text) for name, text in rule.labels.items()}
        names = {*fixed, *rule.on, *([QUERY] if isinstance(rule, RangeRule) else [])}
        if rule.alert == alert and labels.keys() == names and fixed.items() <= labels.items():
            return rule
    return None
