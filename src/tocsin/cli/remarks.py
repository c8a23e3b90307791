"""What the last line of a run or a backtest says of rows that a user may think were used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tocsin.logic import Found

_LATE = "further behind than `outage`, not used"
_OF_STORES = {
    "out_of_domain": "outside the domain",
    "without_limits": "without a row in a table of limits",
    "behind": "came later than rows wait, used out of order",
    "shed": "given up for want of memory",
    "unprocessed": "went before all work on them was done, for want of processor time",
    "held": "still waiting to be taken in order, which the next run goes on with",
}


def unusable_lines(unusable: Iterable[str], reasons: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Return a line for each stream without a usable row; `reasons` are streams and reasons, the most frequent first.

    >>> list(unusable_lines(["air"], [("oil", "no"), ("air", "time `ts` is missing"), ("air", "no")]))
    ['stream `air`: no row could be used (time `ts` is missing; and other reasons)']
    >>> list(unusable_lines(["air"], []))
    ['stream `air`: no row could be used']
    """
    from tocsin.rules.mistakes import printable

    for stream in unusable:
        mine = [reason for name, reason in reasons if name == stream]
        more = "; and other reasons" if len(mine) > 1 else ""
        yield printable(f"stream `{stream}`: no row could be used{f' ({mine[0]}{more})' if mine else ''}")


def unreadable_lines(files: Mapping[str, int]) -> Iterator[str]:
    """Return a line for each stream with files that were skipped.

    >>> list(unreadable_lines({"air": 2}))
    ['2 files of `air` skipped from the damaged place on']
    """
    from tocsin.trace.words import counted

    for stream, number in files.items():
        yield f"{counted(number, 'file')} of `{stream}` skipped from the damaged place on"


def remarks(
    dead: int, reasons: Sequence[tuple[str, str]], counts: Mapping[str, Mapping[str, int]], late: str = _LATE
) -> Iterator[str]:
    """Tell of rows that were not used, then of those that were used with a doubt or wait; nothing if none do.

    `reasons` has streams and reasons of dead rows, the most frequent first; `counts` is what became of rows per store;
    `late` says what late rows are.

    >>> list(remarks(0, [], {"air": {"received": 5, "late": 2}}))
    ['2 rows of `air` further behind than `outage`, not used']
    """
    from tocsin.rules.mistakes import printable
    from tocsin.trace.words import counted

    if dead:
        stream, reason = reasons[0] if reasons else ("", "")
        more = "; and other reasons" if len(reasons) > 1 else ""
        why = f" (stream `{stream}`: {reason}{more})" if reasons else ""
        yield f"{counted(dead, 'row')} could not be used{printable(why)}"
    for name, words in {"late": late, **_OF_STORES}.items():
        found = {store: numbers[name] for store, numbers in counts.items() if numbers.get(name)}
        for store, number in found.items():
            yield f"{counted(number, 'row')} of `{store}` {words}"


def bought(shares: Mapping[str, tuple[float | None, float | None]]) -> Iterator[str]:
    """Tell what limited processor time bought, of alerts for which that is not all.

    >>> list(bought({"Near": (0.5, 0.714), "Far": (1.0, 1.0)}))
    ['`Near` worked on 50% of its rows and found about 71% of its results, of late']
    >>> list(bought({"Near": (0.9986, 1.0)}))
    ['`Near` worked on more than 99% of its rows and found about 100% of its results, of late']
    """
    for alert, (rows, results) in shares.items():
        if (rows is not None and rows < 1) or (results is not None and results < 1):
            yield f"`{alert}` {bought_text(rows, results)}"


def found_with_memory(memory: Mapping[str, Found]) -> Iterator[str]:
    """Tell what limited memory found, where that is known: rows may be shed that no result needed.

    >>> list(found_with_memory({"Near": Found(0.2, 0.061), "New": Found()}))
    ['`Near` found about 6% of its results with its memory, of late']
    >>> list(found_with_memory({"Far": Found(1.0, 1.0)}))
    ['`Far` found about 100% of its results with its memory, of late']
    """
    for alert, found in memory.items():
        if found.reached is not None:
            yield f"`{alert}` found {part_text(found.reached, 'about ')} of its results with its memory, of late"


def bought_text(rows: float | None, results: float | None) -> str:
    """Say on which share of its rows a rule worked, and which share of its results it found."""
    found = "an unknown part" if results is None else part_text(results, "about ")
    worked = "an unknown part" if rows is None else part_text(rows)
    return f"worked on {worked} of its rows and found {found} of its results, of late"


def part_text(share: float, about: str = "") -> str:
    """A share in per cent; one that is not all is never called so."""
    return "more than 99%" if 0.99 < share < 1 else f"{about}{share:.0%}"
