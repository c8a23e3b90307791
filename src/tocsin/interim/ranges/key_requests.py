"""The standing queries of one key: requests and elements of a call go through its index in one order of arrival.

Each registration has a slot of its own, by which the index knows it. Whether an id is alive when it is registered again
may only be known when the elements in between were counted. So such a registration is tried, and taken back if the
id was alive: as it was never there, no other query notices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from tocsin.interim.ranges.request_table import Registered
from tocsin.plan.ranges import RangeWatch
from tocsin.runtime.contract import Bools, Float, Int
from tocsin.stages.ranges.requests import Matured
from tocsin.stages.ranges.standing import Standing

_NEVER = 1 << 62


class Requests(NamedTuple):
    """Usable requests of one key in order of arrival; `at`: before which element of the call each takes effect."""

    id: list[str]
    payload: list[str | None]
    registers: Bools
    at: Int
    time: Int
    threshold: Int
    ends: Float


class Reached(NamedTuple):
    """A query whose total reached its threshold: what was asked for, and the element at which it did."""

    id: str
    payload: str | None
    time: int
    threshold: int
    ends: Float
    element: int
    total: int


class _Tried(NamedTuple):
    """Requests that were handed to the index: slots of registrations (else -1), slots that end, and ids in doubt."""

    slots: Int
    gone: Int
    contested: set[str]


class KeyQueries:
    """State and work of one key."""

    def __init__(self, watch: RangeWatch, pages: Mapping[str, bytes] | None = None) -> None:
        self.watch = watch
        self.registered = Registered(len(watch.values))
        # The pages that were written.
        self.names: set[str] = set(pages or ()) - {"key"}
        settings = len(watch.values), watch.within_us, watch.rearm_us
        if pages is None:
            self.index = Standing(*settings)
        else:
            self.registered.load(_below("query/", pages))
            self.index = Standing.from_pages(_below("index/", pages), *settings)
        # Elements of the last call that came too late for the window, and of all before.
        self.late, self._late = 0, self.index.late

    def __len__(self) -> int:
        """Count alive queries."""
        return len(self.registered)

    @property
    def retained(self) -> dict[str, int]:
        """The rows of each stream that are remembered."""
        return {self.watch.requests: len(self.registered), self.watch.data: self.index.held}

    def take(self, asked: Requests, values: Float, weight: Int, time: Int) -> tuple[list[Reached], list[int]]:
        """Take requests and elements; give what was reached, in order, and the requests that came for an alive id."""
        tried = self._ask(asked) if asked.id else None
        matured = self.index.push(values, weight, time)
        self.late, self._late = self.index.late - self._late, self.index.late
        ended = [] if self.watch.rearm_us is not None else [matured.id]
        refused: list[int] = []
        if tried is not None:
            refused = self._contest(asked, tried, matured)
            void = tried.slots[refused]
            self._keep(asked, tried.slots, void)
            ended += [tried.gone, void]
            matured = Matured._make(column[~np.isin(matured.id, void)] for column in matured)
        reached = [self._reached(*row) for row in zip(*(column.tolist() for column in matured), strict=True)]
        if any(map(len, ended)):
            self.registered.free(np.unique(np.concatenate(ended)))
        return reached, refused

    def _keep(self, asked: Requests, slots: Int, void: Int) -> None:
        """Keep what was asked for, but for registrations that are void: these are taken back."""
        kept = np.flatnonzero(asked.registers & ~np.isin(slots, void))
        texts = [asked.id[i] for i in kept.tolist()], [asked.payload[i] for i in kept.tolist()]
        self.registered.put(slots[kept], *texts, asked.time[kept], asked.threshold[kept], asked.ends[kept])
        if len(void):
            nothing = np.zeros(0, np.int64)
            self.index.terminate(void)
            self.index.push(np.zeros((0, len(self.watch.values))), nothing, nothing)

    def _ask(self, asked: Requests) -> _Tried:
        """Let requests wait for the elements."""
        slots = np.full(len(asked.id), -1)
        slots[asked.registers] = self.registered.open(int(asked.registers.sum()))
        alive = self.registered.slot
        # The slots that an id may have in this call; all of them end when it is terminated.
        meant: dict[str, list[int]] = {}
        gone: list[tuple[int, int]] = []
        contested: set[str] = set()
        for i in self._in_doubt(asked):
            name, slot = asked.id[i], int(slots[i])
            mine = meant.get(name)
            if mine is None:
                mine = meant[name] = [alive[name]] if name in alive else []
            if slot < 0:
                gone += [(one, i) for one in mine]
                mine.clear()
            else:
                if mine:
                    contested.add(name)
                mine.append(slot)
        new = np.flatnonzero(asked.registers)
        if len(new):
            low, high = asked.ends[new, ::2], asked.ends[new, 1::2]
            self.index.register(slots[new], low, high, asked.threshold[new], asked.at[new])
        ended, by = np.array(gone, np.int64).reshape(-1, 2).T
        if len(ended):
            self.index.terminate(ended, asked.at[by])
        return _Tried(slots, ended, contested)

    def _in_doubt(self, asked: Requests) -> list[int]:
        """Find the requests of which more must be known: not those that register an id that is new, and comes once."""
        alive, often = self.registered.slot, Counter(asked.id)
        if len(often) == len(asked.id) and asked.registers.all() and alive.keys().isdisjoint(often):
            return []
        ends = ~asked.registers
        return [i for i, name in enumerate(asked.id) if ends[i] or name in alive or often[name] > 1]

    def _contest(self, asked: Requests, tried: _Tried, matured: Matured) -> list[int]:
        """Find the registrations whose id was alive: neither reached nor terminated before."""
        if not tried.contested:
            return []
        holds = {name: self.registered.slot.get(name, -1) for name in tried.contested}
        over = {} if self.watch.rearm_us is not None else dict(zip(*matured[:2], strict=True))
        refused = []
        for i, name in enumerate(asked.id):
            if name not in holds:
                continue
            if not asked.registers[i]:
                holds[name] = -1
            elif holds[name] >= 0 and over.get(holds[name], _NEVER) >= asked.at[i]:
                refused.append(i)
            else:
                holds[name] = int(tried.slots[i])
        return refused

    def _reached(self, slot: int, element: int, total: int) -> Reached:
        of = self.registered
        name = of.id[slot]
        assert name is not None
        return Reached(
            name, of.payload[slot], int(of.time[slot]), int(of.threshold[slot]), of.ends[slot], element, total
        )

    def changed_pages(self) -> dict[str, bytes | None]:
        """Give the pages that changed since the last call."""
        changed = {f"query/{name}": page for name, page in self.registered.changed_pages().items()}
        changed |= {f"index/{name}": page for name, page in self.index.changed_pages().items()}
        self.names = {name for name in {*self.names, *changed} if changed.get(name, b"") is not None}
        return changed


def _below(prefix: str, pages: Mapping[str, bytes]) -> dict[str, bytes]:
    return {name[len(prefix) :]: page for name, page in pages.items() if name.startswith(prefix)}
