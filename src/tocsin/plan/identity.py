"""Identity: by what state is found again when rules have changed.

A store is found by what it takes and cuts: stream, columns, hopping windows. A rule is found by its name and labels, as
in Prometheus; it keeps its alerts if what they mean has not changed. Everything else may change while state stays.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# Rows of a stream that have finite values in some columns: a row that lacks one rule's values may serve another.
Lane = tuple[str, tuple[str, ...]]


def digest(*parts: Any) -> str:
    """Name things by what they are; part of the state's format, so never to be changed."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


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
        return digest(self.alert, self.labels)

    def to_json(self) -> list[Any]:
        """Write it."""
        return [self.alert, self.labels, self.lanes, self.meaning]

    @classmethod
    def of_json(cls, given: Sequence[Any]) -> Identity:
        """Read what was written."""
        name, labels, lanes, meaning = given
        pairs = tuple((str(label), str(value)) for label, value in labels)
        return cls(name, pairs, tuple((stream, tuple(columns)) for stream, columns in lanes), meaning)
