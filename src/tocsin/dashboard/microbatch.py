"""Micro-batches as pages draw them: the lines of `progress.jsonl` that can be read, and the numbers of each by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tocsin.dashboard.fates import stores_of
from tocsin.run_directory import Progress
from tocsin.run_directory.progress import parse_progress
from tocsin.runtime.contract import Found

# No count, and no time in microseconds, is larger; what is reckoned with them stays finite.
MOST_NUMBER = 1 << 62
# How the names of numbers by alert begin.
OF_ALERT = ("wait ", "recall ", *(f"{name} " for name in Found._fields), "worked on ", "found ")


class Noted(NamedTuple):
    """A micro-batch, when it was done, how many rows it had, and what is drawn of it."""

    progress: Progress
    seconds: float
    rows: float
    numbers: dict[str, float]


def noted_of(lines: Iterable[bytes], *, is_first: bool) -> tuple[list[Noted], int]:
    """The micro-batches of some lines, and how many lines are none; the first may be a piece, and is not counted."""
    noted, torn = list[Noted](), 0
    for line in lines:
        found = list(parse_progress([line])) if line.strip() else []
        torn += bool(line.strip()) and not found and not is_first
        is_first = False
        for one in found:
            try:
                _check(one)
                noted.append(Noted(one, one.seconds, float(sum(one.gained.rows.values())), numbers_of(one)))
            except (TypeError, ValueError, AttributeError, KeyError, OverflowError):
                torn += 1
    return noted, torn


def _check(one: Progress) -> None:
    """Refuse a line with something else where numbers must stand: pages reckon with them."""
    for tally in (one.gained, one.total):
        flat = [tally.rows, tally.dead, *tally.counts.values(), *tally.alerts.values()]
        numbers = [number for part in flat for number in part.values()] + [tally.state_bytes, tally.batches]
        if not all(isinstance(number, int) and abs(number) <= MOST_NUMBER for number in numbers):
            message = "counts must be integers"
            raise TypeError(message)
    times = [*one.newest_us.values(), *one.milliseconds.values(), *(wait_us for wait_us, _ in one.waits.values())]
    times += [number for part in one.delays.values() for number in part.values()]
    times += one.shares.values()
    recalls = [recall for _, recall in one.waits.values() if recall is not None]
    limited = [*one.memory.values(), *one.cpu.values()]
    recalls += [recall for pair in limited for recall in pair if recall is not None]
    if not all(isinstance(time, int) and abs(time) <= MOST_NUMBER for time in times):
        message = "times must be integers"
        raise TypeError(message)
    if not all(isinstance(recall, int | float) and abs(recall) <= MOST_NUMBER for recall in recalls):
        message = "recalls must be finite numbers"
        raise TypeError(message)


def numbers_of(one: Progress) -> dict[str, float]:
    """What is drawn over time of a micro-batch, by name."""
    stores = stores_of(one.total.counts)
    found: dict[str, float] = {
        "state bytes": one.total.state_bytes,
        "kept": sum(store.now for store in stores),
        "omitted": sum(store.counts.get("omitted", 0) for store in stores),
        "received": sum(store.received for store in stores),
        "firing": sum(one.total.firing().values()),
        "seconds": sum(one.milliseconds.values()) / 1000,
    }
    found |= {f"lag {name}": lag for name, lag in one.lag_s.items()}
    found |= {f"rows {name}": number for name, number in one.gained.rows.items()}
    # By alert; `OF_ALERT` has the first words of these.
    found |= {f"wait {alert}": wait_us / 1e6 for alert, (wait_us, _) in one.waits.items()}
    found |= {f"recall {alert}": recall for alert, (_, recall) in one.waits.items() if recall is not None}
    for alert, known in one.memory.items():
        found |= {f"{name} {alert}": number for name, number in known._asdict().items() if number is not None}
    for alert, shares in one.cpu.items():
        both = zip(("worked on", "found"), shares, strict=True)
        found |= {f"{name} {alert}": share for name, share in both if share is not None}
    return found
