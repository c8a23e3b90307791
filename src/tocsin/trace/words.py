"""How a trace speaks of times, values, rows and lives: tests, explanations and reports use the same words."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tocsin.formatting import format_duration, format_number
from tocsin.plan import Threshold
from tocsin.rules.durations import duration_text
from tocsin.trace.model import Evaluation, KeyRows, Traced

# How a time is written: a date, or a duration since the start of a test.
When = Callable[[int], str]


def named(stream: str, column: str) -> str:
    """Name a column as a condition does: the column `value` needs no name."""
    return stream if column == "value" else f"{stream}.{column}"


def values_text(stream: str, columns: Sequence[str], rows: KeyRows, row: int) -> str:
    """Write the values of a row: `air 19.5`."""
    return ", ".join(f"{named(stream, column)} {format_number(float(rows.values[column][row]))}" for column in columns)


def witness_text(traced: Traced, rule: Threshold, evaluation: Evaluation, when: When | None = None) -> str:
    """Write the rows of an evaluation: `air 21, surface.temp 18`, with their times if asked for."""
    parts = []
    for store, (stream, row) in zip(traced.stores_of(rule), evaluation.partners, strict=True):
        text = values_text(stream, store.store.columns, store.rows, row)
        parts.append(text if when is None else f"{text} at {when(int(store.rows.time[row]))}")
    return ", ".join(parts)


def without_limits_text(traced: Traced, rule: Threshold) -> str:
    """Return a message with the limits tables that have no row of the key, or an empty text."""
    tables = " and ".join(f"`{table}`" for table in rule.tables_without(traced.key))
    if not tables:
        return ""
    key = ", ".join(f"{name}={text}" for name, text in zip(traced.watch.on, traced.key, strict=True))
    return f"no row for {key} in the limits table {tables}: a comparison with its columns is never true"


def life_text(state: str, start_us: int, end_us: int | None, for_us: int, when: When) -> str:
    """Return the states of an alert with their times as text."""
    start, wait = when(start_us), f"`for` is {duration_text(for_us)}"
    if state == "pending":
        return f"pending since {start}; {wait} and ends at {when(start_us + for_us)}"
    end = "" if end_us is None else when(end_us)
    if state == "inactive":
        return f"it was pending from {start} to {end}; {wait}"
    return f"it started at {start} and was resolved at {end}" if end else f"it has been {state} since {start}"


def distance(from_us: int, to_us: int) -> str:
    """Return the distance of two times as text, for example `42s before`."""
    if from_us == to_us:
        return "at the same time"
    return f"{format_duration(abs(to_us - from_us))} {'after' if to_us > from_us else 'before'}"
