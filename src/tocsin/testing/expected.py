"""Read the expected alerts of a test (`alert_rule_test`), and check their names against the rule files."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tocsin.rules.compose import MapNode, Node
from tocsin.rules.context import Context, found
from tocsin.rules.fields import Fields, read_fields
from tocsin.rules.streams import MICROSECOND
from tocsin.rules.values import read_map, read_number
from tocsin.testing.model import Case, Expected
from tocsin.testing.name_check import Names, unknown
from tocsin.testing.nodes import called, list_items
from tocsin.testing.options import ALERT, CASE

_Known = Callable[[str], Sequence[str]]


@dataclass(frozen=True)
class ExpectedReader:
    """Read the cases of one test."""

    context: Context
    names: Names

    def case(self, node: Node, test: str, number: int) -> Case | None:
        """Return one case, or None if a required field is missing."""
        where = f"{test}: {called(node, 'alertname', 'alert_rule_test', number)}"
        fields = read_fields(self.context, node, CASE, where, "an `alert_rule_test`")
        if fields is None:
            return None
        name = fields["alertname"] or ""
        if name and (message := self.names.alert_error(name)):
            self.context.report(fields.at("alertname"), where, "unknown-name", message)
        items = list_items(self.context, fields.nodes.get("exp_alerts"), where, "exp_alerts")
        expected = [self._expected(item, where, name, at) for at, item in enumerate(items, 1)]
        if fields["eval_time"] is None or not name:
            return None
        known = tuple(one for one in expected if one is not None)
        return Case(fields["eval_time"] // MICROSECOND, name, known, node.line)

    def _expected(self, node: Node, test: str, alert: str, number: int) -> Expected | None:
        where = f"{test}: alert {number}"
        fields = read_fields(self.context, node, ALERT, where, "an alert of `exp_alerts`")
        if fields is None:
            return None
        starts = fields["exp_starts_at"]
        return Expected(
            self._labels(fields, where, alert),
            self._named(fields, where, "exp_annotations", self.names.annotations, alert),
            fields["exp_state"],
            fields["exp_value"],
            fields["exp_margin"],
            None if starts is None else starts // MICROSECOND,
            self._witness(fields, where, alert),
        )

    def _labels(self, fields: Fields, where: str, alert: str) -> dict[str, str]:
        labels = self._named(fields, where, "exp_labels", lambda name: ["alertname", *self.names.labels(name)], alert)
        if labels.pop("alertname", alert) != alert:
            self._report(fields, "exp_labels", "alertname", where, "`exp_labels.alertname` must equal `alertname`")
        return labels

    def _named(self, fields: Fields, where: str, field: str, known: _Known, alert: str) -> dict[str, str]:
        """Return texts by name. Report names that the alert cannot have."""
        texts: dict[str, str] = dict(fields[field] or {})
        for name in texts if self.names.has(alert) else ():
            what = "labels" if field == "exp_labels" else "annotations"
            message = unknown(name, known(alert), f"`{field}` must contain {what} of {alert!r}")
            if message:
                self._report(fields, field, name, where, message)
        return texts

    def _report(self, fields: Fields, field: str, name: str, where: str, message: str) -> None:
        node = fields.nodes[field]
        assert isinstance(node, MapNode)
        self.context.report(node.entries[name][0], where, "unknown-name", message)

    def _witness(self, fields: Fields, where: str, alert: str) -> dict[str, float]:
        numbers = {}
        node = fields.nodes.get("exp_witness")
        entries = {} if node is None else read_map(self.context, node, "exp_witness", where)
        for name, (key, value) in entries.items():
            number = read_number(value.text)
            if number is None or not math.isfinite(number):
                self.context.report(
                    value, where, "invalid-number", f"`exp_witness.{name[:60]}` must be a number", found(value)
                )
            elif self.names.has(alert):
                known = self.names.variables(alert)
                message = unknown(name, known, f"`exp_witness` must contain variables of {alert!r}")
                if message:
                    self.context.report(key, where, "unknown-name", message)
            numbers[name] = math.nan if number is None else number
        return numbers
