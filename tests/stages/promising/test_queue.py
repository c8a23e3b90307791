"""The queue gives regions in their order, whatever was put in and taken out before, and however it is laid out."""

from __future__ import annotations

from math import inf
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tocsin.stages.promising.queue import (
    arrays_of_queue,
    entries,
    keep_alive,
    new_queue,
    pop,
    push,
    queue_of,
    room,
    with_more_room,
)

# Promise, rank, side, where the region ends.
region = st.tuples(st.sampled_from([-inf, 0.0, 1.5, 1.5, inf]), st.integers(0, 3), st.integers(0, 1), st.integers(0, 3))
step = st.one_of(region, st.sampled_from(["pop", "pop", "page", "room"]), st.tuples(st.integers(0, 3)))


def order(one: Any) -> Any:
    promise, rank, side, high = one
    return -promise, -rank, -high, -side


@given(st.lists(step, max_size=80))
def test_regions_come_out_in_their_order(steps: list[Any]) -> None:
    queue, plain = new_queue(2), []
    for does in steps:
        if does == "pop":
            if plain:
                promise, rank, side, high = plain.pop(0)
                top = queue.entry[queue.line[0]].tolist()
                assert (queue.promise[0], top[0], top[1], top[6]) == (promise, rank, side, high)
                pop(queue)
        elif does == "page":
            queue = queue_of(arrays_of_queue(queue), 2)
        elif does == "room":
            queue = with_more_room(queue)
        elif len(does) == 1:
            # The rank stands for the tuple's number here; of the second stream one more is gone.
            keep_alive(queue, does[0], does[0] + 1)
            plain = [one for one in plain if one[1] >= does[0] + one[2]]
        else:
            promise, rank, side, high = does
            if does in plain:
                continue
            if room(queue) < 1:
                queue = with_more_room(queue)
            push(queue, promise, rank, side, rank, 2, 0, 0, high)
            plain = sorted([*plain, does], key=order)
        assert sorted(queue.line.tolist()) == list(range(len(queue.line)))
        assert len(entries(queue)) == len(plain)
