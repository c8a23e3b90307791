"""The logic of a watch: rows are led to the page of their key, page by page through reduce, join, evaluate, alert."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat

import numpy as np

from tocsin.operators.join.batch_slice import ArrivalOrder
from tocsin.operators.no_data import ObservedRows
from tocsin.operators.retention.operator import RowBatch
from tocsin.plan.agree import Control
from tocsin.plan.allot import Share
from tocsin.plan.lanes import by_key, count_received, in_no_lane, inputs_of, lane_of, stream_rows
from tocsin.plan.pace import Pace, together
from tocsin.plan.page import KEYS_PER_PAGE, Page
from tocsin.plan.steps import Watch
from tocsin.runtime.contract import Batch, Int, Listener, Out
from tocsin.runtime.state_codec import pack, unpack
from tocsin.runtime.state_registry import Shard, ShardGroup, readable

# The pages of a shard group that have no keys: how long its rows wait, and what they are worth.
PACE, MEMORY = PARTS = ("pace", "memory")


class KeyedPipeline:
    """All pages of one key set."""

    def __init__(self, number: int, watch: Watch, group: ShardGroup, listener: Listener | None = None) -> None:
        """Continue with the shards of a group."""
        self.number, self.watch, self.group, self.listener = number, watch, group, listener
        self.inputs = inputs_of(number, watch)
        self.pages = []
        for shard_number, shard in enumerate(group.shards):
            with readable(f"{group.name}/{shard_number}"):
                self.pages.append(Page(watch, shard))
        self.pace = None if watch.order is None else Pace(watch.order)
        stored = group.parts.pop(PACE, None) if self.pace is not None else None
        if self.pace is not None and stored is not None:
            with readable(f"{group.name}/{PACE}"):
                self.pace.load(unpack(stored)[0])
            self.pace.dirty = group.is_copy and self.pace.order.adapts
        self._find_places()

    def _find_places(self) -> None:
        """Number the keys by the pages they are on; new ones fill the first page that has room."""
        self.open, self.place = 0, dict[tuple[str, ...], int]()
        for p, page in enumerate(self.pages):
            self.place |= {key: p * KEYS_PER_PAGE + k for k, key in enumerate(page.keys)}

    def on_data(self, batches: Sequence[Batch], now_us: int | None, out: Out) -> None:
        """Order the rows by key, then by arrival, and hand each page its own."""
        if not batches:
            return
        streams = {name: stream_rows(self.watch, name, batches, self._places) for name in self.watch.streams}
        lanes = [lane_of(*streams[name], columns) for name, columns in self.watch.lanes]
        count_received(self.watch, {name: len(rows.time) for name, (rows, _) in streams.items()}, lanes, batches, out)
        if self.watch.silences:
            self._hear(streams, batches, now_us, out)
        if not lanes:
            return
        names = [name for name, _ in self.watch.lanes]
        if self.pace is not None:
            self._paced(lanes, names, now_us, out)
            return
        for name in dict.fromkeys(names):
            rest = in_no_lane(*streams[name], [lanes[i][0] for i in range(len(names)) if names[i] == name])
            if rest is not None:
                lanes.append(rest)
                names.append(name)
        self._hand_over(lanes, self._arrived(lanes, names), now_us, out)

    def _hand_over(self, lanes: Sequence[tuple[RowBatch, Int]], arrived: Int, now_us: int | None, out: Out) -> None:
        """Take the rows of a call, none of which waits."""
        self._take(lanes, arrived, now_us, out)

    def _paced(self, lanes: Sequence[tuple[RowBatch, Int]], names: Sequence[str], now_us: int | None, out: Out) -> None:
        """Hand over the rows in pieces, and choose the wait anew between them."""
        assert self.pace is not None
        arrived = self._arrived(lanes, names)
        time = np.concatenate([rows.time for rows, _ in lanes])[arrived]
        begin, cuts = 0, self.pace.cuts(time)
        for cut in cuts:
            self._piece(lanes, arrived[begin : cut.rows], now_us, out)
            self.pace.adapt(cut)
            begin = cut.rows
            if self.pace.order.shared and cut == cuts[-1]:
                out.stats.append({"watch": self.watch.name, **self.pace.tell(cut.time_us)})
        self._piece(lanes, arrived[begin:], now_us, out)
        for rule in self.watch.rules:
            out.wait(rule.alert, self.pace.wait.wait_us, self.pace.recall)

    def _piece(self, lanes: Sequence[tuple[RowBatch, Int]], arrived: Int, now_us: int | None, out: Out) -> None:
        """Hand over some rows, which are numbered through all lanes, in order of arrival; learn what became of them."""
        bases, piece = np.cumsum([0, *(len(rows.time) for rows, _ in lanes)]), np.sort(arrived)
        mine = []
        for i, (rows, arrival) in enumerate(lanes):
            at = piece[slice(*np.searchsorted(piece, bases[i : i + 2]))] - bases[i]
            mine.append((rows.pick(at), arrival[at]))
        self._take(mine, np.searchsorted(piece, arrived), now_us, out)
        self._learn(out)

    def _learn(self, out: Out) -> None:
        """Tell the wait what came, in order of arrival, and what was taken; count what that gave."""
        learnt = [one for page in self.pages for one in page.learnt]
        for page in self.pages:
            page.learnt = []
        if self.pace is not None and learnt:
            whole = together(learnt)
            self.pace.learn(whole)
            periods = self.pace.found(whole)
            for rule in self.watch.rules:
                for period in periods:
                    out.find(rule.alert, *period)

    def _take(self, lanes: Sequence[tuple[RowBatch, Int]], arrived: Int, now_us: int | None, out: Out) -> None:
        """Order rows by key, then by arrival, and hand each page its own."""
        counts = [len(arrival) for _, arrival in lanes]
        place = np.concatenate([rows.key for rows, _ in lanes])
        if not len(place):
            return
        order, rank = by_key(place, arrived, len(self.pages) * KEYS_PER_PAGE)
        lane = np.repeat(np.arange(len(lanes)), counts)[order]
        bases = np.concatenate([[0], np.cumsum(counts)])
        time = np.concatenate([rows.time for rows, _ in lanes])[order]
        ordered, row = [], np.empty(len(order), np.int64)
        for i, (rows, _) in enumerate(lanes):
            at = np.flatnonzero(lane == i)
            row[at] = np.arange(len(at))
            ordered.append(rows.pick(order[at] - bases[i]).with_rank(rank[at]))
        self._pages(ArrivalOrder(lane, place[order], time, row), ordered, now_us, out)

    def _arrived(self, lanes: Sequence[tuple[RowBatch, Int]], names: Sequence[str]) -> Int:
        """The rows of all lanes in order of arrival."""
        if len(lanes) > len(self.watch.streams):  # Rows that arrived together stand as in their stream, in any lane.
            return self._in_input_order(lanes, names)
        return np.argsort(np.concatenate([arrival for _, arrival in lanes]), kind="stable")

    def _in_input_order(self, lanes: Sequence[tuple[RowBatch, Int]], names: Sequence[str]) -> Int:
        """Order the rows of all lanes, which are of these streams, by arrival, stream and place in the stream."""
        stream = np.repeat([self.watch.streams.index(name) for name in names], [len(rows.time) for rows, _ in lanes])
        place = [np.arange(len(rows.time)) if rows.picked is None else rows.picked for rows, _ in lanes]
        return np.lexsort((np.concatenate(place), stream, np.concatenate([arrival for _, arrival in lanes])))

    def _places(self, batch: Batch) -> Int:
        """Where each key of a batch lives."""
        return self._placed(batch.keys)

    def _placed(self, keys: Sequence[tuple[str, ...]]) -> Int:
        """Where keys live; new ones get a place behind the last of a page with room."""
        places = np.fromiter(map(self.place.get, keys, repeat(-1)), np.int64, len(keys))
        unknown = np.flatnonzero(places < 0)
        if len(unknown):
            new = list(dict.fromkeys(keys[i] for i in unknown.tolist()))
            self.place.update(zip(new, self._add(new), strict=True))
            places[unknown] = [self.place[keys[i]] for i in unknown.tolist()]
        return places

    def _add(self, keys: Sequence[tuple[str, ...]]) -> list[int]:
        """Give new keys a place."""
        places: list[int] = []
        while len(places) < len(keys):
            while self.open < len(self.pages) and len(self.pages[self.open].keys) >= KEYS_PER_PAGE:
                self.open += 1
            if self.open == len(self.pages):
                self.group.shards.append(Shard(self.group.width))
                self.pages.append(Page(self.watch, self.group.shards[-1]))
                if self.listener is not None:
                    self.pages[-1].trace(self.listener)
            page, begin = self.pages[self.open], len(self.pages[self.open].keys)
            page.shard.add_keys(keys[len(places) : len(places) + KEYS_PER_PAGE - begin])
            places += range(self.open * KEYS_PER_PAGE + begin, self.open * KEYS_PER_PAGE + len(page.keys))
        return places

    def _hear(
        self, streams: Mapping[str, tuple[RowBatch, Int]], batches: Sequence[Batch], now_us: int | None, out: Out
    ) -> None:
        """Let silences hear all rows, page by page; count those of streams that no rule reads."""
        for name in filter(self.watch.is_only_heard, streams):
            bad, time = sum(batch.quarantined for batch in batches if batch.stream == name), streams[name][0].time
            out.count(name, {"received": len(time) + bad, "quarantined": bad, "expired": len(time)})
            if len(time):
                out.meet(name, int(time.max()))
        place = np.concatenate([rows.key for rows, _ in streams.values()])
        arrived = np.argsort(np.concatenate([arrival for _, arrival in streams.values()]), kind="stable")
        order, _ = by_key(place, arrived, len(self.pages) * KEYS_PER_PAGE)
        stream = np.repeat(np.arange(len(streams)), [len(arrival) for _, arrival in streams.values()])[order]
        place, time = place[order], np.concatenate([rows.time for rows, _ in streams.values()])[order]
        for p in np.unique(place // KEYS_PER_PAGE).tolist():
            cut = slice(*np.searchsorted(place, [p * KEYS_PER_PAGE, (p + 1) * KEYS_PER_PAGE]))
            self.pages[p].on_heard(ObservedRows(stream[cut], place[cut] - p * KEYS_PER_PAGE, time[cut]), now_us, out)

    def on_control(self, message: Control | Share, out: Out) -> None:
        """Apply a wait that all buckets of this watch agreed on."""
        if isinstance(message, Control) and message.watch == self.watch.name:
            if self.pace is not None and self.pace.order.shared:
                self.pace.agree(message.wait_us, message.from_us)

    def on_end(self, out: Out) -> None:
        """Wait for nothing any more."""
        for page in self.pages:
            page.on_end(out)
        self._learn(out)

    def on_time(self, now_us: int, out: Out) -> None:
        """Let quiet keys go on; where some were freed, those behind them have moved up."""
        for page in self.pages:
            page.on_time(now_us, out)
        self._learn(out)
        if sum(len(page.keys) for page in self.pages) != len(self.place):
            self._find_places()

    def next_timer(self) -> int | None:
        """Return the earliest timer of the pages, or None."""
        timers = (page.next_timer() for page in self.pages)
        return min((timer for timer in timers if timer is not None), default=None)

    def changed_pages(self) -> dict[str, bytes | None]:
        """Give the pages that changed since the last call."""
        changed = self.group.changed_pages()
        if self.pace is not None and self.pace.dirty:
            changed[f"{self.group.name}/{PACE}"] = pack(self.pace.arrays())
            self.pace.dirty = False
        return changed

    def _pages(self, arrivals: ArrivalOrder, rows: Sequence[RowBatch], now_us: int | None, out: Out) -> None:
        """Cut the rows, which are ordered by place, where pages end."""
        for p in np.unique(arrivals.key // KEYS_PER_PAGE).tolist():
            begin, end = p * KEYS_PER_PAGE, (p + 1) * KEYS_PER_PAGE
            picked, first = [], np.zeros(len(rows), np.int64)
            for s, mine in enumerate(rows):
                first[s], stop = np.searchsorted(mine.key, [begin, end])
                part = mine if stop - first[s] == len(mine.key) else mine.pick(np.arange(first[s], stop))
                picked.append(part.with_keys(part.key - begin))
            cut = slice(*np.searchsorted(arrivals.key, [begin, end]))
            lane = arrivals.lane[cut]
            row = arrivals.row[cut] - first[lane]
            here = ArrivalOrder(lane, arrivals.key[cut] - begin, arrivals.time[cut], row)
            self.pages[p].on_rows(here, picked, now_us, out, self.pace)
