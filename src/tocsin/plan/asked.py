"""Read what a `Ranges` rule is given: requests and elements, each with the reason why it cannot be used, if so."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tocsin.logic import Bools, Float, Int
from tocsin.plan.ranges import RangeWatch
from tocsin.rules.ranges import ACTION, ID, REGISTER, TERMINATE, THRESHOLD
from tocsin.stages.ranges.requests import LARGEST_WEIGHT

# Numbers travel as doubles, which hold whole numbers up to here.
LARGEST_THRESHOLD = 1 << 53
_LONGEST_ID = 1024
# Infinity stays what it is.
_AS_IS: dict[str, Any] = {"posinf": np.inf, "neginf": -np.inf}


class Asked(NamedTuple):
    """Requests in columns. `reason` says, by position, why some cannot be used; their other columns mean nothing."""

    id: list[str]
    registers: Bools
    threshold: Int
    ends: Float
    reason: dict[int, str]


class Counted(NamedTuple):
    """Elements in columns, and why some cannot be used."""

    values: Float
    weight: Int
    reason: dict[int, str]


def read_requests(watch: RangeWatch, values: Mapping[str, Float], payload: Sequence[str | None]) -> Asked:
    """Read rows of the stream of requests; an end that a row lacks is open."""
    reason: dict[int, str] = {}
    ids, registers = [""] * len(payload), np.zeros(len(payload), np.bool_)
    for at, columns in enumerate(_read_all(payload)):
        try:
            ids[at], registers[at] = _id_and_action(columns)
        except ValueError as error:
            reason[at] = str(error)
    threshold, ends = values[THRESHOLD], np.column_stack([values[name] for name in watch.ends])
    fine = _whole(threshold, LARGEST_THRESHOLD)
    for at in np.flatnonzero(registers & ~fine).tolist():
        reason.setdefault(at, f"`{THRESHOLD}` must be a whole number from 1 to 2^53{_got(threshold[at])}")
    low, high = np.nan_to_num(ends[:, ::2], nan=-np.inf, **_AS_IS), np.nan_to_num(ends[:, 1::2], nan=np.inf, **_AS_IS)
    # A range that begins at infinity, or ends at minus infinity, can hold no element.
    wrong = ~(low <= high) | (low == np.inf) | (high == -np.inf)
    for at, axis in np.argwhere(wrong & registers[:, None]).tolist():
        names = watch.ends[2 * axis : 2 * axis + 2]
        found = f"got {low[at, axis]:g} and {high[at, axis]:g}"
        reason.setdefault(at, f"`{names[0]}` must be at most `{names[1]}`, each finite or open; {found}")
    ends[:, ::2], ends[:, 1::2] = low, high
    return Asked(ids, registers, np.where(fine, threshold, 0).astype(np.int64), ends, reason)


def read_elements(watch: RangeWatch, values: Mapping[str, Float], count: int) -> Counted:
    """Read rows of the stream whose weight is counted."""
    reason: dict[int, str] = {}
    points = np.column_stack([values[name] for name in watch.values])
    for at, axis in np.argwhere(~np.isfinite(points)).tolist():
        reason.setdefault(at, f"`{watch.values[axis]}` must be a finite number{_got(points[at, axis])}")
    if watch.weight is None:
        return Counted(points, np.ones(count, np.int64), reason)
    weight = values[watch.weight]
    fine = _whole(weight, LARGEST_WEIGHT)
    for at in np.flatnonzero(~fine).tolist():
        reason.setdefault(at, f"`{watch.weight}` must be a whole number from 1 to 2^40{_got(weight[at])}")
    return Counted(points, np.where(fine, weight, 0).astype(np.int64), reason)


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


def _id_and_action(columns: Mapping[str, Any]) -> tuple[str, bool]:
    """Give the id of a request and whether it registers; what is wrong is a ValueError."""
    # A frame of pandas has NaN where a cell is empty.
    name, action = (None if cell != cell else cell for cell in (columns.get(ID), columns.get(ACTION)))
    if isinstance(name, float) and name.is_integer():
        name = int(name)
    if isinstance(name, bool) or not isinstance(name, str | int) or name == "":
        message = f"`{ID}` must be a text or a whole number; got {'none' if name is None else repr(name)[:99]}"
        raise ValueError(message)
    if len(str(name)) > _LONGEST_ID:
        message = f"`{ID}` must have at most {_LONGEST_ID:,} characters; it has {len(str(name)):,}"
        raise ValueError(message)
    if action not in (None, REGISTER, TERMINATE):  # which may not be hashable
        message = f"`{ACTION}` must be {REGISTER} or {TERMINATE}; got {action!r:.99}"
        raise ValueError(message)
    return str(name), action != TERMINATE


def part_of(text: str | None, parts: int) -> int:
    """Tell to which part of its key a request belongs, by its id; one that cannot be used belongs to the first."""
    try:
        return zlib.crc32(_id_and_action(_read_one(text))[0].encode()) % parts
    except ValueError:
        return 0


def _whole(numbers: Float, most: int) -> Bools:
    """Tell which numbers are whole and from 1 to a most."""
    fine: Bools = (numbers >= 1) & (numbers <= most) & (np.floor(numbers) == numbers)
    return fine


def _got(number: Any) -> str:
    return "; it is missing" if np.isnan(number) else f"; got {number:g}"
