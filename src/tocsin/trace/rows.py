"""What a reader should know of the rows near a time: those left out, too late, not usable, outside their domain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tocsin.formatting import format_duration, format_event_time, format_number
from tocsin.plan import Threshold
from tocsin.rules.durations import duration_text
from tocsin.trace import words
from tocsin.trace.brackets import BRACKET, NO_WINDOW, Excuse
from tocsin.trace.model import DUPLICATES, FATES, LATE, OMITTED, QUARANTINED, StoreTrace, Traced

# More of a kind would hide the others.
MOST = 2
_WERE = {
    "omitted": ("was omitted", "were omitted"),
    "duplicates": ("repeats an earlier row", "repeat earlier rows"),
    "late": ("arrived too late", "arrived too late"),
    "quarantined": ("is invalid", "are invalid"),
    "out-of-domain": ("is outside the domain", "are outside the domain"),
}

# Kind, sentence, facts.
Note = tuple[str, str, dict[str, Any]]


def row_reasons(traced: Traced, rule: Threshold, at_us: int, reach: int) -> list[Note]:
    """Tell of the rows within reach of a time, the nearest first, a few of each kind."""
    notes = list[Note]()
    # A rule of one stream that evaluates every row leaves none out, whatever the rules that share its store do.
    every_row = len(rule.stores) == 1 and not rule.lag_us
    fates = (LATE, QUARANTINED) if every_row else (OMITTED, DUPLICATES, LATE, QUARANTINED)
    for store in traced.stores_of(rule):
        near = np.flatnonzero(np.abs(store.rows.time - at_us) <= reach)
        near = near[np.argsort(np.abs(store.rows.time[near] - at_us), kind="stable")]
        for code in fates:
            mine = near[store.fate[near] == code]
            notes += [_note(traced, store, int(row)) for row in mine[:MOST]]
            notes += _more(store, FATES[code], len(mine))
        for stream, column, low, high in rule.domains:
            if stream == store.store.stream:
                value = store.rows.values[column][near]
                outside = near[~((value >= low) & (value <= high)) & (store.fate[near] != QUARANTINED)]
                notes += [_outside(store, int(row), (low, high)) for row in outside[:MOST]]
                notes += _more(store, "out-of-domain", len(outside))
        notes += _dead(traced, store.store.stream, at_us, reach)
    return notes


def _more(store: StoreTrace, kind: str, count: int) -> list[Note]:
    if count <= MOST:
        return []
    text = _more_text(count - MOST, store.store.stream, kind)
    return [(kind, text, {"stream": store.store.stream, "more": count - MOST})]


def _more_text(count: int, stream: str, kind: str) -> str:
    one, many = _WERE[kind]
    return (
        f"and 1 more row of `{stream}` that {one}" if count == 1 else f"and {count} more rows of `{stream}` that {many}"
    )


def _note(traced: Traced, store: StoreTrace, row: int) -> Note:
    facts: dict[str, Any] = {"stream": store.store.stream, "time": int(store.rows.time[row]), "row": row}
    if store.fate[row] == LATE:
        behind = format_duration(int(store.behind_us[row]))
        text = f"late: {_row(store, row)} arrived when the newest row of its key was {behind} later"
        return (
            "late",
            f"{text}; `allowed_lateness` is {duration_text(traced.watch.allowed_lateness_us)}, so it was dropped",
            facts,
        )
    if store.fate[row] == QUARANTINED:
        bad = [c for c in store.store.columns if not np.isfinite(store.rows.values[c][row])]
        name = words.named(store.store.stream, bad[0])
        time = format_event_time(facts["time"])
        text = f"invalid: the row of `{store.store.stream}` at {time} has no finite value of `{name}`"
        return "quarantined", text, facts
    if store.fate[row] == DUPLICATES:
        return "duplicates", f"duplicate: {_row(store, row)} equals an earlier row, so it changes nothing", facts
    excuse = store.excuse(row)
    silent = "; it arrived out of order and was not evaluated" if store.silent[row] else ""
    facts |= {"excuse": excuse.kind, "rows": [int(store.rows.time[other]) for other in excuse.rows]}
    return "omitted", f"omitted: {_row(store, row)}, {excuse_text(store, excuse)}{silent}", facts


def excuse_text(store: StoreTrace, excuse: Excuse) -> str:
    """Return the rows that cover an omitted row as text."""
    if excuse.kind == NO_WINDOW:
        return "because no window contains it"
    if excuse.kind != BRACKET:
        return "because rows that were retained at that time cover it"
    return "because " + ", and ".join(_sides(store, excuse))


def _sides(store: StoreTrace, excuse: Excuse) -> Iterator[str]:
    sides = [(excuse.above, "large", store.store.above_us), (excuse.below, "small", store.store.below_us)]
    for pair, word, length_us in sides:
        if pair is not None:
            yield _side(store, pair, word, length_us)


def _side(store: StoreTrace, pair: tuple[int, int], word: str, length_us: int) -> str:
    times, own = store.rows.time, store.store
    numbers, _ = own.numbers([store.rows.values[column] for column in own.columns])
    told = [" and ".join(format_number(float(number[row])) for number in numbers) for row in dict.fromkeys(pair)]
    shown = [
        f"{text} at {format_event_time(int(times[row]))}" for text, row in zip(told, dict.fromkeys(pair), strict=True)
    ]
    by = f", by {' and '.join(map(str, own.by))}" if own.by else ""
    # A smaller value can cover a row too: within a tolerance, or if no row can raise an alarm.
    like = "that can cover it" if own.tolerance or own.hopeless else f"at least as {word}"
    if own.hop_us:
        return f"every window that contains it contains a row {like} ({' or '.join(shown)}{by})"
    if len(shown) == 1:
        return f"a row {like} has the same time ({shown[0]}{by})"
    apart = format_duration(int(abs(times[pair[1]] - times[pair[0]])))
    most = duration_text(length_us)
    return f"it is between rows {like}: {' and '.join(shown)}{by}, {apart} apart (at most {most} is allowed)"


def _outside(store: StoreTrace, row: int, ends: tuple[float, float]) -> Note:
    domain = f"[{format_number(ends[0])}, {format_number(ends[1])}]"
    text = f"outside the domain {domain}: {_row(store, row)} is retained and covers no other row"
    return "out-of-domain", text, {"stream": store.store.stream, "time": int(store.rows.time[row]), "row": row}


def _dead(traced: Traced, stream: str, at_us: int, reach: int) -> list[Note]:
    mine = [row for row in traced.dead if row.stream == stream]
    near = [row for row in mine if row.time_us is None or abs(row.time_us - at_us) <= reach]
    notes: list[Note] = []
    for row in near[:MOST]:
        when = "" if row.time_us is None else f" at {format_event_time(row.time_us)}"
        text = f"invalid: a row of `{stream}`{when}: {row.reason}"
        notes.append(("quarantined", text, {"stream": stream, "raw": row.raw[:200]}))
    if len(near) > MOST:
        notes.append(("quarantined", _more_text(len(near) - MOST, stream, "quarantined"), {}))
    return notes


def _row(store: StoreTrace, row: int) -> str:
    values = words.values_text(store.store.stream, store.store.columns, store.rows, row)
    return f"the row of `{store.store.stream}` at {format_event_time(int(store.rows.time[row]))} ({values})"
