"""What the last line of a run or a backtest says of rows that a user may think were used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

_OF_STORES = {
    "late": "further behind than `outage`, not used",
    "out_of_domain": "outside the domain",
    "without_limits": "without a row in a table of limits",
    "behind": "came later than rows wait, used out of order",
    "held": "still waiting to be taken in order, which the next run goes on with",
}


def counted(count: int, word: str) -> str:
    """Write a number with its word.

    >>> counted(1, "row"), counted(1_000, "row")
    ('1 row', '1,000 rows')
    """
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def remarks(dead: int, reasons: Sequence[tuple[str, str]], counts: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """Tell of rows that were not used, then of those that were used with a doubt or wait; nothing if none do.

    `reasons` has streams and reasons of dead rows, the most frequent first; `counts` is what became of rows per store.
    """
    if dead:
        from tocsin.rules.mistakes import printable

        stream, reason = reasons[0] if reasons else ("", "")
        more = "; and other reasons" if len(reasons) > 1 else ""
        why = f" (stream `{stream}`: {reason}{more})" if reasons else ""
        yield f"{counted(dead, 'row')} could not be used{printable(why)}"
    for name, words in _OF_STORES.items():
        found = {store: numbers[name] for store, numbers in counts.items() if numbers.get(name)}
        for store, number in found.items():
            yield f"{counted(number, 'row')} of `{store}` {words}"
