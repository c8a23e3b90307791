"""Called: the keys of one call to a watch whose memory is limited, numbered once.

Rows come in pieces, and between pieces keys are forgotten and come back. What is asked of a key with each piece (where
it lives, what it would cost, which number is its alone) is a column by the number that it has in the call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tocsin.hashing import key_numbers
from tocsin.runtime.contract import Batch, Bools, Int
from tocsin.runtime.keyed_pipeline import KEYS_PER_SHARD
from tocsin.runtime.state_registry import name_bytes

Key = tuple[str, ...]


class Called:
    """Names of keys, the number that is each one's alone, its place on pages (-1: none), and what a new one costs."""

    def __init__(self) -> None:
        self.names: list[Key] = []
        self._known: dict[Key, int] = {}
        self.number = self.place = self.price = np.zeros(0, np.int64)

    def numbers(self, batch: Batch) -> Int:
        """Number the keys of a batch."""
        for key in batch.keys:
            if key not in self._known:
                self._known[key] = len(self.names)
                self.names.append(key)
        return np.fromiter((self._known[key] for key in batch.keys), np.int64, len(batch.keys))

    def find(self, places: Mapping[Key, int], key_bytes: int) -> None:
        """Look up where the keys live, when all of them are numbered; 0 bytes: keys cost nothing."""
        count = len(self.names)
        self.number = key_numbers(self.names)
        self.place = np.fromiter((places.get(key, -1) for key in self.names), np.int64, count)
        self.price = np.zeros(count, np.int64)
        if key_bytes:
            self.price = key_bytes + np.fromiter(map(name_bytes, self.names), np.int64, count)

    def prices(self, key: Int) -> Int:
        """What rows of these keys cost besides themselves: the first of a key that is not known pays for it."""
        price = np.zeros(len(key), np.int64)
        new = np.flatnonzero(self.place[key] < 0)
        if len(new):
            first = new[np.unique(key[new], return_index=True)[1]]
            price[first] = self.price[key[first]]
        return price

    def move(self, gone: Sequence[Bools]) -> None:
        """Learn which keys were forgotten, by page: those behind them have moved up."""
        moved = np.full((len(gone), KEYS_PER_SHARD), -1)
        for page, mine in enumerate(gone):
            moved[page, : len(mine)] = np.where(mine, -1, np.cumsum(~mine) - 1 + page * KEYS_PER_SHARD)
        known = np.flatnonzero((self.place >= 0) & (self.place < moved.size))
        self.place[known] = moved.reshape(-1)[self.place[known]]
