"""Deliveries by brute force: which alerts a start without a comparison would lose, from the facts that it would see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

# Micro-batch and line.
Place = tuple[int, int]


def is_loss_possible(
    next_batch: int, *, same_rows: bool, recorded: Iterable[int], cursors: Mapping[str, Place | None]
) -> bool:
    """Return whether new alerts can replace logged alerts, or can be written where a cursor has passed already."""
    for batch in range(next_batch, next_batch + 1000):
        if same_rows and batch == next_batch:
            continue
        if batch in recorded:
            return True
        if any(cursor is not None and cursor >= (batch, 0) for cursor in cursors.values()):
            return True
    return False


def undelivered(log: Mapping[int, list[str]], cursor: Place | None) -> list[str]:
    """Return the alerts that a sink reads from its cursor on."""
    return [
        alert for batch in sorted(log) for line, alert in enumerate(log[batch]) if (batch, line) > (cursor or (-1, -1))
    ]
