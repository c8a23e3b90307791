"""The numbers of a run at its top, and what warns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tocsin.dashboard.fates import StoreNow
from tocsin.dashboard.pages.words import lag_tick
from tocsin.dashboard.render import address
from tocsin.dashboard.rundata import RunData
from tocsin.dashboard.store import Store, rules_of
from tocsin.trace.words import counted, size_text

# So many are shown of each of several runs.
_MOST_TILES = 6


@dataclass(frozen=True)
class Tile:
    """One number of a run, with what it is, and what it would be good to know beside it."""

    number: str
    words: str
    beside: str = ""
    kind: str = ""
    link: str = ""


def tiles(store: Store, run: RunData) -> list[Tile]:
    """The numbers that decide whether one may go back to sleep."""
    rows = store.rules(run)
    firing, pending = sum(row.firing for row in rows), sum(row.pending for row in rows)
    rules = sum(row.firing > 0 for row in rows)
    beside = f"of {counted(rules, 'rule')}" if firing else "all is quiet"
    # What a backtest ended with goes on nowhere.
    when = "at the end" if run.is_backtest or run.whose else "now"
    if not run.is_known:
        return [Tile("?", "firing now", "not known yet")]
    found = [
        Tile(f"{firing:,}", f"firing {when}", beside, "fire" if firing else "", address(run, "alerts", state="firing")),
        Tile(f"{pending:,}", "pending", "not long enough yet", "", address(run, "alerts", state="pending")),
        _so_far("fired so far", [row.fired for row in rows]),
    ]
    if any(row.matched for row in rows):
        found.append(_so_far("matched so far", [row.matched for row in rows]))
    stores, last = store.stores(run), run.last
    found += _losses(run, stores)
    now = sum(one.now for one in stores)
    if last is not None:
        rate, received = run.history.get("rows/s"), sum(last.total.rows.values())
        if rate is not None and rate.last is not None:
            found.append(Tile(f"{rate.last:,.0f}", "rows per second", f"{received:,} in all"))
        else:
            found.append(Tile(f"{received:,}", "rows", "in one micro-batch: no rate yet"))
        worst = max(last.lag_s.items(), key=lambda pair: pair[1], default=None)
        if worst is not None:
            found.append(Tile(lag_tick(worst[1]), "largest lag", f"stream {worst[0][:60]}, when it was done"))
        found.append(Tile(size_text(last.total.state_bytes), "of state", f"{counted(now, 'row')} remembered"))
    plain = sum(one.plain for one in stores)
    # Requests of ranges are remembered too, but no join would remember them.
    joins = any(rule.get("kind") != "ranges" for rule in rules_of(run)) or not rules_of(run)
    if plain and joins:
        share = f"{100 * sum(one.kept for one in stores) / plain:.1f} %"
        found.append(Tile(share, "of a plain join", "rows ever remembered, of those that it would"))
    sinks = run.sinks()
    if sinks:
        bad = [name for name, told in sinks.items() if told.get("failing")]
        beside = f"{', '.join(bad)[:80]} cannot be reached" if bad else f"{len(sinks)} in all"
        found.append(Tile("failing" if bad else "fine", "sinks", beside, "fire" if bad else ""))
    return found


def some_tiles(found: Sequence[Tile]) -> list[Tile]:
    """The first numbers of a run, and every one that warns."""
    return [one for place, one in enumerate(found) if place < _MOST_TILES or one.kind]


def _so_far(words: str, numbers: Sequence[int]) -> Tile:
    """How often something happened, and by how many rules."""
    return Tile(f"{sum(numbers):,}", words, f"by {counted(sum(number > 0 for number in numbers), 'rule')}")


def _losses(run: RunData, stores: Sequence[StoreNow]) -> list[Tile]:
    """Warnings where a budget costs results: rows that were shed, and rows of which not all pairs were looked at."""
    found = []
    told = run.last.memory.values() if run.last else ()
    reached = min((one.reached for one in told if one.reached is not None), default=None)
    share = "some results may be lost" if reached is None else f"about {reached:.2g} of the results were found"
    for fate, words, short in (
        ("shed", "of rows shed", "memory"),
        ("unprocessed", "of rows half looked at", "time"),
    ):
        lost = sum(one.counts.get(fate, 0) for one in stores)
        if lost:
            whole = sum(one.received for one in stores if one.counts.get(fate, 0))
            beside = f"{short} is short: {share if fate == 'shed' else 'some results may be lost'}"
            found.append(Tile(f"{100 * lost / whole:.1f} %", words, beside, "fire"))
    return found
