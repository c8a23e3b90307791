"""Identity: by what state is found again when rules have changed.

A store is found by what it takes and cuts: stream, columns, hopping windows. A rule is found by its name and labels, as
in Prometheus; it keeps its alerts if what they mean has not changed. Everything else may change while state stays.
A watch is found by its key columns; one whose rows wait also by what it reads and how long they wait, which is all that
its rules have in common. So no rule beside them changes its name, and where the wait itself changes, state is found by
the rules that it is of (`heirs`). So it is where memory is limited from now on, by another budget, or no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
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


def heirs(stored: Mapping[str, Set[str]], planned: Mapping[str, Set[str]]) -> dict[str, str]:
    """By watch of a plan, the stored one whose state it takes over, if any; both with their rules.

    That is the one of its name if they share a rule, else one that differs in how rows wait, or in what memory is
    limited, alone and shares a rule, else the one of its name, if nobody has that. Rules that were together and part
    all take over what they had; of rules that were not and join, those go on that are found first.
    """
    found = {
        name: name for name, rules in planned.items() if name in stored and ("~" not in name or rules & stored[name])
    }
    for name in sorted(planned.keys() - found, key=lambda name: sorted(planned[name])):
        shared = {
            min(planned[name] & rules): old
            for old, rules in stored.items()
            if _reading(old) == _reading(name) and planned[name] & rules
        }
        if shared:
            found[name] = shared[min(shared)]
    free = stored.keys() - found.values()
    return found | {name: name for name in planned if name not in found and name in free}


def bequests(taken: Mapping[str, str], planned: Mapping[str, Set[str]]) -> dict[str, Bequest]:
    """By watch of a plan that takes over state, what it takes; the first of several is the one of its name, if any."""
    found = {}
    for old in set(taken.values()):
        names = sorted((name for name in taken if taken[name] == old), key=lambda name: (name != old, name))
        for name in names:
            others = (planned[other] for other in names if other != name)
            found[name] = Bequest(old, name != names[0], frozenset[str]().union(*others))
    return found


def _reading(name: str) -> str:
    """The name of a watch, without how its rows wait, if they do, and without those that share its memory.

    The rows of an anytime join are its own: nobody takes them over.
    """
    keys, apart, _ = name.partition("~")
    if is_apart(name):
        return name
    return keys if is_limited(name) or not apart else name[:-_DIGITS]


def is_limited(name: str) -> bool:
    """Tell whether a name is that of a watch whose memory is limited."""
    return name.partition("~")[2].startswith(_LIMITED)


def is_apart(name: str) -> bool:
    """Tell whether a name is that of a watch whose processor time is limited."""
    return name.partition("~")[2].startswith(_APART)


@dataclass(frozen=True)
class Bequest:
    """State that a watch takes over: whose, if any; whether it is another's too; the rules that others take it for."""

    of: str | None = None
    is_copy: bool = False
    elsewhere: frozenset[str] = frozenset()

    def speaks_of(self, rule: str, own: Set[str]) -> bool:
        """Tell whether this watch is to say what becomes of a rule: one that is gone is told of once."""
        return rule in own or not (self.is_copy or rule in self.elsewhere)


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
