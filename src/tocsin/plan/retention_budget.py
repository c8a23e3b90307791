"""Retention budget: the memory pool of a keyed pipeline, its costs, and the utility of its rows.

Algorithm: `admit` charges new keys. In free mode (`runtime/memory_pool.py`) rows pass without further work. In short
mode, `find_versions` runs the shedding kernel over the inputs of all shards. The models of `RowUtility` learn from all
rows that are admitted after the first decision, and are judged at decisions.

Guarantees: the guarantees of the memory pool. Omission comes first: only retained rows are shed.

Complexity: O(n + M) per slice of n rows with M retained rows in short mode.

References: Srivastava, Widom, VLDB 2004; Cai et al., PVLDB 2021, section 7.1 (omission first, then shedding).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tocsin.hashing import key_number, row_fingerprints, unit_numbers
from tocsin.operators.lifecycle.operator import Lifecycle
from tocsin.operators.lifecycle.waiting_bound import (
    ENTRY_BYTES,
    WaitingKeys,
    bound_waiting,
    no_waiting_keys,
    read_entries,
    waiting_rules,
    written_entries,
)
from tocsin.operators.retention.operator import NO_TEXT, ShedOutcomes, SliceLayout, text_bytes
from tocsin.operators.retention.sample_policy import SamplePolicy
from tocsin.operators.retention.shedding import BY_KEY, BY_TIME, NO_TICK, SHED, Arrivals, Utilities
from tocsin.operators.retention.slice_shedder import ShedSlice, shed_slice
from tocsin.operators.retention.utility.row_utility import row_utility_of
from tocsin.plan.budget import GRANULES
from tocsin.plan.steps import Watch
from tocsin.rules.quality import BYTES
from tocsin.runtime.bucket_clock import BucketClock
from tocsin.runtime.context import Context
from tocsin.runtime.contract import NEVER, NEVER_SEEN, Bools, Float, Int
from tocsin.runtime.keyed_pipeline import KEYS_PER_SHARD
from tocsin.runtime.memory_pool import MemoryPool, Share, Usage
from tocsin.runtime.metrics import RowOutcome
from tocsin.runtime.payload import with_payload_digests
from tocsin.runtime.row_batch import RowBatch
from tocsin.runtime.state_codec import pack, packed_size, unpack
from tocsin.runtime.state_registry import Shard, name_bytes
from tocsin.runtime.versioned_rows import SampleThresholds

if TYPE_CHECKING:
    from tocsin.plan.operator_graph import OperatorGraph

MEMORY = "memory"
Ends = tuple[Int, Int]


class Admitted(NamedTuple):
    """Rows of a slice that passed admission: by shard, and of all shards in order of arrival.

    Attributes
    ----------
        rows: Rows by shard, sorted by key and arrival.
        newest: Newest time of each key of all shards before the slice.
        arrivals: Rows of all shards in order of arrival. Keys of later shards follow the keys of earlier ones.
        text: Bytes of the payload of each arrival.
        number: Number of each key.
    """

    rows: Sequence[RowBatch]
    newest: Int
    arrivals: Arrivals
    text: Int
    number: Int


class RetentionBudget:
    """Memory budget of a keyed pipeline in one bucket."""

    def __init__(self, watch: Watch, operators: OperatorGraph, shards: Sequence[Shard]) -> None:
        assert watch.budget is not None
        self.watch, self.operators, self.shards, self.budget = watch, operators, shards, watch.budget
        self.in_bytes = self.budget.memory.unit == BYTES
        self.pool = MemoryPool(self.budget.share, in_bytes=self.in_bytes)
        self.clock = BucketClock(max(self.budget.windows_us))
        self.lanes = len(watch.lanes)
        is_unreduced = all(one.store.whole for one in operators.retentions)
        self.utility = row_utility_of(self.budget, is_unreduced=is_unreduced) if self.lanes == 2 else None
        self.sample = None
        if self.budget.samples:
            monitor = None if self.utility is None else self.utility.monitor
            self.sample = SamplePolicy(monitor, self.budget.traces)
        self.is_dirty = False
        # State of the bound of waiting evaluations since the last decision; None directly after a decision.
        self.entries: Int | None = None
        self.longest = NO_TEXT
        # Bounds of the next rows in free mode, in order of arrival.
        self._next = np.zeros(0, np.int64), np.zeros(0, np.int64)
        # Whether a key is charged, and its price, by shard.
        self.charged: list[Bools] = []
        self.prices: list[Int] = []
        # Price of each new key of the slice by the serial number of its first row, and mean charge of a retained row.
        self._prices: dict[int, int] = {}
        self._mean_cost = 1.0
        self._set_costs()

    def _set_costs(self) -> None:
        watch, retentions = self.watch, self.operators.retentions
        self.kept = [i for i, one in enumerate(retentions) if one.store.remember]
        extra = 1 + self.budget.samples
        self.row_bytes = np.array([8 * (extra + len(one.store.columns)) for one in retentions], np.int64)
        if not self.in_bytes:
            self.row_bytes[:] = 1
        # How often a row of a view is retained, and the cost of its columns; the last entry is for rows without a view.
        self.times, self.columns = np.zeros(self.lanes + 1, np.int64), np.zeros(self.lanes + 1, np.int64)
        for i in self.kept:
            self.times[self.operators.view_of[i]] += 1
            self.columns[self.operators.view_of[i]] += self.row_bytes[i]
        with_alerts = [(rule.join, rule.alerts) for rule in self.operators.rules if isinstance(rule.alerts, Lifecycle)]
        self.with_alerts = with_alerts if self.in_bytes else []
        lanes = [[self.operators.view_of[s] for s in join.rule.stores] for join, _ in self.with_alerts]
        planned = [join.rule for join, _ in self.with_alerts]
        values = [sum(len(watch.stores[s].columns) for s in rule.stores) for rule in planned]
        spans = [rule.topology.span_us for rule in planned]
        self.waiting = waiting_rules(lanes, [rule.idle_timeout_us for rule in planned], spans, values, self.lanes)
        self.streams = max(map(len, lanes), default=0)
        reads = (self.waiting.stream >= 0).astype(np.int64)
        # Largest charge of a row for evaluations that wait, without texts, and its number of texts, by view.
        self.most_waiting = (self.waiting.size + ENTRY_BYTES) @ reads if planned else np.zeros(self.lanes + 1, np.int64)
        self.most_texts = 2 * self.waiting.texts @ reads if planned else np.zeros(self.lanes + 1, np.int64)
        self.key_bytes = self.shard_bytes = 0
        if self.in_bytes:
            empty, one = Shard(len(watch.on)), Shard(len(watch.on))
            for shard in (empty, one):
                self.operators.attach(shard)
            one.add_keys([("",) * len(watch.on)])
            self.shard_bytes = empty.size
            self.key_bytes = one.size - empty.size + -(-empty.size // KEYS_PER_SHARD)
        # Room for one more page of keys, if the share has memory for it.
        spare = self.shard_bytes if self.budget.share > KEYS_PER_SHARD * self.key_bytes // 2 else 0
        self.own_bytes = packed_size(self._arrays()) + 1024 + spare if self.in_bytes else 0

    def _arrays(self) -> dict[str, Any]:
        arrays: dict[str, Any] = self.pool.state_arrays() | self.clock.state_arrays()
        arrays |= {"longest": np.array([self.longest])}
        if self.entries is not None:
            arrays["waiting"] = self.entries
        if self.utility is not None:
            arrays |= {f"utility.{name}": array for name, array in self.utility.arrays().items()}
        if self.sample is not None:
            arrays |= self.sample.state_arrays()
        return arrays

    def state_page(self) -> tuple[str, bytes | None]:
        """Return the page of the budget if it changed."""
        if not self.is_dirty:
            return MEMORY, None
        self.is_dirty = False
        facts = {"begun": self.budget.share, "unit": self.budget.memory.unit, "pool": self.budget.pool}
        return MEMORY, pack(self._arrays(), **facts)

    def restore(self, page: bytes) -> None:
        """Restore the state of a page. A share under other terms is converted, and the state is cut to it."""
        arrays, facts = unpack(page)
        self.pool.restore_state(arrays)
        self.clock.restore_state(arrays)
        self.entries, self.longest = arrays.get("waiting"), int(arrays["longest"][0])
        if self.utility is not None:
            self.utility.load({name.removeprefix("utility."): part for name, part in arrays.items()})
        if self.sample is not None:
            self.sample.restore_state(arrays)
        budget, unit = self.budget, self.budget.memory.unit
        has_other_terms = (facts["begun"], facts["unit"], facts["pool"]) != (budget.share, unit, budget.pool)
        share = self.pool.share
        if facts["unit"] != unit:
            share, self.pool.pressure = budget.share, 0.0
        elif budget.share < facts["begun"] or not budget.told:
            share = share * budget.share // facts["begun"]
        if facts["pool"] != budget.pool:
            share = min(share, budget.share)
        if has_other_terms:
            self.pool.set_share(share)
            self.is_dirty = True

    def _text_bytes(self, rows: RowBatch) -> Int:
        """Return the bytes of the payload of each row on a page."""
        if not self.in_bytes or not rows.has_payload:
            return np.full(len(rows), NO_TEXT)
        return text_bytes(rows.texts(np.arange(len(rows))))

    def _key_prices(self, keys: Int, *, each_row: bool = False) -> Int:
        """Return the price of the key of each row: 0 except for the first row of each key that is not charged.

        With `each_row`, return the price of the key of each row that is not charged.
        """
        prices = np.zeros(len(keys), np.int64)
        if not self.key_bytes or not len(keys):
            return prices
        self._extend_charged()
        is_charged = np.ones(len(self.shards) * KEYS_PER_SHARD, np.bool_)
        for p, charged in enumerate(self.charged):
            is_charged[p * KEYS_PER_SHARD : p * KEYS_PER_SHARD + len(charged)] = charged
        new = np.flatnonzero(~is_charged[keys])
        if len(new):
            distinct, first, of = np.unique(keys[new], return_index=True, return_inverse=True)
            price = np.array(
                [self.prices[k // KEYS_PER_SHARD][k % KEYS_PER_SHARD] for k in distinct.tolist()], np.int64
            )
            if each_row:
                prices[new] = price[of]
            else:
                prices[new[first]] = price
        return prices

    def _extend_charged(self) -> None:
        """Add the keys that a call created: they are not charged yet. All keys of a restored shard are charged."""
        for p, shard in enumerate(self.shards):
            if p == len(self.charged):
                self.charged.append(np.zeros(0, np.bool_))
                self.prices.append(np.zeros(0, np.int64))
            known, names = len(self.charged[p]), shard.keys.names
            if len(names) > known:
                more = np.fromiter((self.key_bytes + name_bytes(name) for name in names[known:]), np.int64)
                self.charged[p] = np.concatenate([self.charged[p], np.zeros(len(more), np.bool_)])
                self.prices[p] = np.concatenate([self.prices[p], more])

    def charge_restored_keys(self) -> None:
        """Mark all keys of the restored shards as charged."""
        self._extend_charged()
        for charged in self.charged:
            charged[:] = True

    def _bounds(self, rows: RowBatch) -> tuple[Int, Int]:
        """Return the largest charge of each row, and the size of the longest text up to each row."""
        view, text = np.minimum(rows.view, self.lanes), self._text_bytes(rows)
        bound, longest = self.columns[view], np.maximum(np.maximum.accumulate(text), self.longest)
        if self.in_bytes:
            bound = bound + self.times[view] * text + self.most_waiting[view] + self.most_texts[view] * longest
        return bound + self._key_prices(rows.key), longest

    def rows_before_decision(self, rows: RowBatch, begin: int) -> int | None:
        """Return the rows before the next decision."""
        if not self.pool.is_begun:
            return 0
        if self.pool.is_short:
            return self.pool.rows_before_decision(rows.key[begin:])
        # More rows than this exceed the rest of the share, unless no view can use them.
        ahead = min(begin + self.pool.left // max(int(self.columns[:-1].min()), 1) + 1, len(rows))
        self._next = self._bounds(rows.take(slice(begin, ahead)))
        found = self.pool.rows_before_decision(self._next[0])
        return ahead - begin if found is None and ahead < len(rows) else found

    def decide(self, context: Context) -> None:
        """Measure the state, evict keys, and judge the models."""
        self._context, self.is_dirty = context, True
        was_begun = self.pool.is_begun
        self.pool.decide(self)
        self.entries = None
        self.longest = max(
            (one.state(s).longest_text_bytes for s in self.shards for one in self._kept()), default=NO_TEXT
        )
        if not self.in_bytes:
            self.longest = NO_TEXT
        if self.sample is not None and not self.pool.is_short:
            self.sample.restart()
        memory = float(max(self.pool.share - self.pool.fixed - self.pool.keys, 1))
        if self.pool.is_short:
            each = self._average_costs()
            if self.utility is not None and self.utility.is_due():
                self.utility.judge(memory, each)
            if self.sample is not None:
                self.sample.judge(memory, each)
        if not was_begun and self.pool.fixed + self._rows_charge() > self.pool.share:
            self.pool.is_short = True
            self.cut(context)
            self.evict_idle_keys()
            self.pool.decide(self)

    def observe(self, results: Any, context: Context) -> None:
        """Do nothing: the models learn from the rows."""

    def report(self, context: Context) -> None:
        """Remove the keys that are not charged, and report recall and shares."""
        for p, shard in enumerate(self.shards):
            self._extend_charged()
            if self.key_bytes and not self.charged[p].all():
                shard.drop_keys(~self.charged[p])
                self.prices[p], self.charged[p] = self.prices[p][self.charged[p]], self.charged[p][self.charged[p]]
        for rule in self.watch.rules:
            for name, value in self.found.items():
                context.set_metric(name, value, rule.alert)
        if self.budget.told:
            context.publish(self.curve_report())

    def apply_control(self, message: Any, context: Context) -> None:
        """Apply another share. A share of a budget that has changed since does not count."""
        if isinstance(message, Share) and message.watch == self.watch.name and self.budget.told:
            if message.terms == self.budget.terms:
                self.pool.set_share(message.share)
                self.decide(context)
                self.report(context)

    def _kept(self) -> list[Any]:
        return [self.operators.retentions[i] for i in self.kept]

    def _rows_charge(self) -> int:
        rows = 0
        for shard in self.shards:
            for i in self.kept:
                state = self.operators.retentions[i].state(shard)
                rows += int(state.row_bytes().sum()) if self.in_bytes else len(state.time)
        return rows

    def measure(self) -> Usage:
        """Measure the state of all shards."""
        rows = self._rows_charge()
        if not self.in_bytes:
            return Usage(0, rows, 0)
        self._extend_charged()
        waiting, free, size = 0, 0, self.own_bytes
        for p, shard in enumerate(self.shards):
            for i in self.kept:
                self.operators.retentions[i].state(shard).drop_fingerprints()
            size += shard.size
            for rule, (_, alerts) in enumerate(self.with_alerts):
                waiting += len(alerts.state(shard).waiting.key) * int(self.waiting.size[rule])
            free += int(self.prices[p][~self.charged[p]].sum())
        return Usage(size - free - rows - waiting, rows, waiting)

    def evict_idle_keys(self) -> int:
        """Reset the state of the keys without rows and open work, and return their charge."""
        if self.operators.no_data is not None:
            return 0
        self._extend_charged()
        freed, newest = 0, NEVER_SEEN
        for p, shard in enumerate(self.shards):
            rows = np.sum([np.diff(one.state(shard).offsets) for one in self.operators.retentions], axis=0)
            idle = (rows == 0) & ~self.operators.busy(shard) & self.charged[p]
            if idle.any():
                newest = max(newest, int(self.operators.admission.state(shard).newest[idle].max()))
                freed += int(self.prices[p][idle].sum())
                for one in self.operators.retentions:
                    self._context.set_metric("freed_keys", int(idle.sum()), one.name)
                shard.reset_keys(idle)
                self.charged[p][idle] = False
        return freed

    def admit(self, parts: Sequence[tuple[Shard, RowBatch]], context: Context) -> list[RowBatch]:
        """Charge the keys of the rows, and return the rows whose keys fit. Other rows are shed."""
        self._context, self.is_dirty = context, True
        admitted = [rows for _, rows in parts]
        keys = np.concatenate([rows.key + p * KEYS_PER_SHARD for p, rows in enumerate(admitted)])
        serial = np.concatenate([rows.serial for rows in admitted])
        bound = 0
        if not self.pool.is_short and len(keys):
            bounds, longest = self._next
            bound, self.longest = int(bounds[: len(keys)].sum()), int(longest[len(keys) - 1])
        order = np.argsort(serial, kind="stable")
        prices = np.zeros(len(keys), np.int64)
        prices[order] = self._key_prices(keys[order], each_row=self.pool.is_short)
        self._prices = {}
        paying = order[prices[order] > 0]
        if len(paying):
            numbers = np.concatenate([shard.keys.hashes(key_number) for shard in self.shards])
            begins = np.cumsum([0, *(len(shard.keys) for shard in self.shards)])
            at = begins[keys[paying] // KEYS_PER_SHARD] + keys[paying] % KEYS_PER_SHARD
            fits = self.pool.charge_new_keys(prices[paying], numbers[at])
            for key in keys[paying[fits]].tolist():
                self.charged[key // KEYS_PER_SHARD][key % KEYS_PER_SHARD] = True
            self._prices = dict(zip(serial[paying[fits]].tolist(), prices[paying[fits]].tolist(), strict=True))
            entered = np.full(len(self.shards) * KEYS_PER_SHARD, NEVER)
            entered[keys[paying[fits]]] = serial[paying[fits]]
            self._refuse_before(entered, parts, admitted, context)
        elif self.key_bytes:
            self._refuse_before(None, parts, admitted, context)
        self.pool.pass_rows(len(keys), bound)
        return admitted

    def _refuse_before(
        self, entered: Int | None, parts: Sequence[tuple[Shard, RowBatch]], admitted: list[RowBatch], context: Context
    ) -> None:
        """Shed the rows of keys that are not charged, and the rows before the row that paid for their key."""
        for p, (shard, rows) in enumerate(parts):
            refused = ~self.charged[p][rows.key]
            if entered is not None:
                paid = entered[rows.key + p * KEYS_PER_SHARD]
                refused |= (paid != NEVER) & (rows.serial < paid)
            if refused.any():
                context.record(shard, rows, refused, RowOutcome.SHED)
                self.operators.count_rows_without_limits(shard, rows.take(refused), context)
                self._lose(rows.time[refused])
                admitted[p] = rows.take(~refused)

    def _lose(self, time: Int) -> None:
        """Record that results of rows with these times can be missing."""
        span = max((rule.topology.span_us for rule in self.watch.rules), default=0)
        predicted = None if self.utility is None or np.isnan(self.utility.predicted) else self.utility.predicted
        if self.sample is None and len(time):
            self.pool.lose(int(time.max()) + span, predicted)

    def collect(self, rows: Sequence[RowBatch], newest: Int) -> Admitted:
        """Return the rows of all shards in order of arrival."""
        begins = np.concatenate([[0], np.cumsum([len(shard.keys) for shard in self.shards])])
        key, serial = (
            np.concatenate(part)
            for part in ([r.key + b for r, b in zip(rows, begins, strict=False)], [r.serial for r in rows])
        )
        order = np.argsort(serial, kind="stable")
        view, time = (np.concatenate([getattr(one, name) for one in rows])[order] for name in ("view", "time"))
        text = np.concatenate([self._text_bytes(one) for one in rows])[order]
        number = np.concatenate([shard.keys.hashes(key_number) for shard in self.shards])
        lane = np.minimum(view, self.lanes)
        arrivals = Arrivals(lane, key[order], time, self.clock.advance(time), serial[order])
        return Admitted(rows, newest, arrivals, text, number)

    def find_versions(
        self, admitted: Admitted, layouts: Sequence[Sequence[SliceLayout]], context: Context
    ) -> tuple[list[dict[int, Ends]], list[dict[int, ShedOutcomes]]] | None:
        """Run the shedding kernel in short mode. Return ends and outcomes by shard and input, or None in free mode."""
        arrivals = admitted.arrivals
        if not self.pool.is_short:
            self._learn(admitted, None)
            return None
        kept = [[mine[i] for i in self.kept] for mine in layouts]
        lanes = [self.operators.view_of[i] for i in self.kept]
        numbers = [shard.keys.hashes(key_number) for shard in self.shards]
        costs = [[self._layout_costs(i, layout) for i, layout in zip(self.kept, mine, strict=True)] for mine in kept]
        how = self._utilities()
        utilities = []
        for mine, number in zip(kept, numbers, strict=True):
            utilities.append(
                [self._layout_utilities(lane, layout, number, how) for lane, layout in zip(lanes, mine, strict=True)]
            )
        extra = self._extra(admitted)
        found = shed_slice(
            self._kept(), lanes, kept, (costs, utilities, numbers), arrivals, admitted.newest, self.watch.horizon_us,
            how, max(self.pool.share - self.pool.fixed, 0), extra,
        )  # fmt: skip
        self._count_shed(found, arrivals, context)
        self._learn(admitted, found)
        if self.sample is not None:
            self._sample_rows(found, kept, lanes, numbers, arrivals)
        ends = [dict(zip(self.kept, mine, strict=True)) for mine in found.ends]
        outcomes = [dict(zip(self.kept, mine, strict=True)) for mine in found.outcomes]
        return ends, outcomes

    def cut(self, context: Context) -> None:
        """Shed rows at once until the state fits, without new rows."""
        if not any(len(shard.keys) for shard in self.shards):
            return
        self.operators.cut_to_budget(context)

    def empty_slice(self, rows: Sequence[RowBatch], newest: Int) -> Admitted:
        """Return a slice with one arrival that changes nothing."""
        none, number = np.zeros(1, np.int64), [shard.keys.hashes(key_number) for shard in self.shards]
        clock, self._prices = np.array([self.clock.steady_us]), {}
        arrival = Arrivals(np.array([self.lanes]), none, np.array([NEVER_SEEN]), clock, none)
        return Admitted(rows, newest, arrival, np.full(1, NO_TEXT), np.concatenate(number))

    def _layout_costs(self, number: int, layout: SliceLayout) -> Int:
        cost = np.full(len(layout.time), self.row_bytes[number])
        if not self.in_bytes:
            return cost
        if layout.texts is None:
            return cost + NO_TEXT
        return cost + text_bytes(layout.texts(layout.source))

    def _utilities(self) -> Utilities:
        share = float(max(self.pool.share - self.pool.fixed - self.pool.keys, 0))
        windows = np.array(self.budget.windows_us, np.int64)
        if self.sample is not None:
            how = no_models(windows)
            tick = max(int(windows.max()) // GRANULES, 1)
            source = np.full(self.lanes, BY_KEY)
            return how._replace(source=source, threshold=self.sample.p, is_sampled=True, tick=tick)
        if self.utility is None:
            return no_models(windows)
        return self.utility.utilities(share)

    def _layout_utilities(self, lane: int, layout: SliceLayout, number: Int, how: Utilities) -> Float:
        counts = np.diff(layout.offsets)
        if self.sample is not None:
            keys = np.repeat(number, counts)
            drawn = unit_numbers(
                row_fingerprints((np.full(len(keys), lane), keys, layout.time, *layout.values), len(keys))
            )
            return -drawn / np.repeat(self.sample.sizes(lane, number), counts)
        if self.utility is None or how.source[lane] != BY_KEY:
            return np.zeros(len(layout.time))
        return np.repeat(self.utility.expected_results(lane, number), counts)

    def _sample_rows(
        self,
        found: ShedSlice,
        layouts: Sequence[Sequence[SliceLayout]],
        lanes: Sequence[int],
        numbers: Sequence[Int],
        arrivals: Arrivals,
    ) -> None:
        """Add thresholds and duplicates to the outcomes of a sample."""
        assert self.sample is not None
        after = found.versions.threshold
        before = np.concatenate([[self.sample.p], after[:-1]])
        events = []
        for s, (mine, number) in enumerate(zip(layouts, numbers, strict=True)):
            for i, (lane, layout) in enumerate(zip(lanes, mine, strict=True)):
                keys = np.repeat(number, np.diff(layout.offsets))
                size, outcome = self.sample.sizes(lane, keys), found.outcomes[s][i]
                thresholds = SampleThresholds(size, arrivals.serial, before, float(after[-1]))
                new = np.flatnonzero(layout.begin >= 0)
                found.outcomes[s][i] = replace(outcome, thresholds=thresholds, is_repeat=np.zeros(len(new), np.bool_))
                fingerprints = row_fingerprints(
                    (np.full(len(keys), lane), keys, layout.time, *layout.values), len(keys)
                )
                texts = None if layout.texts is None else layout.texts(layout.source)
                marks = with_payload_digests(fingerprints, texts, self.operators.retentions[self.kept[i]].store.columns)
                is_shed = outcome.state == SHED
                end = found.ends[s][i][1]
                # Rows that leave with their own arrival; an arrival is before the departures that it causes.
                leaves_now = is_shed & (layout.begin >= 0) & (end <= layout.begin + 1)
                later = np.flatnonzero(is_shed & ~leaves_now)
                events.append((lane, s, i, layout.begin[new], np.arange(len(new)), marks[new], leaves_now[new]))
                events.append((lane, s, i, end[later] - 1, np.full(len(later), -1), marks[later], is_shed[later]))
        for lane in set(lanes):
            mine_of = [event for event in events if event[0] == lane]
            serial, row, mark, leaves = (np.concatenate([event[c] for event in mine_of]) for c in (3, 4, 5, 6))
            place = np.repeat(np.arange(len(mine_of)), [len(event[3]) for event in mine_of])
            order = np.lexsort((row < 0, serial))
            again = self.sample.filter.process(lane, mark[order], leaves[order], row[order] >= 0)
            for at, is_again in zip(order[again].tolist(), again[again].tolist(), strict=True):
                _, s, i, *_ = mine_of[place[at]]
                repeat = found.outcomes[s][i].is_repeat
                assert repeat is not None
                repeat[row[at]] = is_again
        self.sample.p = float(after[-1])

    def _extra(self, admitted: Admitted) -> Int:
        """Return the bound of keys and evaluations that wait after each arrival."""
        arrivals, keys_before = admitted.arrivals, self.pool.keys - sum(self._prices.values())
        price = np.zeros(len(arrivals.time), np.int64)
        if self._prices:
            paid = np.array(list(self._prices), np.int64)
            at = np.searchsorted(arrivals.serial, paid)
            np.add.at(price, np.minimum(at, len(price) - 1), np.array(list(self._prices.values()), np.int64))
        extra = keys_before + np.cumsum(price)
        if not self.with_alerts:
            return extra
        # A row that can never fit is shed on arrival, so its text does not count.
        cost = self.columns[arrivals.lane] + self.times[arrivals.lane] * admitted.text
        text = np.where(cost > self.pool.share - self.pool.fixed, NO_TEXT, admitted.text)
        keys, longest = self._waiting_keys(admitted), np.maximum(np.maximum.accumulate(text), self.longest)
        extra = extra + bound_waiting(self.waiting, keys, arrivals.lane, arrivals.key, arrivals.time, longest)
        self.entries, self.longest = written_entries(keys, admitted.number), int(longest.max(initial=self.longest))
        return extra

    def _waiting_keys(self, admitted: Admitted) -> WaitingKeys:
        keys = no_waiting_keys(self.waiting, len(admitted.number), self.streams)
        begin = 0
        for shard in self.shards:
            span = slice(begin, begin + len(shard.keys))
            for rule, (one, alerts) in enumerate(self.with_alerts):
                join, waiting = one.state(shard), alerts.state(shard).waiting
                keys.newest[rule, span, : join.newest.shape[1]] = join.newest
                keys.watermark[rule, span] = join.watermark
                if self.entries is not None:
                    continue
                keys.rows[rule, span] = np.bincount(waiting.key, minlength=len(shard.keys))
                until = np.full(len(shard.keys), NEVER_SEEN)
                np.maximum.at(until, waiting.key, waiting.time)
                keys.until[rule, span] = until
            begin = span.stop
        if self.entries is not None:
            read_entries(keys, admitted.number, self.entries)
        return keys

    def _count_shed(self, found: ShedSlice, arrivals: Arrivals, context: Context) -> None:
        if len(found.time):
            place = np.minimum(np.searchsorted(arrivals.serial, found.end - 1), len(arrivals.serial) - 1)
            windows = np.array(self.budget.windows_us, np.int64)
            is_loss = arrivals.clock[place] - found.time <= windows[found.lane]
            self._lose(found.time[is_loss])
            self.pool.press(float(is_loss.sum()) * self._mean_cost, int(arrivals.clock[-1]), self.clock.max_step_us)
        refused = found.versions.is_refused
        self._lose(arrivals.time[refused & (arrivals.lane < self.lanes)])
        context.report_loss(self.pool.loss)

    def _average_costs(self) -> list[float]:
        costs = []
        for lane in range(self.lanes):
            rows, total = 0, 0
            for i in self.kept:
                if self.operators.view_of[i] == lane:
                    for shard in self.shards:
                        state = self.operators.retentions[i].state(shard)
                        rows += len(state.time)
                        total += int(state.row_bytes().sum()) if self.in_bytes else len(state.time)
            costs.append(total / rows if rows else 1.0)
        self._mean_cost = max(*costs, 1.0)
        return [max(cost, 1.0) for cost in costs]

    def _learn(self, admitted: Admitted, found: ShedSlice | None) -> None:
        """Pass the rows and the rows that were shed to the models, in order of arrival."""
        if self.utility is None:
            return
        arrivals, mine = admitted.arrivals, admitted.arrivals.lane < self.lanes
        number = admitted.number[arrivals.key]
        stamp = row_fingerprints((number, arrivals.time), len(number))
        lost = np.zeros(len(number), np.bool_)
        at, lane, gone = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64)
        if found is not None and len(found.time):
            order = np.argsort(found.end, kind="stable")
            gone = row_fingerprints((found.key, found.time), len(found.time))[order]
            at = np.searchsorted(arrivals.serial, found.end[order] - 1)
            lane = found.lane[order]
        lost |= found.versions.is_refused if found is not None else False
        rows = np.cumsum(mine) - 1
        events = (rows[np.minimum(at, len(rows) - 1)] if len(rows) else at, lane, gone)
        self.utility.learn(arrivals.lane[mine], arrivals.clock[mine], number[mine], stamp[mine], lost[mine], events)

    @property
    def found(self) -> dict[str, float | None]:
        """Predicted and measured results by metric; None if no model predicts them."""
        reached = None if self.utility is None else self.utility.monitor.reached()
        predicted, interval = None, None
        errors: Sequence[float | None] = (None, None) if self.sample is None else self.sample.errors
        if self.sample is None and self.utility is not None and not np.isnan(self.utility.predicted):
            predicted, interval = float(self.utility.predicted), self.utility.interval
        if not self.pool.pressure:
            predicted, interval = 1.0, (1.0, 1.0)
            errors = errors if self.sample is None else (0.0, 0.0)
        found = {"memory_predicted": predicted, "memory_reached": reached}
        low, high = (None, None) if interval is None or self.sample is not None else interval
        found |= {"memory_predicted_low": low, "memory_predicted_high": high}
        return found | {"memory_error_predicted": errors[0], "memory_error_reached": errors[1]}

    def curve_report(self) -> dict[str, Any]:
        """Return the report for the coordinator: the share, the used memory, and the benefit of more memory."""
        usage = self.measure()
        rows = sum(len(one.state(s).time) for s in self.shards for one in self._kept())
        share = max(self.pool.share, usage.total)
        report = {
            "share": share,
            "fixed": self.own_bytes,
            "need": usage.total - self.own_bytes + int(self.pool.pressure),
        }
        report |= {"rows": rows, "used": max(usage.total - self.own_bytes, 0)}
        if self.sample is not None:
            return report | {"points": self.sample.points.tolist(), "results": self.sample.results}
        return report | {"points": [] if self.utility is None else self.utility.points.tolist()}


def no_models(windows: Int) -> Utilities:
    """Return the order of rows without a model: the newest rows stay."""
    lanes = len(windows)
    source, priorities, granule = np.full(lanes, BY_TIME), np.zeros((lanes, 2)), np.ones(lanes, np.int64)
    return Utilities(source, windows, priorities, granule, NO_TICK, np.zeros(0), np.inf, is_sampled=False)
