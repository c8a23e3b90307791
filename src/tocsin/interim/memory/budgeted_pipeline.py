"""The logic of a watch whose memory is limited: never more than its share, and what goes is what is worth least.

Idea: rows are handed to pages in pieces. Before a piece, as much room is made as its rows can take at the most
(`memory_share.py`); so the state never exceeds the share, whatever the rows do. When room is made depends on the rows
in order
of arrival alone. A piece ends there, or with its call, so nothing may be decided for a piece as a whole: what rows are
judged by changes where room is made, or row by row. Omission comes first, as in every watch: only what it leaves is
shed. Rows for which no room can be made, because open alerts fill the memory, are shed as they come.
Guarantee: after every row the pages, with the model, take no more than the share, in bytes or in rows; the cut into
calls does not show; nothing is shed while everything fits. An alert whose witness may lack rows that were shed says so.
Cost: a piece goes through the rows and keys of its page: some 16 times for as many rows as fit.
Source: Srivastava, Widom, VLDB 2004; Cai et al., PVLDB 2021, section 7.1 (omission first, shedding after).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tocsin.hashing import row_fingerprints, unit_numbers
from tocsin.interim.memory.call_keys import Called
from tocsin.interim.memory.memory_rebalancing import Share
from tocsin.interim.memory.memory_share import Room
from tocsin.interim.memory.row_sampling import Sampler
from tocsin.interim.memory.shard_view import ShardViews
from tocsin.interim.memory.waiting_charges import Came
from tocsin.interim.reorder.wait_controller import Control
from tocsin.plan.operator_graph import OperatorGraph
from tocsin.plan.steps import Watch
from tocsin.runtime.context import Context
from tocsin.runtime.contract import Batch, Bools, Int, Listener, Out
from tocsin.runtime.keyed_pipeline import KeyedPipeline
from tocsin.runtime.metrics import RowOutcome
from tocsin.runtime.payload import with_payload_digests
from tocsin.runtime.received_rows import PipelineInputs
from tocsin.runtime.row_batch import RowBatch, RowSample
from tocsin.runtime.state_codec import unpack
from tocsin.runtime.state_registry import ShardGroup, readable

# Name of the page of a shard group with the state of the budget.
MEMORY = "memory"
# So many rows in a row are given up where no room can be made, before it is tried again.
DEAF = 64


class BudgetedPipeline(KeyedPipeline):
    """All pages of a watch in one bucket, and how much they may take."""

    def __init__(
        self,
        watch: Watch,
        reads: PipelineInputs,
        operators: OperatorGraph,
        group: ShardGroup,
        listener: Listener | None = None,
    ) -> None:
        super().__init__(watch.name, reads, operators, [], group, listener)
        assert watch.budget is not None
        for shard in self.shards:
            shard.is_full_width = True
        self.watch, self.budget = watch, watch.budget
        self.room = Room(watch, operators, ShardViews(operators, self.shards))
        # What was stored under another budget, or under none, is yet to be cut to this one.
        self.foreign, self.dirty = bool(self.shards), False
        # Rows to be given up as they come.
        self.deaf = 0
        stored = group.parts.pop(MEMORY, None)
        if stored is not None:
            with readable(f"{group.name}/{MEMORY}"):
                self.deaf, self.foreign = self.room.load(*unpack(stored))
            self.dirty = self.foreign or group.is_copy

    def context(self, out: Out, now_us: int | None = None) -> Context:
        """Return the context of a call. It reports the loss of the shed rows."""
        self.loss = self.room.loss
        return super().context(out, now_us)

    def on_data(self, batches: Sequence[Batch], now_us: int | None, out: Out) -> None:
        """Hand over the rows in pieces, and make room between them."""
        self._cut_to_share(self.context(out))
        self._called, self._moved, self._lost = Called(), False, np.zeros(0, np.bool_)
        super().on_data(batches, now_us, out)
        self.say(out)

    def _find_key_indexes(self, batch: Batch) -> Int:
        """Number the keys of a call; their places can change from slice to slice."""
        return self._called.numbers(batch)

    def _process_arrivals(self, rows: RowBatch, arrival_order: Int, context: Context) -> None:
        if len(rows):
            self.dirty = True
            self._called.find(self.key_indexes, self.room.shedder.key_bytes)
            self.room.waits.begin(self._called.number)
            self._pieces(rows.take(arrival_order), context)
            self.room.waits.end()
            if self._moved:
                self._index_keys()

    def on_control(self, message: Control | Share, out: Out) -> None:
        """Apply another share of memory. A share of a budget that has changed since does not count."""
        super().on_control(message, out)
        if isinstance(message, Share) and message.watch == self.watch.name and self.budget.told:
            if message.terms == self.budget.terms:
                self.give(message.share, self.context(out))

    def on_time(self, now_us: int, out: Out) -> None:
        """Let quiet keys go on."""
        super().on_time(now_us, out)
        self._cut_to_share(self.context(out))

    def on_end(self, out: Out) -> None:
        """Wait for nothing any more; say what the memory has found in the end."""
        super().on_end(out)
        self.say(out)

    def _cut_to_share(self, context: Context) -> None:
        """Give up at once what does not fit, of state that was stored under another budget."""
        if self.foreign:
            self.foreign = False
            self.give(self.room.share, context)

    def give(self, share: int, context: Context) -> None:
        """Take another share; a smaller one is kept to at once."""
        self.dirty = True
        self.room.give(share, context)
        if self.room.forgotten:
            self.room.forgotten.clear()
            self._index_keys()

    def say(self, out: Out) -> None:
        """Say what the memory finds, and what the engine needs to divide it."""
        for rule in self.watch.rules:
            for name, value in self.room.found.items():
                out.metrics.record(name, value, rule.alert)
        if self.budget.told:
            out.reports.append({"watch": self.watch.name, **self.room.tell()})

    def _pieces(self, rows: RowBatch, context: Context) -> None:
        text = self.room.costs.texts(rows)
        cost, begin = self.room.costs.of_rows(rows.view, text), 0
        cheapest = max(int(cost.min()), 1)
        while begin < len(rows):
            ahead = slice(begin, begin + self.room.left // cheapest + 1)
            price = cost[ahead] + self._called.prices(rows.key[ahead])
            came = Came(rows.view[ahead], rows.key[ahead], rows.time[ahead], price)
            fit = 0 if self.deaf else self.room.fitting(came, text[ahead], self._called.place)
            if fit:
                piece = rows.take(slice(begin, begin + fit))
                context.report_loss(self.room.loss)
                self._process(piece, np.arange(fit), context)
                self._learn_of(piece, self._lost)
            elif not self._admits(int(price[0]), int(text[begin]), context):
                fit = 1
                self._refuse(rows.take(slice(begin, begin + 1)), context)
            begin += fit

    def _admits(self, cost: int, text: int, context: Context) -> bool:
        """Make room for a row; tell whether there is. One that is too large in any case costs no other its place."""
        if self.deaf:
            self.deaf -= 1
            return False
        if self.room.least(cost, text) > self.room.most:
            return False
        made = self.room.make(cost, text, context)
        for gone in self.room.forgotten:
            self._called.move(gone)
            self.open_shard, self._moved = 0, True
        self.room.forgotten.clear()
        self.deaf = 0 if made else DEAF - 1
        return made

    def _refuse(self, row: RowBatch, context: Context) -> None:
        """Shed a row on arrival; the models observe it as lost."""
        view = int(row.view[0])
        for store, name in zip(self.watch.stores, self.watch.store_names, strict=True):
            if view < len(self.watch.lanes) and self.watch.lanes[view] == store.lane:
                context.count(name, {RowOutcome.SHED: 1})
        self._learn_of(row, np.ones(1, np.bool_))
        self.room.lose(int(row.time[0]) + self.room.shedder.span_us)

    def _process(self, rows: RowBatch, arrival_order: Int, context: Context) -> None:
        """Find the key indexes of a slice, which is in order of arrival, and process its rows."""
        place = self._called.place
        new = np.unique(rows.key[place[rows.key] < 0])
        if len(new):
            names = [self._called.names[key] for key in new.tolist()]
            place[new] = places = self.add_keys(names)
            self.key_indexes |= dict(zip(names, places, strict=True))
        self._lost = np.zeros(len(rows), np.bool_)
        if self.room.sampler is not None:
            sample = self._sample(rows, self.room.sampler)
            rows, self._lost = replace(rows, sample=sample), sample.is_rejected | sample.is_repeat
        super()._process(rows.with_keys(place[rows.key]), arrival_order, context)

    def _sample(self, rows: RowBatch, sampler: Sampler) -> RowSample:
        """Decide which rows, in order of arrival, join the sample. Rows that no view can use are not sampled."""
        count = len(rows)
        sample = RowSample(np.ones(count), np.zeros(count, np.bool_), np.zeros(count, np.bool_))
        for view in range(min(2, len(self.watch.lanes))):
            at = np.flatnonzero(rows.view == view)
            mine, columns = rows.take(at), self.watch.lanes[view][1]
            number = self._called.number[mine.key]
            values = [mine.values_of(column) for column in range(len(columns))]
            fingerprints = row_fingerprints((np.full(len(at), view), number, mine.time, *values), len(at))
            texts = mine.texts(np.arange(len(at))) if mine.has_payload else None
            marks = with_payload_digests(fingerprints, texts, columns)
            probability = sampler.chances(view, number)
            is_rejected = unit_numbers(fingerprints) >= probability
            sample.probability[at], sample.is_rejected[at] = probability, is_rejected
            sample.is_repeat[at] = sampler.traces.came_again(view, marks, is_rejected)
        return sample

    def _learn_of(self, rows: RowBatch, lost: Bools) -> None:
        """Let the models observe rows in order of arrival, and the rows that were shed on arrival."""
        steady = self.room.clock.advance(rows.time)
        if self.room.worth is not None:
            numbers, mine = self._called.number[rows.key], rows.view < 2
            stamp = row_fingerprints((numbers, rows.time), len(numbers))
            self.room.worth.learn(rows.view[mine], steady[mine], numbers[mine], stamp[mine], lost[mine])

    def changed_pages(self) -> dict[str, bytes | None]:
        """Give the pages that changed since the last call."""
        changed = super().changed_pages()
        if self.dirty:
            changed[f"{self.group.name}/{MEMORY}"] = self.room.to_bytes(self.deaf)
            self.dirty = False
        return changed
