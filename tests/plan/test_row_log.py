"""Rows by number of arrival: what pages hold of them, and what is written when."""

from __future__ import annotations

import numpy as np
import pytest

from tocsin.errors import RunError
from tocsin.interim.cpu.new_rows import NewRows
from tocsin.interim.cpu.row_log import MOST_STALE, ROWS_PER_PAGE, RowLog
from tocsin.plan.calibrate import selection_unit_nanoseconds, unit_nanoseconds
from tocsin.runtime.contract import Float


def rows_of(log: RowLog, begin: int, count: int, *, texts: bool = False) -> NewRows:
    """Rows one microsecond apart, two to a key."""
    number = np.arange(begin, begin + count)
    key = log.places([(f"k{i // 2}",) for i in number.tolist()])
    payload = np.array([f'{{"n": {i}}}' for i in number.tolist()], dtype=object) if texts else None
    return NewRows(number % 2, number, number, key, number, number * 0, number[:, None] / 2.0, payload)


def nothing(begin: int, end: int) -> Float:
    return np.arange(begin, end)[:, None] * 1.0


def test_a_call_writes_the_pages_that_its_rows_fell_on_and_names_those_that_are_gone() -> None:
    log = RowLog(1, 10)
    log.add(rows_of(log, 0, ROWS_PER_PAGE + 10))
    assert set(log.changed_pages(nothing)) == {"0", "1"}
    log.add(rows_of(log, ROWS_PER_PAGE + 10, 10))
    assert set(log.changed_pages(nothing)) == {"1"}
    log.drop(100)
    assert log.changed_pages(nothing) == {}
    log.drop(ROWS_PER_PAGE + 1)
    assert log.changed_pages(nothing) == {"0": None}


@pytest.mark.parametrize("texts", [False, True])
def test_pages_give_the_same_rows(texts: bool) -> None:
    log, again = RowLog(1, 10), RowLog(1, 10)
    log.add(rows_of(log, 0, ROWS_PER_PAGE + 50, texts=texts))
    log.drop(7)
    pages = {int(name): page for name, page in log.changed_pages(nothing).items() if page is not None}
    assert again.load(pages, log.begin, log.end, len(log))[:, 0].tolist() == list(range(log.begin, log.end))
    at = np.arange(len(log))
    assert (again.begin, again.end) == (log.begin, log.end)
    assert again.texts(at).tolist() == log.texts(at).tolist()
    assert [again.keys[k] for k in again.rows.key] == [log.keys[k] for k in log.rows.key]
    assert again.numbers[again.rows.key].tolist() == log.numbers[log.rows.key].tolist()
    for name in ("side", "time", "elapsed", "values"):
        assert np.array_equal(getattr(again.rows, name), getattr(log.rows, name))
    with pytest.raises(RunError, match=r"^state pages must contain 4139 rows from 7 to 4146; they contain 4089$"):
        RowLog(1, 10).load({0: pages[0]}, log.begin, log.end, len(log))


@pytest.mark.parametrize("quiet", [0, 1])
def test_rows_that_go_out_of_the_midst_leave_the_others_as_they_were(quiet: int) -> None:
    log, again = RowLog(1, 10), RowLog(1, 10)
    written: dict[str, bytes] = {}
    for begin in range(0, 4 * ROWS_PER_PAGE, 1000):
        rows = rows_of(log, begin, 1000, texts=True)
        # One row in 3,000 is of the quiet side, which keeps all of its own.
        rows.side[:] = 1 - quiet
        rows.side[0] = quiet if begin % 3000 == 0 else 1 - quiet
        log.add(rows)
        oldest = np.array([begin + 900, begin + 900])
        oldest[quiet] = 0
        log.drop_sides(oldest)
        for name, page in log.changed_pages(nothing).items():
            written.pop(name, None)
            written |= {} if page is None else {name: page}
    assert len(log) < 4000
    assert log.has_gaps
    assert np.isin(np.arange(0, 4 * ROWS_PER_PAGE, 3000), log.row).all()
    assert np.array_equal(log.rows.values[:, 0], log.row / 2.0)
    assert log.texts(log.at(np.array([3000]))).tolist() == ['{"n": 3000}']
    pages = {int(name): page for name, page in written.items()}
    known = again.load(pages, log.begin, log.end, len(log))
    assert known[:, 0].tolist() == log.row.tolist() == again.row.tolist()
    assert again.end == log.end
    assert np.array_equal(again.rows.values, log.rows.values)
    assert again.texts(np.arange(len(log))).tolist() == log.texts(np.arange(len(log))).tolist()


def test_keys_of_rows_that_are_gone_are_forgotten() -> None:
    log = RowLog(1, 10)
    for begin in range(0, 8 * MOST_STALE, MOST_STALE):
        log.add(rows_of(log, begin, MOST_STALE))
        log.drop(begin)
        log.forget_keys()
    assert len(log.keys) <= 2 * MOST_STALE
    assert [log.keys[k] for k in log.rows.key[:2]] == [(f"k{log.begin // 2}",)] * 2


def test_a_unit_of_work_takes_nanoseconds() -> None:
    assert 0.25 <= unit_nanoseconds() <= 10_000
    assert 0.25 <= selection_unit_nanoseconds() <= 10_000
