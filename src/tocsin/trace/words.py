"""How a trace speaks of times, values, rows and lives: tests, explanations and reports use the same words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from tocsin.plan import Threshold
from tocsin.rules.durations import duration_text
from tocsin.rules.template import plain
from tocsin.trace.model import Evaluation, KeyRows, Traced

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# How a time is written: a date, or a duration since the start of a test.
When = Callable[[int], str]


def date(time_us: int) -> str:
    """Write a time as RFC 3339 has it, with as many digits as it needs; what no date can hold stays a number.

    >>> date(1_500_000), date(60_000_000)
    ('1970-01-01T00:00:01.500000Z', '1970-01-01T00:01:00Z')
    """
    try:
        moment = _EPOCH + timedelta(microseconds=time_us)
    except OverflowError:
        return f"{time_us}us"
    return moment.replace(tzinfo=None).isoformat() + "Z"


def named(stream: str, column: str) -> str:
    """Name a column as a condition does: the column `value` needs no name."""
    return stream if column == "value" else f"{stream}.{column}"


def number(value: float) -> str:
    """Write a number for people: six digits are enough."""
    return plain(float(f"{value:.6g}")) if abs(value) < 1e15 else f"{value:.6g}"


def values_text(stream: str, columns: Sequence[str], rows: KeyRows, row: int) -> str:
    """Write the values of a row: `air 19.5`."""
    return ", ".join(f"{named(stream, column)} {number(float(rows.values[column][row]))}" for column in columns)


def witness_text(traced: Traced, rule: Threshold, evaluation: Evaluation, when: When | None = None) -> str:
    """Write the rows of an evaluation: `air 21, surface.temp 18`, with their times if asked for."""
    parts = []
    for store, (stream, row) in zip(traced.stores_of(rule), evaluation.partners, strict=True):
        text = values_text(stream, store.store.columns, store.rows, row)
        parts.append(text if when is None else f"{text} at {when(int(store.rows.time[row]))}")
    return ", ".join(parts)


def without_limits_text(traced: Traced, rule: Threshold) -> str:
    """Say which tables of limits do not have the key; nothing if all do."""
    tables = " and ".join(f"`{table}`" for table in rule.tables_without(traced.key))
    if not tables:
        return ""
    key = ", ".join(f"{name}={text}" for name, text in zip(traced.watch.on, traced.key, strict=True))
    return f"no row in the table of limits {tables} for {key}: a comparison with its numbers is never true"


def life_text(state: str, start_us: int, end_us: int | None, for_us: int, when: When) -> str:
    """Say what a life did: pending, pending in vain, over, or going on."""
    start, wait = when(start_us), f"`for` is {duration_text(for_us)}"
    if state == "pending":
        return f"pending since {start}; {wait}, over at {when(start_us + for_us)}"
    end = "" if end_us is None else when(end_us)
    if state == "inactive":
        return f"it was pending from {start} to {end}; {wait}"
    return f"it began at {start} and was resolved at {end}" if end else f"it is {state} since {start}"


def distance(from_us: int, to_us: int) -> str:
    """Say how far a time lies from another: `42s before`."""
    if from_us == to_us:
        return "at that very time"
    return f"{duration_text(abs(to_us - from_us))} {'after' if to_us > from_us else 'before'}"


def counted(number: int, one: str) -> str:
    """A number of things.

    >>> counted(1, "row"), counted(2_000, "row"), counted(0, "key")
    ('1 row', '2,000 rows', '0 keys')
    """
    return f"{number:,} {one if number == 1 else f'{one}s'}"


def rounded(value_us: int) -> str:
    """Write a duration with no more digits than matter.

    >>> rounded(90_061_000_001), rounded(1_500_000)
    ('1d1h1m1s', '1s500ms')
    """
    for step, least in ((60_000_000, 864_000_000_000), (1_000_000, 60_000_000), (1_000, 1_000_000)):
        if abs(value_us) >= least:
            return duration_text(round(value_us / step) * step)
    return duration_text(value_us)


def size_text(size: float) -> str:
    """Write a number of bytes.

    >>> size_text(2048), size_text(17)
    ('2.0 KiB', '17 B')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024 or unit == "GiB":
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1024
    return ""
