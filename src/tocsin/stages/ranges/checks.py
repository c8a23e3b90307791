"""Check what a range index is given: arrays of numbers, of one shape, within bounds. What is wrong is said in words."""

from __future__ import annotations

from typing import NoReturn

import numpy as np
from numpy.typing import ArrayLike

from tocsin.jit import kernel
from tocsin.runtime.contract import Float, Int


@kernel
def first_not_finite(rows: Float) -> int:
    """Give the first row with a coordinate that is not finite, or -1."""
    for row in range(rows.shape[0]):
        for axis in range(rows.shape[1]):
            if not np.isfinite(rows[row, axis]):
                return row
    return -1


@kernel
def are_usable(rows: Float, numbers: Int, most: int) -> bool:
    """Tell whether all coordinates are finite and all numbers from 1 to a most: in one call."""
    for row in range(rows.shape[0]):
        if numbers[row] < 1 or numbers[row] > most:
            return False
        for axis in range(rows.shape[1]):
            if not np.isfinite(rows[row, axis]):
                return False
    return True


@kernel
def first_outside(numbers: Int, least: int, most: int) -> int:
    """Give the first position whose number is outside of [least, most], or -1."""
    for position in range(len(numbers)):
        if numbers[position] < least or numbers[position] > most:
            return position
    return -1


@kernel
def first_not_a_range(low: Float, high: Float) -> int:
    """Give the first row in which some low is not at most its high, as is so of NaN, or -1."""
    for row in range(low.shape[0]):
        for axis in range(low.shape[1]):
            if not low[row, axis] <= high[row, axis]:
                return row
    return -1


def points(place: str, name: str, given: ArrayLike, dims: int) -> Float:
    """Make an array of shape (n, dims) of numbers; in one dimension also of shape (n,)."""
    try:
        if np.asarray(given).dtype.kind in "cmM":
            raise TypeError
        rows = np.array(given, dtype=np.float64, order="C")
    except (TypeError, ValueError, OverflowError):
        refuse(place, name, "must be numbers", f"{given!r}"[:100])
    if rows.ndim == 0 and dims == 1:
        rows = rows.reshape(1, 1)
    if rows.ndim == 1 and (dims == 1 or rows.size == 0):
        rows = rows.reshape(-1, dims)
    if rows.ndim != 2 or rows.shape[1] != dims:
        refuse(place, name, f"must have {dims} numbers per row", f"an array of shape {rows.shape}")
    return rows


def integers(place: str, name: str, given: ArrayLike, n: int | None) -> Int:
    """Make an int64 array; one number stands for `n` equal ones, if `n` is given."""
    try:
        numbers = np.asarray(given)
    except ValueError:
        refuse(place, name, "must be one number per row", f"{given!r}"[:100])
    if numbers.dtype.kind not in "iu":
        if numbers.size:
            refuse(place, name, "must be 64-bit integers", f"{numbers.dtype}")
        numbers = numbers.astype(np.int64)
    if numbers.dtype == np.uint64 and numbers.size and numbers.max() > np.iinfo(np.int64).max:
        refuse(place, name, "must be signed 64-bit integers", f"{numbers.max()}")
    if numbers.ndim == 0:
        return np.full(1 if n is None else n, numbers, dtype=np.int64)
    if numbers.ndim != 1:
        refuse(place, name, "must be one number per row", f"an array of shape {numbers.shape}")
    if n is not None:
        same_length(place, name, len(numbers), n)
    return np.array(numbers, dtype=np.int64)


def same_length(place: str, name: str, length: int, n: int) -> None:
    """Refuse an array that has not `n` rows."""
    if length != n:
        refuse(place, name, f"must have {n} rows like the other arguments", f"{length}")


def within(place: str, name: str, numbers: Int, least: int, most: int, most_in_words: str) -> None:
    """Refuse numbers outside of [least, most]."""
    wrong = first_outside(numbers, least, most)
    if wrong >= 0:
        refuse(place, name, f"must be from {least} to {most_in_words}", f"{numbers[wrong]} at position {wrong}")


def refuse(place: str, name: str, must: str, found: str) -> NoReturn:
    """Refuse what a call was given, in words."""
    message = f"{place}: `{name}` {must}; got {found}"
    raise ValueError(message)
