"""The exact counter: how often each value is there, for domains that fit into memory.

Idea: values are numbered as they come, by a hash table; a value's number is its place. Place 0 is that of all values
never seen, and stays empty.
Guarantee: every answer is exact, of points and of ranges; the confidence is 1.
Cost: 8 bytes per value and summary, and a table of 16 bytes for each, at most four times as many; O(1) per value.
Source: Ali, Aref, ElTabakh, section 3.2 (any summary behind the interface); Knuth, "The Art of Computer Programming",
volume 3, section 6.4 (linear probing).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tocsin.hashing import mix
from tocsin.jit import kernel
from tocsin.runtime.contract import Int
from tocsin.stages.promising.count_sketch import bits_of
from tocsin.stages.promising.summary import Noise, Values, counted


@dataclass(eq=False)
class ExactCounter:
    """A scheme that numbers whole values; summaries that share it can be combined."""

    values: Int = field(default_factory=lambda: np.zeros(16, np.int64))
    numbers: Int = field(default_factory=lambda: np.zeros(16, np.int64))
    known: int = 0

    @property
    def rows(self) -> int:
        """A value has one place."""
        return 1

    @property
    def width(self) -> int:
        """As many places as the table has; half of them may be used."""
        return len(self.values)

    @property
    def cells(self) -> int:
        """A number that does not depend on which values came when."""
        return 1024

    @property
    def noise(self) -> Noise:
        """None."""
        return Noise(0.0, 0.0)

    @property
    def share(self) -> float:
        """A place belongs to one value."""
        return 1.0

    def places(self, values: Values, *, learn: bool) -> Int:
        """Give the numbers of values; 0 for those not known."""
        if values.dtype.kind not in "iub":
            message = f"an exact counter needs integers; got {values.dtype}"
            raise ValueError(message)
        bits, out = bits_of(values), np.zeros((len(values), 1), np.int64)
        number_all(self.values, self.numbers, self.known, bits, False, out)
        unknown = out[:, 0] == 0
        if learn and unknown.any():
            self._make_room(len(np.unique(bits[unknown])))
            self.known = number_all(self.values, self.numbers, self.known, bits, True, out)
        return out

    def fresh(self) -> ExactCounter:
        """Give a counter that knows no value."""
        return ExactCounter()

    def learnt(self) -> dict[str, Int]:
        """Give the table of numbers."""
        return {"scheme_values": self.values, "scheme_numbers": self.numbers}

    def relearn(self, arrays: Mapping[str, Int]) -> None:
        """Take over a table of numbers."""
        self.values, self.numbers = arrays["scheme_values"], arrays["scheme_numbers"]
        self.known = int(self.numbers.max())

    def count(self, table: Int, values: Values, weight: int) -> Int:
        """Count values at their places."""
        return counted(self, table, values, weight)

    def estimate_range(self, table: Int, low: float, high: float) -> float:
        """Count the values in a closed range."""
        inside = (self.numbers > 0) & (self.values >= low) & (self.values <= high)
        return float(table[0, self.numbers[inside]].sum())

    def _make_room(self, more: int) -> None:
        # The least power of two that is at most half used: so it does not depend on how many came at once.
        size = 1 << (2 * (self.known + more + 1) - 1).bit_length()
        if size <= len(self.values):
            return
        used = self.numbers > 0
        # Numbers go up in the order in which values came.
        values = self.values[used][np.argsort(self.numbers[used])]
        self.values, self.numbers = np.zeros(size, np.int64), np.zeros(size, np.int64)
        number_all(self.values, self.numbers, 0, values, True, np.zeros((len(values), 1), np.int64))


@kernel
def number_all(values: Int, numbers: Int, known: int, asked: Int, learn: bool, out: Int) -> int:
    """Write the numbers of values, new ones for those not known; gives how many are known then."""
    mask = values.shape[0] - 1
    for i in range(asked.shape[0]):
        value = int(asked[i])
        place = mix(value) & mask
        while numbers[place] > 0 and values[place] != value:
            place = (place + 1) & mask
        if numbers[place] == 0 and learn:
            known += 1
            values[place], numbers[place] = value, known
        out[i, 0] = numbers[place]
    return known
