"""What counts as a result of a rule that waits: a row that is true with some row taken before it, by plain loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence

# A row: key, stream, time, value.
Row = tuple[object, str, int, float]


def results_by_period(
    rows: Sequence[Row], is_true: Callable[[float, float], bool], first: str, within: int, over: int
) -> dict[int, tuple[int, int]]:
    """Of rows in the order in which they are taken: by period its results in order, and all.

    Two streams; `is_true` has the value of the one called `first` first. A row is in order if none of its key with a
    later time was taken before it.
    """
    found: dict[int, tuple[int, int]] = {}
    for number, (key, stream, time, value) in enumerate(rows):
        before = [row for row in rows[:number] if row[0] == key]
        near = [row[3] for row in before if row[1] != stream and abs(row[2] - time) <= within]
        if any(is_true(value, other) if stream == first else is_true(other, value) for other in near):
            in_order = all(row[2] <= time for row in before)
            begin = time // over * over
            some, whole = found.get(begin, (0, 0))
            found[begin] = some + in_order, whole + 1
    return found
