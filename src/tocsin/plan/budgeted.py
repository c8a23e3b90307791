"""The logic of a watch whose memory is limited: never more than its share, and what goes is what is worth least.

Idea: rows are handed to pages in pieces. Before a piece, as much room is made as its rows can take at the most
(`room.py`); so the state never exceeds the share, whatever the rows do. When room is made depends on the rows in order
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
from tocsin.operators.retention.operator import RowBatch, Sampled
from tocsin.plan.agree import Control
from tocsin.plan.allot import Share
from tocsin.plan.called import Called
from tocsin.plan.identity import Bequest
from tocsin.plan.room import Room
from tocsin.plan.steps import Watch
from tocsin.plan.waits import Came
from tocsin.plan.watch import MEMORY, KeyedPipeline, readable
from tocsin.runtime.contract import Batch, Bools, Int, Listener, Out, Pages
from tocsin.runtime.metrics import RowOutcome
from tocsin.runtime.payload import with_payload_digests
from tocsin.runtime.state_codec import unpack

# So many rows in a row are given up where no room can be made, before it is tried again.
DEAF = 64

Lane = tuple[RowBatch, Int]


class BudgetedPipeline(KeyedPipeline):
    """All pages of a watch in one bucket, and how much they may take."""

    def __init__(
        self, number: int, watch: Watch, pages: Pages, given: Bequest, listener: Listener | None = None
    ) -> None:
        super().__init__(number, watch, pages, given, listener)
        assert watch.budget is not None
        self.budget, self.room = watch.budget, Room(watch, self.pages)
        # What was stored under another budget, or under none, is yet to be cut to this one.
        self.foreign, self.dirty = bool(self.pages), False
        # Rows to be given up as they come.
        self.deaf = 0
        stored = f"{given.of}/{MEMORY}"
        if stored in pages:
            with readable(stored):
                self.deaf, self.foreign = self.room.load(*unpack(pages[stored]))
            self.dirty = self.foreign or stored != f"{watch.name}/{MEMORY}"
        self.room.tell_pages()

    def on_data(self, batches: Sequence[Batch], now_us: int | None, out: Out) -> None:
        """Hand over the rows in pieces, and make room between them."""
        self._cut_to_share(out)
        self._called, self._moved, self._lost = Called(), False, np.zeros(0, np.bool_)
        super().on_data(batches, now_us, out)
        self.say(out)

    def _places(self, batch: Batch) -> Int:
        """Number the keys of a call; where they live may change from piece to piece."""
        return self._called.numbers(batch)

    def _hand_over(self, lanes: Sequence[Lane], arrived: Int, now_us: int | None, out: Out) -> None:
        if len(arrived):
            self.dirty = True
            self._called.find(self.place, self.room.shedder.key_bytes)
            self.room.waits.begin(self._called.number)
            self._pieces(lanes, arrived, now_us, out)
            self.room.waits.end()
            if self._moved:
                self._find_places()

    def on_control(self, message: Control | Share, out: Out) -> None:
        """Apply another share of memory. A share of a budget that has changed since does not count."""
        super().on_control(message, out)
        if isinstance(message, Share) and message.watch == self.watch.name and self.budget.told:
            if message.terms == self.budget.terms:
                self.give(message.share, out)

    def on_time(self, now_us: int, out: Out) -> None:
        """Let quiet keys go on."""
        super().on_time(now_us, out)
        self._cut_to_share(out)

    def on_end(self, out: Out) -> None:
        """Wait for nothing any more; say what the memory has found in the end."""
        super().on_end(out)
        self.say(out)

    def _cut_to_share(self, out: Out) -> None:
        """Give up at once what does not fit, of state that was stored under another budget."""
        if self.foreign:
            self.foreign = False
            self.give(self.room.share, out)

    def give(self, share: int, out: Out) -> None:
        """Take another share; a smaller one is kept to at once."""
        self.dirty = True
        self.room.give(share, out)
        if self.room.forgotten:
            self.room.forgotten.clear()
            self._find_places()

    def say(self, out: Out) -> None:
        """Say what the memory finds, and what the engine needs to divide it."""
        for rule in self.watch.rules:
            for name, value in self.room.found.items():
                out.metrics.record(name, value, rule.alert)
        if self.budget.told:
            out.reports.append({"watch": self.watch.name, **self.room.tell()})

    def _pieces(self, lanes: Sequence[Lane], arrived: Int, now_us: int | None, out: Out) -> None:
        lane = np.repeat(np.arange(len(lanes)), [len(rows.time) for rows, _ in lanes])[arrived]
        key, time = (np.concatenate([getattr(rows, name) for rows, _ in lanes])[arrived] for name in ("key", "time"))
        text = np.concatenate([self.room.costs.texts(rows) for rows, _ in lanes])[arrived]
        cost, begin = self.room.costs.of_rows(lane, text), 0
        cheapest = max(int(cost.min()), 1)
        while begin < len(arrived):
            ahead = slice(begin, begin + self.room.left // cheapest + 1)
            price = cost[ahead] + self._called.prices(key[ahead])
            came = Came(lane[ahead], key[ahead], time[ahead], price)
            fit = 0 if self.deaf else self.room.fitting(came, text[ahead], self._called.place)
            if fit:
                piece = slice(begin, begin + fit)
                self._piece(lanes, arrived[piece], now_us, out)
                self._learn_of(lane[piece], time[piece], key[piece], self._lost)
            elif not self._admits(int(price[0]), int(text[begin]), out):
                fit = 1
                self._refuse(lane[begin : begin + 1], time[begin : begin + 1], key[begin : begin + 1], out)
            begin += fit

    def _admits(self, cost: int, text: int, out: Out) -> bool:
        """Make room for a row; tell whether there is. One that is too large in any case costs no other its place."""
        if self.deaf:
            self.deaf -= 1
            return False
        if self.room.least(cost, text) > self.room.most:
            return False
        made = self.room.make(cost, text, out)
        for gone in self.room.forgotten:
            self._called.move(gone)
            self.open, self._moved = 0, True
        self.room.forgotten.clear()
        self.deaf = 0 if made else DEAF - 1
        return made

    def _refuse(self, lane: Int, time: Int, key: Int, out: Out) -> None:
        """Give up a row as it comes; the models see it, and that it was lost."""
        of = int(lane[0])
        for store, name in zip(self.watch.stores, self.watch.store_names, strict=True):
            if of < len(self.watch.lanes) and self.watch.lanes[of] == store.lane:
                out.metrics.count_rows(name, {RowOutcome.SHED: 1})
        self._learn_of(lane, time, key, np.ones(1, np.bool_))
        self.room.lose(int(time[0]) + self.room.shedder.span_us)

    def _take(self, lanes: Sequence[Lane], arrived: Int, now_us: int | None, out: Out) -> None:
        """Find the places of the keys of a piece, and hand its rows over."""
        place, keys = self._called.place, np.concatenate([rows.key for rows, _ in lanes])
        new = np.unique(keys[place[keys] < 0])
        if len(new):
            names = [self._called.names[key] for key in new.tolist()]
            place[new] = places = self._add(names)
            self.place |= dict(zip(names, places, strict=True))
            self.room.tell_pages()
        sampled, bases = [], np.cumsum([0, *(len(rows.time) for rows, _ in lanes)])
        self._lost = np.zeros(len(arrived), np.bool_)
        for i, (rows, _) in enumerate(lanes):
            mine = np.flatnonzero((arrived >= bases[i]) & (arrived < bases[i + 1]))
            sampled.append(self._sampled(i, rows, arrived[mine] - bases[i]))
            if (drawn := sampled[i].sampled) is not None:
                self._lost[mine] = (drawn.refused | drawn.again)[arrived[mine] - bases[i]]
        placed = [(rows.with_keys(place[rows.key]), lane[1]) for rows, lane in zip(sampled, lanes, strict=True)]
        super()._take(placed, arrived, now_us, out)

    def _sampled(self, lane: int, rows: RowBatch, arrived: Int) -> RowBatch:
        """Decide which of new rows, which arrived in this order, stay, where a sample is asked for."""
        sampler = self.room.sampler
        if sampler is None or lane > 1:
            return rows
        number = self._called.number[rows.key]
        columns = [rows.values[column] for column in self.watch.lanes[lane][1]]
        fingerprints = row_fingerprints((np.full(len(number), lane), number, rows.time, *columns), len(number))
        chance = sampler.chances(lane, number)
        refused = unit_numbers(fingerprints) >= chance
        texts = None if rows.payload is None else rows.texts(np.arange(len(number)))
        mark = with_payload_digests(fingerprints, texts, self.watch.lanes[lane][1])
        again = np.zeros(len(number), np.bool_)
        again[arrived] = sampler.traces.came_again(lane, mark[arrived], refused[arrived])
        return replace(rows, sampled=Sampled(chance, refused, again))

    def _learn_of(self, lane: Int, time: Int, key: Int, lost: Bools) -> None:
        """Let the models see rows in order of arrival, and which of them were given up as they came."""
        steady = self.room.clock.take(time)
        if self.room.worth is not None:
            numbers, mine = self._called.number[key], lane < 2
            stamp = row_fingerprints((numbers, time), len(numbers))
            self.room.worth.learn(lane[mine], steady[mine], numbers[mine], stamp[mine], lost[mine])

    def changed_pages(self) -> dict[str, bytes | None]:
        """Give the pages that changed since the last call."""
        changed = super().changed_pages()
        if self.dirty:
            changed[f"{self.watch.name}/{MEMORY}"] = self.room.to_bytes(self.deaf)
            self.dirty = False
        return changed
