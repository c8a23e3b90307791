"""What a run over history gave, added up as it comes: alerts become lives, counts become sums.

Memory grows with the number of alerts, some 600 bytes each; witnesses are kept of the first ones only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import median_low
from typing import Any, NamedTuple

from tocsin.plan import Plan, RangeWatch, Silence, Threshold, Watch
from tocsin.report.recall import Recall, recalls
from tocsin.rules.ranges import QUERY
from tocsin.run_directory.manifest import pass_through_shares
from tocsin.run_directory.progress import MEMORY_RESULTS, Quality, unusable_streams
from tocsin.runtime.alert_batch import AlertBatch
from tocsin.runtime.metrics import OUTCOMES as ROW_OUTCOMES
from tocsin.runtime.metrics import LatestMetrics, Merge, Metrics
from tocsin.trace.model import Life, is_of, life_of

# Of more alerts the witnesses are not kept: a picture of one among so many is drawn from its rows anyway.
MOST_WITNESSES = 50_000


class Outcome(NamedTuple):
    """Name and meaning of a row outcome, as tables, legends and bars show them."""

    title: str
    meaning: str


# Row outcomes in the order of bars and tables. Each received row has exactly one outcome.
OUTCOMES = {
    "held": Outcome("buffered", "waiting in the reorder buffer"),
    "retained": Outcome("retained", "in state now"),
    "expired": Outcome("expired", "was in state until no partner could arrive"),
    # Range requests: the counts have them as expired.
    "done": Outcome("completed", "a request that matured or was terminated"),
    "passed": Outcome("pass-through", "evaluated once, never in state"),
    "omitted": Outcome("omitted", "proved to affect no alert"),
    "duplicates": Outcome("duplicate", "equal to an earlier row"),
    "shed": Outcome("shed", "evicted because the memory budget was exceeded"),
    "late": Outcome("late", "dropped, beyond the allowed lateness"),
    "quarantined": Outcome("invalid", "no valid key, time or value"),
    "unprocessed": Outcome("unprocessed", "evicted before all work on it was done, because of the CPU budget"),
}
# Counts that tables show only if there are any. The last two count rows that have an outcome among the others.
RARE = {name: OUTCOMES[name].title for name in ("duplicates", "shed", "unprocessed")} | {
    "out_of_domain": "outside the domain",
    "without_limits": "without limits",
}

_NONE: Mapping[str, Any] = {}

Labels = tuple[tuple[str, str], ...]
AnyStep = Threshold | Silence | RangeWatch
Alerts = tuple[Watch | RangeWatch, AnyStep, list[Life]]


@dataclass(frozen=True)
class RuleSummary:
    """What a rule did: how many alerts fired, for how many keys, how long in all and at most.

    `delay_us` is the median of the newest event time of the key when an alert was emitted, minus the time at which the
    alert was due; `longest_delay_us` is the maximum. Both are None without alerts whose emission time is known.
    """

    alert: str
    labels: Labels
    alerts: int
    keys: int
    firing_us: int
    longest_us: int
    late: int
    open: int
    pending: int
    delay_us: int | None = None
    longest_delay_us: int | None = None


@dataclass(frozen=True)
class StoreSummary:
    """What became of the rows of a stream, as one name counts them.

    `passing` is the share of the ways counted under this name in which no row is a partner, and nothing is remembered:
    0 where all remember, 1 where none does. Each way takes every row of the stream.
    """

    name: str
    counts: Mapping[str, int]
    passing: float = 0.0

    @property
    def received(self) -> int:
        """All rows."""
        return self.counts.get("received", 0)

    @property
    def passed(self) -> int:
        """Rows that were looked at and not remembered; counts have them under `expired`.

        Where ways that remember and ways that do not are counted together, late and unusable rows are not known by
        way; so it may be too much by as many.
        """
        expired = self.counts.get("expired", 0)
        return expired if self.passing >= 1 else min(expired, round(self.passing * self.received))

    @property
    def kept(self) -> int:
        """Rows that were remembered, until the end or until no partner could come any more; shed ones were not."""
        if self.passing >= 1:
            return 0
        # Rows of which not all pairs were looked at were partners all the same.
        return sum(self.counts.get(name, 0) for name in ("held", "retained", "expired", "unprocessed")) - self.passed

    @property
    def plain(self) -> int:
        """Rows that a join without reduction would have remembered: all that could be used in time."""
        if self.passing >= 1:
            return 0
        lost = sum(self.counts.get(name, 0) for name in ("late", "quarantined"))
        return self.received - self.passed - lost

    @property
    def parts(self) -> dict[str, int]:
        """What became of the rows; the numbers add up to those received."""
        found = {name: self.counts.get(name, 0) for name in ROW_OUTCOMES}
        found |= {"expired": found["expired"] - self.passed, "passed": self.passed}
        return {name: number for name in OUTCOMES if (number := found.get(name))}


@dataclass(frozen=True)
class Limited:
    """A rule whose memory is limited: how much it is, and what it finds, in the worst of all parts of the keys."""

    alert: str
    memory: str
    found: Quality


@dataclass(frozen=True)
class DeadRows:
    """Rows of a stream that could not be used for one reason, with samples of their text."""

    stream: str
    reason: str
    count: int
    samples: tuple[str, ...] = ()


@dataclass(frozen=True)
class Result:
    """One version of the rules over history."""

    path: str
    plan: Plan
    rules: tuple[RuleSummary, ...]
    stores: tuple[StoreSummary, ...]
    lives: tuple[Life, ...]
    state_bytes: int = 0
    oldest_us: int | None = None
    newest_us: int | None = None
    dead: tuple[DeadRows, ...] = ()
    changes: int = 0
    newest: Mapping[str, int] = field(default_factory=dict)
    recalls: tuple[Recall, ...] = ()
    limited: tuple[Limited, ...] = ()

    @property
    def rows(self) -> int:
        """Rows of all streams; a row is counted once under each name of its stream."""
        received = {store.name: store.received for store in self.stores}
        streams: dict[str, list[str]] = {}
        for name, stream in (pair for watch in self.plan.key_sets for pair in watch.counted):
            streams.setdefault(stream, []).append(name)
        sums = [sum(received.get(name, 0) for name in dict.fromkeys(names)) // len(names) for names in streams.values()]
        return sum(sums)

    def unusable(self, unreadable: Iterable[str] = ()) -> tuple[str, ...]:
        """Return the streams without a usable row; `unreadable` names the streams with files that were skipped."""
        counted = [pair for watch in self.plan.key_sets for pair in watch.counted]
        bad = [*(row.stream for row in self.dead), *unreadable]
        return unusable_streams(counted, {store.name: store.counts for store in self.stores}, bad)

    @cached_property
    def by_rule(self) -> list[Alerts]:
        """Each rule of the plan, and each stream watched for silence, with its watch and its alerts by their start."""
        found: list[Alerts] = []
        named: dict[str, list[Alerts]] = {}
        for one in self.plan.watches:
            steps: tuple[AnyStep, ...] = (*one.rules, *one.silences)
            found += [(one, step, []) for step in steps]
        found += [(ranges, ranges, []) for ranges in self.plan.ranges]
        for mine in found:
            named.setdefault(mine[1].alert, []).append(mine)
        for life in self.lives:
            for watch, rule, lives in named.get(life.alert, ()):
                if is_of(watch, rule, life.alert, life.labels):
                    lives.append(life)
        return found

    def end_of(self, life: Life) -> int:
        """When a life ended; one that is open lasts to the last row."""
        last = life.start_us if self.newest_us is None else max(self.newest_us, life.start_us)
        return last if life.end_us is None else life.end_us


@dataclass
class Gatherer:
    """Takes what a run gives, one row at a time; `arriving` are the streams that say when their rows arrived."""

    path: str
    plan: Plan
    arriving: frozenset[str] = frozenset()
    lives: list[Life] = field(default_factory=list)
    changes: int = 0
    _open: dict[str, Life] = field(default_factory=dict)
    _sums: Metrics = field(default_factory=Metrics)
    _latest: LatestMetrics = field(default_factory=LatestMetrics)
    _labels: dict[Labels, dict[str, str]] = field(default_factory=dict)
    _waits: dict[str, list[int]] = field(default_factory=dict)
    _longest: dict[str, int] = field(default_factory=dict)
    _true: Metrics = field(default_factory=Metrics)

    def take_batch(self, batch: AlertBatch) -> None:
        """Add alert rows. The rows of an alert must be in order."""
        for row, emitted_us in zip(batch.rows(), batch.emission_times(), strict=True):
            self.take(row, emitted_us)

    def take(self, change: Mapping[str, Any], emitted_us: int | None = None) -> None:
        """Add one alert row. The rows of an alert must be in order."""
        self.changes += 1
        labels = tuple(sorted(change["labels"].items()))
        life = life_of(change, self._open.pop(change["id"], None), emitted_us)
        # The same labels come again and again: one object for all.
        life = replace(life, labels=self._labels.setdefault(labels, dict(labels)))
        if self.changes > MOST_WITNESSES:
            life = replace(life, witness=())
        if life.end_us is None:
            self._open[life.id] = life
        else:
            self.lives.append(life)

    def count(self, metrics: Metrics, bucket: int = 0) -> None:
        """Add the metrics of one call of a bucket."""
        self._sums.merge(metrics.select(set(Merge) - {Merge.LATEST}))
        self._latest.receive(bucket, metrics)
        has_results = metrics.results_by_period()
        for (alert,), wait_us in metrics.items("wait_us"):
            self._longest[alert] = max(int(wait_us), self._longest.get(alert, 0))
            # Without results, a wait that follows the data has nothing to follow.
            if alert in has_results:
                self._waits.setdefault(alert, []).append(int(wait_us))

    def take_truth(self, metrics: Metrics) -> None:
        """Add results of the same rules over the same rows in event-time order."""
        self._true.merge(metrics)

    def result(self, dead: Iterable[Mapping[str, Any]] = ()) -> Result:
        """Add up."""
        lives = sorted([*self.lives, *self._open.values()], key=lambda life: (life.start_us, life.alert))
        sums = {name: numbers for name, numbers in self._sums.section("counts").items() if name}
        state_bytes = sum(int(size) for _, size in self._sums.items("version_bytes"))
        passing = pass_through_shares(self.plan)
        oldest, newest = self._sums.section("oldest_us").values(), self._sums.section("newest_us")
        rows = tuple(DeadRows(row["stream"], row["reason"], row["count"], tuple(row["samples"])) for row in dead)
        whole = Result(
            self.path,
            self.plan,
            (),
            tuple(StoreSummary(name, numbers, passing.get(name, 1.0)) for name, numbers in sums.items()),
            tuple(lives),
            state_bytes,
            min(oldest, default=None),
            max(newest.values(), default=None),
            rows,
            self.changes,
            newest,
            self._recalls(),
            tuple(self._limited()),
        )
        return replace(whole, rules=tuple(_summary(rule, mine, whole) for _, rule, mine in whole.by_rule))

    def _limited(self) -> Iterator[Limited]:
        latest = self._latest.merged()
        latest.drop_recalls({life.alert for life in [*self.lives, *self._open.values()]})
        memory = latest.section("memory")
        for watch in self.plan.watches:
            if watch.budget is not None:
                for alert in dict.fromkeys(rule.alert for rule in watch.rules):
                    found = {name: memory.get(alert, {}).get(name) for name in MEMORY_RESULTS}
                    yield Limited(alert, str(watch.budget.memory), found)

    def _recalls(self) -> tuple[Recall, ...]:
        found, true = self._sums.results_by_period(), self._true.results_by_period()
        return tuple(recalls(self.plan, found, true, self._waits, self._longest, self.arriving))


def _summary(rule: AnyStep, mine: Sequence[Life], result: Result) -> RuleSummary:
    fired = [life for life in mine if life.has_fired]
    lengths = [result.end_of(life) - life.start_us for life in fired]
    delays = [
        max(life.emitted_us - life.fires_us, 0)
        for life in fired
        if life.emitted_us is not None and life.fires_us is not None
    ]
    # Requests of a key are told apart by their label.
    apart = QUERY if isinstance(rule, RangeWatch) else ""
    return RuleSummary(
        rule.alert,
        rule.labels,
        len(fired),
        len({tuple(sorted(item for item in life.labels.items() if item[0] != apart)) for life in fired}),
        sum(lengths),
        max(lengths, default=0),
        sum(life.is_late for life in fired),
        sum(life.end_us is None for life in fired),
        len(mine) - len(fired),
        median_low(delays) if delays else None,
        max(delays, default=None),
    )
