"""Lanes: the rows of a stream that have the values which some store takes, and the order of rows by key and arrival."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tocsin.jit import kernel
from tocsin.logic import Int
from tocsin.plan.remember import StreamRows


def lane_of(rows: StreamRows, arrival: Int, columns: Sequence[str]) -> tuple[StreamRows, Int]:
    """The rows of a stream that have finite values in some columns."""
    finite = np.logical_and.reduce([np.isfinite(rows.values[column]) for column in columns])
    if finite.all():
        return rows, arrival
    at = np.flatnonzero(finite)
    return rows.pick(at), arrival[at]


def in_no_lane(rows: StreamRows, arrival: Int, lanes: Sequence[StreamRows]) -> tuple[StreamRows, Int] | None:
    """The rows of a stream whose values no rule can use: all that they do is to move the newest time of their key."""
    if any(len(lane.time) == len(rows.time) for lane in lanes):
        return None
    unused = np.ones(len(rows.time), np.bool_)
    for lane in lanes:
        unused[lane.picked] = False
    at = np.flatnonzero(unused)
    return (rows.pick(at), arrival[at]) if len(at) else None


@kernel
def by_key(place: Int, arrived: Int, places: int) -> tuple[Int, Int]:
    """Order rows by (place, arrival): the order, and the rank of arrival of each row in it."""
    begins = np.zeros(places + 1, np.int64)
    for at in place:
        begins[at + 1] += 1
    for at in range(places):
        begins[at + 1] += begins[at]
    order, rank = np.empty(place.shape[0], np.int64), np.empty(place.shape[0], np.int64)
    for number in range(arrived.shape[0]):
        row = arrived[number]
        at = begins[place[row]]
        order[at], rank[at] = row, number
        begins[place[row]] += 1
    return order, rank
