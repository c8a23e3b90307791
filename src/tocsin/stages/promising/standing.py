"""Standing queries in arrays, as kernels read them: ranges, times, and what was found for each by bins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tocsin.runtime.contract import Float
from tocsin.stages.promising.by_column import ByColumn
from tocsin.stages.promising.histogram import Histogram
from tocsin.stages.promising.layout import Layout
from tocsin.stages.promising.selecting import Standing

if TYPE_CHECKING:
    from tocsin.stages.promising.selection import Query

# The fields of `Standing` that have a line for each query, and those that a page has.
BY_QUERY = ("low", "high", "since", "until", "part", "hit", "seen", "bins", "sums", "squares", "lost")
WRITTEN = ("low", "high", "since", "until", "seen", "bins", "sums", "squares", "lost", "served")


def layout_by_bins(layout: Layout, scheme: Histogram | ByColumn) -> Layout:
    """Let the buckets be the bins of the histogram."""
    return replace(layout, buckets=scheme.width)


def stand(queries: Sequence[Query], scheme: Histogram | ByColumn) -> Standing:
    """Queries in arrays; nothing was found yet."""
    for number, query in enumerate(queries):
        if not (query.low <= query.high and query.since_us < query.until_us):
            message = f"query {number} must have `low` <= `high` and `since_us` < `until_us`; got {query}"
            raise ValueError(message)
    return Standing(
        np.array([query.low for query in queries], np.float64),
        np.array([query.high for query in queries], np.float64),
        np.array([query.since_us for query in queries], np.int64),
        np.array([query.until_us for query in queries], np.int64),
        parts_of(queries, scheme),
        np.ones((len(queries), scheme.width)),
        np.zeros((len(queries), scheme.width), np.int64),
        np.zeros((len(queries), scheme.width), np.int64),
        np.zeros((len(queries), scheme.width)),
        np.zeros((len(queries), scheme.width)),
        np.zeros((len(queries), scheme.width), np.int64),
        np.zeros(1 + scheme.width, np.int64),
        np.zeros(scheme.width, np.int64),
    )


def parts_of(queries: Sequence[Query], scheme: Histogram | ByColumn) -> Float:
    """Which part of each bin the range of each query covers."""
    parts = [scheme.meets(query.low, query.high) for query in queries]
    return np.array(parts, np.float64).reshape(len(queries), scheme.width)
