"""Input columns: arrays, Arrow tables and DataFrames of users, converted to times, numbers and keys.

A column of an unsupported type raises PlanError. An unusable cell in a supported column is only marked as missing.
"""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.errors import PlanError
from tocsin.runtime.contract import FIRST_US, LAST_US, Float, Int

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Bools = NDArray[np.bool_]


def read_table(given: Any, place: str) -> dict[str, Any]:
    """Return the columns of a mapping, an Arrow table or a DataFrame by name. All have the same length."""
    names_at = next((name for name in ("column_names", "columns") if hasattr(given, name)), None)
    if names_at is None and not isinstance(given, Mapping):
        message = (
            f"{place} must be a mapping of columns, an Arrow table or a pandas DataFrame; got {type(given).__name__}"
        )
        raise PlanError(message)
    labels = list(given) if names_at is None else list(getattr(given, names_at))
    names = [str(label) for label in labels]
    for name in names:
        if names.count(name) > 1:
            message = f"{place} must have different column names; {name!r} is used {names.count(name)} times"
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
    """Return an Arrow column as a list. NumPy would convert integers with a null to floats."""
    return column.to_pylist() if hasattr(column, "to_pylist") else column


def _array(column: Any) -> NDArray[Any]:
    """Return a column as an array. A pandas column of integers with a null becomes an array of objects."""
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
        message = f"{place} must be a list or a one-dimensional array; got {found}"
        raise PlanError(message)


def read_times(column: Any, place: str, least: int = FIRST_US, most: int = LAST_US) -> tuple[Int, Bools]:
    """Return times in integer microseconds, and a mask of the usable cells. Other times are 0.

    A time is usable if it is from `least` to `most`.
    """
    if getattr(getattr(column, "dt", None), "tz", None) is not None:
        column = column.dt.tz_convert("UTC").dt.tz_localize(None)
    array = _array(column)
    there: Bools = ~np.ma.getmaskarray(column) if np.ma.isMaskedArray(column) else np.ones(len(array), np.bool_)
    if array.dtype.kind == "M":
        micros = array.astype("datetime64[us]")
        there = there & ~np.isnat(array)
        if np.datetime_data(array.dtype)[0] not in {"ns", "ps", "fs", "as"}:
            # Coarse units can overflow microseconds. Then the conversion back returns another time.
            there &= micros.astype(array.dtype) == array
        times = micros.astype(np.int64)
    elif array.dtype.kind in "iu":
        there, times = there & (array <= most), array.astype(np.int64)
    elif array.dtype == object or not len(array):
        times, there = _times_of_objects(array, place, least, most)
    else:
        message = f"{place} must contain datetimes or integer microseconds; got {array.dtype}"
        seconds = " (to convert seconds s: `(s * 1e6).round().astype('int64')`)" * (array.dtype.kind == "f")
        raise PlanError(message + seconds)
    there = there & (times >= least) & (times <= most)
    return np.where(there, times, 0), there


def _times_of_objects(array: NDArray[Any], place: str, least: int, most: int) -> tuple[Int, Bools]:
    there = ~_missing(array)
    times = np.zeros(len(array), np.int64)
    for i in np.flatnonzero(there):
        if not isinstance(array[i], datetime | int | np.integer) or isinstance(array[i], bool):
            message = f"{place} must contain datetimes or integer microseconds; got {array[i]!r}"
            raise PlanError(message)
        micros = _micros(array[i])
        there[i] = least <= micros <= most
        times[i] = micros if there[i] else 0
    return times, there


def _missing(array: NDArray[Any]) -> Bools:
    """Return a mask of the missing objects: None, NaN, NaT and the missing values of pandas."""
    return np.fromiter(map(_is_missing, array), np.bool_, len(array))


def _is_missing(x: Any) -> bool:
    if isinstance(x, Decimal):
        return x.is_nan()  # A comparison with a signalling NaN raises an error.
    if isinstance(x, float | np.floating | np.datetime64):
        return bool(x != x)  # Only NaN and NaT differ from themselves.
    return x is None or type(x).__name__ in {"NAType", "NaTType"}


def _micros(time: datetime | int) -> int:
    if not isinstance(time, datetime):
        return int(time)
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - EPOCH) // timedelta(microseconds=1)


def read_numbers(column: Any, place: str) -> Float:
    """Return numbers as float64, with NaN for missing cells."""
    if np.ma.isMaskedArray(column):
        return np.where(np.ma.getmaskarray(column), np.nan, read_numbers(column.data, place))
    array = np.asarray(column)
    if array.dtype.kind in "iufb":
        return array.astype(np.float64)
    if array.dtype != object and len(array):
        message = f"{place} must contain numbers; got {array.dtype}"
        raise PlanError(message)
    numbers = np.full(len(array), np.nan)
    for i in np.flatnonzero(~_missing(array)):
        if not isinstance(array[i], Real | Decimal | np.bool_):
            message = f"{place} must contain numbers; got {array[i]!r}"
            raise PlanError(message)
        numbers[i] = _double(array[i])
    return numbers


def _double(number: Any) -> float:
    try:
        return float(number)
    except OverflowError:  # An integer above the range of float64.
        return np.inf


def read_keys(columns: Sequence[Any], places: Sequence[str], rows: int) -> tuple[Int, list[tuple[str, ...]], Bools]:
    """Return the key number of each row, the distinct keys, and a mask of the rows without a null in their key."""
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
    """Return the number of each value of a key column, in order of appearance, and the texts of the distinct values.

    A null has the number -1. Arrow would be as fast, but converting a column to Arrow imports pandas.
    """
    dtype = getattr(column, "dtype", None)
    if isinstance(column, np.ndarray) and not np.ma.isMaskedArray(column) and column.dtype.kind in "iu":
        return _encode_integers(column)
    cells = column.tolist() if hasattr(column, "tolist") else list(column)
    kinds = set(map(type, cells)) - {type(None)}
    odd = tuple(kind for kind in kinds if not issubclass(kind, str | int | np.integer | np.bool_))
    for cell in cells if odd else ():
        if isinstance(cell, odd) and not _is_missing(cell):
            found = str(dtype) if isinstance(dtype, np.dtype) and dtype.kind != "O" else repr(cell)
            hint = " (integers with a null are float in pandas: use the pandas type Int64)" * isinstance(cell, float)
            raise _key_error(place, found + hint)
    if odd:
        cells = [None if isinstance(cell, odd) else cell for cell in cells]
    number: dict[Any, int] = defaultdict(itertools.count().__next__)
    codes = np.fromiter(map(number.__getitem__, cells), np.int64, len(cells))
    null = number.pop(None, None)
    if null is not None:
        codes = np.where(codes == null, -1, codes - (codes > null))
    distinct = list(number)
    if len({_key_type(kind) for kind in kinds.difference(odd)}) > 1:
        examples = {_key_type(type(cell)): cell for cell in cells if cell is not None}
        raise _key_error(place, " and ".join(map(repr, examples.values())))
    texts = [str(cell).lower() if isinstance(cell, bool | np.bool_) else str(cell) for cell in distinct]
    for text in texts:
        if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
            raise _key_error(place, f"{text!r}, which is not Unicode text")
    return codes, texts or [""]


def _encode_integers(column: Int) -> tuple[Int, list[str]]:
    """Return the number of each value of an integer column, in ascending order, and the texts of distinct values."""
    least, most = (int(column.min()), int(column.max())) if len(column) else (0, 0)
    if most - least <= len(column):
        place = (column - least).astype(np.int64)
        is_there = np.bincount(place, minlength=1) > 0
        distinct, codes = np.flatnonzero(is_there) + least, (np.cumsum(is_there) - 1)[place]
    else:
        distinct, codes = np.unique(column, return_inverse=True)
    return codes, list(map(str, distinct.tolist())) or [""]


def _key_type(kind: type) -> type:
    return str if issubclass(kind, str) else bool if issubclass(kind, bool | np.bool_) else int


def _key_error(place: str, found: str) -> PlanError:
    return PlanError(f"{place} must contain strings, integers or booleans; got {found}")


def read_cells(column: Any) -> NDArray[Any]:
    """Return the cells of a column of any type for display. Missing cells are None; times have microseconds."""
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
    """Payload: columns that no rule reads. Rows are converted to JSON on demand.

    Attributes
    ----------
    columns
        Cells by column name.
    rows
        Indexes of the rows in the columns; None for all rows.
    """

    columns: Mapping[str, NDArray[Any]]
    rows: Int | None

    def of(self, at: Int) -> Payload:
        """Return the payload of a selection of rows."""
        return Payload(self.columns, at if self.rows is None else self.rows[at])

    def take(self, at: Int) -> list[str]:
        """Return the JSON of a selection of rows."""
        rows = at if self.rows is None else self.rows[at]
        picked = {name: column[rows].tolist() for name, column in self.columns.items()}
        return [json.dumps({name: values[i] for name, values in picked.items()}, default=str) for i in range(len(rows))]
