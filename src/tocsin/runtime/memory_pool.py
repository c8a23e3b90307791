"""Memory pool: the charged state of a keyed pipeline in one bucket, and the positions of its measurements.

Algorithm: the pool has a share of memory, in bytes or in rows. At a *decision* it measures the state of its members.
Between decisions it counts an upper bound of everything that the rows can add. There are two modes:

- *free*: the bound fits into the rest of the share, so nothing is shed. The next decision is due at the row that
  may not fit.
- *short*: the retained rows are shed row by row (`operators/retention/shedding.py`) so that the charge never exceeds
  the share. A decision is due after a number of rows that does not depend on the share.

At a decision in short mode, keys without rows and without open work are evicted. Their cost, and a quota for the keys
that arrive until the next decision, are part of the charge. A row of a new key beyond the quota is shed on arrival.

Guarantees: after each row the charge is at most the share, unless open alerts alone exceed it. The state pages are not
larger than the charge. Positions of decisions depend on the rows and the state, not on batch boundaries. Nothing is
shed while everything fits.

Complexity: one pass over the state per decision; in free mode, the number of decisions is logarithmic in the state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tocsin.runtime.contract import NEVER_SEEN, Bools, Int
from tocsin.runtime.metrics import QualityLoss

# Rows between two decisions in short mode: the first number doubles up to the last.
FIRST_SLICE, SLICE = 1_024, 8_192
# Parts of the share: less free memory than the first begins the short mode, more than the second ends it, and the last
# is the least quota of new keys.
SHORT, FREE, QUOTA = 1 / 3, 1 / 2, 1 / 16


# Places for the keys with one row since the last decision.
SEEN = 1_024


class Share(NamedTuple):
    """Share of the memory of a pipeline for one bucket, under the terms of one budget."""

    watch: str
    share: int
    terms: str


@dataclass(frozen=True)
class Usage:
    """Measured state of the members of a pool.

    Attributes
    ----------
        fixed: Charge of everything except rows, evaluations that wait, and keys that are not charged.
        rows: Charge of the retained rows.
        waiting: Charge of the evaluations that wait.
    """

    fixed: int
    rows: int
    waiting: int

    @property
    def total(self) -> int:
        """The whole charge."""
        return self.fixed + self.rows + self.waiting


class MemoryUsers(Protocol):
    """Members of a pool: all operators of a pipeline."""

    def measure(self) -> Usage:
        """Measure the state of all shards."""

    def evict_idle_keys(self) -> int:
        """Reset the state of the keys without rows and open work, and return their charge."""


class MemoryPool:
    """Share of a bucket, and its charge since the last decision.

    Attributes
    ----------
        share: Bytes or rows.
        in_bytes: Whether the unit is bytes.
        is_short: Whether rows are shed.
        left: In free mode, the memory that the bound can still use before the next decision.
        rows_left: In short mode, rows until the next decision.
        slice_rows: Rows of the present slice in short mode.
        fixed: Charge at the last decision of everything except rows and evaluations that wait.
        quota: What new keys may still be charged before the next decision.
        keys: What new keys were charged since the last decision.
        rows_since: Rows since the last decision.
        loss: Loss of results by rows that were shed.
        pressure, pressed_us: Charge of the rows that were shed recently, and the time of the bucket clock at the last.
    """

    def __init__(self, share: int, *, in_bytes: bool) -> None:
        self.share, self.in_bytes = share, in_bytes
        self.is_short, self.left, self.rows_left, self.slice_rows = False, 0, 0, FIRST_SLICE
        self.fixed = self.quota = self.keys = 0
        # A pool begins with a decision, which measures the adopted state.
        self.rows_since, self.is_begun = 0, False
        self.loss = QualityLoss(NEVER_SEEN)
        self.pressure, self.pressed_us = 0.0, NEVER_SEEN
        # Keys with a row since the last decision that were not charged, by their number modulo the length.
        self.first_quota, self.seen = 0, np.zeros(SEEN, np.bool_)

    def rows_before_decision(self, bound: Int) -> int | None:
        """Return the rows before the next decision. `bound` is the largest charge of each row in free mode."""
        if not self.is_begun:
            return 0
        if self.is_short:
            return self.rows_left if self.rows_left <= len(bound) else None
        fits = int(np.searchsorted(np.cumsum(bound), self.left, side="right"))
        return fits if fits < len(bound) else None

    def pass_rows(self, count: int, bound: int) -> None:
        """Count rows that pass, and their bound in free mode."""
        self.rows_since += count
        if self.is_short:
            self.rows_left -= count
        else:
            self.left -= bound

    def decide(self, users: MemoryUsers) -> None:
        """Measure the state, choose the mode, and reserve memory for new keys."""
        usage, is_stuck = users.measure(), self.is_begun and self.rows_since == 0
        if self.in_bytes and self.share - usage.total < FREE * self.share:
            users.evict_idle_keys()
            usage = users.measure()
        free = self.share - usage.total
        # A decision directly after another one in free mode means that one row may not fit.
        self.is_short = is_stuck or free < (FREE if self.is_short else SHORT) * self.share
        self.left, self.fixed, self.keys = max(free, 0), usage.fixed, 0
        self.quota = max(int(QUOTA * self.share), free // 2) if self.in_bytes else 0
        if self.is_begun and self.rows_since:
            self.slice_rows = min(2 * self.slice_rows, SLICE)
        self.rows_left, self.rows_since, self.is_begun = self.slice_rows, 0, True
        self.first_quota, self.seen[:] = self.quota, False

    def charge_new_keys(self, prices: Int, numbers: Int) -> Bools:
        """Charge the keys of rows in order of arrival, and mark the rows that are charged for their key.

        In free mode each row has another key. In short mode each row whose key is not charged has its price. While
        more than half of the quota is left, a key is charged at its first row, else at its second row since the
        decision: a key with few rows rarely has results. `numbers` identify the keys.
        """
        if not self.is_short:
            self.keys += int(prices.sum())
            return np.ones(len(prices), np.bool_)
        pays, paid = np.zeros(len(prices), np.bool_), set[int]()
        for i, (price, number) in enumerate(zip(prices.tolist(), numbers.tolist(), strict=True)):
            place = number % len(self.seen)
            if number in paid or price > self.quota:
                continue
            if 2 * self.quota >= self.first_quota or self.seen[place]:
                pays[i] = True
                paid.add(number)
                self.quota -= price
                self.keys += price
            self.seen[place] = True
        return pays

    def press(self, cost: float, clock_us: int, window_us: int) -> None:
        """Add the charge of shed rows to the pressure. It counts half after each window."""
        passed = max(clock_us - self.pressed_us, 0) if self.pressed_us != NEVER_SEEN else 0
        self.pressure = self.pressure * 0.5 ** (passed / max(window_us, 1)) + cost
        self.pressed_us = clock_us

    def lose(self, until_us: int, share: float | None) -> None:
        """Record that results up to a time can be missing."""
        self.loss = QualityLoss(max(self.loss.until_us, until_us), share)

    def set_share(self, share: int) -> None:
        """Apply another share. The next row begins with a decision."""
        self.share, self.is_begun = share, False

    def state_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the state as arrays."""
        flags = [self.is_short, self.is_begun]
        numbers = [self.share, self.left, self.rows_left, self.slice_rows, self.fixed, self.quota, self.keys]
        numbers += [self.rows_since, self.loss.until_us, self.pressed_us, self.first_quota, *map(int, flags)]
        share = np.nan if self.loss.share is None else self.loss.share
        return {"pool": np.array(numbers), "pool.reals": np.array([self.pressure, share]), "pool.seen": self.seen}

    def restore_state(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore the state from arrays."""
        numbers: Sequence[int] = arrays["pool"].tolist()
        self.share, self.left, self.rows_left, self.slice_rows, self.fixed, self.quota, self.keys = numbers[:7]
        self.rows_since, until_us, self.pressed_us, self.first_quota, is_short, is_begun = numbers[7:]
        self.seen = arrays["pool.seen"]
        self.is_short, self.is_begun = bool(is_short), bool(is_begun)
        self.pressure, share = arrays["pool.reals"].tolist()
        self.loss = QualityLoss(until_us, None if np.isnan(share) else share)
