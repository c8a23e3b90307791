"""The logic of a watch whose memory is limited: never more than its share, and what goes is what is worth least.

Idea: rows are handed to pages in pieces. Before a piece, as much room is made as its rows can take at the most; so the
state never exceeds the share, whatever the rows do. Where a piece ends depends on the rows in order of arrival alone.
Omission comes first, as in every watch: only what it leaves is shed (`shed.py`), by models that are learnt from the
rows (`worth.py`). Rows for which no room can be made, because open alerts fill the memory, are shed as they come.
Guarantee: after every row the pages, with the model, take no more than the share, in bytes or in rows; the cut into
calls does not show; nothing is shed while everything fits. An alert whose witness may lack rows that were shed says so.
Cost: room is made for a sixteenth of the share at a time, so rows are sorted some 16 times for as many as fit.
Source: Srivastava, Widom, VLDB 2004; Cai et al., PVLDB 2021, section 7.1 (omission first, shedding after).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.logic import NEVER_SEEN, Batch, Int, Out, Pages
from tocsin.pages import pack, packed_size, unpack
from tocsin.plan.clock import Clock
from tocsin.plan.identity import Bequest
from tocsin.plan.lanes import in_no_lane, lane_of
from tocsin.plan.page import Loss
from tocsin.plan.remember import NO_TEXT, Sampled, StreamRows
from tocsin.plan.sample import Sampler, draws
from tocsin.plan.shed import Shedder, number_of, stamps
from tocsin.plan.steps import Watch
from tocsin.plan.watch import MEMORY, WatchLogic, readable
from tocsin.plan.worth import Worth

# Room is made for this part of the share at a time.
PART = 16
# So many rows in a row are given up where no room can be made, before it is tried again.
DEAF = 64

Lane = tuple[StreamRows, Int]


class BudgetedLogic(WatchLogic):
    """All pages of a watch in one bucket, and how much they may take."""

    def __init__(self, number: int, watch: Watch, pages: Pages, given: Bequest) -> None:
        super().__init__(number, watch, pages, given)
        assert watch.budget is not None
        self.budget, self.shedder = watch.budget, Shedder(watch)
        self.share, self.dirty = self.budget.share, False
        # Room that was made and is not used yet; rows to be given up as they come; the longest text remembered.
        self.left, self.deaf, self.longest = 0, 0, NO_TEXT
        # What was stored under another budget, or under none, is yet to be cut to this one.
        self.foreign = bool(self.pages)
        # What was shed of late, in the units of memory, and when that was last added to.
        self.pressure, self.pressed_us = 0.0, NEVER_SEEN
        self.loss = Loss(NEVER_SEEN, "")
        self.clock = Clock(max(self.budget.windows_us))
        self.worth = self._models()
        self.sampler = Sampler(None if self.worth is None else self.worth.monitor) if self.budget.samples else None
        # The page of the budget itself as large as it may become, and one more page of keys than there are.
        self.fixed = packed_size(self.arrays()) + 1024 + self.shedder.page_bytes if self.shedder.in_bytes else 0
        stored = f"{given.of}/{MEMORY}"
        if stored in pages:
            with readable(stored):
                self._load(*unpack(pages[stored]))
        self.dirty |= stored != f"{watch.name}/{MEMORY}" and stored in pages
        self._tell_pages()

    def _models(self) -> Worth | None:
        """Models of two streams, if there is memory for them: a tenth of it, of little memory a quarter."""
        budget = self.budget
        room = Worth.MOST if not self.shedder.in_bytes else max(budget.share // 10, min(budget.share // 4, Worth.LEAST))
        return Worth(budget.windows_us, room) if len(self.watch.lanes) == 2 and room >= Worth.LEAST else None

    def on_data(self, batches: Sequence[Batch], now_us: int | None, out: Out) -> None:
        """Hand over the rows in pieces, and make room between them."""
        self._cut_to_share(out)
        self._keys: list[tuple[str, ...]] = []
        self._refused: dict[int, Int] = {}
        self._number: dict[tuple[str, ...], int] = {}
        streams = {name: self._stream(name, batches) for name in self.watch.streams}
        lanes = [lane_of(*streams[name], columns) for name, columns in self.watch.lanes]
        self._count_received({name: len(rows.time) for name, (rows, _) in streams.items()}, lanes, batches, out)
        names = [name for name, _ in self.watch.lanes]
        for name in dict.fromkeys(names):
            rest = in_no_lane(*streams[name], [lanes[i][0] for i in range(len(names)) if names[i] == name])
            if rest is not None:
                lanes.append(rest)
                names.append(name)
        arrived = self._arrived(lanes, names)
        if len(arrived):
            self.dirty = True
            self._numbers = np.fromiter(map(number_of, self._keys), np.int64, len(self._keys))
            self._pieces(lanes, arrived, now_us, out)
        self.say(out)

    def on_nothing(self, out: Out) -> None:
        """Take a call that has no rows for this watch."""
        self._cut_to_share(out)
        self.say(out)

    def on_time(self, now_us: int, out: Out) -> None:
        """Let quiet keys go on."""
        super().on_time(now_us, out)
        self._cut_to_share(out)

    def _cut_to_share(self, out: Out) -> None:
        """Give up at once what does not fit, of state that was stored under another budget."""
        if self.foreign:
            self.foreign = False
            self.give(self.share, out)

    def say(self, out: Out) -> None:
        """Say what the memory finds, and what the engine needs to divide it."""
        reached = None if self.worth is None else self.worth.monitor.reached()
        for rule in self.watch.rules:
            out.recall(rule.alert, (self.predicted, reached))
        if self.budget.told:
            out.stats.append({"watch": self.watch.name, **self.tell()})

    def _places(self, batch: Batch) -> Int:
        """Number the keys of a call; where they live may change from piece to piece."""
        for key in batch.keys:
            if key not in self._number:
                self._number[key] = len(self._keys)
                self._keys.append(key)
        return np.fromiter((self._number[key] for key in batch.keys), np.int64, len(batch.keys))

    def _pieces(self, lanes: Sequence[Lane], arrived: Int, now_us: int | None, out: Out) -> None:
        lane = np.repeat(np.arange(len(lanes)), [len(rows.time) for rows, _ in lanes])[arrived]
        key, time, text = (np.concatenate(parts)[arrived] for parts in zip(*map(self._facts, lanes), strict=True))
        cost, begin = self._costs(lane, text), 0
        while begin < len(arrived):
            fit = 0 if self.deaf else self._fitting(cost[begin:], text[begin:], key[begin:])
            if fit:
                piece = slice(begin, begin + fit)
                self._piece(lanes, arrived[piece], now_us, out)
                self._learn_of(lane[piece], time[piece], key[piece])
                self.longest = max(self.longest, int(text[piece].max()))
            elif not self._admits(int(cost[begin]) + self._key_cost(int(key[begin])), int(text[begin]), out):
                fit = 1
                self._refuse(lane[begin : begin + 1], time[begin : begin + 1], key[begin : begin + 1], out)
            begin += fit

    def _admits(self, cost: int, text: int, out: Out) -> bool:
        """Make room for a row; tell whether there is. One that is too large in any case costs no other its place."""
        if self.deaf:
            self.deaf -= 1
            return False
        if cost + self.shown * text > self.share - self.fixed - self.shedder.page_bytes * len(self.pages):
            return False
        if not self._make_room(cost, text, out):
            self.deaf = DEAF - 1
            return False
        return True

    def _facts(self, lane: Lane) -> tuple[Int, Int, Int]:
        """The key and the time of each row of a lane, and what its text takes on a page."""
        rows = lane[0]
        text = np.full(len(rows.time), NO_TEXT)
        if self.shedder.in_bytes and rows.payload is not None:
            texts = rows.texts(np.arange(len(rows.time)))
            text = np.fromiter((len(json.dumps(one)) + 2 for one in texts), np.int64, len(texts))
        return rows.key, rows.time, text

    @property
    def shown(self) -> int:
        """How many texts a row may bring into witnesses: an evaluation may wait, and may be the best of a life."""
        return sum(2 * len(rule.stores) for rule in self.watch.rules if rule.emit != "all") * self.shedder.in_bytes

    def _costs(self, lane: Int, text: Int) -> Int:
        """What each row may take of the memory, its key and the texts of witnesses apart: as often as remembered."""
        stores = [
            [store for store in self.watch.stores if store.remember and store.lane == of] for of in self.watch.lanes
        ]
        # Behind the lanes come rows that no rule can use.
        stores += [[]] * (int(lane.max(initial=0)) + 1 - len(stores))
        times = np.array([len(mine) for mine in stores])[lane]
        if not self.shedder.in_bytes:
            return times
        more = 1 + self.budget.samples
        plain = np.array([sum(8 * (more + len(store.columns)) for store in mine) for mine in stores])[lane]
        cost = plain + times * text
        for rule in self.watch.rules:
            # As in `shown`; a rule that emits all keeps no witness.
            if rule.emit != "all":
                values = sum(len(self.watch.stores[i].columns) for i in rule.stores)
                cost += 2 * (40 + 8 * len(rule.stores) + 8 * values)
        return cost

    def _key_cost(self, key: int) -> int:
        """What a key takes that is not known yet."""
        if not self.shedder.in_bytes or self._keys[key] in self.place:
            return 0
        return self.shedder.key_bytes + len(json.dumps(self._keys[key]))

    def _fitting(self, cost: Int, text: Int, key: Int) -> int:
        """How many of the next rows fit into the room that was made."""
        some = slice(0, max(1, self.left // max(int(cost.min()), 1) + 1))
        cost, key = cost[some].copy(), key[some]
        cost += self.shown * np.maximum(np.maximum.accumulate(text[some]), self.longest)
        if self.shedder.in_bytes:
            for first in np.unique(key, return_index=True)[1].tolist():
                cost[first] += self._key_cost(int(key[first]))
        taken = np.cumsum(cost)
        fit = int(np.searchsorted(taken, self.left, side="right"))
        self.left -= int(taken[fit - 1]) if fit else 0
        return fit

    def _make_room(self, cost: int, text: int, out: Out) -> bool:
        """Make room for a part of the share, and for the next row at least; tell whether there is.

        Nothing is shed while the next row fits; in bytes, where sizes take time, while there is room for a few.
        """
        for attempt in range(4):
            self.longest = self.shedder.longest(self.pages)
            least = cost + self.shown * max(self.longest, text)
            wanted = max(self.share // PART, least)
            room = self.share - self.fixed - self.shedder.size(self.pages)
            enough = max(least, wanted // PART) if self.shedder.in_bytes else least
            if room >= enough or attempt == 3 or self._judge_and_shed(wanted - room, out) == 0:
                break
        self.left = max(min(wanted, room), 0)
        if self.sampler is not None and room > self.share // 2:
            self.sampler.rise()
        return self.left >= least

    def _judge_and_shed(self, lacks: int, out: Out) -> float:
        """Forget keys that have nothing, then give up rows; say how much went, 0 if nothing did."""
        before = sum(len(page.keys) for page in self.pages)
        newest_us = self.shedder.forget(self.pages, out)
        lacks -= (before - sum(len(page.keys) for page in self.pages)) * self.shedder.key_bytes
        shed = 0.0
        if lacks > 0 and any(len(memory.time) for page in self.pages for memory in page.remembered):
            if self.worth is not None and self.worth.is_due():
                kept = self.shedder.kept(self.pages)
                memory, each = float(kept.cost.sum()) - lacks, self.shedder.average_cost(kept)
                self.worth.judge(memory, each)
                if self.sampler is not None:
                    self.sampler.judge([memory / 2 / one for one in each])
            until_us, shed = self._shed(lacks, out)
            self._press(shed)
            newest_us = max(newest_us, until_us, self.shedder.forget(self.pages, out))
        gone = before - sum(len(page.keys) for page in self.pages)
        if gone:
            self._find_places()
        self._lose(newest_us)
        return shed + gone

    def _shed(self, lacks: int, out: Out) -> tuple[int, float]:
        """Give up rows; say up to which time results may now be missing, and what the rows cost."""
        if self.sampler is None:
            return self.shedder.shed(self.pages, lacks, self.worth, self.clock.time_us, out)
        lost, cost = self.shedder.thin(self.pages, lacks, self.sampler, out)
        for lane, stamp in lost.items():
            if self.worth is not None:
                self.worth.lose(lane, stamp)
        return NEVER_SEEN, cost

    def _press(self, cost: float) -> None:
        """Note what was shed; it counts half after each window."""
        passed = max(self.clock.steady_us - self.pressed_us, 0) if self.pressed_us != NEVER_SEEN else 0
        self.pressure = self.pressure * 0.5 ** (passed / self.clock.leap_us) + cost
        self.pressed_us = self.clock.steady_us

    def _lose(self, until_us: int) -> None:
        """Note that results up to a time may be missing."""
        known = self.worth is not None and not np.isnan(self.worth.predicted)
        promise = f"subset {self.worth.predicted:.2f}" if self.worth is not None and known else "subset"
        self.loss = Loss(max(self.loss.until_us, until_us), promise)
        self._tell_pages()

    def _tell_pages(self) -> None:
        for page in self.pages:
            page.loss = self.loss

    def _refuse(self, lane: Int, time: Int, key: Int, out: Out) -> None:
        """Give up a row as it comes; the models see it, and that it was lost."""
        of = int(lane[0])
        for store, name in zip(self.watch.stores, self.watch.store_names, strict=True):
            if of < len(self.watch.lanes) and self.watch.lanes[of] == store.lane:
                out.count(name, {"shed": 1})
        if of < 2:
            self._refused[of] = stamps(self._numbers[key], time)
        self._learn_of(lane, time, key)
        self._lose(int(time[0]) + self.shedder.span_us)

    def _take(self, lanes: Sequence[Lane], arrived: Int, now_us: int | None, out: Out) -> None:
        """Find the places of the keys of a piece, and hand its rows over."""
        keys = np.unique(np.concatenate([rows.key for rows, _ in lanes]))
        at = np.zeros(len(self._keys), np.int64)
        at[keys] = self._placed([self._keys[key] for key in keys.tolist()])
        self._tell_pages()
        placed = [(self._sampled(i, rows).with_keys(at[rows.key]), arrival) for i, (rows, arrival) in enumerate(lanes)]
        super()._take(placed, arrived, now_us, out)

    def _sampled(self, lane: int, rows: StreamRows) -> StreamRows:
        """Decide which of new rows stay, where a sample is asked for."""
        if self.sampler is None or lane > 1:
            return rows
        number = self._numbers[rows.key]
        columns = [rows.values[column] for column in self.watch.lanes[lane][1]]
        drawn = draws(np.full(len(number), lane), number, rows.time, columns)
        chance = self.sampler.chances(lane, number)
        refused = drawn >= chance
        if self.worth is not None:
            self._refused[lane] = stamps(number, rows.time)[refused]
        return replace(rows, sampled=Sampled(chance, refused))

    def _learn_of(self, lane: Int, time: Int, key: Int) -> None:
        """Let the models see rows in order of arrival."""
        steady = self.clock.take(time)
        if self.worth is not None:
            numbers, mine = self._numbers[key], lane < 2
            self.worth.learn(lane[mine], steady[mine], numbers[mine], stamps(numbers, time)[mine])
            for of, stamp in self._refused.items():
                self.worth.lose(of, stamp)
            self._refused = {}

    def give(self, share: int, out: Out) -> None:
        """Take another share; a smaller one is kept to at once."""
        self.share, self.dirty = share, True
        if self.shedder.size(self.pages) + self.fixed + self.left > self.share:
            self.left = 0
            self._make_room(0, 0, out)

    def tell(self) -> dict[str, Any]:
        """What the memory of this bucket is, how much it would use, and what share of results memory buys.

        Open alerts are not given up: where they take more than the share, it is more, and nobody else may have that.
        """
        used, known = self.shedder.size(self.pages), self.worth is not None and self.worth.learns
        points = self.worth.points.tolist() if self.worth is not None and known else []
        share = max(self.share, used + self.fixed)
        return {"share": share, "fixed": self.fixed, "need": used + int(self.pressure), "points": points}

    @property
    def predicted(self) -> float | None:
        """The share of results that is to be found with this memory; None: no model fits, nothing is predicted.

        What models foretell is of the rows that give most, and says nothing of a sample.
        """
        if not self.pressure:
            return 1.0
        known = self.worth is not None and self.worth.learns and self.sampler is None
        return float(self.worth.predicted) if self.worth is not None and known else None

    def arrays(self) -> dict[str, NDArray[Any]]:
        """State to be written."""
        numbers = [self.share, self.left, self.deaf, self.longest, self.loss.until_us, self.pressed_us]
        mine = {"numbers": np.array(numbers), "pressure": np.array([self.pressure])}
        mine |= {} if self.sampler is None else self.sampler.arrays()
        if self.worth is not None:
            mine |= {f"worth.{name}": array for name, array in self.worth.arrays().items()}
        return mine | self.clock.arrays()

    def to_bytes(self) -> bytes:
        """Write the page of the budget."""
        budget = self.budget
        facts = {"begun": budget.share, "unit": budget.memory.unit, "pool": budget.pool}
        return pack(self.arrays(), promise=self.loss.promise, **facts)

    def _load(self, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> None:
        """State that was written. Of a smaller budget each bucket takes its part at once, a larger one is told.

        Where others share it than before, what they had is not known here: no bucket has more than its first part.
        """
        self.share, self.left, self.deaf, self.longest, until_us, self.pressed_us = arrays["numbers"].tolist()
        self.pressure = float(arrays["pressure"][0])
        self.loss = Loss(until_us, facts["promise"])
        self.clock.load(arrays)
        if self.sampler is not None and "sample" in arrays:
            self.sampler.load(arrays)
        if self.worth is not None:
            self.worth.load({name.removeprefix("worth."): part for name, part in arrays.items()})
        budget, unit = self.budget, self.budget.memory.unit
        self.foreign = (facts["begun"], facts["unit"], facts["pool"]) != (budget.share, unit, budget.pool)
        if facts["unit"] != unit:
            self.share, self.pressure = budget.share, 0.0
        elif budget.share < facts["begun"] or not budget.told:
            self.share = self.share * budget.share // facts["begun"]
        if facts["pool"] != budget.pool:
            self.share = min(self.share, budget.share)
        if self.foreign:
            self.left, self.dirty = 0, True
