"""Matches: every combination for which a rule is true, as rows of output.

Idea: a rule that emits all writes down more rows than all else that it does, so what rows have in common is made once:
labels and the beginning of the identity per key, columns per stream, the shown payload per text. A row has dicts of its
own all the same.
Zero has no sign here: rows that differ in it are the same.
Guarantee: the identity depends on the rule, its key, and the rows of the combination, and on nothing else: whichever
engine finds a combination again, in whichever call, gives it the same one.
Cost: some 9 us per row where a call has many, a fifth more where it has some hundred per rule.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tocsin.operators.lifecycle.witness import Witnesses
from tocsin.plan.identity import Identity
from tocsin.plan.report import AlertTimes, Key, Row, encode, labels_of, output_row, witnesses


class _Named(NamedTuple):
    """What rows of one key share: their labels, and the beginning of their identity."""

    labels: dict[str, str]
    begun: Any


def match_rows(
    rule: Identity, on: Sequence[str], keys: Sequence[Key], shown: Witnesses, qualities: Sequence[str]
) -> list[Row]:
    """Output rows of combinations that are true, each of a key: they begin and end with their rows."""
    shown = replace(shown, value=shown.value + 0.0, margin=shown.margin + 0.0, values=shown.values + 0.0)
    named = {key: _named(rule, on, key) for key in set(keys)}
    mine = [named[key] for key in keys]
    starts = shown.times.min(axis=1).tolist()
    spans = map(AlertTimes, starts, starts, shown.times.max(axis=1).tolist())
    numbers = zip(shown.value.tolist(), shown.margin.tolist(), strict=True)
    seen = list(zip(*witnesses(rule, on, shown), strict=True))
    every = zip(_ids(mine, shown, seen), mine, spans, numbers, seen, qualities, strict=True)
    return [
        output_row(rule.alert, mark, one.labels.copy(), "match", span, both, witness, how)
        for mark, one, span, both, witness, how in every
    ]


def _named(rule: Identity, on: Sequence[str], key: Key) -> _Named:
    labels = labels_of(rule, dict(zip(on, key, strict=True)))
    begun = hashlib.sha256(encode([rule.alert, sorted(labels.items()), rule.lanes]).encode())
    return _Named(labels, begun)


def _ids(named: Sequence[_Named], shown: Witnesses, seen: Sequence[Sequence[Row]]) -> Iterator[str]:
    """The identity of each match: of its key, and of times, values and payload of its rows."""
    numbers = np.concatenate([shown.times, np.ascontiguousarray(shown.values).view(np.int64)], axis=1)
    width, data = 8 * numbers.shape[1], numbers.astype("<i8").tobytes()
    texts = (shown.payload != None).any(axis=1).tolist()  # noqa: E711
    for i, (one, witness, has_text) in enumerate(zip(named, seen, texts, strict=True)):
        mark = one.begun.copy()
        mark.update(data[i * width : (i + 1) * width])
        if has_text:
            mark.update(encode([part["payload"] for part in witness]).encode())
        yield mark.hexdigest()[:16]
