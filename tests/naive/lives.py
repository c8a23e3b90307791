"""A rule and the life of its alert: evaluations in order make it pending, firing, resolved or inactive."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.naive.join import Join, Row, span
from tests.naive.settled import Reduction

Verdict = tuple[Any, bool, Any]
Alert = dict[str, Any]

FIVE_MINUTES = 300_000_000


@dataclass(frozen=True)
class Rule:
    """What must be watched: `condition` maps {(stream, column): value} of `columns` to (margin, truth, value).

    `shape` and `domain` are those declared of the value of a rule of one stream.
    """

    join: Join
    condition: Callable[[Mapping[tuple[str, str], Any]], Verdict]
    columns: tuple[tuple[str, str], ...]
    alert: str = "alert"
    on: tuple[str, ...] = ("machine",)
    for_us: int = 0
    keep_us: int = 0
    stale_us: int | None = None
    allowed_lateness_us: int = 1_000_000
    idle_timeout_us: int | None = None
    emit: str = "witness"
    strict: bool = False
    recovery: tuple[str, Any] | None = None
    shape: str | None = None
    domain: tuple[float, float] | None = None

    def holds(self, value: Any) -> bool:
        """Tell whether a value is not past the threshold of recovery."""
        if self.recovery is None:
            return False
        sign, threshold = self.recovery
        if sign.endswith("=") and value == threshold:
            return True
        return bool(value > threshold if sign.startswith(">") else value < threshold)

    @property
    def reduction(self) -> Reduction | None:
        """What is left out by a rule of one stream; None: every row is evaluated as it arrives."""
        join = self.join
        if len(join.streams) > 1 or self.shape is None or self.for_us > 0 or self.emit == "all":
            return None
        interval = (join.within or 0) - (join.closed == "neither" and join.hop is None)
        shaped = Reduction(self.columns[0][1], self.shape, interval, join.closed, join.hop, self.domain)
        return shaped if interval > 0 else None

    @property
    def silence_us(self) -> int:
        """How long after the last evaluation a life ends by itself."""
        if self.stale_us is not None:
            return self.stale_us
        if len(self.join.streams) > 1:
            return span(self.join) or FIVE_MINUTES
        return (self.join.within or 0) * (1 if self.reduction is None else 2) or FIVE_MINUTES


class Evaluation(NamedTuple):
    """The best combination that one row completed."""

    key: tuple[Any, ...]
    time: int
    margin: Any
    truth: bool
    value: Any
    witness: tuple[Row, ...]
    late: bool


@dataclass
class Life:
    """The life of one (rule, key), on time or late; it writes its changes of state to `output`."""

    rule: Rule
    output: list[Alert]
    late: bool
    state: str | None = None
    start: int = 0
    fires: int | None = None
    sequence: int = 0
    starts: list[int] = field(default_factory=list)
    last: int = 0
    false_since: int | None = None
    best: Evaluation | None = None

    def take(self, evaluation: Evaluation) -> None:
        """Live through one evaluation."""
        self.pass_time(evaluation.time)
        if self.state is not None:
            self.last = evaluation.time
            assert self.best is not None
            self.best = evaluation if evaluation.margin > self.best.margin else self.best
        is_held = self.state == "firing" and self.false_since is None and self.rule.holds(evaluation.value)
        if evaluation.truth or is_held:
            self._true(evaluation)
        elif self.state is not None:
            self._false(evaluation.time)

    def pass_time(self, now: float) -> None:
        """End what has ended before `now`: by silence, or by the end of `keep_firing_for`."""
        if self.state is not None and self.false_since is None and now > self.last + self.rule.silence_us:
            self._false(self.last + self.rule.silence_us)
        if self.false_since is not None and now > self.false_since + self.rule.keep_us:
            self._end("resolved", self.false_since + self.rule.keep_us)

    def _true(self, evaluation: Evaluation) -> None:
        self.false_since = None
        if self.state is None:
            self.start, self.last, self.best = evaluation.time, evaluation.time, evaluation
            self.sequence = self._next_sequence(evaluation.time)
            self.starts.append(evaluation.time)
            self.fires = None
            if self.rule.for_us > 0:
                self._become("pending")
            else:
                self._fire()
        elif self.state == "pending" and evaluation.time - self.start >= self.rule.for_us:
            self._fire()

    def _fire(self) -> None:
        self.fires = self.start + self.rule.for_us
        self._become("firing")

    def _next_sequence(self, start: int) -> int:
        """Count earlier alerts with this start; a late alert counts every alert that did not start after an earlier."""
        if not self.late:
            return self.starts.count(start)
        return sum(any(time >= begun for time in self.starts[:i]) for i, begun in enumerate([*self.starts, start]))

    def _false(self, time: int) -> None:
        if self.state == "pending":
            self._end("inactive", time)
        elif self.rule.keep_us == 0:
            self._end("resolved", time)
        elif self.false_since is None:
            self.false_since = time

    def _end(self, state: str, time: int) -> None:
        self._become(state, time)
        self.state, self.false_since, self.best = None, None, None

    def _become(self, state: str, ends_at: int | None = None) -> None:
        self.state = state
        assert self.best is not None
        times = self.start, self.fires, ends_at
        self.output.append(alert(self.rule, self.best, state, times, self.late, self.sequence))


def alert(
    rule: Rule, best: Evaluation, state: str, times: tuple[int, int | None, int | None], late: bool, sequence: int
) -> Alert:
    """Return one output row; `times` are start, firing time and end."""
    start, fires, end = times
    read = {stream: [column for owner, column in rule.columns if owner == stream] for stream in rule.join.streams}
    witness = [(row.stream, row.time, {name: row.columns[name] for name in read[row.stream]}) for row in best.witness]
    return {"alert": rule.alert, "key": best.key, "state": state, "startsAt": start, "firesAt": fires,
            "endsAt": end, "value": best.value, "margin": best.margin, "witness": witness, "late": late,
            "sequence": sequence}  # fmt: skip


def identity(alert: str, labels: Mapping[str, str], start: int, late: bool, sequence: int) -> str:
    """Return the id of an alert."""
    text = json.dumps([alert, sorted(labels.items()), start, late, sequence])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
