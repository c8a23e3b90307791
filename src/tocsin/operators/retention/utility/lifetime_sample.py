"""Whole lives of a few rows, to learn by: what comes of a row, at which age, and what its key foretold.

Idea: a small share of rows, chosen by a hash of their numbers, is remembered until it expires, whatever the policy of
the join does to it. Each counts the rows of the other stream that it meets, by granules of age, and by how many rows
of its own stream came since (in half octaves: what RECENT holds is a number of rows). With it stands the frequency that
its key had in the other stream when it came. Lives that are over go into a ring. A watched row that the join has shed
is told so (`lose`, or as it comes): what it meets from then on is lost, so lives say which share of results the join
has found.
Guarantee: the rows are a random sample, so averages over their lives are unbiased. While
`room` rows are watched in a stream no other is taken; it is counted as passed over. Any cut into calls gives the same
state.
Cost: O(1) per row and per meeting, and twice what frequencies cost (all, and recent ones); about share * r * W rows of
4 (granules + 64) + 49 bytes, and as much for each life in the ring.
Source: Srivastava, Widom, VLDB 2004, section 2.3.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tocsin.hashing import uniform
from tocsin.jit import kernel
from tocsin.operators.retention.utility.space_saving import Frequencies, add_key, frequency_of, new_frequencies
from tocsin.runtime.contract import NEVER_SEEN, Bools, Float, Int

# Places in `facts`: the oldest row watched, how many are, lives that are over, the first of them that is not forgotten,
# rows passed over, rows received, the newest time, the time of the first row.
START, WATCHED, OVER, FIRST, PASSED, RECEIVED, NEWEST, BEGAN = range(8)
# What rows met by the number of rows since is counted in so many half octaves: up to 2^31 rows.
HALF_OCTAVES = 64


class Watched(NamedTuple):
    """One stream: rows watched (a ring in order of time, chained by key), lives that are over (a ring), frequencies.

    `stamp` tells which row of the join a watched one is; it is `held` until the join has shed it, and has `found` what
    it met until then. Chains of keys that share a head are one.
    """

    time: Int
    number: Int
    key: Int
    stamp: Int
    foretold: Float
    met: Int
    met_behind: Int
    found: Int
    held: Bools
    chain: Int
    heads: Int
    tails: Int
    over_time: Int
    over_number: Int
    over_key: Int
    over_foretold: Float
    over_met: Int
    over_met_behind: Int
    over_found: Int
    facts: Int
    frequencies: Frequencies
    recent: Frequencies


class Lives(NamedTuple):
    """Lives that are over, oldest first: when a row came, its number in its stream, its key and how frequent that was.

    What it met is by granule of age, `met_behind` by the number of rows that came since, as `half_octave` has it;
    `found` is how much of it the join has found.
    """

    time: Int
    number: Int
    key: Int
    foretold: Float
    met: Int
    met_behind: Int
    found: Int


class MonitorTerms(NamedTuple):
    """What does not change: windows, granules of age in each, share of rows, half-life, seed, band (0 to 0: equal).

    The clock of a window `by_tuples` is the number of rows that its stream had; ages and times of lives go by it.
    """

    window_one: int
    window_two: int
    granules: int
    share: float
    half_life: int
    seed: int
    low: int
    high: int
    equal: bool
    by_tuples: bool = False


def new_watched(terms: MonitorTerms, room: int, lives: int, counters: int) -> Watched:
    """Nothing watched yet; room for so many rows at once, and so many lives that are over."""
    heads = 1 << (2 * room).bit_length() if terms.equal else 1
    granules = terms.granules

    def rows(count: int) -> tuple[Int, Int, Int]:
        return np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count, np.int64)

    def met(count: int) -> tuple[Int, Int]:
        # Counts of one row, many of them: half the room does.
        return np.zeros((count, granules), np.int32), np.zeros((count, HALF_OCTAVES), np.int32)

    return Watched(
        *rows(room),
        np.zeros(room, np.int64),
        np.zeros(room),
        *met(room),
        np.zeros(room, np.int64),
        np.zeros(room, np.bool_),
        np.full(room, -1),
        np.full(heads, -1),
        np.full(heads, -1),
        *rows(lives),
        np.zeros(lives),
        *met(lives),
        np.zeros(lives, np.int64),
        np.array([0, 0, 0, 0, 0, 0, NEVER_SEEN, NEVER_SEEN]),
        new_frequencies(counters, terms.half_life),
        new_frequencies(counters),
    )


@kernel
def half_octave(rows: int) -> int:
    """Number the stretches 1, 2, 3, 4 to 5, 6 to 7, 8 to 11, 12 to 15, ... of numbers of rows; the last is open."""
    if rows == 1:
        return 0
    octave = 1
    while rows >> (octave + 1) > 0:
        octave += 1
    return min(2 * octave - 1 + ((rows >> (octave - 1)) & 1), HALF_OCTAVES - 1)


def ends_of_half_octaves() -> Int:
    """The first number of rows of each half octave, and of the one behind the last."""
    starts = [1] + [(2 + half) << (octave - 1) for octave in range(1, HALF_OCTAVES) for half in (0, 1)]
    return np.array(starts[: HALF_OCTAVES + 1])


@kernel
def end_lives(of: Watched, oldest: int, equal: bool) -> None:
    """Put rows that came before `oldest` among the lives that are over."""
    facts, room = of.facts, of.time.shape[0]
    while facts[WATCHED] > 0 and of.time[facts[START]] < oldest:
        slot = facts[START]
        place = facts[OVER] % of.over_time.shape[0]
        of.over_time[place], of.over_number[place] = of.time[slot], of.number[slot]
        of.over_key[place], of.over_foretold[place] = of.key[slot], of.foretold[slot]
        of.over_met[place] = of.met[slot]
        of.over_met_behind[place] = of.met_behind[slot]
        of.over_found[place] = of.found[slot]
        group = of.key[slot] & (of.heads.shape[0] - 1) if equal else 0
        of.heads[group] = of.chain[slot]
        if of.chain[slot] < 0:
            of.tails[group] = -1
        facts[OVER] += 1
        facts[START] = (slot + 1) % room
        facts[WATCHED] -= 1


@kernel
def watch(of: Watched, time: int, key: int, stamp: int, lost: bool, foretold: float, equal: bool) -> None:
    """Watch a row from now on, if there is room; one that is lost was shed as it came."""
    facts, room = of.facts, of.time.shape[0]
    if facts[WATCHED] == room:
        facts[PASSED] += 1
        return
    slot = (facts[START] + facts[WATCHED]) % room
    facts[WATCHED] += 1
    of.time[slot], of.key[slot], of.foretold[slot], of.chain[slot] = time, key, foretold, -1
    of.number[slot], of.stamp[slot] = facts[RECEIVED], stamp
    of.met[slot] = 0
    of.met_behind[slot] = 0
    of.found[slot], of.held[slot] = 0, not lost
    group = key & (of.heads.shape[0] - 1) if equal else 0
    if of.tails[group] >= 0:
        of.chain[of.tails[group]] = slot
    else:
        of.heads[group] = slot
    of.tails[group] = slot


@kernel
def meet(terms: MonitorTerms, other: Watched, stream: int, now: int, key: int, window: int) -> None:
    """Let a row be counted by the watched rows of the other stream that it joins with."""
    slot = other.heads[key & (other.heads.shape[0] - 1) if terms.equal else 0]
    while slot >= 0:
        apart = key - other.key[slot] if stream == 1 else other.key[slot] - key
        if terms.low <= apart <= terms.high:
            granule = (now - other.time[slot]) * terms.granules // max(window, 1)
            other.met[slot, min(granule, terms.granules - 1)] += 1
            other.met_behind[slot, half_octave(other.facts[RECEIVED] - other.number[slot])] += 1
            other.found[slot] += other.held[slot]
        slot = other.chain[slot]


@kernel
def lose_one(of: Watched, stamp: int) -> None:
    """Mark the watched row with a stamp as shed."""
    room = of.time.shape[0]
    for i in range(of.facts[WATCHED]):
        slot = (of.facts[START] + i) % room
        if of.stamp[slot] == stamp:
            of.held[slot] = False


@kernel
def monitor_rows(
    terms: MonitorTerms,
    one: Watched,
    two: Watched,
    stream: Int,
    time: Int,
    key: Int,
    stamp: Int,
    lost: Bools,
    shed: tuple[Int, Int, Int],
) -> None:
    """Take rows in order of time; a window below 0 is that of a stream whose rows are not remembered."""
    first, second, equal = terms.window_one, terms.window_two, terms.equal
    facts1, facts2, heads1, heads2 = one.facts, two.facts, one.heads, two.heads
    mask, event = heads1.shape[0] - 1, 0
    after, of, gone = shed
    # Streams are not put into variables, and nothing is called in vain: handing on so many arrays takes time.
    for row in range(stream.shape[0]):
        mine, at, group = stream[row], key[row], key[row] & mask if equal else 0
        now1, now2 = time[row], time[row]
        if terms.by_tuples:
            now1, now2 = facts1[RECEIVED] + (mine == 0), facts2[RECEIVED] + (mine == 1)
        if facts1[WATCHED] > 0 and one.time[facts1[START]] < now1 - first:
            end_lives(one, now1 - first, equal)
        if facts2[WATCHED] > 0 and two.time[facts2[START]] < now2 - second:
            end_lives(two, now2 - second, equal)
        if mine == 0:
            if heads2[group] >= 0:
                meet(terms, two, 0, now2, at, second)
            if first >= 0 and uniform(terms.seed, 2 * facts1[RECEIVED], 0) < terms.share:
                watch(one, now1, at, stamp[row], lost[row], frequency_of(two.frequencies, at), equal)
            add_key(one.frequencies, at, terms.half_life)
            add_key(one.recent, at, 0)
            facts1[BEGAN] = now1 if facts1[RECEIVED] == 0 else facts1[BEGAN]
            facts1[RECEIVED], facts1[NEWEST] = facts1[RECEIVED] + 1, now1
        else:
            if heads1[group] >= 0:
                meet(terms, one, 1, now1, at, first)
            if second >= 0 and uniform(terms.seed, 2 * facts2[RECEIVED] + 1, 0) < terms.share:
                watch(two, now2, at, stamp[row], lost[row], frequency_of(one.frequencies, at), equal)
            add_key(two.frequencies, at, terms.half_life)
            add_key(two.recent, at, 0)
            facts2[BEGAN] = now2 if facts2[RECEIVED] == 0 else facts2[BEGAN]
            facts2[RECEIVED], facts2[NEWEST] = facts2[RECEIVED] + 1, now2
        while event < after.shape[0] and after[event] <= row:
            lose_one(one if of[event] == 0 else two, gone[event])
            event += 1


def lives_of(of: Watched) -> Lives:
    """The lives that are over and still known, oldest first."""
    places = _known(of)
    over = (of.over_time, of.over_number, of.over_key, of.over_foretold, of.over_met, of.over_met_behind, of.over_found)
    return Lives._make(column[places] for column in over)


def lose(of: Watched, stamp: Int) -> None:
    """Learn which rows the join has shed: those among them that are watched find nothing any more."""
    if len(stamp):
        known = np.sort(stamp)
        at = np.minimum(np.searchsorted(known, of.stamp), len(known) - 1)
        of.held[known[at] == of.stamp] = False


def found_of(of: Watched) -> tuple[int, int]:
    """Of the lives that are known, how many results the join has found, and how many there were."""
    lives = lives_of(of)
    return int(lives.found.sum()), int(lives.met.sum())


def _known(of: Watched) -> Int:
    over, room = int(of.facts[OVER]), len(of.over_time)
    return np.arange(max(int(of.facts[FIRST]), over - room), over) % room


def rate_of(of: Watched) -> float:
    """Rows per unit of time, as measured since the oldest life that is known; 0 where none is."""
    places = _known(of)
    if not len(places) or of.facts[NEWEST] == of.over_time[places[0]]:
        return 0.0
    rows = int(of.facts[RECEIVED]) - 1 - int(of.over_number[places[0]])
    return rows / int(of.facts[NEWEST] - of.over_time[places[0]])


def rate_since_begin(of: Watched) -> float:
    """Return the rows per unit of time since the last complete life, or since the first row if no life is complete."""
    span = int(of.facts[NEWEST] - of.facts[BEGAN])
    return rate_of(of) or (int(of.facts[RECEIVED]) - 1) / max(span, 1) * (of.facts[RECEIVED] > 1)


def forget_before(of: Watched, time: int) -> None:
    """Forget the lives of rows that came before a time."""
    of.facts[FIRST] = of.facts[OVER] - int((lives_of(of).time >= time).sum())
