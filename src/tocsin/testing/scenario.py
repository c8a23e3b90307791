"""Read one test of a test file. Errors have a position, also inside a notation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import numpy as np

from tocsin.rules.compose import Node
from tocsin.rules.context import Context
from tocsin.rules.durations import MOST_US
from tocsin.rules.fields import Fields, read_fields
from tocsin.rules.streams import MICROSECOND
from tocsin.rules.values import read_number
from tocsin.testing.expected import ExpectedReader
from tocsin.testing.model import Case, Scenario, Series
from tocsin.testing.name_check import Names
from tocsin.testing.nodes import called, list_items, without
from tocsin.testing.options import SERIES, TEST, UNSUPPORTED
from tocsin.testing.series_notation import NotationError, read_delays, read_samples, read_series

# Samples in all series of a file. Longer files are rejected before they are expanded in memory.
MOST_SAMPLES_IN_ALL = 1_000_000

# A series and its node in the file.
Placed = tuple[Series, Node]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class ScenarioReader:
    """Reader of tests; `samples` counts the samples of all series so far."""

    context: Context
    names: Names
    interval: timedelta
    samples: int = 0

    def read(self, node: Node, number: int) -> Scenario | None:
        """Return one test, or None if it is not a mapping with valid fields."""
        where = called(node, "name", "test", number)
        node = without(self.context, node, UNSUPPORTED["test"], where)
        fields = read_fields(self.context, node, TEST, where, "a test")
        if fields is None:
            return None
        interval_us = (fields["interval"] or self.interval) // MICROSECOND
        start_us = self._start(fields, where)
        items = list_items(self.context, fields.nodes.get("input_series"), where, "input_series")
        read = [self._series(item, where, at, interval_us) for at, item in enumerate(items, 1)]
        placed = [one for one in read if one is not None]
        cases = self._cases(fields, where)
        self._check_rows(placed, cases, where)
        series = tuple(one for one, _ in placed)
        return Scenario(fields["name"] or f"test {number}", node.line, interval_us, start_us, series, cases)

    def _start(self, fields: Fields, where: str) -> int:
        text = fields["start_timestamp"] or "0"
        seconds = read_number(text)
        try:
            start = _EPOCH + timedelta(seconds=seconds) if seconds is not None else datetime.fromisoformat(text)
            if start.tzinfo is not None and abs(start_us := (start - _EPOCH) // MICROSECOND) <= MOST_US:
                return start_us
        except (ValueError, OverflowError):
            pass
        message = "`start_timestamp` must be Unix seconds, or a time such as 2021-01-01T00:00:00Z"
        self.context.report(fields.at("start_timestamp"), where, "invalid-time", message, repr(text[:60]))
        return 0

    def _cases(self, fields: Fields, where: str) -> tuple[Case, ...]:
        reader = ExpectedReader(self.context, self.names)
        node = fields.nodes.get("alert_rule_test")
        items = list_items(self.context, node, where, "alert_rule_test", least="one entry")
        cases = [reader.case(item, where, at) for at, item in enumerate(items, 1)]
        return tuple(case for case in cases if case is not None)

    def _series(self, node: Node, test: str, number: int, interval_us: int) -> Placed | None:
        where = f"{test}: {called(node, 'series', 'series', number)}"
        fields = read_fields(self.context, node, SERIES, where, "a series")
        if fields is None:
            return None
        named = self._name(fields, where) if fields["series"] is not None else None
        series = self._numbers(fields, where, interval_us, named or ("", None, {}))
        return None if series is None or named is None else (series, fields.at("series"))

    def _name(self, fields: Fields, where: str) -> tuple[str, str | None, dict[str, str]] | None:
        try:
            name, column, labels = read_series(fields["series"])
        except NotationError as error:
            report_notation(self.context, fields.at("series"), where, error)
            return None
        mistakes = [self.names.stream_error(name, column), self.names.label_error(name, labels)]
        for message in filter(None, mistakes):
            self.context.report(fields.at("series"), where, "unknown-name", message)
        return None if any(mistakes) or name not in self.names.streams else (name, column, labels)

    def _numbers(
        self, fields: Fields, where: str, interval_us: int, named: tuple[str, str | None, dict[str, str]]
    ) -> Series | None:
        """Parse samples and delays. Their number and their duration are limited."""
        name = "values"
        if fields[name] is None:
            return None
        try:
            samples = read_samples(fields[name])
            self.samples += len(samples)
            if self.samples > MOST_SAMPLES_IN_ALL:
                message = f"a file must have at most {MOST_SAMPLES_IN_ALL:,} samples in all series"
                raise NotationError(message, 0)
            name = "delay"
            delays_us = read_delays(fields["delay"] or "0s", len(samples))
        except NotationError as error:
            report_notation(self.context, fields.at(name), where, error)
            return None
        if len(samples) * interval_us + int(delays_us.max()) > MOST_US:
            self.context.report(fields.at("values"), where, "out-of-range", "`values` must cover less than 3,000 years")
            return None
        return Series(*named, samples, delays_us)

    def _check_rows(self, series: Sequence[Placed], cases: Sequence[Case], where: str) -> None:
        """Check series of one stream and key, which form rows: each read column once, with equal delays."""
        needed = self.names.columns({case.alertname: None for case in cases})
        rows: dict[tuple[str, frozenset[tuple[str, str]]], dict[str, Placed]] = {}
        for one, node in series:
            column = self.names.streams[one.stream][0].column(one.column) or ""
            row = rows.setdefault((one.stream, frozenset(one.labels.items())), {})
            if column in row:
                message = f"`series` must be unique in a test; line {row[column][1].line} has the same series"
                self.context.report(node, f"{where}: series {one}", "duplicate-name", message)
            row.setdefault(column, (one, node))
        for (stream, _), row in rows.items():
            missing = [column for column in needed.get(stream, ()) if column not in row]
            self._check_row(list(row.values()), missing, where)

    def _check_row(self, row: Sequence[Placed], missing: Sequence[str], where: str) -> None:
        first, place = row[0]
        if missing:
            message = f"`series` is required for every column of {first.stream!r} that the tested rules read"
            message += f"; {missing[0]!r} is missing for these labels"
            self.context.report(place, f"{where}: series {first}", "missing-series", message)
        for other, node in row[1:]:
            length = min(len(first.samples), len(other.samples))
            both = first.samples.there[:length] & other.samples.there[:length]
            if np.any(both & (first.delays_us[:length] != other.delays_us[:length])):
                message = f"`delay` must equal the delay of {first}, because both series form the same rows"
                self.context.report(node, f"{where}: series {other}", "different-delay", message)


def report_notation(context: Context, node: Node, where: str, error: NotationError) -> None:
    """Report invalid notation at its position in a text."""
    for one in error.diagnostics:
        context.place(replace(one, where=where, span=(error.offset, error.offset + 1)), node)
