"""Tiles: the numbers at the top of a run, and warnings. Built by the pages `overview` and `runs`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tocsin.dashboard.delivery import owed_by
from tocsin.dashboard.fates import StoreNow
from tocsin.dashboard.pages.words import is_number
from tocsin.dashboard.render import address
from tocsin.dashboard.rundata import RunData
from tocsin.dashboard.store import RuleRow, Store, request_streams, rules_of
from tocsin.formatting import format_count, format_duration, format_lag, format_seconds, format_share, format_size

# Tiles of each run on the page of all runs.
_MOST_TILES = 7


@dataclass(frozen=True)
class Tile:
    """One number of a run: its title, a note, the kind of warning and a link."""

    number: str
    title: str
    note: str = ""
    kind: str = ""
    link: str = ""


def tiles(store: Store, run: RunData) -> list[Tile]:
    """Return the tiles of a run: alerts, losses, lag, batch time, sinks, quality, rows, state."""
    rows = store.rules(run)
    firing, pending = sum(row.firing for row in rows), sum(row.pending for row in rows)
    note = f"of {_sources_text(run, (row for row in rows if row.firing))}" if firing else "no alert is firing"
    waits = "condition true, but not yet for the time `for`" if pending else ""
    # A backtest has ended: its alerts fire at the end of its rows, not now.
    when = "at the end" if run.is_backtest or run.whose else "now"
    if not run.is_known:
        return [Tile("?", "firing now", "unknown so far")]
    found = [
        Tile(f"{firing:,}", f"firing {when}", note, "fire" if firing else "", address(run, "alerts", state="firing")),
        Tile(f"{pending:,}", "pending", waits, "", address(run, "alerts", state="pending")),
        _so_far(run, "fired so far", [(row, row.fired) for row in rows]),
    ]
    if any(row.matched for row in rows):
        found.append(_so_far(run, "matched so far", [(row, row.matched) for row in rows]))
    stores, last = store.stores(run), run.last
    found += _losses(run, stores)
    now = sum(one.now for one in stores)
    found += [*_lag(run), *_batch_time(run), *_sinks(run), *_quality(run)]
    if last is not None:
        rate, received = run.history.get("rows/s"), sum(last.total.rows.values())
        if rate is not None and rate.last is not None:
            found.append(Tile(f"{rate.last:,.0f}", "rows per second", f"{received:,} in total"))
        else:
            found.append(Tile(f"{received:,}", "rows received", "in one micro-batch; no rate yet"))
        found.append(Tile(format_size(last.total.state_bytes), "state", f"{format_count(now, 'row')} in state"))
    plain = sum(one.plain for one in stores)
    # A join would not retain range requests.
    joins = any(rule.get("kind") != "ranges" for rule in rules_of(run)) or not rules_of(run)
    if plain and joins:
        share = format_share(sum(one.kept for one in stores) / plain)
        found.append(Tile(share, "ever retained", "of the rows that a full join retains"))
    return found


def some_tiles(found: Sequence[Tile]) -> list[Tile]:
    """Return the first tiles of a run and all warnings."""
    return [one for place, one in enumerate(found) if place < _MOST_TILES or one.kind]


def _so_far(run: RunData, title: str, numbers: Sequence[tuple[RuleRow, int]]) -> Tile:
    """Return the total of a number over all rules, with the number of rules that have it."""
    total = sum(number for _, number in numbers)
    note = f"by {_sources_text(run, (row for row, number in numbers if number))}" if total else ""
    return Tile(f"{total:,}", title, note)


def _sources_text(run: RunData, rows: Iterable[RuleRow]) -> str:
    """Return the number of rules as text. No-data alerts belong to streams, not to rules."""
    silences = {rule["alert"] for rule in rules_of(run) if rule.get("kind") == "silence"}
    names = [row.alert for row in rows]
    rules = sum(name not in silences for name in names)
    parts = [format_count(rules, "rule")] * (rules > 0) + ["`no_data`"] * (rules < len(names))
    return " and ".join(parts)


def _lag(run: RunData) -> list[Tile]:
    """Return the tile of the stream with the largest lag."""
    # Request streams are sporadic. A pause is not lag.
    requests = request_streams(run)
    lags = [(name, lag) for name, lag in run.last.lag_s.items() if name not in requests] if run.last else []
    worst = max(lags, key=lambda pair: pair[1], default=None)
    if worst is None:
        return []
    return [Tile(format_lag(worst[1]), "largest lag", f"stream {worst[0][:60]}, after the last micro-batch")]


def _batch_time(run: RunData) -> list[Tile]:
    """Return the duration of the last micro-batch; a warning if it is longer than the interval of the run."""
    took = run.history.get("seconds")
    if run.last is None or took is None or took.last is None:
        return []
    number, interval_s = format_seconds(took.last), run.manifest.interval_s if run.manifest else None
    if not is_number(interval_s) or interval_s <= 0:
        return [Tile(number, "last micro-batch", "without Spark overhead")]
    share = took.last / interval_s
    note = f"{format_share(share)} of the interval of {format_seconds(interval_s)}"
    return [Tile(number, "last micro-batch", note, "warn" if share > 1 else "")]


def _quality(run: RunData) -> list[Tile]:
    """Return the quality in force: the lowest estimated in-order recall of all rules, and the longest reorder wait."""
    waits = run.last.waits if run.last else {}
    recalls = [(recall, alert) for alert, wait in waits.items() if is_number(recall := wait.get("recall"))]
    longest = max((us for wait in waits.values() if is_number(us := wait.get("wait_us"))), default=None)
    if run.last is None or run.is_backtest:
        return []
    delay = "rows are joined on arrival" if longest is None else f"longest reorder wait {format_duration(longest)}"
    if not recalls:
        return [Tile("exact" if longest is None else "unknown", "in-order quality", delay)]
    least, alert = min(recalls)
    return [Tile(format_share(least), "in-order quality", f"lowest estimated recall, rule {alert[:60]}; {delay}")]


def _sinks(run: RunData) -> list[Tile]:
    """Return the tile of the sinks: a warning if one fails, or if a run has ended before it delivered all alerts."""
    sinks = run.sinks()
    if not sinks:
        return []
    bad = [name for name, told in sinks.items() if told.get("failing")]
    owed = {name: owed_by(told) for name, told in sinks.items() if owed_by(told)}
    number = f"{sum(owed.values()):,}"
    later = "" if run.holder else ", left to the next run"
    if bad:
        more = f"; {number} not yet delivered{later}" if owed else ""
        return [Tile("failing", "sinks", f"cannot reach {', '.join(bad)[:80]}{more}", "fire")]
    if owed and later:
        return [Tile(number, "not yet delivered", f"to {', '.join(owed)[:80]}{later}", "warn")]
    return [Tile("OK", "sinks", format_count(len(sinks), "sink") + (f"; {number} not yet delivered" if owed else ""))]


def _losses(run: RunData, stores: Sequence[StoreNow]) -> list[Tile]:
    """Return warnings if a budget costs results: shed rows, unprocessed rows, and the CPU recall."""
    found = []
    reached = min((share for _, share in run.last.total.items("memory_reached")), default=None) if run.last else None
    loss = "some results may be lost"
    recall = loss if reached is None else f"{format_share(reached, 'about ')} of the results found recently"
    for outcome, title, note in (
        ("shed", "rows shed", f"memory budget exceeded: {recall}"),
        ("unprocessed", "rows unprocessed", f"CPU budget exceeded: {loss}"),
    ):
        lost = sum(one.counts.get(outcome, 0) for one in stores)
        if lost:
            whole = sum(one.received for one in stores if one.counts.get(outcome, 0))
            found.append(Tile(format_share(lost / whole), title, note, "fire"))
    return found + _cpu_recall(run)


def _cpu_recall(run: RunData) -> list[Tile]:
    """Return the lowest CPU recall of all rules with a CPU budget, if it is known."""
    told = run.last.cpu if run.last else {}
    shares = run.last.total.items("cpu_results") if run.last else ()
    least = min(((share, alert) for (alert,), share in shares), default=None)
    if least is None:
        return []
    note = f"estimated share of the recent results of {least[1][:60]}"
    note += ", the lowest of all rules" if len(told) > 1 else ""
    return [Tile(format_share(least[0]), "CPU recall", note)]
