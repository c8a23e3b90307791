"""Settings: the checked options of the edge filter that decide how lines are read and which rows may be omitted."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from tocsin.errors import RuleError
from tocsin.operators.retention.bracketing import Reach
from tocsin.operators.retention.window_bounds import SHAPES, window_keys_and_reach
from tocsin.rules.durations import duration_text

Domain = tuple[float, float]

UNBOUNDED: Domain = (-inf, inf)
FORMATS = ("jsonl", "csv")
UNITS = ("s", "ms", "us", "ns")


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise RuleError(message)


@dataclass(frozen=True)
class Settings:
    """Options of `tocsin edge`. An invalid combination raises RuleError.

    Attributes
    ----------
    time, values, keys
        Names of the fields that are read: event time, numeric values and key. All other fields are payload.
    interval_us
        Length of the windows whose extreme values are kept.
    max_delay_us
        Maximum delay of a row in event time, from 0 to the interval.
    shapes, domains
        Shape and domain of the conditions in each value. A single item applies to all values.
    format, columns, delimiter
        Input format; the column names of CSV without a header; the delimiter of CSV.
    time_unit
        Unit of numeric event times.
    max_line, max_keys
        Maximum length of a line in bytes, and maximum number of keys with retained rows.
    """

    time: str
    values: tuple[str, ...]
    interval_us: int
    max_delay_us: int
    shapes: tuple[str, ...] = ("quasiconvex",)
    keys: tuple[str, ...] = ()
    format: str = "jsonl"
    time_unit: str = "s"
    columns: tuple[str, ...] = ()
    delimiter: str = ","
    max_line: int = 1 << 20
    max_keys: int = 10_000
    domains: tuple[Domain, ...] = (UNBOUNDED,)

    def __post_init__(self) -> None:
        """Check the options."""
        fields = (self.time, *self.values, *self.keys)
        _require(bool(self.values), "`--value` must name at least one field; got none")
        _require(all(fields), "a field name must not be empty; got ''")
        _require(len(set(self.values)) == len(self.values), f"`--value` must name different fields; got {self.values}")
        self._expand_to_values("shapes", "--shape")
        self._expand_to_values("domains", "--domain")
        for shape in self.shapes:
            _require(shape in SHAPES, f"`--shape` must be one of {', '.join(SHAPES)}; got {shape!r}")
        for low, high in self.domains:
            _require(low <= high, f"`--domain` must not end before it begins; got {low},{high}")
        _require(self.format in FORMATS, f"`--format` must be one of {', '.join(FORMATS)}; got {self.format!r}")
        _require(self.time_unit in UNITS, f"`--time-unit` must be one of {', '.join(UNITS)}; got {self.time_unit!r}")
        _require(self.interval_us > 0, f"`--interval` must be above 0; got {duration_text(self.interval_us)}")
        within = f"got {duration_text(self.max_delay_us)} for an interval of {duration_text(self.interval_us)}"
        _require(
            0 <= self.max_delay_us <= self.interval_us, f"`--max-delay` must be between 0 and the interval; {within}"
        )
        _require(len(self.delimiter) == 1, f"`--delimiter` must be one character; got {self.delimiter!r}")
        _require(self.max_line > 0, f"`--max-line` must be above 0; got {self.max_line}")
        _require(self.max_keys > 0, f"`--max-keys` must be above 0; got {self.max_keys}")
        missing = [field for field in fields if self.columns and field not in self.columns]
        _require(not missing, f"`--columns` must have every field that is read; {missing} are not in {self.columns}")

    def _expand_to_values(self, name: str, option: str) -> None:
        """Repeat a single item for all values. Raise RuleError for any other count that differs from the values."""
        items = getattr(self, name)
        if len(items) == 1:
            object.__setattr__(self, name, items * len(self.values))
        counts = f"got {len(items)} for {len(self.values)}"
        _require(len(items) in (1, len(self.values)), f"`{option}` must be given once, or once per `--value`; {counts}")

    def reaches(self) -> tuple[Reach, ...]:
        """Return the window reach of each value."""
        no_times = np.empty(0, np.int64)
        return tuple(window_keys_and_reach(no_times, self.interval_us, shape, "both", None)[1] for shape in self.shapes)

    def state_settings(self) -> dict[str, Any]:
        """Return the settings that a saved state depends on, in the form of JSON."""
        names = ("format", "time", "time_unit", "values", "shapes", "keys", "interval_us", "delimiter", "columns")
        plain = {name: getattr(self, name) for name in names}
        plain["domains"] = [f"{low},{high}" for low, high in self.domains]
        return {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}
