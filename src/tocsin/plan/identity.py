"""Identity: names that find stored state after a change of rules.

- An input state is identified by stream, columns and hopping windows.
- A rule is identified by its name and labels, as in Prometheus. It keeps its alerts if their meaning has not changed.
- A keyed pipeline adopts stored state that has rules in common with it (`assign_groups` in
  `runtime/state_registry.py`). So it finds its state after a change of the reorder wait or the budget. Its name has the
  key columns. With a reorder wait it also has the columns and the wait. With a memory budget it also has the rules.

Other changes of a rule do not affect its state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

from tocsin.hashing import stable_hash
from tocsin.rules.quality import ReorderWait

# Input view: the rows of a stream with finite values in these columns. Rules with other columns use other rows.
Lane = tuple[str, tuple[str, ...]]

_DIGITS = 16


_MEMORY = stable_hash("memory")
_CPU = stable_hash("cpu")


def reorder_pipeline_name(keys: str, read: Sequence[Any], waiting: ReorderWait) -> str:
    """Return the name of a keyed pipeline with a reorder wait.

    Pipelines that read the same columns have names that differ only in the last digest.
    """
    return f"{keys}~{stable_hash(*read)}{stable_hash(*astuple(waiting))}"


def memory_pipeline_name(keys: str, rules: Sequence[str]) -> str:
    """Return the name of a keyed pipeline with a memory budget. `rules` are the ids of its rules."""
    return f"{keys}~{_MEMORY}{stable_hash(*rules)}"


def cpu_pipeline_name(keys: str, apart: str) -> str:
    """Return the name of a keyed pipeline with a CPU budget."""
    return f"{keys}~{_CPU}{apart}"


def has_memory_budget(name: str) -> bool:
    """Return whether a name belongs to a keyed pipeline with a memory budget."""
    return name.partition("~")[2].startswith(_MEMORY)


def has_cpu_budget(name: str) -> bool:
    """Return whether a name belongs to a keyed pipeline with a CPU budget."""
    return name.partition("~")[2].startswith(_CPU)


@dataclass(frozen=True)
class Identity:
    """Identity of a rule, stored with its state.

    Attributes
    ----------
        alert: Name of the rule.
        labels: Labels as pairs of name and value.
        lanes: Input views: stream and columns of each input.
        meaning: Hash of everything that affects the evaluations.
    """

    alert: str
    labels: tuple[tuple[str, str], ...]
    lanes: tuple[Lane, ...]
    meaning: str

    @property
    def id(self) -> str:
        """Hash that identifies the rule in a checkpoint."""
        return stable_hash(self.alert, self.labels)

    def to_json(self) -> list[Any]:
        """Return the identity as a JSON array."""
        return [self.alert, self.labels, self.lanes, self.meaning]

    @classmethod
    def from_json(cls, array: Sequence[Any]) -> Identity:
        """Build an identity from a JSON array."""
        name, labels, lanes, meaning = array
        pairs = tuple((str(label), str(value)) for label, value in labels)
        return cls(name, pairs, tuple((stream, tuple(columns)) for stream, columns in lanes), meaning)
