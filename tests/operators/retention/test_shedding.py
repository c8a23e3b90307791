"""Load shedding: the kernel equals the oracle, keeps the share after every row, and does not see batch boundaries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.naive.shedding import Input, Lane, Shedding
from tocsin.operators.retention.bracketing import CLOSED, SegmentRows
from tocsin.operators.retention.shedding import (
    BRACKETING,
    BY_AGE,
    BY_KEY,
    BY_TIME,
    EXPIRED,
    HELD,
    OMITTED,
    SHED,
    WHOLE,
    Arrivals,
    Inputs,
    SliceRows,
    Utilities,
    new_versions,
    no_newest,
    shed_rows,
)
from tocsin.runtime.contract import NEVER

KEYS = 3
NAMES = {OMITTED: "omitted", SHED: "shed", EXPIRED: "expired"}
Arrival = tuple[int, int, int, float, int]


@dataclass(frozen=True)
class Case:
    inputs: list[Input]
    lanes: list[Lane]
    share: int
    tick: int
    rows: list[Arrival]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Rows of one to three lanes, in order or not, with inputs of every kind."""
    count = draw(st.integers(1, 3))
    window = draw(st.sampled_from([2, 4, 7]))
    granule = draw(st.sampled_from([1, 2]))
    has_targets = draw(st.booleans())
    share = draw(st.integers(0, 25))
    numbers = st.sampled_from([0.0, 0.5, 0.5, 1.0, 2.0])
    lanes = [
        Lane(
            window,
            draw(st.sampled_from(["time", "key", "age"])),
            draw(st.lists(numbers, min_size=KEYS, max_size=KEYS)),
            draw(st.lists(numbers, min_size=4, max_size=4)),
            granule,
            share / count if has_targets else None,
        )
        for _ in range(count)
    ]
    sides = st.sampled_from([None, [(window, 1)], [(window, -1)], [(window, 1), (window, -1)]])
    horizon = 3 * window
    inputs = [Input(lane, horizon, draw(sides)) for lane in range(count)]
    if draw(st.booleans()):
        inputs.append(Input(draw(st.integers(0, count - 1)), horizon, draw(sides)))
    disorder = draw(st.sampled_from([0, 0, window]))
    rows, now = [], 0
    for _ in range(draw(st.integers(1, 40))):
        now += draw(st.integers(0, 2))
        late = draw(st.integers(0, disorder)) if disorder else 0
        lane = draw(st.integers(0, count))  # The last number is a row that no lane reads.
        rows.append(
            (lane, draw(st.integers(0, KEYS - 1)), now - late, float(draw(st.integers(0, 4))), draw(st.integers(1, 4)))
        )
    return Case(inputs, lanes, share, draw(st.sampled_from([1, 3])), rows)


class Kernel:
    """Retained rows between slices, and the kernel over one slice after the other."""

    def __init__(self, case: Case) -> None:
        self.case = case
        # Serial, time, value and cost of the rows, by input and key.
        self.retained = [[[] for _ in range(KEYS)] for _ in case.inputs]
        self.newest = no_newest(KEYS)
        self.outcome: dict[tuple[int, int], str] = {}
        self.left: dict[tuple[int, int], int] = {}
        self.serial, self.clock, self.most = 0, -100, 0

    def push(self, rows: Sequence[Arrival]) -> None:
        case, first = self.case, self.serial
        offsets, known, entries = [0], [], []
        for source, one in enumerate(case.inputs):
            for key in range(KEYS):
                mine = self.retained[source][key]
                new = [
                    (first + at, row[2], row[3], row[4], at)
                    for at, row in enumerate(rows)
                    if row[0] == one.lane and row[1] == key
                ]
                entries += [(source, *row, -1) for row in mine] + [(source, *row) for row in new]
                known.append(len(mine))
                offsets.append(len(entries))
        source, serial, time, value, cost, rank = (
            (np.array([e[i] for e in entries]) for i in range(6)) if entries else (np.zeros(0, np.int64),) * 6
        )
        time = time.astype(np.int64)
        value = value.astype(np.float64)
        segment = np.repeat(np.arange(len(known)), np.diff(offsets))
        # `OneAtATime` omits a row that equals a retained row in time and value.
        columns = SegmentRows(
            time, value, time, time, np.zeros(len(time), np.bool_), value.astype(np.int64), rank.astype(np.int64)
        )
        by_key = np.array([lane.by_key for lane in case.lanes])
        lane_of = np.array([one.lane for one in case.inputs])
        utility = by_key[lane_of[source], segment % KEYS] if len(source) else np.zeros(0)
        lengths = np.array(
            [
                [max((length for length, sign in one.sides or [] if sign == s), default=-1) for one in case.inputs]
                for s in (1, -1)
            ]
        )
        inputs = Inputs(
            lane_of, np.array([WHOLE if one.sides is None else BRACKETING for one in case.inputs]), lengths,
            np.full(len(case.inputs), CLOSED), np.array([one.horizon for one in case.inputs]),
        )  # fmt: skip
        how = Utilities(
            np.array([{"time": BY_TIME, "key": BY_KEY, "age": BY_AGE}[lane.by] for lane in case.lanes]),
            np.array([lane.window for lane in case.lanes]),
            np.array([[*lane.by_age, -1.0][:4] for lane in case.lanes]),
            np.array([lane.granule for lane in case.lanes]),
            case.tick,
            np.array([lane.target for lane in case.lanes if lane.target is not None], np.float64),
            np.inf,
            False,
        )
        clock = []
        for row in rows:
            self.clock = max(self.clock, row[2])
            clock.append(self.clock)
        arrivals = Arrivals(
            *(np.array([row[i] for row in rows], np.int64) for i in range(3)),
            np.array(clock, np.int64),
            np.arange(len(rows)),
        )
        versions = new_versions(len(entries), len(rows))
        end, state = versions.end, versions.state
        slice_rows = SliceRows(
            np.array(offsets), np.array(known), segment, np.repeat(np.arange(len(case.inputs)), KEYS), columns,
            value.reshape(1, -1), cost.astype(np.int64), utility, serial.astype(np.int64),
        )  # fmt: skip
        nothing = np.zeros(len(rows), np.int64)
        total, most = shed_rows(slice_rows, arrivals, inputs, how, self.newest, case.share, nothing, versions)
        self.most = max(self.most, most)
        self.retained = [[[] for _ in range(KEYS)] for _ in case.inputs]
        order = sorted(range(len(entries)), key=lambda at: (segment[at], time[at], at))
        for at in order:
            name = NAMES.get(state[at])
            if name is None:
                assert state[at] == HELD
                assert end[at] == NEVER
                self.retained[source[at]][segment[at] % KEYS].append((serial[at], time[at], value[at], cost[at]))
            else:
                self.outcome[int(serial[at]), int(source[at])] = name
            if end[at] != NEVER:
                self.left[int(serial[at]), int(source[at])] = first + int(end[at])
        self.serial += len(rows)
        assert total == sum(row[3] for of in self.retained for mine in of for row in mine)

    def held(self) -> set[tuple[int, int]]:
        return {(int(row[0]), source) for source, of in enumerate(self.retained) for mine in of for row in mine}


@given(case=cases(), data=st.data())
def test_shedding_equals_the_oracle_after_every_row_and_in_any_batches(case: Case, data: st.DataObject) -> None:
    oracle, clock = Shedding(case.inputs, case.lanes, case.share, case.tick), -100
    single, held = Kernel(case), []
    for serial, (lane, key, time, value, cost) in enumerate(case.rows):
        clock = max(clock, time)
        oracle.arrive(serial, lane, key, time, value, cost, clock)
        single.push([case.rows[serial]])
        held.append({(row.serial, row.source) for row in oracle.rows})
        assert single.held() == held[-1], serial
        assert single.outcome == oracle.outcome
    assert single.most <= case.share
    cuts = sorted(data.draw(st.sets(st.integers(1, len(case.rows)), max_size=3)))
    batches = Kernel(case)
    for begin, stop in zip([0, *cuts], [*cuts, len(case.rows)], strict=True):
        if begin < stop:
            batches.push(case.rows[begin:stop])
    assert batches.held() == held[-1]
    assert batches.outcome == oracle.outcome
    assert batches.most <= case.share
    # The arrival that sheds a row still finds it. The arrival that covers a row does not.
    for (serial, source), end in batches.left.items():
        last = max((at for at, rows in enumerate(held) if (serial, source) in rows), default=serial - 1)
        is_refused = (
            last < serial
            and case.rows[serial][4] * sum(one.lane == case.rows[serial][0] for one in case.inputs) > case.share
        )
        assert end == last + 1 + (oracle.outcome[serial, source] == "shed" and not is_refused)
