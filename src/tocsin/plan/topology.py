"""Who is within what of whom: the join graph of a rule, its span, and the interval of each stream.

Idea: bounds are differences of whole microseconds, upper[i, j] >= t_j - t_i. Shortest paths give the tightest implied
bounds. The interval of a stream is the shortest window that partners which belong together can leave it:
L = min over neighbours i, j of (a_i + b_j - q_ij), where t_S lies in [t_i - a_i, t_i + b_i] and q_ij bounds t_i - t_j.

Guarantee: for every combination of the other streams, the times that S may take form a window of length at least L,
so keeping the extremes of every window of length L loses no largest f (shown by replacing one stream at a time).

Source: Cai et al., PVLDB 14(6), 2021, section 4, which allows omission for streams whose neighbourhood is a clique;
that is unsafe with unequal bounds, and this rule is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tocsin.errors import Diagnostics
from tocsin.rules.durations import microseconds
from tocsin.rules.model import Rule
from tocsin.runtime.contract import Int

FAR = 4 * 10**17  # no bound; sums of two stay inside int64


@dataclass(frozen=True)
class Topology:
    """Stated and implied bounds between the streams of one rule, in stream order: closed, in whole microseconds."""

    streams: tuple[str, ...]
    stated: tuple[tuple[int, ...], ...]
    implied: tuple[tuple[int, ...], ...]
    window_us: int
    hop_us: int
    closed: str

    @property
    def span_us(self) -> int:
        """The largest difference of times inside one combination."""
        return max(0, *(max(row) for row in self.implied))

    def interval_us(self, stream: int) -> int | None:
        """How far apart two rows may lie and still excuse one between them; None: no row may be left out."""
        if len(self.streams) == 1:
            # Two open ends of a sliding window are one microsecond; which ends of a hopping one belong is in its keys.
            return max(0, self.window_us - (self.closed == "neither" and not self.hop_us)) or None
        if self.hop_us:
            return self.window_us
        upper = np.array(self.stated)
        neighbours = [i for i in range(len(self.streams)) if i != stream and upper[i, stream] < FAR]
        shortest = FAR
        for i in neighbours:
            for j in neighbours:
                implied = 0 if i == j else self.implied[j][i]
                if implied >= FAR:
                    return None
                # a_i = upper on t_i - t_S, b_j = upper on t_S - t_j, q_ij = upper on t_i - t_j.
                shortest = min(shortest, int(upper[stream, i] + upper[j, stream]) - implied)
        if shortest <= 0:
            return None
        # Windows with an open end cannot hold both ends of a length of whole microseconds one longer.
        return shortest + (self.closed != "both")


def topology(rule: Rule, streams: Sequence[str], diagnostics: Diagnostics) -> Topology:
    """Return the join graph of a rule. If its bounds have an error, all rows within a second are joined instead."""
    count = len(streams)
    upper = np.full((count, count), FAR, dtype=np.int64)
    np.fill_diagonal(upper, 0)
    window = hop = 0
    errors = len(diagnostics)
    if isinstance(rule.within, Mapping):
        _read_pairs(rule, streams, upper, diagnostics)
    elif rule.within is not None:
        window = microseconds(rule.within, f"{rule.location}: `within`")
        hop = 0 if rule.hop is None else microseconds(rule.hop, f"{rule.location}: `hop`")
        # A hopping window with open ends holds times that are closer; a sliding bound is a difference by itself.
        inner = window - (rule.closed != "both" and hop > 0) - (rule.closed == "neither")
        upper[~np.eye(count, dtype=bool)] = inner
        if rule.closed in {"left", "right"} and not hop:
            _open_one_end(rule, upper, window)
    elif count > 1:
        diagnostics.add("missing-within", ["within"], f"`within` is needed to join {', '.join(streams)}")
    implied = upper if len(diagnostics) > errors else _closure(streams, upper, diagnostics)
    if len(diagnostics) > errors:
        return topology(rule.with_fields(within="1s", hop=None), streams, diagnostics)
    return Topology(tuple(streams), _rows(upper), _rows(implied), window, hop, rule.closed)


def _read_pairs(rule: Rule, streams: Sequence[str], upper: Int, diagnostics: Diagnostics) -> None:
    """Put l <= t_s - t_r <= u into the matrix; an open end is one microsecond less."""
    assert isinstance(rule.within, Mapping)
    for (first, second), (low, high) in rule.within.items():
        unknown = [name for name in (first, second) if name not in streams]
        for name in unknown:
            message = f"`within` must name streams of `expr` ({', '.join(streams)})"
            diagnostics.add("unknown-stream", ["within", (first, second), name], message, repr(name))
        if unknown:
            continue
        place = f"{rule.location}: `within[{(first, second)!r}]`"
        low_us = microseconds(low, place, signed=True) + (rule.closed in {"neither", "right"})
        high_us = microseconds(high, place, signed=True) - (rule.closed in {"neither", "left"})
        r, s = streams.index(first), streams.index(second)
        upper[r, s] = min(upper[r, s], high_us)
        upper[s, r] = min(upper[s, r], -low_us)


def _open_one_end(rule: Rule, upper: Int, window: int) -> None:
    """A symmetric `within` with one open end: the pair is read as (earlier stream in the rule, later one)."""
    count = len(upper)
    for r in range(count):
        for s in range(r + 1, count):
            upper[r, s] = window - (rule.closed == "left")
            upper[s, r] = window - (rule.closed == "right")


def _closure(streams: Sequence[str], upper: Int, diagnostics: Diagnostics) -> Int:
    """Return the tightest implied bounds, found as shortest paths."""
    implied = upper.copy()
    for k in range(len(streams)):
        implied = np.minimum(implied, implied[:, k, None] + implied[None, k, :])
    if (implied >= FAR).any():
        first, second = (streams[int(i)] for i in np.argwhere(implied >= FAR)[0])
        message = f"`within` must connect all streams; no bound connects {first!r} and {second!r}"
        diagnostics.add("disconnected-streams", ["within"], message)
    elif (np.diag(implied) < 0).any():
        message = "`within` must not have contradictory bounds; no combination of rows satisfies all"
        diagnostics.add("contradictory-bounds", ["within"], message)
    return implied


def _rows(matrix: Int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(x) for x in row) for row in matrix)
