"""The models of a join, learnt from its rows as they come, and the policies that follow from them.

    monitor = Monitor(windows=(500, 500), granules=20)
    monitor.take(stream, time, key)
    monitor.choice(0, memory=100)       # which policy for S1, with memory for 100 rows
    monitor.prospect(0, 100, aggregate)  # how to sample it

Idea: lives of a few rows (`age_monitor`) and frequencies in small space (`frequencies`) are judged by `models`. After
each `every` rows drift is looked for. Where lives have changed, the older ones are forgotten; where the values of a
stream have, the frequencies of the last `every` rows take the place of the old ones.
Guarantee: nothing depends on how rows are cut into calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.operators.retention.utility import model_selection as models
from tocsin.operators.retention.utility.age_model import AgeCurve
from tocsin.operators.retention.utility.key_recall import KeyRecall, add_block, no_key_recall
from tocsin.operators.retention.utility.lifetime_sample import (
    RECEIVED,
    Lives,
    MonitorTerms,
    Watched,
    forget_before,
    found_of,
    lives_of,
    lose,
    monitor_rows,
    new_watched,
    rate_of,
    rate_since_begin,
)
from tocsin.operators.retention.utility.sampling_choice import Aggregate, Prospect
from tocsin.operators.retention.utility.space_saving import (
    Frequencies,
    Shares,
    frequencies_of,
    have_changed,
    known,
    new_frequencies,
    shares_now,
    with_half_life,
)
from tocsin.runtime.contract import Bools, Float, Int

# False alarms of a test of frequencies.
_ALPHA = 0.001
# Rows of the first block.
_FIRST_BLOCK = 1_000
# Share of rows in the lifetime sample before the rate is known, and its maximum.
_FIRST_SHARE, _MOST_SHARE = 0.05, 0.2
# Windows that the complete lives of the sample cover.
_WINDOWS = 10


class Monitor:
    """Watch two streams; `windows` are None for a stream whose rows are not remembered.

    They are in units of time, or `by_tuples`, in rows of their own stream; then so are ages and rates. A `share` of
    rows is watched, at most `room` at once and stream, and the last `lives` of them are judged by. Values have
    `counters`, and a row counts half after `half_life` rows. Where `by` is `key`, `age` or `none`, that is what
    fits, untested. `drifts` has what changed (`lives` or `frequencies`), the stream (0 for S1) and when it was seen.
    """

    def __init__(
        self,
        windows: tuple[int | None, int | None],
        granules: int = 20,
        *,
        share: float | None = None,
        room: int = 1000,
        lives: int = 2000,
        counters: int = 1000,
        half_life: int = 100_000,
        every: int = 10_000,
        seed: int = 0,
        band: tuple[int, int] | None = None,
        by_tuples: bool = False,
        by: str = "auto",
    ) -> None:
        self.windows, self.every, self.by = windows, every, by
        lengths = [-1 if window is None else window for window in windows]
        low, high = band or (0, 0)
        ends = lengths[0], lengths[1]
        first = _FIRST_SHARE if share is None else share
        self.terms = MonitorTerms(*ends, granules, first, half_life, seed, low, high, band is None, by_tuples)
        self.is_share_fixed, self.room, self.lives_room = share is not None, room, lives
        self.key_recalls = [no_key_recall(), no_key_recall()]
        self.watched: list[Watched] = [new_watched(self.terms, room, lives, counters) for _ in windows]
        self.drifts: list[tuple[str, int, int]] = []

    def take(
        self,
        stream: Int,
        time: Int,
        key: Int,
        stamp: Int | None = None,
        lost: Bools | None = None,
        shed: tuple[Int, Int, Int] | None = None,
    ) -> None:
        """Take rows in order of time; `stamp` tells them apart when the join has shed some (`lose`).

        Rows that are `lost` were shed on arrival. `shed` are other rows that were shed, in order: the row after which
        a row was shed, its stream and its stamp.
        """
        none = np.zeros(0, np.int64)
        after, of, gone = (none, none, none) if shed is None else shed
        stamp, begin = time if stamp is None else stamp, 0
        lost = np.zeros(len(time), np.bool_) if lost is None else lost
        while begin < len(time):
            received = self.received
            end = min(len(time), begin + self._rows_of_block(received))
            one, two = self.watched
            cut = slice(begin, end)
            some = slice(*np.searchsorted(after, [begin, end]).tolist())
            events = after[some] - begin, of[some], gone[some]
            monitor_rows(self.terms, one, two, stream[cut], time[cut], key[cut], stamp[cut], lost[cut], events)
            if end - begin == self._rows_of_block(received):
                self._end_block(int(time[end - 1]))
            begin = end

    def lives(self, direction: int) -> Lives:
        """The lives by which a window (0 for S1) is judged."""
        return lives_of(self.watched[direction])

    def rate(self, direction: int) -> float:
        """Rows of a stream per unit of time, as measured."""
        return rate_of(self.watched[direction])

    def age_curve(self, direction: int) -> AgeCurve:
        """The age curve of a window, in units of time; its n is how many results a row gives."""
        return models.age_curve(self.lives(direction), self._window(direction))

    def frequencies(self, direction: int) -> tuple[Int, Float]:
        """The values of a stream that have a counter, and their frequencies."""
        return known(self.watched[direction].frequencies)

    def shares(self, direction: int, key: Int) -> Float:
        """The shares of a stream that some values have, from below; those without a counter have none."""
        return frequencies_of(self.watched[direction].frequencies, key)

    def shares_now(self, direction: int) -> Shares:
        """What `shares` gives now, to be asked for later."""
        return shares_now(self.watched[direction].frequencies)

    def lose(self, direction: int, stamp: Int) -> None:
        """Learn which rows of a stream the join has shed."""
        lose(self.watched[direction], stamp)

    def reached(self) -> float | None:
        """The share of results that the join has found, by the lives that are over; None: nothing is known."""
        found, met = (sum(part) for part in zip(*map(found_of, self.watched), strict=True))
        return found / met if met else None

    @property
    def received(self) -> int:
        """How many rows came."""
        return sum(int(one.facts[RECEIVED]) for one in self.watched)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """State to be written."""
        named: dict[str, NDArray[Any]] = {}
        for i, of in enumerate(self.watched):
            named |= {f"{i}.{name}": part for name, part in of._asdict().items() if not isinstance(part, Frequencies)}
            named |= {f"{i}.keys.{name}": part for name, part in self.key_recalls[i]._asdict().items()}
            for name in ("frequencies", "recent"):
                counters: Frequencies = getattr(of, name)
                named |= {f"{i}.{name}.{inner}": part for inner, part in counters._asdict().items()}
        return named | {"share": np.array([self.terms.share])}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """State that was written by one of the same sizes."""
        for i, of in enumerate(self.watched):
            parts: dict[str, Any] = {name: arrays[f"{i}.{name}"] for name in of._fields if f"{i}.{name}" in arrays}
            for name in ("frequencies", "recent"):
                parts[name] = Frequencies(*(arrays[f"{i}.{name}.{inner}"] for inner in Frequencies._fields))
            self.watched[i] = Watched(**parts)
            self.key_recalls[i] = KeyRecall(*(arrays[f"{i}.keys.{name}"] for name in KeyRecall._fields))
        self.terms = self.terms._replace(share=float(arrays["share"][0]))

    def _rows_of_block(self, received: int) -> int:
        """Return the rows until the end of the block. The first blocks are short, each twice as long as the last."""
        end = _FIRST_BLOCK
        while end <= received and end < self.every:
            end *= 2
        if end <= received or end > self.every:
            return self.every - received % self.every
        return end - received

    def _end_block(self, now: int) -> None:
        """Measure PROB on the block, look for drift, and choose the share of rows of the lifetime sample."""
        blocks = [(of.frequencies, of.recent) for of in self.watched]
        for i in (0, 1):
            self.key_recalls[i] = add_block(self.key_recalls[i], blocks[i], blocks[1 - i])
        self._look_for_drift(now)
        if not self.is_share_fixed:
            rows = [rate_since_begin(of) * self._window(i) for i, of in enumerate(self.watched)]
            wanted = min(self.lives_room / _WINDOWS, self.room / 2)
            share = min(_MOST_SHARE, wanted / max(*rows, 1.0))
            self.terms = self.terms._replace(share=share)

    def choice(self, direction: int, memory: float) -> models.Choice:
        """The policy for a window with memory for so many rows."""
        window, keys = self._window(direction), self.key_recalls[direction]
        whole = rate_since_begin(self.watched[direction]) * window
        return models.as_set(models.choose(self.lives(direction), window, memory, keys, whole), self.by)

    def prospect(self, direction: int, memory: float, aggregate: Aggregate) -> Prospect:
        """What can be said of sampling a window with memory for so many rows; `approach.choose` goes by it."""
        lives, window = self.lives(direction), self._window(direction)
        return Prospect(lives, window, self.rate(direction), self.choice(direction, memory), aggregate)

    def _window(self, direction: int) -> int:
        return max(self.windows[direction] or 0, 1)

    def _look_for_drift(self, now: int) -> None:
        for direction, of in enumerate(self.watched):
            since = models.begin_of_present(lives_of(of), self._window(direction))
            if since is not None:
                forget_before(of, since)
                self.drifts.append(("lives", direction, now))
            changed = have_changed(of.frequencies, of.recent, _ALPHA)
            if changed:
                self.drifts.append(("frequencies", direction, now))
            counters, left = len(of.recent.key), self.terms.half_life
            kept = with_half_life(of.recent, left) if changed else of.frequencies
            self.watched[direction] = of._replace(frequencies=kept, recent=new_frequencies(counters))
