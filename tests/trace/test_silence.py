"""Each answer about a NoData: why a key was or was not silent."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.example_counts import ENGINE
from tocsin import NoData, Rule
from tocsin.plan import make_plan
from tocsin.trace import Answer, KeyRows, Traced, trace, why_silent

SECOND = 1_000_000
COLUMNS = ["m", "ts", "value"]
QUIET = NoData("air", "5s", ["m"])
BESIDE = Rule("Hot", "wall > 20", on=["m"])


def traced(air: list[int], wall: list[int]) -> Traced:
    (watch,) = make_plan([BESIDE, QUIET], {"air": COLUMNS, "wall": COLUMNS}).watches
    rows = {}
    for name, seconds in (("air", air), ("wall", wall)):
        time = np.array(seconds, np.int64) * SECOND
        rows[name] = KeyRows(time, time, {} if name == "air" else {"value": np.zeros(len(time))})
    return trace(watch, ("x",), rows)


def answer(at: int, air: list[int], wall: list[int]) -> Answer:
    found = traced(air, wall)
    return why_silent(found, found.watch.silences[0], at * SECOND)


@pytest.mark.parametrize(("at", "air", "wall", "kind", "text"), [
    (8, [0, 2, 20], [], "fired",
     " from 1970-01-01T00:00:07Z until 1970-01-01T00:00:20Z; the last row of `air` before it is at "
     "1970-01-01T00:00:02Z, and `for` is 5s"),
    (9, [2], [8], "fired", " from 1970-01-01T00:00:07Z and is still open at the last row; the last row of `air`"),
    (6, [0, 2, 20], [], "row-received", "the last row of `air` is at 1970-01-01T00:00:02Z, 4 s before; `for` is 5s"),
    (9, [2], [6], "not-passed",
     "the last row of `air` is at 1970-01-01T00:00:02Z, 7 s before; `for` is 5s, but the last row of the key in any "
     "stream is at 1970-01-01T00:00:06Z, and only rows advance event time here"),
    (9, [], [6], "missing", "no row of `air` for this key: `no_data` begins with the first row of a key"),
    (1, [3], [6], "missing", "the first row of `air` is 2 s after: `no_data` begins with the first row of a key"),
])  # fmt: skip
def test_it_says_what_was_heard(at: int, air: list[int], wall: list[int], kind: str, text: str) -> None:
    found = answer(at, air, wall)
    (reason,) = found.reasons
    assert (found.verdict, reason.kind) == ("firing" if kind == "fired" else "not firing", kind)
    assert text in reason.text


@ENGINE
@given(st.sets(st.integers(0, 40)), st.sets(st.integers(0, 40)), st.integers(0, 45))
def test_in_order_a_key_is_silent_where_its_last_row_is_too_long_ago_and_a_later_one_came(
    air: set[int], wall: set[int], at: int
) -> None:
    # The very row that ends a silence still lies in it, so those before it are asked.
    last = max((second for second in air if second < at), default=None)
    silent = last is not None and at - last >= 5 and max(air | wall) > last + 5
    assert (answer(at, sorted(air), sorted(wall)).verdict == "firing") == (silent and (at not in air or at - last > 5))
