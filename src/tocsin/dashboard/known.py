"""An alert from its start to its end, as pages know it, and how it is named in addresses."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from copy import copy
from typing import NamedTuple

from tocsin.delivery import Position
from tocsin.trace.model import Life

# Of a life that changes without end the first change and the newest are known.
MOST_CHANGES = 100
# A text of a label that is longer is known by its beginning, its length and a hash.
MOST_LABEL = 1_900
# Of an alert with more labels the first are known, and how many more there are, with a hash.
MOST_LABELS = 100
_CUT = re.compile(r"… \(([0-9,]+) characters, [0-9a-f]{16}\)")
_PLAIN = re.compile(r"[0-9A-Za-z_-]{1,64}")

Labels = tuple[tuple[str, str], ...]
# Whether it fired, matched or goes on; when it began; its place in the log.
Rank = tuple[bool, int, int]


class Change(NamedTuple):
    """A change of state: where the log has it, and what it became."""

    position: Position
    state: str


class Known:
    """An alert from its start to its end, as the log last told it, and where its changes stand in the log.

    Value and margin are the best up to the last change: of one that goes on, the largest margin may be larger by now.
    """

    __slots__ = (
        "alert",
        "changed",
        "changes",
        "end_us",
        "fires_us",
        "has_fired",
        "id",
        "is_late",
        "labels",
        "margin",
        "place",
        "quality",
        "start_us",
        "state",
        "value",
    )

    def __init__(self, alert: str, labels: Labels, place: int) -> None:
        self.alert, self.labels, self.place = alert, labels, place
        self.id, self.state, self.quality = "", "", ""
        self.start_us = 0
        self.fires_us, self.end_us = None, None  # type: int | None, int | None
        self.value, self.margin = None, None  # type: float | None, float | None
        self.is_late, self.has_fired = False, False
        self.changes: tuple[Change, ...] = ()
        self.changed = 0

    def add(self, change: Change) -> None:
        """Note a change of state."""
        before = self.changes
        if len(before) >= MOST_CHANGES:
            before = (before[0], *before[2:])
        self.changes = (*before, change)
        self.changed += 1

    @property
    def is_open(self) -> bool:
        """Tell whether it goes on."""
        return self.end_us is None

    @property
    def rank(self) -> Rank:
        """Where it stands in lists, the last first: what fired, matched or goes on is the newest of its start."""
        return self.has_fired or self.is_open, self.start_us, self.place

    def as_life(self) -> Life:
        """The same for what compares and draws lives, without its witness."""
        numbers = (0.0 if self.value is None else self.value, 0.0 if self.margin is None else self.margin)
        ends = (self.start_us, self.fires_us, self.end_us)
        late = {"is_late": self.is_late, "has_fired": self.has_fired}
        return Life(self.alert, self.id, self.state, dict(self.labels), *ends, *numbers, (), **late)


def frozen(alerts: Iterable[Known]) -> list[Known]:
    """Alerts as they are now: those that go on are copied, the others change no more."""
    return [copy(one) if one.is_open else one for one in alerts]


class RuleAlerts:
    """The alerts of one name: all of them in the order of the log, how many fired, and how many matched."""

    def __init__(self) -> None:
        self.all: list[Known] = []
        self.fired = self.matched = 0
        self.open: dict[int, Known] = {}

    def now(self, state: str) -> int:
        """How many are in a state now."""
        return sum(one.state == state for one in self.open.values())


def token_of(name: str) -> str:
    """A name as a part of an address: short, the same for ever, whatever is in the name."""
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def id_in_address(name: str) -> str:
    """The id of an alert as a part of an address: as it is, if it is one of ours, so that others can link to it.

    >>> id_in_address("0a45a578afe27080"), id_in_address("../x") == "~" + token_of("../x")
    ('0a45a578afe27080', True)
    """
    return name if _PLAIN.fullmatch(name) else f"~{token_of(name)}"


def labels_of(labels: Mapping[str, str]) -> Labels:
    """Labels as they are known: in order, none so long and no more than that many alerts would fill the memory.

    >>> labels_of({f"n{number:03}": "" for number in range(103)})[99:] == (
    ...     ("n099", ""), ("…", f"3 more labels, {token_of(repr([(f'n{number}', '') for number in (100, 101, 102)]))}"))
    True
    """
    every = sorted(labels.items())
    rest = every[MOST_LABELS:]
    known = [(cut_text(name), cut_text(value)) for name, value in every[:MOST_LABELS]]
    known += [("…", f"{len(rest):,} more labels, {token_of(repr(rest))}")] if rest else []
    return tuple(known)


def cut_text(text: str) -> str:
    """A text as far as it is known; one that is cut differs from all others by its hash.

    >>> cut_text("x" * 3_000) == f"{'x' * MOST_LABEL}… (3,000 characters, {token_of('x' * 3_000)})"
    True
    """
    return text if len(text) <= MOST_LABEL else f"{text[:MOST_LABEL]}… ({len(text):,} characters, {token_of(text)})"


def length_of(text: str) -> str:
    """How many characters a text has, or had before it was cut.

    >>> length_of("x" * 1_500), length_of(cut_text("x" * 3_000))
    ('1,500', '3,000')
    """
    found = _CUT.fullmatch(text, MOST_LABEL)
    return found[1] if found else f"{len(text):,}"
