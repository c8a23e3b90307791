"""What the user asks of the edge, checked; nothing here reads or writes."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from tocsin.errors import RuleError
from tocsin.rules.durations import duration_text
from tocsin.stages.reduce.bracket import Reach
from tocsin.stages.reduce.windows import SHAPES, keys_and_reach

Domain = tuple[float, float]

EVERYTHING: Domain = (-inf, inf)
FORMATS = ("jsonl", "csv")
UNITS = ("s", "ms", "us", "ns")


def _must(holds: bool, message: str) -> None:
    if not holds:
        raise RuleError(message)


@dataclass(frozen=True)
class Settings:
    """How lines are read, and what may be left out of them."""

    time: str
    values: tuple[str, ...]
    interval_us: int
    hold_us: int
    shapes: tuple[str, ...] = ("quasiconvex",)
    keys: tuple[str, ...] = ()
    format: str = "jsonl"
    time_unit: str = "s"
    columns: tuple[str, ...] = ()
    delimiter: str = ","
    max_line: int = 1 << 20
    max_keys: int = 10_000
    domains: tuple[Domain, ...] = (EVERYTHING,)

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        fields = (self.time, *self.values, *self.keys)
        _must(bool(self.values), "`--value` must name at least one field; got none")
        _must(all(fields), "a field name must not be empty; got ''")
        _must(len(set(self.values)) == len(self.values), f"`--value` must name different fields; got {self.values}")
        self._one_per_value("shapes", "--shape")
        self._one_per_value("domains", "--domain")
        for shape in self.shapes:
            _must(shape in SHAPES, f"`--shape` must be one of {', '.join(SHAPES)}; got {shape!r}")
        for low, high in self.domains:
            _must(low <= high, f"`--domain` must not end before it begins; got {low},{high}")
        _must(self.format in FORMATS, f"`--format` must be one of {', '.join(FORMATS)}; got {self.format!r}")
        _must(self.time_unit in UNITS, f"`--time-unit` must be one of {', '.join(UNITS)}; got {self.time_unit!r}")
        _must(self.interval_us > 0, f"`--interval` must be above 0; got {duration_text(self.interval_us)}")
        within = f"got {duration_text(self.hold_us)} for an interval of {duration_text(self.interval_us)}"
        _must(0 <= self.hold_us <= self.interval_us, f"`--hold` must be between 0 and the interval; {within}")
        _must(len(self.delimiter) == 1, f"`--delimiter` must be one character; got {self.delimiter!r}")
        _must(self.max_line > 0, f"`--max-line` must be above 0; got {self.max_line}")
        _must(self.max_keys > 0, f"`--max-keys` must be above 0; got {self.max_keys}")
        missing = [field for field in fields if self.columns and field not in self.columns]
        _must(not missing, f"`--columns` must have every field that is read; {missing} are not in {self.columns}")

    def _one_per_value(self, name: str, option: str) -> None:
        """Let what was given once hold for all values."""
        given = getattr(self, name)
        if len(given) == 1:
            object.__setattr__(self, name, given * len(self.values))
        counts = f"got {len(given)} for {len(self.values)}"
        _must(len(given) in (1, len(self.values)), f"`{option}` must be given once, or once per `--value`; {counts}")

    def reaches(self) -> tuple[Reach, ...]:
        """Give how far windows reach on each side, for each watched value."""
        none = np.empty(0, np.int64)
        return tuple(keys_and_reach(none, self.interval_us, shape, "both", None)[1] for shape in self.shapes)

    def bound(self) -> dict[str, Any]:
        """Give what saved state depends on: with other values of these it could not be gone on with."""
        names = ("format", "time", "time_unit", "values", "shapes", "keys", "interval_us", "delimiter", "columns")
        plain = {name: getattr(self, name) for name in names}
        plain["domains"] = [f"{low},{high}" for low, high in self.domains]
        return {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}
