"""All runs that are shown, and what pages ask of them: one home for queries.

A thread looks for what is new; pages read what it found. Both hold the lock of the store, the thread for a moment at a
time, so a page never waits for a large log to be read: it shows what is known, and that reading goes on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tocsin.dashboard.alert_index import AlertFilter
from tocsin.dashboard.alert_records import AlertRecord, Rank, StateChange, token_of
from tocsin.dashboard.comparison import Comparison
from tocsin.dashboard.delivery import Delivery
from tocsin.dashboard.fates import StoreNow, stores_of
from tocsin.dashboard.markup import visible
from tocsin.dashboard.quarantine import DeadRows, dead_rows, refusals_of
from tocsin.dashboard.rundata import RunData
from tocsin.delivery import AlertLog, Position
from tocsin.delivery.alert_json import Alert
from tocsin.report import Difference
from tocsin.runtime.contract import ALERT_TIMES
from tocsin.runtime.metrics import LARGEST

log = logging.getLogger("tocsin.dashboard")

LOOK_S = 1.0
PAGE = 50
# Alerts of one rule on the page of the rule.
MOST_OF_RULE = 20_000
AGAINST = "against"


class AlertPage(NamedTuple):
    """Page of a list of alerts. `before` is the rank where the next page begins, or None at the end of the list."""

    alerts: list[AlertRecord]
    before: Rank | None


class RuleRow(NamedTuple):
    """A rule in one line: how many of its alerts fire, wait and have fired, and how many matches it had."""

    alert: str
    firing: int
    pending: int
    fired: int
    matched: int = 0


class Store:
    """The runs by name, in the order in which they were named."""

    def __init__(self, folders: Iterable[Path], index_dir: Path | None = None) -> None:
        """Open the indexes of run directories in `index_dir`, or temporary ones."""
        self._index_dir = index_dir
        self.lock = threading.Lock()
        self.runs: dict[str, RunData] = {}
        for folder in folders:
            self._add(folder)
        self._comparison = Comparison(self.lock)
        self._stop = threading.Event()
        self.has_read = False
        self._thread = threading.Thread(target=self._watch, name="tocsin-dashboard-look", daemon=True)

    def _add(self, folder: Path) -> None:
        # As an address and a page can hold it; what stands behind `~` is ours.
        base = visible(folder.resolve().name).replace("~", "-") or "run"
        name, number = base, 1
        while name in self.runs:
            name, number = f"{base}-{number + 1}", number + 1
        self.runs[name] = RunData(name, folder, index_dir=self._index_dir)

    def start(self) -> None:
        """Begin to look for what is new."""
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        for run in self.runs.values():
            run.index.close()

    def look(self) -> None:
        """Take what is new in all runs."""
        for run in list(self.runs.values()):
            try:
                run.look(self.lock, self._stop.is_set)
                self._add_other_version(run)
            except Exception:  # Pages go on with what is known, and other runs and the next look may succeed.
                log.exception("a run directory could not be looked at")

    def _add_other_version(self, run: RunData) -> None:
        """A backtest against another version has the alerts of both: while they are there, the other is a run."""
        alerts = run.folder / AGAINST / "alerts"
        name = f"{run.name}~{AGAINST}"
        is_there = run.is_backtest and not run.whose and alerts.is_dir()
        if is_there and name not in self.runs:
            other = RunData(name, run.folder / AGAINST, alerts, whose=run.name, index_dir=self._index_dir)
            with self.lock:
                self.runs = {**self.runs, name: other}
            other.look(self.lock, self._stop.is_set)
        elif not is_there and name in self.runs:
            with self.lock:
                self.runs = {known: one for known, one in self.runs.items() if known != name}

    def _watch(self) -> None:
        while not self._stop.is_set():
            self.look()
            self.has_read = True
            self._stop.wait(LOOK_S)

    @property
    def changes_read(self) -> int:
        """Changes of state that are read from the alert logs."""
        return sum(run.index.events for run in self.runs.values())

    @property
    def version(self) -> str:
        """A text that changes when something new is known of any run."""
        return "-".join(
            str(number) for number in (*(run.version for run in list(self.runs.values())), self._comparison.made_again)
        )

    def own_runs(self) -> list[RunData]:
        """The runs that were named, without the other versions of backtests."""
        return [run for run in self.runs.values() if not run.whose]

    # Queries. Each takes the lock; what it gives stays as it is: a copy, or an alert that has ended.

    def rules(self, run: RunData) -> list[RuleRow]:
        """All rules, those that fire first, then by how often they fired."""
        with self.lock:
            names = dict.fromkeys([*rule_names(run), *run.index.rules])
            rows = [_rule_row(run, name) for name in names]
        return sorted(rows, key=lambda row: (-row.firing, -row.pending, -row.fired, -row.matched, row.alert))

    def rule(self, run: RunData, token: str) -> str | None:
        """The name of a rule by its token."""
        with self.lock:
            names = dict.fromkeys([*rule_names(run), *run.index.rules])
        return next((name for name in names if token_of(name) == token), None)

    def rule_row(self, run: RunData, alert: str) -> RuleRow:
        """One rule in numbers."""
        with self.lock:
            return _rule_row(run, alert)

    def alerts(self, run: RunData, asked: AlertFilter, most: int = PAGE) -> AlertPage:
        """Return one page of the alerts of a filter."""
        found = run.index.find(asked, most + 1)
        return AlertPage(found[:most], found[most - 1].rank if len(found) > most else None)

    def open_alerts(self, run: RunData, most: int = PAGE) -> list[AlertRecord]:
        """Return open alerts: firing ones first, by severity, and the newest first."""
        return run.index.open_alerts(most)

    def lives(self, run: RunData, alert: str, most: int = MOST_OF_RULE) -> list[AlertRecord]:
        """Return the newest alerts of a rule, the oldest first."""
        return run.index.find(AlertFilter(alert=alert), most)[::-1]

    def by_id(self, run: RunData, name: str) -> list[AlertRecord]:
        """Return the alerts of an id, as an address has it; several only if a log repeats an id."""
        return run.index.by_id(name)

    def changes(self, run: RunData, one: AlertRecord) -> tuple[StateChange, ...]:
        """Return the state changes of an alert: the first and the newest."""
        return run.index.changes_of(one)

    def change(self, run: RunData, position: Position) -> Alert | None:
        """A change of state as the log has it, witness and all; None if it is gone."""
        before = Position(position.batch, position.line - 1)
        for found, alert in AlertLog(run.index.log.folder).read(before):
            return _whole(alert) if found == position else None
        return None

    def stores(self, run: RunData) -> list[StoreNow]:
        """What became of the rows, by store."""
        with self.lock:
            last, summary, passing, requests = run.last, run.summary, _passing(run), request_streams(run)
        if last is not None:
            return stores_of(last.total.counts, passing, requests)
        streams = {} if summary is None else summary.get("streams", {})
        found = {name: _counts(parts) for name, parts in streams.items()} if isinstance(streams, dict) else {}
        return stores_of(found, passing, requests)

    def dead(self, run: RunData, stream: str | None = None) -> DeadRows:
        """Rows that could not be used, by reason."""
        return dead_rows(run.folder, stream)

    def refusals(self, run: RunData, stream: str, name: str) -> list[str]:
        """Why requests of an id were refused."""
        return refusals_of(run.folder, stream, name)

    def delivery(self, run: RunData) -> Delivery:
        """What each sink did with changes of state."""
        return Delivery(run.folder, run.sinks())

    def difference(self, first: RunData, second: RunData) -> Difference:
        """The alerts that only one of two runs has, and those of both."""
        return self._comparison.of(first, second)

    def problems(self) -> list[str]:
        """What is wrong with what was named, in sentences: no folder, or not that of a run."""
        return [run.problem for run in self.own_runs() if run.problem]


def rule_names(run: RunData) -> list[str]:
    """The alerts that a run can raise, as its manifest says."""
    return [str(rule["alert"]) for rule in rules_of(run)]


def rules_of(run: RunData) -> Sequence[Mapping[str, Any]]:
    """The rules as the manifest describes them; none where an older Tocsin wrote it."""
    return run.manifest.rules if run.manifest else ()


def request_streams(run: RunData) -> set[str]:
    """The streams that have nothing but requests of ranges: no other rule reads them."""
    asked = {str(rule["requests"]) for rule in rules_of(run) if rule.get("requests")}
    read = {name for rule in rules_of(run) for name in rule.get("streams") or () if name != rule.get("requests")}
    return asked - read


def _rule_row(run: RunData, name: str) -> RuleRow:
    counts = run.index.rules.get(name)
    if counts is None:
        return RuleRow(name, 0, 0, 0)
    return RuleRow(name, counts.firing, counts.pending, counts.fired, counts.matched)


def _whole(alert: Alert) -> Alert:
    """A change of state with all its parts: a reader of the log lets some be missing."""
    witness = [{"payload": None, **part} for part in alert["witness"]]
    return {**dict.fromkeys(ALERT_TIMES), "value": None, "margin": None, **alert, "witness": witness}


def _passing(run: RunData) -> dict[str, float]:
    """Of which names which share remembers nothing; one that an older Tocsin wrote does not tell."""
    told = run.manifest.passing if run.manifest else {}
    known = told.items() if isinstance(told, Mapping) else ()
    return {name: float(share) for name, share in known if isinstance(share, int | float) and 0 <= share <= 1}


def _counts(parts: Any) -> dict[str, int]:
    if not isinstance(parts, dict):
        return {}
    return {str(name): number for name, number in parts.items() if isinstance(number, int) and abs(number) <= LARGEST}
