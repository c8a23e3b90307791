"""How a stream is summarised: granularities, zones, buckets, and which of the four forms.

A `Layout` is what CREATE SUMMARY declares, and bounds the memory of summaries; `Limits` is the same in numbers that
kernels read. T1 keeps tuples in one list and no summary; T2 cuts time into zones of one length; T3 adds buckets of
values; T4 lets zones end by themselves. SHJ has buckets and no summary: the symmetric hash join, to compare with.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

import numpy as np

from tocsin.runtime.contract import Int
from tocsin.stages.promising.count_sketch import CountSketch
from tocsin.stages.promising.summary import Scheme

VARIANTS = ("SHJ", "T1", "T2", "T3", "T4")
# Those that summarise nothing.
PLAIN = ("SHJ", "T1")
FOREVER = 1 << 61
MINUTE_US = 60_000_000


class Limits(NamedTuple):
    """What a layout allows, for kernels; lengths in microseconds."""

    window_us: int
    memory: int
    zone_us: int
    zones: int
    rate: int
    grain_us: Int
    variance: float
    of_squares: float
    of_share: float


@dataclass(frozen=True)
class Layout:
    """A summary of a stream: the newest `granularity_us` in detail, each older granularity `rate` times as long.

    `window_us` and `memory` bound the tuples that are kept: none older than the window, none beyond so many. Without a
    window `memory` must be given, and answers are about what it holds. `zones` is the most that the newest granularity
    has, `max_length_us` the longest zone of T4 and the length of all zones of T2 and T3.
    """

    variant: str = "T4"
    granularity_us: int = MINUTE_US
    rate: int = 4
    depth: int = 3
    window_us: int | None = MINUTE_US
    memory: int | None = None
    buckets: int = 16
    zones: int = 8
    theta: float = 0.25
    max_length_us: int | None = None
    scheme: Scheme = field(default_factory=CountSketch)

    def __post_init__(self) -> None:
        """Refuse what bounds nothing."""
        if self.variant not in VARIANTS:
            message = f"`variant` must be one of {', '.join(VARIANTS)}; got {self.variant!r}"
            raise ValueError(message)
        for name in ("granularity_us", "rate", "depth", "buckets", "zones"):
            if getattr(self, name) < 1:
                message = f"`{name}` must be at least 1; got {getattr(self, name)!r}"
                raise ValueError(message)
        if not 0 <= self.theta <= 1:
            message = f"`theta` must be a confidence from 0 to 1; got {self.theta!r}"
            raise ValueError(message)
        if self.window_us is None and self.memory is None:
            message = (
                "a window over the whole stream needs `memory`, the largest number of retained tuples; the result is "
                "then not exact"
            )
            raise ValueError(message)
        for name in ("window_us", "memory", "max_length_us"):
            number = getattr(self, name)
            if number is not None and number < (name != "window_us"):
                message = f"`{name}` must be at least {int(name != 'window_us')}; got {number!r}"
                raise ValueError(message)

    @property
    def exact(self) -> bool:
        """Whether an unlimited budget gives the exact answer: no tuple goes before its window ends."""
        return self.window_us is not None and self.memory is None

    @property
    def parts(self) -> int:
        """How many buckets of values there are."""
        return 1 if self.variant in ("T1", "T2") else self.buckets

    @property
    def most_zones(self) -> int:
        """The most zones of all granularities, and one that is on its way."""
        return 0 if self.variant in PLAIN else self.zones + (self.depth - 1) * self.rate + 1

    @property
    def nodes(self) -> int:
        """The most summaries: of zones, of granularities, and of all."""
        return 0 if self.variant in PLAIN else self.most_zones + self.depth + 1

    @property
    def summary_bytes(self) -> int:
        """The memory of all summaries; it never grows beyond this (an exact counter: with the values it meets)."""
        return 8 * self.nodes * (self.scheme.rows * self.scheme.width + self.parts)

    @property
    def zone_us(self) -> int:
        """The longest zone."""
        if self.max_length_us is not None:
            return self.max_length_us
        return max(1, self.granularity_us // self.zones)

    def limits(self) -> Limits:
        """Give the numbers that kernels read."""
        grains = [min(FOREVER, self.granularity_us * self.rate**grain) for grain in range(self.depth)]
        return Limits(
            FOREVER if self.window_us is None else min(FOREVER, self.window_us),
            FOREVER if self.memory is None else self.memory,
            self.zone_us,
            self.zones,
            self.rate,
            np.array(grains, np.int64),
            # Confidence falls below theta where the error of an estimate is above 1 / theta - 1.
            (1 / self.theta - 1) ** 2 if self.variant == "T4" and self.theta > 0 else inf,
            *self.scheme.noise,
        )
