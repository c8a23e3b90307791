"""What Alertmanager must know now: per label set, the life it is shown, and when it was told.

Idea: Alertmanager holds one state per label set and is told it over and over, so the book keeps just that: the lives
that are open, else the newest that ended, and what was last told. Of several lives with the same labels the one that
fired latest is shown, an open one before any that ended; of equal times, the one whose newest line is later in the log.
Unsent lines of the others are superseded.
Guarantee: a life is shown as firing for at least `hold_s` before it is told as resolved, even if it began and ended
unseen: Alertmanager notifies of nothing that it only hears of when it is over. A life that was over for more than
`past_s` when it was read is history, and is told once as resolved.
Cost: memory by the number of label sets that fire, wait to be told, or ended in the last 15 minutes. No clock, no disk.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

from tocsin.deliver.encode import Alert, fingerprint, full_labels, seconds_of

RESOLVED_S = 15 * 60.0
FIRING, RESOLVED = "firing", "resolved"
# The states that Alertmanager is told.
TOLD = ("firing", "resolved", "match")


@dataclass
class Life:
    """An alert, which starts for Alertmanager when it fires.

    `owed` holds the states of its log lines that Alertmanager has not received.
    """

    id: str
    labels: dict[str, str]
    annotations: dict[str, str]
    starts_at: str
    ends_at: str | None = None
    owed: list[str] = field(default_factory=list)
    shown_at: float | None = None
    past: bool = False
    place: list[int] = field(default_factory=list)


@dataclass
class Subject:
    """A label set: lives by id, the newest that ended, and what was told: (id, mode), when, and since when."""

    open: dict[str, Life] = field(default_factory=dict)
    ended: Life | None = None
    told: list[str] | None = None
    told_at: float = 0.0
    told_since: float = 0.0
    muted: bool = False

    def lives(self) -> list[Life]:
        """All lives."""
        return [*self.open.values(), *([self.ended] if self.ended is not None else [])]


@dataclass(frozen=True)
class Telling:
    """What Alertmanager is to be told of a label set."""

    subject: str
    life: Life
    mode: str


class Book:
    """Lives by label set."""

    def __init__(self, resend_s: float, past_s: float) -> None:
        self.resend_s, self.hold_s, self.past_s = resend_s, resend_s, past_s
        self.subjects: dict[str, Subject] = {}
        self.superseded = 0

    def learn(self, alert: Alert, place: Iterable[int], now: float) -> bool:
        """Take a line of the log; say whether it is one that Alertmanager is told."""
        state = alert["state"]
        if state not in TOLD:
            return False
        labels = full_labels(alert)
        subject = self.subjects.setdefault(fingerprint(labels), Subject())
        life = subject.open.get(alert["id"]) or Life(alert["id"], labels, {}, alert["firesAt"] or alert["startsAt"])
        life.annotations, life.place = alert["annotations"], list(place)
        life.owed.append(state)
        if state == "firing":
            subject.open[life.id] = life
            self._drop(subject.ended)
            subject.ended = None
        else:
            subject.open.pop(life.id, None)
            life.ends_at = alert["endsAt"]
            life.past = life.shown_at is None and now - seconds_of(alert["endsAt"]) > self.past_s
            self._end(subject, life)
        return True

    def due(self, now: float) -> list[Telling]:
        """What is to be told now, news first, then what waited longest; what is told out is forgotten."""
        found = []
        for name, subject in list(self.subjects.items()):
            telling = self._telling(name, subject, now)
            if subject.told != [telling.life.id, telling.mode]:
                found.append(((0, 0.0), telling))
            elif self._is_told_out(subject, telling, now):
                del self.subjects[name]
            elif not subject.muted and now - subject.told_at >= self.resend_s:
                found.append(((1, subject.told_at), telling))
        found.sort(key=lambda item: item[0])
        return [telling for _, telling in found]

    def tell(self, telling: Telling, now: float, *, refused: bool = False) -> int:
        """Note what was told, or refused for good; give how many lines of the log that settles."""
        subject, life = self.subjects[telling.subject], telling.life
        if subject.told != [life.id, telling.mode]:
            subject.told, subject.told_since = [life.id, telling.mode], now
        subject.told_at, subject.muted = now, refused
        if life.shown_at is None:
            life.shown_at = now
        settled = [state for state in life.owed if telling.mode == RESOLVED or state != "resolved"]
        life.owed = [state for state in life.owed if state not in settled]
        return len(settled)

    def owed(self) -> int:
        """How many lines of the log have not been told."""
        return sum(len(life.owed) for subject in self.subjects.values() for life in subject.lives())

    def owing(self, most: int) -> dict[str, list[str]]:
        """By id of an alert the states that have not been told; of very many alerts some."""
        lives = (life for subject in self.subjects.values() for life in subject.lives() if life.owed)
        return {life.id: list(life.owed) for life in islice(lives, most)}

    def is_settled(self) -> bool:
        """Whether there is nothing to tell but what was told before."""
        return self.owed() == 0 and all(self._is_at_rest(subject) for subject in self.subjects.values())

    def dump(self) -> dict[str, Any]:
        """The book as JSON holds it; when it is read again everything is due, for Alertmanager may have forgotten."""
        subjects = {name: {**asdict(subject), "told_at": 0.0} for name, subject in self.subjects.items()}
        return {"subjects": subjects}

    def load(self, state: Any) -> None:
        """Take up what `dump` gave."""
        for name, stored in state["subjects"].items():
            lives = {key: Life(**life) for key, life in stored["open"].items()}
            ended = None if stored["ended"] is None else Life(**stored["ended"])
            self.subjects[name] = Subject(**{**stored, "open": lives, "ended": ended})

    def _telling(self, name: str, subject: Subject, now: float) -> Telling:
        if subject.open:
            return Telling(name, max(subject.open.values(), key=lambda life: (life.starts_at, life.place)), FIRING)
        life = subject.ended
        assert life is not None
        unseen = life.shown_at is None and not life.past
        holding = life.shown_at is not None and not life.past and now < life.shown_at + self.hold_s
        return Telling(name, life, FIRING if unseen or holding else RESOLVED)

    def _end(self, subject: Subject, life: Life) -> None:
        """Keep an ended life only if none is open, and of two the one that starts later."""
        other = subject.ended
        if subject.open:
            self._drop(life)
        elif other is not None and other.starts_at > life.starts_at:
            self._drop(life)
        else:
            self._drop(other)
            subject.ended = life

    def _drop(self, life: Life | None) -> None:
        self.superseded += len(life.owed) if life is not None else 0

    def _is_told_out(self, subject: Subject, telling: Telling, now: float) -> bool:
        if telling.mode == FIRING:
            return False
        return telling.life.past or subject.muted or now - subject.told_since >= RESOLVED_S

    def _is_at_rest(self, subject: Subject) -> bool:
        return bool(subject.open) or subject.told is None or subject.told[1] == RESOLVED
