"""The whole product by brute force: one row at a time, by D1 to D59 and D70 to D87 of docs/explanation/semantics.md.

Every remembered row is kept in a list and every combination is tried. Values are exact, times whole microseconds.
Where the page leaves a choice, it is made here and marked with "Choice:".
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from tests.naive.join import Row, completed_by, span
from tests.naive.lives import Alert, Evaluation, Life, Rule, Verdict, alert
from tests.naive.settled import Settling

Streams = Mapping[str, Mapping[str, Sequence[Any]]]


@dataclass
class KeyState:
    """Everything known of one key."""

    life: Life
    late_life: Life
    remembered: list[Row] = field(default_factory=list)
    newest: int | None = None
    largest: dict[str, int] = field(default_factory=dict)
    progress: float = -math.inf
    waiting: list[Evaluation] = field(default_factory=list)
    late_before: float = -math.inf
    settling: Settling | None = None


@dataclass
class Replay:
    """One run over the rows: what came out, all evaluations in order of arrival, and the counts of each stream."""

    rule: Rule
    output: list[Alert] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    counts: dict[str, Counter[str]] = field(default_factory=dict)
    served: list[Row] = field(default_factory=list)
    keys: dict[tuple[Any, ...], KeyState] = field(default_factory=dict)
    # True results out of order that `strict` drops.
    dropped: int = 0

    def take(self, row: Row) -> None:
        """Take the next row."""
        count = self.counts[row.stream]
        count["received"] += 1
        if row.time is None or None in row.key:
            count["quarantined"] += 1
            return
        key = self._key(row.key)
        key.newest = row.time if key.newest is None else max(key.newest, row.time)
        self._expire(key)
        if _is_unusable(self.rule, row):
            count["quarantined"] += 1
            return
        if row.time < key.newest - self.rule.allowed_lateness_us:
            # Choice: a late row is not used for anything, so it does not move its stream's progress either.
            count["late"] += 1
            return
        if key.settling is not None:
            self._settle(key, key.settling, row)
            return
        if len(self.rule.join.streams) > 1 and row in key.remembered:  # a rule of one stream remembers nothing
            count["duplicates"] += 1
            return
        self._evaluate(key, row)
        key.remembered.append(row)
        self.served.append(row)
        key.largest[row.stream] = max(row.time, key.largest.get(row.stream, row.time))
        # Progress never goes back, though a stream that was idle may come back with older rows.
        key.progress = max(key.progress, _least_of_the_awake(self.rule, key.largest))
        _advance(key)

    def end(self) -> None:
        """Learn that nothing more will come."""
        for key in self.keys.values():
            if key.settling is not None:
                for row in key.settling.end():
                    self._judge_alone(key, row, late=False)
            if key.largest:
                key.progress = max(key.largest.values())
                _advance(key)
                # Progress ends a late life only here: it is ahead of every late evaluation.
                key.late_life.pass_time(key.progress)

    def close(self) -> None:
        """Count what is still remembered."""
        for key in self.keys.values():
            for row in key.remembered if key.settling is None else key.settling.remembered:
                self.counts[row.stream]["retained"] += 1

    def _key(self, key: tuple[Any, ...]) -> KeyState:
        if key not in self.keys:
            lives = Life(self.rule, self.output, late=False), Life(self.rule, self.output, late=True)
            reduction = self.rule.reduction
            self.keys[key] = KeyState(*lives, settling=None if reduction is None else Settling(reduction))
        return self.keys[key]

    def _expire(self, key: KeyState) -> None:
        assert key.newest is not None
        if key.settling is not None:
            reduction = key.settling.reduction
            reach = 2 * reduction.interval + (reduction.hop or 0)
            count = self.counts[self.rule.join.streams[0]]
            count["expired"] += key.settling.forget(key.newest - self.rule.allowed_lateness_us - reach)
            return
        oldest = key.newest - self.rule.allowed_lateness_us - span(self.rule.join)
        for row in key.remembered:
            self.counts[row.stream]["expired"] += row.time < oldest
        key.remembered = [row for row in key.remembered if row.time >= oldest]

    def _evaluate(self, key: KeyState, row: Row) -> None:
        combinations = completed_by(self.rule.join, row, key.remembered)
        late = row.time < key.progress
        judged = [Evaluation(row.key, row.time, *judge(self.rule, rows), rows, late) for rows in combinations]
        if not judged:
            return
        best = min(judged, key=_best_first)
        if self.rule.emit == "all":
            self.evaluations.append(best)
            true = [each for each in judged if each.truth]
            if late and self.rule.strict:
                self.dropped += len(true)
            else:
                self.output.extend(_match(self.rule, each) for each in true)
        else:
            self._deliver(key, best)

    def _settle(self, key: KeyState, settling: Settling, row: Row) -> None:
        """Take a row of a reduced rule of one stream, and evaluate what it settles."""
        before = settling.progress
        settled, gone = settling.arrive(row)
        self.served.append(row)
        self.counts[row.stream]["omitted"] += gone
        for each in settled:
            self._judge_alone(key, each, late=each is row and row.time < before)
        key.largest[row.stream], key.progress = int(settling.newest), settling.progress
        _advance(key)

    def _judge_alone(self, key: KeyState, row: Row, *, late: bool) -> None:
        for rows in completed_by(self.rule.join, row, []):  # none where no hopping window holds the row
            self._deliver(key, Evaluation(row.key, row.time, *judge(self.rule, rows), rows, late))

    def _deliver(self, key: KeyState, evaluation: Evaluation) -> None:
        """Let a late evaluation drive its life at once, and others wait for progress."""
        self.evaluations.append(evaluation)
        if evaluation.late and self.rule.strict:
            self.dropped += evaluation.truth
            return
        if not evaluation.late:
            key.waiting.append(evaluation)
            return
        if evaluation.time < key.late_before:
            key.late_life.pass_time(math.inf)
        key.late_before = evaluation.time
        key.late_life.take(evaluation)


def naive_alerts(streams: Streams, rule: Rule, *, arrival: str | None = "arrival", end: bool = True) -> list[Alert]:
    """Give the alerts of a rule, in the order in which they are known."""
    return replay(streams, rule, arrival=arrival, end=end).output


def naive_evaluations(streams: Streams, rule: Rule, *, arrival: str | None = "arrival") -> list[tuple[Any, ...]]:
    """Give (key, time, margin, truth, late) of every evaluation, in order of arrival."""
    return [(e.key, e.time, e.margin, e.truth, e.late) for e in replay(streams, rule, arrival=arrival).evaluations]


def naive_counts(streams: Streams, rule: Rule, *, arrival: str | None = "arrival") -> dict[str, dict[str, int]]:
    """Give what became of the rows of each stream: received is the sum of all others."""
    names = ("received", "quarantined", "late", "expired", "duplicates", "omitted", "retained")
    counts = replay(streams, rule, arrival=arrival).counts
    return {stream: {name: count[name] for name in names} for stream, count in counts.items()}


def replay(streams: Streams, rule: Rule, *, arrival: str | None = "arrival", end: bool = True) -> Replay:
    """Take all rows in order of arrival."""
    run = Replay(rule, counts={stream: Counter() for stream in rule.join.streams})
    for row in rows_in_order(streams, rule, arrival):
        run.take(row)
    if end:
        run.end()
    run.close()
    return run


def rows_in_order(streams: Streams, rule: Rule, arrival: str | None) -> Iterator[Row]:
    """Give the rows by arrival, else by time; equal ones by the order of the streams, then of the input."""
    placed = []
    for position, (stream, table) in enumerate(streams.items()):
        for index in range(len(table["ts"]) if stream in rule.join.streams else 0):
            cells = {column: table[column][index] for column in table}
            order = cells.pop(arrival) if arrival in cells else None
            order = cells["ts"] if order is None else order
            # A row without time is quarantined, wherever it stands.
            placed.append((-math.inf if order is None else order, position, index, stream, cells))
    for place, (_, _, _, stream, cells) in enumerate(sorted(placed, key=lambda item: item[:3])):
        key = tuple(cells.pop(column) for column in rule.on)
        time = cells.pop("ts")
        yield Row(stream, key, time, tuple(sorted(cells.items())), place)


def judge(rule: Rule, rows: Sequence[Row]) -> Verdict:
    """Give (margin, truth, value) of one combination."""
    columns = {row.stream: row.columns for row in rows}
    return rule.condition({(stream, column): Fraction(columns[stream][column]) for stream, column in rule.columns})


def _is_unusable(rule: Rule, row: Row) -> bool:
    read = [row.columns[column] for stream, column in rule.columns if stream == row.stream]
    return any(value is None or not math.isfinite(value) for value in read)


def _least_of_the_awake(rule: Rule, largest: Mapping[str, int]) -> int:
    idle_timeout_us = span(rule.join) if rule.idle_timeout_us is None else rule.idle_timeout_us
    return min(time for time in largest.values() if max(largest.values()) - time <= idle_timeout_us)


def _best_first(evaluation: Evaluation) -> tuple[Any, ...]:
    # Choice: of combinations equal in margin, truth and times, the one whose rows arrived first, stream by stream.
    times, places = zip(*((row.time, row.place) for row in evaluation.witness), strict=True)
    return -evaluation.margin, not evaluation.truth, times, places


def _advance(key: KeyState) -> None:
    due = sorted((each for each in key.waiting if each.time <= key.progress), key=lambda each: each.time)
    key.waiting = [each for each in key.waiting if each.time > key.progress]
    for evaluation in due:
        key.life.take(evaluation)
    key.life.pass_time(key.progress)


def _match(rule: Rule, evaluation: Evaluation) -> Alert:
    times = [row.time for row in evaluation.witness]
    return alert(rule, evaluation, "match", (min(times), min(times), max(times)), late=evaluation.late, sequence=0)
