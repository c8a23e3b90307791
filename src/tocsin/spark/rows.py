"""Rows on their way to the operator: many rows of one stream become one Arrow blob per bucket before the shuffle.

Spark then moves a few blobs instead of many rows, whatever the operator behind the shuffle costs per row. Keys are made
text and hashed once per distinct key. Each stream is folded by itself, so that what is the same in all its rows (its
name, its key set, its columns) never travels with a row.

Order: a blob's rows are in order of arrival, and blobs say from which partition and as which piece they come. Pieces
laid side by side by (stream, partition, piece) and sorted stably by arrival are in the order of D13 in semantics.md.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tocsin.hashing import assign_buckets, key_text, parse_key
from tocsin.plan import assign_shards
from tocsin.run_directory.delay_histogram import count_delays
from tocsin.runtime.contract import FIRST_US, LAST_US, Batch, Int
from tocsin.spark.blobs import ARRIVAL, PAYLOAD, RAW, REASON, TIME, VALUE, Feed, Piece, write_blob
from tocsin.spark.row_counter import FOLDED, RowCounter

# Rows folded at once: enough that Python's work per piece is nothing beside that per row, few enough for any memory.
PIECE_ROWS, PIECE_BYTES = 262_144, 128 << 20
# Characters of rows not usable that travel with a piece; more go to a file, if there is a place for it.
TRAVELLING_DEAD = 1 << 16
# Rows of one `Session.push` in a bounded run.
CALL_ROWS = 500_000
# Rows are sorted by bucket as 16-bit numbers, for which NumPy has a radix sort.
MOST_BUCKETS = 32_767
_EMPTY_FIRST = -(2**63)

Bools = NDArray[np.bool_]


def fold(
    feeds: Sequence[tuple[int, Feed]], ids: Sequence[int], aside: str | None = None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the function for `mapInArrow` that folds the rows of one stream into blobs for the buckets `ids`.

    `feeds` are the ways in which key sets read it, with their numbers; the stream itself is read once. `aside` is a
    folder for rows not usable, where they are too many to travel.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return fold_partition(batches, feeds, ids, aside)

    return run


def fold_partition(
    batches: Iterable[pa.RecordBatch],
    feeds: Sequence[tuple[int, Feed]],
    ids: Sequence[int],
    aside: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """Fold the rows of one partition, piece by piece."""
    from pyspark import TaskContext

    context = TaskContext.get()
    partition = 0 if context is None else context.partitionId()
    with RowCounter(FOLDED) as counter:
        for piece, table in enumerate(_pieces(batches)):
            blobs: list[tuple[int, int, bytes]] = []
            for place, (number, feed) in enumerate(feeds):
                facts = {"feed": number, "partition": partition, "piece": piece}
                # A row that cannot be used is shown once, and counted in every key set; so is how late rows came.
                blobs += _blobs(table, feed, facts, len(ids), aside, shows=feed.dead and place == 0)
            yield _blob_rows(blobs, ids)
            counter.add(table.num_rows)


def wake(feed: Feed, ids: Sequence[int]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the function for `mapInArrow` that turns any rows into a call of every bucket, without rows of a stream.

    Each row is one text: nothing, or a control row in JSON.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        texts = [text for batch in batches for text in batch.column(0).to_pylist()]
        if not texts:
            return
        columns: dict[str, NDArray[Any]] = {"time": np.zeros(0, np.int64)}
        columns |= {f"v{slot}": np.zeros(0) for slot in range(len(feed.values))}
        facts: dict[str, Any] = {"feed": 0, "partition": 0, "piece": 0, "quarantined": 0, "dead": []}
        facts["control"] = [json.loads(text) for text in texts if text]
        blob = write_blob(np.zeros(0, np.int32), [], columns, facts)
        yield _blob_rows([(bucket, _EMPTY_FIRST, blob) for bucket in range(len(ids))], ids)

    return run


def _blob_rows(blobs: Sequence[tuple[int, int, bytes]], ids: Sequence[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "bucket": pa.array([ids[bucket] for bucket, _, _ in blobs], pa.int32()),
            "first": pa.array([first for _, first, _ in blobs], pa.int64()),
            "blob": pa.array([blob for _, _, blob in blobs], pa.binary()),
        }
    )


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= PIECE_ROWS or size >= PIECE_BYTES:
            yield pa.Table.from_batches(held)
            held, rows, size = [], 0, 0
    if held:
        yield pa.Table.from_batches(held)


def _blobs(
    table: pa.Table, feed: Feed, facts: dict[str, int], buckets: int, aside: str | None, *, shows: bool
) -> Iterator[tuple[int, int, bytes]]:
    """Give (bucket, first arrival, blob). Bucket 0 always gets one: it counts the quarantined, its state is checked."""
    codes, texts, ok = _keys(table, feed)
    columns, good = _columns(table, feed)
    ok &= good
    rows = np.flatnonzero(ok)
    rows = rows[np.argsort(columns["order"][rows], kind="stable")]
    codes = codes[rows]
    if feed.parts > 1:
        rows, codes, texts = _in_parts(rows, codes, texts, columns, feed)
    bucket_of = assign_buckets(feed.keys, texts, buckets)
    row_bucket = bucket_of[codes]
    order = np.argsort(row_bucket.astype(np.int16), kind="stable")
    rows, codes = rows[order], codes[order]
    cuts = np.concatenate([[0], np.cumsum(np.bincount(row_bucket, minlength=buckets))])
    for b in range(buckets):
        mine_at = slice(cuts[b], cuts[b + 1])
        at = rows[mine_at]
        if not len(at) and b:
            continue
        mine = np.flatnonzero(bucket_of == b)
        local = np.zeros(len(texts), np.int32)
        local[mine] = np.arange(len(mine))
        arrays = {name: column[at] for name, column in columns.items()}
        if not feed.arrival:
            del arrays["order"]
        bad = np.flatnonzero(~ok) if b == 0 else np.zeros(0, np.int64)
        dead = _dead(table, bad, feed.stream, aside) if shows else {"dead": []}
        about = {**facts, "quarantined": len(bad), **dead}
        if shows and feed.arrival and b == 0:
            about["delays"] = _delays(table, columns, ok)
        first = int(columns["order"][at[0]]) if len(at) else _EMPTY_FIRST
        yield b, first, write_blob(local[codes[mine_at]], [texts[i] for i in mine], arrays, about)


def _delays(table: pa.Table, columns: Mapping[str, NDArray[Any]], ok: Bools) -> dict[str, int]:
    """How late the rows came that say when they arrived, by classes."""
    told = ok & table.column(ARRIVAL).is_valid().to_numpy()
    return count_delays(columns["order"][told] - columns["time"][told])


def _in_parts(
    rows: Int, codes: Int, texts: list[str], columns: dict[str, NDArray[Any]], feed: Feed
) -> tuple[Int, Int, list[str]]:
    """Send rows to the parts of their key: to all, or to one by the id in their payload. A part is a key of its own."""
    whole = [parse_key(text, len(feed.keys)) for text in texts]
    named = [key_text((*key, str(part))) for key in whole for part in range(feed.parts)]
    if feed.parted:
        # Rows without anything beside what is read have no id either.
        asked = columns["payload"][rows].tolist() if feed.payload else [None] * len(rows)
        return rows, codes * feed.parts + assign_shards(asked, feed.parts), named
    part = np.tile(np.arange(feed.parts), len(rows))
    return np.repeat(rows, feed.parts), np.repeat(codes, feed.parts) * feed.parts + part, named


def _dead(table: pa.Table, at: Int, stream: str, aside: str | None) -> dict[str, Any]:
    """Reason and text of rows that cannot be used, or the name of the file that has them."""
    rows = table.select([REASON, RAW]).take(pa.array(at))
    dead = [(reason or "", raw or "") for reason, raw in zip(*(c.to_pylist() for c in rows.columns), strict=True)]
    if aside is None or sum(len(reason) + len(raw) for reason, raw in dead) <= TRAVELLING_DEAD:
        return {"dead": dead}
    # Each try of a task has a file of its own; only the one whose blob comes through is ever named to the driver.
    name = f"{uuid.uuid4().hex}.jsonl"
    Path(aside).mkdir(parents=True, exist_ok=True)
    with (Path(aside) / name).open("w", encoding="ascii") as file:
        file.writelines(dead_line(stream, *row) + "\n" for row in dead)
    return {"dead": [], "aside": [name, len(dead)]}


def dead_line(stream: str, reason: str, raw: str) -> str:
    """A row that could not be used, as a line of a file has it."""
    return json.dumps({"stream": stream, "reason": reason, "raw": raw})


def _keys(table: pa.Table, feed: Feed) -> tuple[Int, list[str], Bools]:
    """Number the distinct keys; the text of several columns is a JSON array. Arrow's booleans read true and false."""
    if not feed.keys:
        return np.zeros(table.num_rows, np.int64), [key_text(())], np.ones(table.num_rows, np.bool_)
    codes, keys = np.zeros(table.num_rows, np.int64), list[tuple[str, ...]]([()])
    ok = np.ones(table.num_rows, np.bool_)
    for name in feed.keys:
        column = table.column(name).combine_chunks().dictionary_encode()
        mine = column.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        ok &= mine >= 0
        words = column.dictionary.cast(pa.string()).to_pylist() or [""]
        if len(feed.keys) == 1:
            return np.maximum(mine, 0), words, ok
        # Numbered anew after each column: the product of all could be beyond 64 bits.
        used, codes = np.unique(codes * len(words) + np.maximum(mine, 0), return_inverse=True)
        keys = [(*keys[i // len(words)], words[i % len(words)]) for i in used.tolist()]
    return codes.astype(np.int64), [key_text(key) for key in keys], ok


def _columns(table: pa.Table, feed: Feed) -> tuple[dict[str, NDArray[Any]], Bools]:
    """The columns by their name in a blob, and which rows have a time and no reason against them."""
    times = table.column(TIME).combine_chunks().cast(pa.int64())
    time = times.fill_null(0).to_numpy(zero_copy_only=False)
    ok = times.is_valid().to_numpy(zero_copy_only=False) & (time >= FIRST_US) & (time <= LAST_US)
    columns: dict[str, NDArray[Any]] = {"time": time, "order": time}
    if feed.arrival:
        arrival = table.column(ARRIVAL).combine_chunks().cast(pa.int64())
        there = arrival.is_valid().to_numpy(zero_copy_only=False)
        columns["order"] = np.where(there, arrival.fill_null(0).to_numpy(zero_copy_only=False), time)
    for slot, name in enumerate(feed.values):
        value = table.column(VALUE + name).combine_chunks().cast(pa.float64())
        columns[f"v{slot}"] = value.to_numpy(zero_copy_only=False)
    if feed.dead:
        ok &= table.column(REASON).is_null().to_numpy()
    if feed.payload:
        columns["payload"] = table.column(PAYLOAD).combine_chunks().to_numpy(zero_copy_only=False)
    return columns, ok


def in_order(pieces: Iterable[Piece], feeds: Sequence[Feed]) -> list[Batch]:
    """Make the batches of one call: arrival is the rank of a row among all rows of the call."""
    streams = {name: i for i, name in enumerate(dict.fromkeys(feed.stream for feed in feeds))}
    side_by_side = sorted(pieces, key=lambda p: (streams[feeds[p.feed].stream], p.partition, p.number))
    if not side_by_side:
        return []
    order = np.argsort(np.concatenate([piece.order for piece in side_by_side]), kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    cuts = np.cumsum([0, *(len(piece.time) for piece in side_by_side)])
    return [_batch(piece, feeds[piece.feed], rank[cuts[i] : cuts[i + 1]]) for i, piece in enumerate(side_by_side)]


def _batch(piece: Piece, feed: Feed, rank: Int) -> Batch:
    values = dict(zip(feed.values, piece.values, strict=True))
    return Batch(
        feed.key_set, feed.stream, piece.keys, piece.key, piece.time, rank, values, piece.payload, piece.quarantined
    )


def calls(pieces: Iterable[tuple[int, Piece]], feeds: Sequence[Feed]) -> Iterator[list[Batch]]:
    """Cut a bounded input, whose pieces come with and by their first arrival, into calls in order of arrival.

    No later piece has a row before its `first`, so all rows before that may go. Memory holds the pieces that overlap.
    """
    held: list[Piece] = []
    for first, piece in pieces:
        if sum(len(p.time) for p in held) >= CALL_ROWS:
            ready, held = _split(held, first)
            yield in_order(ready, feeds)
        held.append(piece)
    yield in_order(held, feeds)


def _split(held: list[Piece], first: int) -> tuple[list[Piece], list[Piece]]:
    ready, rest = [], []
    for piece in held:
        cut = int(np.searchsorted(piece.order, first, side="left"))
        if cut or not len(piece.time):
            ready.append(piece.take(0, cut))
        if cut < len(piece.time):
            rest.append(piece.take(cut, len(piece.time)))
    return ready, rest
