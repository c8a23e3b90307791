"""Waits: what evaluations that may wait can take of a memory in bytes, before rows are handed to pages.

Idea: an evaluation waits until the progress of its key reaches it, and progress follows from times and streams alone.
So a row is charged a witness only while progress has not passed it. When progress reaches the newest of all that may
wait of a key, what they take is given back: mostly with the next row of another stream, whose own evaluation waits in
their place. Where room is made it begins anew with what waits indeed.
Guarantee: after every row no more evaluations wait than are charged, or were there when room was made; charges follow
from the rows in order of arrival alone. What a key has had charged since then is written down, for the next call; of
other keys, pages know what waits.
Cost: a few steps per row and rule; a look at each key of a call per piece.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.hashing import key_number
from tocsin.interim.memory.shard_view import ShardView
from tocsin.jit import kernel
from tocsin.operators.join.operator import advance_watermark
from tocsin.plan.steps import Watch
from tocsin.rules.quality import BYTES
from tocsin.runtime.contract import NEVER_SEEN, Int
from tocsin.runtime.keyed_pipeline import KEYS_PER_SHARD

# A page, the keys of a call that live there, and where.
Home = tuple[ShardView, Int, Int]
# What it takes to write down how many rows of a key and a rule may wait, and until when.
_ENTRY = 32


class Came(NamedTuple):
    """Rows in order of arrival: lane, number of the key in the call, time, what each takes besides witnesses."""

    lane: Int
    key: Int
    time: Int
    cost: Int


class Terms(NamedTuple):
    """By rule: the stream of each lane (-1: none), `idle_timeout`, and what an evaluation that waits takes."""

    stream: Int
    idle_timeout: Int
    each: Int


class Stand(NamedTuple):
    """How far keys are: the newest time of all their rows; by rule, that of each stream, and their progress."""

    front: Int
    newest: Int
    progress: Int


class Charged(NamedTuple):
    """By rule and key, how many evaluations may wait, the newest of them, and whether that must be written down."""

    rows: Int
    until: Int
    noted: Int


@kernel
def fit(came: Came, stand: Stand, charged: Charged, terms: Terms, allowed_lateness: int, left: int) -> tuple[int, int]:
    """How many rows fit into what is left, one after the other, and what they take; `charged` goes on with them."""
    taken, rules = 0, terms.idle_timeout.shape[0]
    rows, until, noted, newest, progress = charged.rows, charged.until, charged.noted, stand.newest, stand.progress
    after = np.empty(rules, np.int64)
    for i in range(came.key.shape[0]):
        k, time, more = came.key[i], came.time[i], came.cost[i]
        stand.front[k] = max(stand.front[k], time)
        in_time = time >= stand.front[k] - allowed_lateness
        for r in range(rules):
            after[r], s = rows[r, k], terms.stream[r, came.lane[i]]
            if in_time and s >= 0:
                newest[r, k, s] = max(newest[r, k, s], time)
                advance_watermark(k, newest[r], progress[r], terms.idle_timeout[r])
                after[r] = (0 if progress[r, k] >= until[r, k] else rows[r, k]) + (time > progress[r, k])
                more += terms.each[r] * (after[r] - rows[r, k]) + _ENTRY * ((after[r] > 0) - noted[r, k])
        if taken + more > left:
            return i, taken
        taken += more
        for r in range(rules):
            if in_time and terms.stream[r, came.lane[i]] >= 0:
                rows[r, k], noted[r, k] = after[r], after[r] > 0
                until[r, k] = max(until[r, k], time)
    return came.key.shape[0], taken


def _homes(pages: Sequence[ShardView], place: Int) -> Iterator[Home]:
    """By page, the keys of a call that live there, and where."""
    for p, page in enumerate(pages):
        mine = np.flatnonzero(place // KEYS_PER_SHARD == p)
        yield page, mine, place[mine] - p * KEYS_PER_SHARD


class Waits:
    """What is charged to keys: of those of a call while it lasts, else of those that it must be written down of."""

    def __init__(self, watch: Watch) -> None:
        assert watch.budget is not None
        in_bytes, stores = watch.budget.memory.unit == BYTES, watch.stores
        # A rule that emits all keeps no witness.
        self.rules = [i for i, rule in enumerate(watch.rules) if rule.emit != "all" and in_bytes]
        mine = [[stores[s].lane for s in watch.rules[i].stores] for i in self.rules]
        stream = np.full((len(mine), 2 * len(watch.lanes)), -1)
        for r, lanes in enumerate(mine):
            stream[r, : len(watch.lanes)] = [lanes.index(lane) if lane in lanes else -1 for lane in watch.lanes]
        values = [sum(len(stores[s].columns) for s in watch.rules[i].stores) for i in self.rules]
        each = [40 + 8 * len(of) + 8 * n for of, n in zip(mine, values, strict=True)]
        idle = [watch.rules[i].idle_timeout_us for i in self.rules]
        self.terms = Terms(stream, np.array(idle, np.int64), np.array(each, np.int64))
        self.allowed_lateness_us, self.streams = watch.allowed_lateness_us, max(map(len, mine), default=0)
        # A number that is of these rules alone.
        self.of = key_number(tuple(watch.rules[i].identity(stores).id for i in self.rules))
        # Of each key that is charged: its number, the rule, how many rows may wait, and the newest of them.
        self.entries = np.zeros((4, 0), np.int64)
        self.number = np.zeros(0, np.int64)
        self.charged: Charged | None = None

    @property
    def most(self) -> int:
        """What one row may be charged."""
        return int((self.terms.each + _ENTRY).sum())

    def begin(self, number: Int) -> None:
        """Begin a call, each of whose keys has a number that is its alone."""
        self.number, self.charged = number, None

    def end(self) -> None:
        """Write down what is charged to the keys of the call."""
        if self.charged is not None:
            rule, key = np.nonzero(self.charged.noted)
            mine = [self.number[key], rule, self.charged.rows[rule, key], self.charged.until[rule, key]]
            self.entries = np.concatenate([self.entries, np.array(mine, np.int64).reshape(4, -1)], axis=1)
            self.charged = None

    def clear(self) -> None:
        """Room was made: what waits counts as it is."""
        self.entries, self.charged = self.entries[:, :0], None

    def fitting(self, came: Came, pages: Sequence[ShardView], place: Int, left: int) -> tuple[int, int]:
        """How many of the next rows fit, and what they take; keys of the call live at these places."""
        homes = list(_homes(pages, place)) if self.rules else []
        if self.charged is None:
            self.charged = self._waiting(homes, len(place))
            self._take_up(self.charged)
        return fit(came, self._stand(homes, len(place)), self.charged, self.terms, self.allowed_lateness_us, left)

    def _waiting(self, homes: Sequence[Home], keys: int) -> Charged:
        """What waits on pages."""
        shape = (len(self.rules), keys)
        rows, until, noted = np.zeros(shape, np.int64), np.full(shape, NEVER_SEEN), np.zeros(shape, np.int64)
        for page, mine, at in homes:
            called = np.full(len(page.shard.keys), -1)
            called[at] = mine
            for r, i in enumerate(self.rules):
                waiting = page.waiting(i)
                key = called[waiting.key]
                rows[r] += np.bincount(key[key >= 0], minlength=keys)
                np.maximum.at(until[r], key[key >= 0], waiting.time[key >= 0])
        return Charged(rows, until, noted)

    def _take_up(self, charged: Charged) -> None:
        """Go on with what was written down of keys of this call."""
        if self.entries.size and len(self.number):
            order = np.argsort(self.number)
            at = order[np.searchsorted(self.number, self.entries[0], sorter=order) % len(order)]
            known = self.number[at] == self.entries[0]
            _, rule, rows, until = self.entries[:, known]
            for part, given in zip(charged, (rows, until, np.ones(len(rows), np.int64)), strict=True):
                part[rule, at[known]] = given
            self.entries = self.entries[:, ~known]

    def _stand(self, homes: Sequence[Home], keys: int) -> Stand:
        """How far keys are on their pages."""
        rules = len(self.rules)
        front, progress = np.full(keys, NEVER_SEEN), np.full((rules, keys), NEVER_SEEN)
        newest = np.full((rules, keys, self.streams), NEVER_SEEN)
        for page, mine, at in homes:
            front[mine] = page.newest[at]
            for r, i in enumerate(self.rules):
                followed = page.join(i)
                newest[r, mine, : followed.newest.shape[1]] = followed.newest[at]
                progress[r, mine] = followed.watermark[at]
        return Stand(front, newest, progress)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """State to be written, between calls."""
        return {"waits": self.entries, "waits.of": np.array([self.of])} if self.rules else {}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """State that was written, if it is of the same rules; without it no more is given back than waits indeed."""
        if self.rules and "waits" in arrays and int(arrays["waits.of"][0]) == self.of:
            self.entries = arrays["waits"]
