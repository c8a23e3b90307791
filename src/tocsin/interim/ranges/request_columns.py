"""Read what a `RangeRule` is given: requests and elements, each with the reason why it cannot be used, if so."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tocsin.hashing import assign_buckets
from tocsin.plan.ranges import RangeWatch
from tocsin.rules.ranges import ACTION, ID, REGISTER, TERMINATE, THRESHOLD
from tocsin.runtime.contract import Bools, Float, Int
from tocsin.stages.ranges.requests import LARGEST_WEIGHT

# Numbers travel as doubles: up to here no other whole number is taken for it.
LARGEST_THRESHOLD = (1 << 53) - 1
_LONGEST_ID = 1024
# Infinity stays what it is.
_AS_IS: dict[str, Any] = {"posinf": np.inf, "neginf": -np.inf}


class Reasons:
    """Which rows cannot be used, and why: a sentence is made when it is asked for, since few are shown."""

    def __init__(self, count: int) -> None:
        self.wrong: Bools = np.zeros(count, np.bool_)
        self._kinds: list[tuple[Bools, Callable[[int], str]]] = []
        self._some: dict[int, str] = {}

    def add(self, wrong: Bools, say: Callable[[int], str]) -> None:
        """Refuse rows; of one that was refused before, the first reason stays."""
        self.wrong |= wrong
        self._kinds.append((wrong, say))

    def add_some(self, at: Int, reason: str) -> None:
        """Refuse some rows for one reason."""
        self.wrong[at] = True
        self._some |= dict.fromkeys(at.tolist(), reason)

    def say(self, at: int) -> str:
        """Say why a row cannot be used."""
        return next((say(at) for wrong, say in self._kinds if wrong[at]), "") or self._some[at]


class Asked(NamedTuple):
    """Requests in columns; of those that cannot be used the columns mean nothing."""

    id: list[str]
    registers: Bools
    threshold: Int
    ends: Float
    reasons: Reasons


class Counted(NamedTuple):
    """Elements in columns, and which of them cannot be used."""

    values: Float
    weight: Int
    reasons: Reasons


def read_requests(watch: RangeWatch, values: Mapping[str, Float], payload: Sequence[str | None]) -> Asked:
    """Read rows of the stream of requests; an end that a row lacks is open."""
    reasons = Reasons(len(payload))
    ids, registers, unnamed = [""] * len(payload), np.zeros(len(payload), np.bool_), np.zeros(len(payload), np.bool_)
    rows = _read_all(payload)
    for at, columns in enumerate(rows):
        name, action = _named(columns)
        if _is_id(name) and (action is None or action in (REGISTER, TERMINATE)):
            ids[at], registers[at] = str(name), action != TERMINATE
        else:
            unnamed[at] = True
    reasons.add(unnamed, lambda at: _why_unnamed(*_named(rows[at])))
    threshold, ends = values[THRESHOLD], np.column_stack([values[name] for name in watch.ends])
    fine = _whole(threshold, LARGEST_THRESHOLD)
    must = f"`{THRESHOLD}` must be an integer from 1 to 2^53 - 1"
    reasons.add(registers & ~fine, lambda at: must + _got(threshold[at]))
    low, high = np.nan_to_num(ends[:, ::2], nan=-np.inf, **_AS_IS), np.nan_to_num(ends[:, 1::2], nan=np.inf, **_AS_IS)
    # A range that begins at infinity, or ends at minus infinity, can hold no element.
    wrong = (~(low <= high) | (low == np.inf) | (high == -np.inf)) & registers[:, None]

    def of_range(at: int) -> str:
        axis = int(wrong[at].argmax())
        names = watch.ends[2 * axis : 2 * axis + 2]
        found = f"got {low[at, axis]:g} and {high[at, axis]:g}"
        return f"`{names[0]}` must be at most `{names[1]}`, each finite or open; {found}"

    reasons.add(wrong.any(axis=1), of_range)
    ends[:, ::2], ends[:, 1::2] = low, high
    return Asked(ids, registers, np.where(fine, threshold, 0).astype(np.int64), ends, reasons)


def read_elements(watch: RangeWatch, values: Mapping[str, Float], count: int) -> Counted:
    """Read rows of the stream whose weight is counted."""
    reasons = Reasons(count)
    points = np.column_stack([values[name] for name in watch.values])
    endless = ~np.isfinite(points)

    def of_point(at: int) -> str:
        axis = int(endless[at].argmax())
        return f"`{watch.values[axis]}` must be a finite number{_got(points[at, axis])}"

    reasons.add(np.logical_or.reduce(endless, axis=1), of_point)
    if watch.weight is None:
        return Counted(points, np.ones(count, np.int64), reasons)
    weight = values[watch.weight]
    fine = _whole(weight, LARGEST_WEIGHT)
    reasons.add(~fine, lambda at: f"`{watch.weight}` must be an integer from 1 to 2^40{_got(weight[at])}")
    return Counted(points, np.where(fine, weight, 0).astype(np.int64), reasons)


def _read_all(payload: Sequence[str | None]) -> list[dict[str, Any]]:
    """Read texts that are a JSON object each, as one: several times as fast as one by one."""
    try:
        columns: list[dict[str, Any]] = json.loads(f"[{','.join([text or '{}' for text in payload])}]")
    except (ValueError, RecursionError):  # A number of thousands of digits, or brackets of thousands deep.
        return [_read_one(text) for text in payload]
    assert len(columns) == len(payload)
    return columns


def _read_one(text: str | None) -> dict[str, Any]:
    """Read a text; of one that cannot be read nothing is known."""
    try:
        columns: dict[str, Any] = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return columns


def _named(columns: Mapping[str, Any]) -> tuple[Any, Any]:
    """Give what a request has as id and as action; None where it has none."""
    # A frame of pandas has NaN where a cell is empty.
    name, action = (None if cell != cell else cell for cell in (columns.get(ID), columns.get(ACTION)))
    return (int(name) if isinstance(name, float) and name.is_integer() else name), action


def _is_id(name: Any) -> bool:
    return isinstance(name, str | int) and not isinstance(name, bool) and 0 < len(str(name)) <= _LONGEST_ID


def _why_unnamed(name: Any, action: Any) -> str:
    """Return the reason why the id or the action of a request is invalid."""
    if not isinstance(name, str | int) or isinstance(name, bool) or name == "":
        return f"`{ID}` must be a string or an integer; got {'null' if name is None else repr(name)[:99]}"
    if not _is_id(name):
        return f"`{ID}` must have at most {_LONGEST_ID:,} characters; got {len(str(name)):,}"
    return f"`{ACTION}` must be {REGISTER} or {TERMINATE}; got {action!r:.99}"


def assign_shards(payload: Sequence[str | None], shards: int) -> Int:
    """Return the shard of each request: the bucket of its id. A request without a valid id is in shard 0."""
    ids = [_named(_read_one(text))[0] for text in payload]
    valid = np.array([_is_id(one) for one in ids], np.bool_)
    return np.where(valid, assign_buckets((), [str(one) for one in ids], shards), 0)


def _whole(numbers: Float, most: int) -> Bools:
    """Tell which numbers are whole and from 1 to a most."""
    fine: Bools = (numbers >= 1) & (numbers <= most) & (np.floor(numbers) == numbers)
    return fine


def _got(number: Any) -> str:
    return "; the value is missing" if np.isnan(number) else f"; got {repr(float(number)).removesuffix('.0')}"
