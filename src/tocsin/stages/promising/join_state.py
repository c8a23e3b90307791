"""The state of an anytime join as arrays: what changes all over, apart from what a tuple is from when it comes.

Idea: of a tuple only the number of regions that it has still to probe changes. Its key, time, row and attributes do
not, and bucket, links and places in summaries follow from them. So whoever hands tuples over can write those once, and
a state that is written often has summaries, regions that wait, and the tuples that these are of. Whole numbers are
written as short as they are.
Cost: 40 bytes per region that waits, 5 to 10 per tuple that has one, and summaries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.runtime.contract import Float, Int
from tocsin.stages.promising.layout import Layout
from tocsin.stages.promising.queue import (
    COLUMNS,
    Queue,
    arrays_of_queue,
    queue_of,
)
from tocsin.stages.promising.representation import arrays_of, bucket_all, places_of, stored_of
from tocsin.stages.promising.stored import (
    BUCKET,
    COUNT,
    KEY,
    NEXT,
    NONE,
    OLDEST,
    PENDING,
    PER_TUPLE,
    ROW,
    TIME,
    Rows,
    Stored,
)


class Tuples(NamedTuple):
    """What tuples of both streams are, in order of their rows."""

    side: Int
    key: Int
    time: Int
    row: Int
    values: Float


def changing_of(stored: Stored) -> dict[str, NDArray[Any]]:
    """What may change of a stream: all but what its tuples are."""
    number = np.arange(stored.facts[OLDEST], stored.facts[COUNT])
    pending = stored.tuples[number % len(stored.tuples), PENDING]
    at = np.flatnonzero(pending)
    fixed = {name: array for name, array in stored._asdict().items() if name not in PER_TUPLE}
    return fixed | {"waits": at, "pending": pending[at]}


def tuples_of(sides: Sequence[Stored]) -> Tuples:
    """What the tuples of two streams are."""
    kept = [arrays_of(stored) for stored in sides]
    tuples, values = (np.concatenate([one[name] for one in kept]) for name in ("tuples", "values"))
    side, order = np.repeat(np.arange(len(kept)), [len(one["tuples"]) for one in kept]), np.argsort(tuples[:, ROW])
    tuples = tuples[order]
    return Tuples(side[order], tuples[:, KEY], tuples[:, TIME], tuples[:, ROW], values[order])


def rebuilt(changing: Mapping[str, NDArray[Any]], tuples: Tuples, side: int, layout: Layout) -> Stored:
    """A stream of what may change and of what its tuples are; of these, the last ones are kept."""
    begin, end = (int(changing["facts"][place]) for place in (OLDEST, COUNT))
    mine = np.flatnonzero(tuples.side == side)
    mine = mine[len(mine) - (end - begin) :]
    key, bucket = tuples.key[mine], bucket_all(tuples.key[mine], layout.parts)
    kept = Rows(key, tuples.time[mine], tuples.row[mine], bucket, places_of(layout, key), tuples.values[mine])
    return linked(changing, kept)


def linked(changing: Mapping[str, NDArray[Any]], kept: Rows) -> Stored:
    """A stream of what may change and of what is known of the tuples that are kept."""
    begin, bucket = int(changing["facts"][OLDEST]), kept.bucket
    order = np.argsort(bucket, kind="stable")
    follows = np.flatnonzero(bucket[order[:-1]] == bucket[order[1:]])
    lines = np.zeros((len(bucket), 6), np.int64)
    lines[:, KEY], lines[:, TIME], lines[:, ROW] = kept.key, kept.time, kept.row
    lines[:, BUCKET], lines[:, NEXT] = bucket, NONE
    lines[order[follows], NEXT] = begin + order[follows + 1]
    lines[changing["waits"], PENDING] = changing["pending"]
    whole = {"tuples": lines, "places": kept.places, "values": kept.values}
    return stored_of({name: changing[name] for name in Stored._fields if name not in PER_TUPLE} | whole)


def queue_arrays(queue: Queue) -> dict[str, NDArray[Any]]:
    """The regions that wait, a column each."""
    promise, entry = arrays_of_queue(queue).values()
    return {"promise": promise} | {f"entry{i}": entry[:, i] for i in range(COLUMNS)}


def queue_from(arrays: Mapping[str, NDArray[Any]], room: int) -> Queue:
    """The queue that was written."""
    entry = np.stack([arrays[f"entry{i}"] for i in range(COLUMNS)], axis=1)
    return queue_of({"promise": arrays["promise"], "entry": entry}, room)
