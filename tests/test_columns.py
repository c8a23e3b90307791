"""Input columns of all supported types: correct results, or one error message."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tocsin import PlanError, Rule, run_local
from tocsin.columns import read_table

RULE = Rule("High", "a.v > 0", on=["m"], stale="1s")
DAY = datetime(2026, 1, 1, tzinfo=UTC)


def rows(**columns: Any) -> dict[str, Any]:
    return {"ts": [1, 2], "m": ["x", "y"], "v": [1.0, 2.0], **columns}


def firing(table: Any) -> list[tuple[str, datetime]]:
    alerts = run_local({"a": table}, RULE)
    return [(alert["labels"]["m"], alert["startsAt"]) for alert in alerts if alert["state"] == "firing"]


def payload(column: Any) -> list[Any]:
    """Return the payload texts of a column that no rule reads."""
    return [alert["witness"][0]["payload"]["w"] for alert in run_local({"a": rows(w=column)}, RULE)]


TIME_TEXT = "2026-01-01 00:00:00.500000"


@pytest.mark.parametrize(("column", "shown"), [
    (np.array(["2026-01-01T00:00:00.5", "NaT"], "datetime64[ns]"), [TIME_TEXT, None]),
    (np.array(["2026-01-01T00:00:00.5", "NaT"], "datetime64[ms]"), [TIME_TEXT, None]),
    (pd.Series(pd.to_datetime(["2026-01-01 00:00:00.5", None])), [TIME_TEXT, None]),
    (pd.Series(pd.to_datetime(["2026-01-01 00:00:00.5", None]).tz_localize("UTC")), [f"{TIME_TEXT}+00:00", None]),
    (np.array([90_000_000_000, "NaT"], "timedelta64[ns]"), ["0:01:30", None]),
    (pd.Series([7, None], dtype="Int64"), ["7", None]),
    (pd.Series(["a", None], dtype="string"), ["a", None]),
    (np.ma.masked_array([7, 8], mask=[False, True]), ["7", None]),
    (pa.chunked_array([[7], [None]]), ["7", None]),
    ([Decimal("1.5"), Decimal("sNaN")], ["1.5", "sNaN"]),
])  # fmt: skip
def test_payload_has_readable_text_for_each_column_type(column: Any, shown: list[str | None]) -> None:
    assert payload(column) == shown


@pytest.mark.parametrize("missing", [Decimal("sNaN"), Decimal("NaN"), None, float("nan")])
def test_row_is_quarantined_when_its_value_is_missing(missing: Any) -> None:
    assert [key for key, _ in firing(rows(v=[missing, Decimal(2)]))] == ["y"]


@pytest.mark.parametrize("make", [pa.table, lambda columns: pa.table(columns).to_batches()[0], pd.DataFrame])
def test_run_local_accepts_arrow_and_pandas_tables(make: Any) -> None:
    assert firing(make(rows(ts=[DAY, DAY], note=["p", None]))) == [("x", DAY), ("y", DAY)]


@pytest.mark.parametrize("times", [
    pa.array([1, None]), pd.Series([1, None], dtype="Int64"), np.ma.masked_array([1, 2], mask=[False, True])
])  # fmt: skip
def test_integer_times_stay_integers_when_one_is_null(times: Any) -> None:
    assert firing(rows(ts=times)) == [("x", datetime(1970, 1, 1, microsecond=1, tzinfo=UTC))]


def test_read_table_raises_an_error_when_an_arrow_table_has_duplicate_columns() -> None:
    table = pa.table([pa.array([1]), pa.array([2])], ["v", "v"])
    with pytest.raises(PlanError, match="stream `a` must have different column names; 'v' is used 2 times"):
        read_table(table, "stream `a`")


@pytest.mark.parametrize(("times", "content"), [
    ([1.7e9, 1.7e9 + 1], r"float64 \(to convert seconds s: `\(s \* 1e6\)"),
    (np.array([1, 2], np.float32), r"float32 \("),
    (pd.Series([1, None]), r"float64 \("),
    (np.array([1.5, None], object), "1.5"),
    (np.array([True, None], object), "True"),
    ([Decimal("sNaN"), Decimal(2)], r"Decimal\('2'\)"),
    (["1", "2"], "<U1"),
])  # fmt: skip
def test_run_local_raises_an_error_when_times_are_neither_integers_nor_datetimes(times: Any, content: str) -> None:
    with pytest.raises(PlanError, match=rf"column 'ts' must contain datetimes or integer microseconds; got {content}"):
        run_local({"a": rows(ts=times)}, RULE)
