"""Room: how much a bucket of a watch may keep, and what is given up so that it does.

Idea: before rows are taken, as much room is made as they can take at the most. What goes is what is worth least
(`load_shedding.py`), by models that are learnt from the rows (`row_utility.py`), or what a sample does without
(`row_sampling.py`).
Guarantee: `left` is never more than what is free, so whoever takes no more than that keeps to the share; nothing is
given up while everything fits: before the first rows go, the next one finds no room (in bytes, a few do).
Cost: room is made for a sixteenth of the share at a time, so rows are sorted some 16 times for as many as fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.interim.memory.load_shedding import Shedder
from tocsin.interim.memory.row_costs import RowCosts
from tocsin.interim.memory.row_sampling import Sampler
from tocsin.operators.retention.utility.row_utility import row_utility_of
from tocsin.interim.memory.shard_view import ShardView
from tocsin.interim.memory.waiting_charges import Came, Waits
from tocsin.operators.retention.operator import NO_TEXT
from tocsin.plan.operator_graph import OperatorGraph
from tocsin.plan.steps import Watch
from tocsin.runtime.bucket_clock import BucketClock
from tocsin.runtime.context import Context
from tocsin.runtime.contract import NEVER_SEEN, Bools, Int
from tocsin.runtime.metrics import QualityLoss
from tocsin.runtime.state_codec import pack, packed_size

# Room is made for this part of the share at a time.
PART = 16


class Room:
    """The share of a bucket, what is left of it, the models, and up to when results may be missing."""

    def __init__(self, watch: Watch, operators: OperatorGraph, pages: Sequence[ShardView]) -> None:
        assert watch.budget is not None
        self.pages, self.budget = pages, watch.budget
        self.shedder, self.costs = Shedder(watch, operators), RowCosts(watch)
        self.share, self.waits = self.budget.share, Waits(watch)
        # Room that was made and is not used yet; the longest text remembered.
        self.left, self.longest = 0, NO_TEXT
        # What was shed of late, in the units of memory, and when that was last added to.
        self.pressure, self.pressed_us = 0.0, NEVER_SEEN
        self.loss = QualityLoss(NEVER_SEEN)
        # Keys that were forgotten and nobody has asked for yet: by page, once for each time.
        self.forgotten: list[list[Bools]] = []
        self.clock = BucketClock(max(self.budget.windows_us))
        self.worth = row_utility_of(self.budget) if len(watch.lanes) == 2 else None
        monitor = None if self.worth is None else self.worth.monitor
        self.sampler = Sampler(monitor, self.budget.traces) if self.budget.samples else None
        # The page of the budget itself as large as it may become, and one more page of keys than there are.
        self.fixed = packed_size(self.arrays(0)) + 1024 + self.shedder.page_bytes if self.shedder.in_bytes else 0

    @property
    def most(self) -> int:
        """What rows and keys may take when nothing else is kept."""
        return self.share - self.fixed - self.shedder.page_bytes * len(self.pages)

    def fitting(self, came: Came, text: Int, place: Int) -> int:
        """How many of the next rows fit into the room that was made; it is theirs. Their keys live at these places."""
        texts = self.costs.of_witnesses(np.maximum(np.maximum.accumulate(text), self.longest))
        fit, taken = self.waits.fitting(came._replace(cost=came.cost + texts), self.pages, place, self.left)
        if fit:
            self.left -= taken
            self.longest = max(self.longest, int(text[:fit].max()))
        return fit

    def least(self, cost: int, text: int) -> int:
        """What a row may take at the most."""
        return cost + int(self.costs.of_witnesses(text)) + self.waits.most

    def make(self, cost: int, text: int, context: Context) -> bool:
        """Make room for a part of the share, and for the next row at least; tell whether there is."""
        for attempt in range(4):
            self.longest = self.shedder.longest(self.pages)
            least = self.least(cost, max(self.longest, text))
            wanted = max(self.share // PART, least)
            room = self.share - self.fixed - self.shedder.size(self.pages)
            enough = max(least, self._enough(wanted))
            if room >= enough or attempt == 3 or self._judge_and_shed(wanted - room, context) == 0:
                break
        self.waits.clear()
        # A sample takes more of the rows that come as soon as much is free, so it looks often.
        self.left = max(room if self.sampler is None else min(wanted, room), 0)
        if self.sampler is not None and room > self.share // 2:
            self.sampler.rise()
        return self.left >= least

    def _enough(self, wanted: int) -> int:
        """How much must be free for nothing to be given up: a row; in bytes, where sizes take time, a few.

        Where something was given up within a window, not everything fits; then small pieces would cost more than what
        they save.
        """
        pressed = self.pressed_us != NEVER_SEEN and self.clock.steady_us - self.pressed_us <= self.clock.max_step_us
        return wanted // 4 if pressed else wanted // PART * self.shedder.in_bytes

    def _judge_and_shed(self, lacks: int, context: Context) -> float:
        """Forget keys that have nothing, and give up rows; say how much went, 0 if nothing did."""
        # Fingerprints are removed first: without them a repeat may be evaluated again, but no result is lost.
        freed = self.shedder.drop_fingerprints(self.pages)
        lacks -= freed
        gone, until_us, shed = self.shedder.empty(self.pages), NEVER_SEEN, 0.0
        lacks -= sum(int(mine.sum()) for mine in gone) * self.shedder.key_bytes
        if lacks > 0 and any(len(memory.time) for page in self.pages for memory in page.retentions):
            if self.worth is not None and self.worth.is_due():
                kept = self.shedder.kept(self.pages)
                memory, each = float(kept.cost.sum()) - lacks, self.shedder.average_cost(kept)
                self.worth.judge(memory, each)
                if self.sampler is not None:
                    self.sampler.judge(memory, each)
            until_us, shed = self._shed(lacks, context)
            self._press(shed)
            gone = self.shedder.empty(self.pages)
        keys = sum(int(mine.sum()) for mine in gone)
        if keys:
            self.forgotten.append(gone)
        self.lose(max(until_us, self.shedder.forget(self.pages, gone, context)))
        return shed + keys + freed

    def _shed(self, lacks: int, context: Context) -> tuple[int, float]:
        """Give up rows; say up to which time results may now be missing, and what the rows cost."""
        if self.sampler is None:
            return self.shedder.shed(self.pages, lacks, self.worth, self.clock.now_us, context)
        lost, cost = self.shedder.thin(self.pages, lacks, self.sampler, context)
        for lane, stamp in lost.items():
            if self.worth is not None:
                self.worth.lose(lane, stamp)
        return NEVER_SEEN, cost

    def _press(self, cost: float) -> None:
        """Note what was shed; it counts half after each window."""
        passed = max(self.clock.steady_us - self.pressed_us, 0) if self.pressed_us != NEVER_SEEN else 0
        self.pressure = self.pressure * 0.5 ** (passed / self.clock.max_step_us) + cost
        self.pressed_us = self.clock.steady_us

    def lose(self, until_us: int) -> None:
        """Note that results up to a time may be missing."""
        self.loss = QualityLoss(max(self.loss.until_us, until_us), self._predicted)

    def give(self, share: int, context: Context) -> None:
        """Take another share; a smaller one is kept to at once."""
        self.share = share
        if self.shedder.size(self.pages) + self.fixed + self.left > self.share:
            self.left = 0
            self.make(0, 0, context)

    def tell(self) -> dict[str, Any]:
        """What the memory of this bucket is, how much it would use, and what memory buys: results, or less error.

        Open alerts are not given up: where they take more than the share, it is more, and nobody else may have that.
        """
        used, rows = self.shedder.size(self.pages), sum(len(of.time) for page in self.pages for of in page.retentions)
        share, sampler = max(self.share, used + self.fixed), self.sampler
        told = {"share": share, "fixed": self.fixed, "need": used + int(self.pressure), "rows": rows, "used": used}
        if sampler is not None:
            return told | {"points": sampler.points.tolist(), "results": sampler.results}
        return told | {"points": [] if self.worth is None else self.worth.points.tolist()}

    @property
    def found(self) -> dict[str, float | None]:
        """Predicted and measured results by metric; None if no model predicts them.

        The models predict the recall of the rows with the largest utility, not the recall of a sample.
        """
        reached = None if self.worth is None else self.worth.monitor.reached()
        predicted = self._predicted if self.sampler is None else None
        errors: Sequence[float | None] = (None, None) if self.sampler is None else self.sampler.errors
        if not self.pressure:
            predicted, errors = 1.0, errors if self.sampler is None else (0.0, 0.0)
        quality = {"memory_predicted": predicted, "memory_reached": reached}
        return quality | {"memory_error_predicted": errors[0], "memory_error_reached": errors[1]}

    @property
    def _predicted(self) -> float | None:
        """The share of results that rows of most worth find; None where no model fits."""
        return None if self.worth is None or np.isnan(self.worth.predicted) else float(self.worth.predicted)

    def arrays(self, deaf: int) -> dict[str, NDArray[Any]]:
        """State to be written, with the rows that are to be given up as they come."""
        numbers = [self.share, self.left, deaf, self.longest, self.loss.until_us, self.pressed_us]
        mine = {"numbers": np.array(numbers), "pressure": np.array([self.pressure])}
        mine |= {} if self.sampler is None else self.sampler.arrays()
        if self.worth is not None:
            mine |= {f"worth.{name}": array for name, array in self.worth.arrays().items()}
        return mine | self.clock.state_arrays() | self.waits.arrays()

    def to_bytes(self, deaf: int) -> bytes:
        """Write the page of the budget."""
        budget = self.budget
        facts = {"begun": budget.share, "unit": budget.memory.unit, "pool": budget.pool}
        return pack(self.arrays(deaf), predicted=self.loss.share, **facts)

    def load(self, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> tuple[int, bool]:
        """State that was written; give the rows to be given up, and whether it was written under other terms.

        Of a smaller budget each bucket takes its part at once, a larger one is told. Where others share it than before,
        what they had is not known here: no bucket has more than its first part.
        """
        self.share, self.left, deaf, self.longest, until_us, self.pressed_us = arrays["numbers"].tolist()
        self.pressure = float(arrays["pressure"][0])
        self.loss = QualityLoss(until_us, facts["predicted"])
        self.clock.restore_state(arrays)
        self.waits.load(arrays)
        if self.worth is not None:
            self.worth.load({name.removeprefix("worth."): part for name, part in arrays.items()})
        if self.sampler is not None and "sample" in arrays:
            self.sampler.load(arrays)
        budget, unit = self.budget, self.budget.memory.unit
        foreign = (facts["begun"], facts["unit"], facts["pool"]) != (budget.share, unit, budget.pool)
        if facts["unit"] != unit:
            self.share, self.pressure = budget.share, 0.0
        elif budget.share < facts["begun"] or not budget.told:
            self.share = self.share * budget.share // facts["begun"]
        if facts["pool"] != budget.pool:
            self.share = min(self.share, budget.share)
        self.left = 0 if foreign else self.left
        return deaf, foreign
