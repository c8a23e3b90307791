"""The numbers of a run at its top, and what warns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tocsin.dashboard.delivery import owed_by
from tocsin.dashboard.fates import StoreNow
from tocsin.dashboard.pages.words import lag_tick, share_text
from tocsin.dashboard.render import address
from tocsin.dashboard.rundata import RunData
from tocsin.dashboard.store import RuleRow, Store, request_streams, rules_of
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
    beside = f"of {_whose(run, (row for row in rows if row.firing))}" if firing else "all is quiet"
    waits = "true, but not for long enough yet" if pending else ""
    # What a backtest ended with goes on nowhere.
    when = "at the end" if run.is_backtest or run.whose else "now"
    if not run.is_known:
        return [Tile("?", "firing now", "not known yet")]
    found = [
        Tile(f"{firing:,}", f"firing {when}", beside, "fire" if firing else "", address(run, "alerts", state="firing")),
        Tile(f"{pending:,}", "pending", waits, "", address(run, "alerts", state="pending")),
        _so_far(run, "fired so far", [(row, row.fired) for row in rows]),
    ]
    if any(row.matched for row in rows):
        found.append(_so_far(run, "matched so far", [(row, row.matched) for row in rows]))
    stores, last = store.stores(run), run.last
    found += _losses(run, stores)
    now = sum(one.now for one in stores)
    if last is not None:
        rate, received = run.history.get("rows/s"), sum(last.total.rows.values())
        if rate is not None and rate.last is not None:
            found.append(Tile(f"{rate.last:,.0f}", "rows per second", f"{received:,} in all"))
        else:
            found.append(Tile(f"{received:,}", "rows", "in one micro-batch: no rate yet"))
        # Requests come when somebody has one: that there is none for a while is no lag.
        requests = request_streams(run)
        lags = [(name, lag) for name, lag in last.lag_s.items() if name not in requests]
        worst = max(lags, key=lambda pair: pair[1], default=None)
        if worst is not None:
            found.append(Tile(lag_tick(worst[1]), "largest lag", f"stream {worst[0][:60]}, when it was done"))
        found.append(Tile(size_text(last.total.state_bytes), "of state", f"{counted(now, 'row')} remembered"))
    plain = sum(one.plain for one in stores)
    # Requests of ranges are remembered too, but no join would remember them.
    joins = any(rule.get("kind") != "ranges" for rule in rules_of(run)) or not rules_of(run)
    if plain and joins:
        share = f"{100 * sum(one.kept for one in stores) / plain:.1f} %"
        found.append(Tile(share, "ever remembered", "of the rows that a plain join would remember"))
    return found + _sinks(run)


def some_tiles(found: Sequence[Tile]) -> list[Tile]:
    """The first numbers of a run, and every one that warns."""
    return [one for place, one in enumerate(found) if place < _MOST_TILES or one.kind]


def _so_far(run: RunData, words: str, numbers: Sequence[tuple[RuleRow, int]]) -> Tile:
    """How often something happened, and by how many rules."""
    whole = sum(number for _, number in numbers)
    return Tile(f"{whole:,}", words, f"by {_whose(run, (row for row, number in numbers if number))}" if whole else "")


def _whose(run: RunData, rows: Iterable[RuleRow]) -> str:
    """How many rules these are; alerts of streams without data are of no rule."""
    silences = {rule["alert"] for rule in rules_of(run) if rule.get("kind") == "silence"}
    names = [row.alert for row in rows]
    rules = sum(name not in silences for name in names)
    parts = [counted(rules, "rule")] * (rules > 0) + ["no_data"] * (rules < len(names))
    return " and ".join(parts)


def _sinks(run: RunData) -> list[Tile]:
    """How sinks are; what they have not been told yet warns where no run goes on that would."""
    sinks = run.sinks()
    if not sinks:
        return []
    bad = [name for name, told in sinks.items() if told.get("failing")]
    owed = {name: owed_by(told) for name, told in sinks.items() if owed_by(told)}
    number = f"{sum(owed.values()):,}"
    later = "" if run.holder else ", left to the next run"
    if bad:
        more = f"; {number} still to be delivered{later}" if owed else ""
        return [Tile("failing", "sinks", f"{', '.join(bad)[:80]} cannot be reached{more}", "fire")]
    if owed and later:
        return [Tile(number, "still to be delivered", f"to {', '.join(owed)[:80]}{later}", "warn")]
    return [Tile("fine", "sinks", f"{len(sinks)} in all" + (f"; {number} still to be delivered" if owed else ""))]


def _losses(run: RunData, stores: Sequence[StoreNow]) -> list[Tile]:
    """Warnings where a budget costs results: rows that were shed, and rows of which not all pairs were looked at."""
    found = []
    told = run.last.memory.values() if run.last else ()
    reached = min((one.reached for one in told if one.reached is not None), default=None)
    share = "some results may be lost"
    share = share if reached is None else f"{share_text(reached, 'about ')} of the results were found, of late"
    for fate, words, short in (
        ("shed", "of rows shed", "memory"),
        ("unprocessed", "of rows half looked at", "time"),
    ):
        lost = sum(one.counts.get(fate, 0) for one in stores)
        if lost:
            whole = sum(one.received for one in stores if one.counts.get(fate, 0))
            beside = f"{short} is short: {share if fate == 'shed' else 'some results may be lost'}"
            found.append(Tile(f"{100 * lost / whole:.1f} %", words, beside, "fire"))
    return found + _bought(run)


def _bought(run: RunData) -> list[Tile]:
    """What processor time buys where it is limited: of the rule that finds least."""
    told = run.last.cpu.items() if run.last else ()
    least = min(((share, alert) for alert, (_, share) in told if share is not None), default=None)
    if least is None:
        return []
    beside = f"an estimate, of late, with the processor time of {least[1][:60]}"
    beside += ", the least of all rules" if len(told) > 1 else ""
    return [Tile(share_text(least[0]), "of results found", beside)]
