"""Rows on their way to the operator: keys of many columns, and control rows."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="needs pyspark: install tocsin[spark]")

from tocsin.spark.blobs import ARRIVAL, RAW, REASON, TIME, VALUE, Feed, read_blob
from tocsin.spark.rows import _keys, fold, in_order, wake
from tocsin.spark.stateful import _delays


def test_keys_of_many_columns_with_many_values_are_not_mixed_up() -> None:
    rows, names = 60_000, ("a", "b", "c", "d")
    assert rows ** len(names) > 1 << 63
    rng = np.random.default_rng(3)
    columns = {name: rng.permutation(rows).astype(str).tolist() for name in names}
    codes, texts, ok = _keys(pa.table(columns), Feed(0, "air", names, ()))
    assert ok.all()
    assert [texts[code] for code in codes] == [json.dumps(key) for key in zip(*columns.values(), strict=True)]


def test_a_text_beside_the_streams_reaches_every_bucket_as_a_control_row() -> None:
    feed, ids = Feed(0, "air", ("m",), ("value",)), [4, 7, 9]
    rows = [{"watch": "m~1", "wait_us": 5, "from_us": 3}, {"watch": "m~2", "wait_us": 6, "from_us": 3}]
    texts = [
        pa.RecordBatch.from_pydict({"value": lines}) for lines in (["", json.dumps(rows[0])], [json.dumps(rows[1])])
    ]
    (found,) = wake(feed, ids)(texts)
    assert found.column("bucket").to_pylist() == ids
    for blob in found.column("blob").to_pylist():
        piece = read_blob(blob, [feed])
        assert list(piece.control) == rows
        assert [len(batch.time) for batch in in_order([piece], [feed])] == [0]
    (woken,) = wake(feed, ids)([pa.RecordBatch.from_pydict({"value": [""]})])
    assert [read_blob(blob, [feed]).control for blob in woken.column("blob").to_pylist()] == [(), (), ()]
    assert list(wake(feed, ids)([])) == []


def test_how_late_rows_came_is_counted_once_and_only_where_they_say_when_they_arrived() -> None:
    feeds = [Feed(0, "air", ("m",), ("value",), arrival=True, dead=True)]
    feeds += [Feed(1, "air", ("m",), ("value",), arrival=True, dead=True, parts=3)]
    delays = [0, 900, 1_100, 5_000_000, -7, None, 40]
    rows = {
        "m": [f"k{i % 3}" for i in range(len(delays))],
        TIME: [1_000_000 * i for i in range(len(delays))],
        VALUE + "value": [1.0] * len(delays),
        ARRIVAL: pa.array([None if d is None else 1_000_000 * i + d for i, d in enumerate(delays)], pa.int64()),
        REASON: pa.array([None] * 6 + ["no use"], pa.string()),
        RAW: pa.array([None] * 6 + ["raw"], pa.string()),
    }
    (found,) = fold(list(enumerate(feeds)), [0, 1, 2])([pa.RecordBatch.from_pydict(rows)])
    pieces = [read_blob(blob, feeds) for blob in found.column("blob").to_pylist()]
    assert _delays(pieces, feeds) == {"air": {"-1": 1, "0": 2, "1": 1, "13": 1}}
    assert pieces[0].take(1, 1).delays == {}
