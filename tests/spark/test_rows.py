"""Rows on their way to the operator: keys of many columns."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="needs pyspark: install tocsin[spark]")

from tocsin.spark.blobs import Feed
from tocsin.spark.rows import _keys


def test_keys_of_many_columns_with_many_values_are_not_mixed_up() -> None:
    rows, names = 60_000, ("a", "b", "c", "d")
    assert rows ** len(names) > 1 << 63
    rng = np.random.default_rng(3)
    columns = {name: rng.permutation(rows).astype(str).tolist() for name in names}
    codes, texts, ok = _keys(pa.table(columns), Feed(0, "air", names, ()))
    assert ok.all()
    assert [texts[code] for code in codes] == [json.dumps(key) for key in zip(*columns.values(), strict=True)]
