"""Columns in memory: arrays, tables of Arrow or DataFrames, as users hand them over, become times, numbers and keys.

A column of a type that cannot be meant is refused; a single cell that cannot be used is only marked as not there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.errors import PlanError
from tocsin.logic import FIRST_US, LAST_US, Float, Int

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Bools = NDArray[np.bool_]


def read_table(given: Any, place: str) -> dict[str, Any]:
    """The columns of a mapping of arrays, a table of Arrow or a DataFrame, by name; all of one length."""
    names_at = next((name for name in ("column_names", "columns") if hasattr(given, name)), None)
    if names_at is None and not isinstance(given, Mapping):
        message = f"{place} must be columns by name, or a DataFrame of pandas; got {type(given).__name__}"
        raise PlanError(message)
    labels = list(given) if names_at is None else list(getattr(given, names_at))
    names = [str(label) for label in labels]
    for name in names:
        if names.count(name) > 1:
            message = f"{place} must have different column names; {name!r} stands {names.count(name)} times"
            raise PlanError(message)
    table = {name: _without_arrow(given[label]) for name, label in zip(names, labels, strict=True)}
    for name, column in table.items():
        _check_flat(column, f"{place}: column {name!r}")
    lengths = {len(column) for column in table.values()}
    if len(lengths) > 1:
        message = f"{place}: columns must have equal lengths; got {sorted(lengths)}"
        raise PlanError(message)
    return table


def _without_arrow(column: Any) -> Any:
    """A column of Arrow as a list: NumPy alone would make floats of whole numbers with a null."""
    return column.to_pylist() if hasattr(column, "to_pylist") else column


def _array(column: Any) -> NDArray[Any]:
    """A column as NumPy has it; whole numbers of pandas with a null stay whole, as objects."""
    if (
        getattr(getattr(column, "dtype", None), "kind", "") in {"i", "u"}
        and hasattr(column, "isna")
        and column.isna().any()
    ):
        column = column.astype(object)
    return np.asarray(column)


def _check_flat(column: Any, place: str) -> None:
    shape = getattr(column, "shape", None)
    if shape is None and isinstance(column, Sequence) and not isinstance(column, str | bytes):
        nested = any(isinstance(cell, list | tuple | np.ndarray) for cell in column)
        shape = (len(column), 0) if nested else (len(column),)
    if shape is None or len(shape) != 1:
        found = type(column).__name__ if not shape else f"{len(shape)} dimensions"
        message = f"{place} must be a list or an array of one dimension; got {found}"
        raise PlanError(message)


def read_times(column: Any, place: str, least: int = FIRST_US, most: int = LAST_US) -> tuple[Int, Bools]:
    """Whole microseconds, and which of them are there."""
    if getattr(getattr(column, "dt", None), "tz", None) is not None:
        column = column.dt.tz_convert("UTC").dt.tz_localize(None)
    array = _array(column)
    there: Bools = ~np.ma.getmaskarray(column) if np.ma.isMaskedArray(column) else np.ones(len(array), np.bool_)
    if array.dtype.kind == "M":
        micros = array.astype("datetime64[us]")
        there = there & ~np.isnat(array)
        if np.datetime_data(array.dtype)[0] not in {"ns", "ps", "fs", "as"}:
            # Coarse units reach further than microseconds: what wrapped around does not come back as it was.
            there &= micros.astype(array.dtype) == array
        times = micros.astype(np.int64)
    elif array.dtype.kind in "iu":
        there, times = there & (array <= most), array.astype(np.int64)
    elif array.dtype == object or not len(array):
        times, there = _times_of_objects(array, place, least, most)
    else:
        message = f"{place} must hold datetimes or whole microseconds; it holds {array.dtype}"
        seconds = " (seconds s as microseconds: `(s * 1e6).round().astype('int64')`)" * (array.dtype.kind == "f")
        raise PlanError(message + seconds)
    there = there & (times >= least) & (times <= most)
    return np.where(there, times, 0), there


def _times_of_objects(array: NDArray[Any], place: str, least: int, most: int) -> tuple[Int, Bools]:
    there = ~_missing(array)
    times = np.zeros(len(array), np.int64)
    for i in np.flatnonzero(there):
        if not isinstance(array[i], datetime | int | np.integer) or isinstance(array[i], bool):
            message = f"{place} must hold datetimes or whole microseconds; it holds {array[i]!r}"
            raise PlanError(message)
        micros = _micros(array[i])
        there[i] = least <= micros <= most
        times[i] = micros if there[i] else 0
    return times, there


def _missing(array: NDArray[Any]) -> Bools:
    """Tell which objects stand for nothing: None, NaN, NaT, and what pandas has for it."""
    return np.fromiter(map(_is_missing, array), np.bool_, len(array))


def _is_missing(x: Any) -> bool:
    if isinstance(x, Decimal):
        return x.is_nan()  # A signalling NaN may not even be compared.
    if isinstance(x, float | np.floating | np.datetime64):
        return bool(x != x)  # as only NaN and NaT are
    return x is None or type(x).__name__ in {"NAType", "NaTType"}


def _micros(time: datetime | int) -> int:
    if not isinstance(time, datetime):
        return int(time)
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - EPOCH) // timedelta(microseconds=1)


def read_numbers(column: Any, place: str) -> Float:
    """Numbers as doubles; NaN where there is none."""
    if np.ma.isMaskedArray(column):
        return np.where(np.ma.getmaskarray(column), np.nan, read_numbers(column.data, place))
    array = np.asarray(column)
    if array.dtype.kind in "iufb":
        return array.astype(np.float64)
    if array.dtype != object and len(array):
        message = f"{place} must hold numbers; it holds {array.dtype}"
        raise PlanError(message)
    numbers = np.full(len(array), np.nan)
    for i in np.flatnonzero(~_missing(array)):
        if not isinstance(array[i], Real | Decimal | np.bool_):
            message = f"{place} must hold numbers; it holds {array[i]!r}"
            raise PlanError(message)
        numbers[i] = _double(array[i])
    return numbers


def _double(number: Any) -> float:
    try:
        return float(number)
    except OverflowError:  # a whole number beyond all doubles
        return np.inf


def read_keys(columns: Sequence[Any], places: Sequence[str], rows: int) -> tuple[Int, list[tuple[str, ...]], Bools]:
    """Number the distinct keys; a key with a null is none."""
    if not columns:
        return np.zeros(rows, np.int64), [()], np.ones(rows, np.bool_)
    codes, keys = np.zeros(rows, np.int64), list[tuple[str, ...]]([()])
    known = np.ones(rows, np.bool_)
    for column, place in zip(columns, places, strict=True):
        mine, words = _encode(column, place)
        known &= mine >= 0
        codes, used = codes * len(words) + np.maximum(mine, 0), np.arange(len(words))
        if len(columns) > 1:
            used, codes = np.unique(codes, return_inverse=True)
        keys = [(*keys[i // len(words)], words[i % len(words)]) for i in used.tolist()]
    return codes, keys, known


def _encode(column: Any, place: str) -> tuple[Int, list[str]]:
    """Number the distinct values of a key column, -1 where it is null; give their texts."""
    import pyarrow as pa

    kind: Any = getattr(column, "dtype", "values of several types")
    try:
        array = pa.array(column if len(column) else [], from_pandas=True)
        array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
        kind = array.type
    except (
        pa.ArrowException,
        TypeError,
        ValueError,
        OverflowError,
    ):  # several types, or an odd one
        array = None
    plain = (pa.types.is_string, pa.types.is_large_string, pa.types.is_integer, pa.types.is_boolean, pa.types.is_null)
    if array is None or not any(is_plain(kind) for is_plain in plain):
        message = f"{place} must hold text, whole numbers or booleans; it holds {kind}"
        if array is not None and pa.types.is_floating(kind):
            message += " (whole numbers with a null are float in pandas: use its type Int64)"
        raise PlanError(message)
    encoded = array.dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, encoded.dictionary.cast(pa.string()).to_pylist() or [""]


def read_cells(column: Any) -> NDArray[Any]:
    """A column of any type, for its cells to be shown: nothing is None, and times are no finer than microseconds."""
    array = _array(column)
    if array.dtype.kind in "mM" and np.datetime_data(array.dtype)[0] in {"ns", "ps", "fs", "as"}:
        array = array.astype(f"{array.dtype.kind}8[us]")
    hidden = np.ma.getmaskarray(column) if np.ma.isMaskedArray(column) else np.zeros(len(array), np.bool_)
    if array.dtype == object:
        named = np.fromiter((type(cell).__name__ in {"NAType", "NaTType"} for cell in array), np.bool_, len(array))
        hidden = hidden | named
    if hidden.any():
        array = array.astype(object)
        array[hidden] = None
    return array


@dataclass(frozen=True)
class Payload:
    """The columns that travel along, as JSON text of those rows that are asked for."""

    columns: Mapping[str, NDArray[Any]]
    rows: Int | None

    def of(self, at: Int) -> Payload:
        """The payload of some rows."""
        return Payload(self.columns, at if self.rows is None else self.rows[at])

    def take(self, at: Int) -> list[str]:
        """The texts of some rows."""
        rows = at if self.rows is None else self.rows[at]
        picked = {name: column[rows].tolist() for name, column in self.columns.items()}
        return [json.dumps({name: values[i] for name, values in picked.items()}, default=str) for i in range(len(rows))]
