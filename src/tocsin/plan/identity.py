"""Identity: by what state is found again when rules have changed.

A store is found by what it takes and cuts: stream, columns, hopping windows. A rule is found by its name and labels, as
in Prometheus; it keeps its alerts if what they mean has not changed. Everything else may change while state stays.
A watch is found by the rules that its state is of (`assign_groups` in `runtime/state_registry.py`), then by its name:
its key columns; if its rows wait also by what it reads and how long they wait, and if its memory is limited by its
rules. So its state is found if its rules wait in another way, or under another budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

from tocsin.hashing import stable_hash
from tocsin.rules.quality import ReorderWait

# Rows of a stream that have finite values in some columns: a row that lacks one rule's values may serve another.
Lane = tuple[str, tuple[str, ...]]

_DIGITS = 16


_LIMITED = stable_hash("memory")
_APART = stable_hash("cpu")


def waiting_name(keys: str, read: Sequence[Any], waiting: ReorderWait) -> str:
    """Name a watch whose rows wait; those that read the same have names that differ in the last digest alone."""
    return f"{keys}~{stable_hash(*read)}{stable_hash(*astuple(waiting))}"


def limited_name(keys: str, rules: Sequence[str]) -> str:
    """Name a watch whose memory is limited by what its rules are found by."""
    return f"{keys}~{_LIMITED}{stable_hash(*rules)}"


def apart_name(keys: str, apart: str) -> str:
    """Name a watch whose processor time is limited."""
    return f"{keys}~{_APART}{apart}"


def is_limited(name: str) -> bool:
    """Tell whether a name is that of a watch whose memory is limited."""
    return name.partition("~")[2].startswith(_LIMITED)


def is_apart(name: str) -> bool:
    """Tell whether a name is that of a watch whose processor time is limited."""
    return name.partition("~")[2].startswith(_APART)


@dataclass(frozen=True)
class Identity:
    """What the rows of a rule are written with: name, labels, and the columns that it reads of each stream.

    `meaning` names all that its evaluations depend on.
    """

    alert: str
    labels: tuple[tuple[str, str], ...]
    lanes: tuple[Lane, ...]
    meaning: str

    @property
    def id(self) -> str:
        """By what the rule is found again."""
        return stable_hash(self.alert, self.labels)

    def to_json(self) -> list[Any]:
        """Write it."""
        return [self.alert, self.labels, self.lanes, self.meaning]

    @classmethod
    def of_json(cls, given: Sequence[Any]) -> Identity:
        """Read what was written."""
        name, labels, lanes, meaning = given
        pairs = tuple((str(label), str(value)) for label, value in labels)
        return cls(name, pairs, tuple((stream, tuple(columns)) for stream, columns in lanes), meaning)
