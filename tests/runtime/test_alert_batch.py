"""Alert batches: golden identities and lines of the alert log, Arrow columns, and a comparison with dict rows.

`alert_lines.jsonl` was written by a version that built each alert row as a dict. Its identities must never change,
because sinks and runs recognize an alert by them.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tocsin.delivery.alert_json import alert_from_row, encode_alert, encode_batch
from tocsin.interim.ranges.key_requests import Reached
from tocsin.interim.ranges.matured_requests import Elements, request_alerts
from tocsin.operators.lifecycle.alert_changes import AlertChanges, lifecycle_alerts
from tocsin.operators.lifecycle.witness import Witnesses
from tocsin.operators.matches import match_alerts
from tocsin.operators.no_data import NOT_YET, NoDataChanges, no_data_alerts
from tocsin.plan.identity import Identity
from tocsin.plan.ranges import RangeWatch
from tocsin.runtime.alert_arrow import SCHEMA, pack_alerts, to_arrow, unpack_alerts
from tocsin.runtime.alert_batch import (
    FIRING,
    INACTIVE,
    NO_TIME,
    PENDING,
    RESOLVED,
    ROW_ARRAYS,
    STATES,
    AlertBatch,
    AlertSource,
    ShownPayload,
    WitnessStream,
    text_array,
)

GOLDEN = Path(__file__).with_name("alert_lines.jsonl").read_bytes()
START, MINUTE = 1_767_225_600_000_000, 60_000_000
NEAR = Identity("Near", (("team", 'b "ü"'),), (("air", ("temp",)), ("surface", ("temp", "wet"))), "m")
QUIET = Identity("Quiet", (), (("air", ()),), "q")
WET = json.dumps({"temp": 1.0, "note": "wet", "z": None, "a": 3, "machine": "x"})
KEYS = [("m1",), ('m\n"2" \ud800',)]


def shown(wet: float, payload: list[list[str | None]]) -> Witnesses:
    """Return one witness per payload."""
    count = len(payload)
    same = np.zeros(count, np.int64)
    values, times = np.array([[1.5, -0.0, wet]] * count), np.array([[20, 10]] * count)
    texts = np.array(payload, object)
    return Witnesses(same, same, np.full(count, 2.5), same, np.full(count, -0.0), times, values, texts)


def lifecycle() -> list[AlertBatch]:
    none = [[None, None]]
    in_order = AlertChanges(
        np.zeros(3, np.int64),
        np.array([PENDING, FIRING, RESOLVED], np.int8),
        np.full(3, START),
        np.array([NO_TIME, START + MINUTE, START + MINUTE]),
        np.array([NO_TIME, NO_TIME, START + 2 * MINUTE + 1]),
        np.array([0, 0, 3]),
        False,
        shown(float("nan"), [*none, [WET, None], *none]),
    )
    late = AlertChanges(
        np.ones(1, np.int64),
        np.array([INACTIVE], np.int8),
        np.array([-5]),
        np.array([NO_TIME]),
        np.array([7]),
        np.array([1]),
        True,
        shown(float("nan"), none),
    )
    return [
        lifecycle_alerts(NEAR, ["machine"], KEYS, in_order, ["exact"] * 3),
        lifecycle_alerts(NEAR, ["machine"], KEYS, late, ["exact late"]),
    ]


def golden_batches() -> list[AlertBatch]:
    """Return the batches whose lines are in the golden file."""
    key, zero = np.zeros(1, np.int64), np.array([0])
    begins = NoDataChanges(key, np.array([MINUTE]), np.array([NOT_YET]), zero)
    ends = NoDataChanges(key, np.array([MINUTE]), np.array([90_000_001]), zero)
    matches = shown(3.0, [[None, None], [WET, None]])
    ranges = RangeWatch(
        "Sold", (("team", "desk"),), ("symbol",), ("orders", "trades"), "trades", ("price",), "volume", "orders"
    )
    asked = json.dumps({"id": "q1", "action": "x", "owner": "me", "threshold": 4, "low": 1})
    reached = Reached("q1", asked, 5, 4, np.array([1.0, float("inf")]), 0, 7)
    element = Elements(np.array([9]), np.array([[2.0, 3.0]]), [json.dumps({"note": "n", "price": 2.0})])
    return [
        *lifecycle(),
        no_data_alerts(QUIET, ["machine"], KEYS, begins, "exact"),
        no_data_alerts(QUIET, ["machine"], KEYS, ends, "exact key-expired"),
        match_alerts(NEAR, ["machine"], KEYS, np.zeros(2, np.int64), matches, ["exact", "subset out-of-domain"]),
        request_alerts(ranges, ("s",), [reached], element),
    ]


def test_ids_and_lines_are_golden() -> None:
    assert b"".join(map(encode_batch, golden_batches())) == GOLDEN


def test_lines_are_golden_when_batches_were_packed() -> None:
    (data,) = pack_alerts(golden_batches())
    assert b"".join(map(encode_batch, unpack_alerts(data))) == GOLDEN


def test_arrow_columns_are_golden() -> None:
    (_, row, *_), (request,) = (to_arrow(batch).to_pylist() for batch in (lifecycle()[0], golden_batches()[-1]))
    day, epoch = datetime(2026, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)
    temp, wet = row["witness"][1].pop("values")
    assert temp == ("temp", 0.0)
    assert np.isnan(wet[1])
    assert row == {
        "alert": "Near",
        "id": "de5acfb58015bf6f",
        "state": "firing",
        "labels": [("team", 'b "ü"'), ("machine", "m1")],
        "startsAt": day,
        "firesAt": day + timedelta(minutes=1),
        "endsAt": None,
        "value": -0.0,
        "margin": 2.5,
        "witness": [
            {
                "stream": "air",
                "time": epoch + timedelta(microseconds=20),
                "values": [("temp", 1.5)],
                "payload": [("note", "wet"), ("z", None), ("a", "3")],
            },
            {"stream": "surface", "time": epoch + timedelta(microseconds=10), "payload": None},
        ],
        "quality": "exact",
    }
    assert request["witness"][0]["values"] == [("low", 1.0), ("threshold", 4.0)]


def test_arrow_schema_is_golden() -> None:
    assert [f"{field.name} {field.type}" for field in SCHEMA] == [
        "alert string",
        "id string",
        "state string",
        "labels map<string, string>",
        "startsAt timestamp[us, tz=UTC]",
        "firesAt timestamp[us, tz=UTC]",
        "endsAt timestamp[us, tz=UTC]",
        "value double",
        "margin double",
        "witness list<item: struct<stream: string, time: timestamp[us, tz=UTC], values: map<string, double>, "
        "payload: map<string, string>>>",
        "quality string",
    ]


HOSTILE = st.text(st.characters(exclude_categories=()), max_size=5) | st.sampled_from(["%s", "\0", '"', "\\", "%"])
NAMES = st.lists(HOSTILE, max_size=3, unique=True)
NUMBERS = st.floats() | st.sampled_from([0.0, -0.0, 1e300, 5e-324, float("nan")])
TIMES = st.integers(-(2**55), 2**55)
PAYLOADS = st.none() | st.dictionaries(HOSTILE, HOSTILE | st.none() | st.integers(), max_size=3).map(json.dumps)


@st.composite
def batches(draw: st.DrawFn) -> AlertBatch:
    streams = [
        WitnessStream(draw(HOSTILE), tuple(draw(NAMES)), frozenset(draw(NAMES)), draw(st.booleans()))
        for _ in range(draw(st.integers(0, 3)))
    ]
    on = draw(NAMES)
    source = AlertSource(
        draw(HOSTILE), tuple(draw(st.dictionaries(HOSTILE, HOSTILE, max_size=2)).items()), tuple(on), tuple(streams)
    )
    keys = draw(st.lists(st.tuples(*[HOSTILE] * len(on)), min_size=1, max_size=3))
    count = draw(st.integers(0, 4))

    def column(strategy: Any, *shape: int) -> Any:
        size = int(np.prod(shape)) if shape else 1
        return np.array(draw(st.lists(strategy, min_size=count * size, max_size=count * size))).reshape(count, *shape)

    texts = np.empty((count, len(streams)), object)
    for at in np.ndindex(texts.shape):
        texts[at] = draw(PAYLOADS)
    state = column(st.integers(0, 4)).astype(np.int8)
    end = np.where(state >= RESOLVED, column(TIMES), NO_TIME)
    return AlertBatch(
        source,
        keys,
        column(st.integers(0, len(keys) - 1)).astype(np.int64),
        text_array(draw(st.lists(HOSTILE, min_size=count, max_size=count))),
        state,
        start=column(TIMES).astype(np.int64),
        fires=column(TIMES | st.just(NO_TIME)).astype(np.int64),
        end=end.astype(np.int64),
        sequence=column(st.integers(0, 9)).astype(np.int64),
        late=column(st.booleans()).astype(np.bool_),
        value=column(NUMBERS).astype(np.float64),
        margin=column(NUMBERS).astype(np.float64),
        times=column(TIMES, len(streams)).astype(np.int64),
        values=column(NUMBERS, source.columns).astype(np.float64),
        payload=ShownPayload.of(streams, texts),
        quality=text_array(draw(st.lists(HOSTILE, min_size=count, max_size=count))),
        emitted=draw(st.none() | st.just(column(TIMES | st.just(NO_TIME)).astype(np.int64))),
        version=draw(st.none() | st.integers(0, 3)),
    )


def slow_rows(batch: AlertBatch) -> list[dict[str, Any]]:
    """Build dict rows one after the other, without any shared computation."""
    rows = []
    for i in range(len(batch)):
        source, witness, values = batch.source, [], iter(batch.values[i].tolist())
        for number, stream in enumerate(source.streams):
            found = {name: next(values) for name in stream.columns}
            if stream.is_optional:
                found = {name: value for name, value in found.items() if abs(value) < float("inf")}
            place = int(batch.payload.position[i, number])
            witness.append(
                {
                    "stream": stream.name,
                    "time": int(batch.times[i, number]),
                    "values": found,
                    "payload": None if place < 0 else dict(batch.payload.distinct[place]),
                }
            )
        labels = dict(source.labels)
        labels.update(zip(source.on, batch.keys[batch.key[i]], strict=True))
        times = [None if time == NO_TIME else int(time) for time in (batch.start[i], batch.fires[i], batch.end[i])]
        row = {"alert": source.alert, "id": batch.id[i], "state": STATES[batch.state[i]], "labels": labels}
        row |= dict(zip(("startsAt", "firesAt", "endsAt"), times, strict=True))
        row |= {"value": float(batch.value[i]), "margin": float(batch.margin[i]), "witness": witness}
        rows.append(row | {"quality": batch.quality[i]})
    return rows


def plain(text: str | None) -> str | None:
    """Return a text as UTF-8 carries it."""
    return None if text is None else text.encode("utf-8", "replace").decode()


def pairs(mapping: dict[str, Any] | None) -> list[tuple[Any, Any]] | None:
    """Return a mapping as Arrow returns it."""
    if mapping is None:
        return None
    return [(plain(name), plain(item) if isinstance(item, str) else item) for name, item in mapping.items()]


@given(batches())
def test_rows_equal_rows_that_were_built_one_by_one(batch: AlertBatch) -> None:
    assert repr(batch.rows()) == repr(slow_rows(batch))


@given(batches())
def test_lines_equal_the_lines_of_single_rows(batch: AlertBatch) -> None:
    rows = slow_rows(batch)
    notes = [{"summary": f"{row['id']} %s"} for row in rows]
    assert encode_batch(batch) == b"".join(encode_alert(alert_from_row(row)) + b"\n" for row in rows)
    rows = [{**row, "annotations": note} for row, note in zip(rows, notes, strict=True)]
    assert encode_batch(batch, notes) == b"".join(encode_alert(alert_from_row(row)) + b"\n" for row in rows)


@given(batches())
def test_arrow_columns_equal_rows(batch: AlertBatch) -> None:
    table = to_arrow(batch)
    table.validate(full=True)
    found = as_integers(table).to_pylist()
    expected = [
        {
            **{name: plain(item) if isinstance(item, str) else item for name, item in row.items()},
            "labels": pairs(row["labels"]),
            "witness": [
                {
                    **part,
                    "stream": plain(part["stream"]),
                    "values": pairs(part["values"]),
                    "payload": pairs(part["payload"]),
                }
                for part in row["witness"]
            ],
        }
        for row in slow_rows(batch)
    ]
    assert repr(found) == repr(expected)


def as_integers(batch: pa.RecordBatch) -> pa.Table:
    """Return a table with times as integers, because datetimes have fewer years than timestamps."""
    schema = pa.schema([field.with_type(integers(field.type)) for field in SCHEMA])
    return pa.Table.from_batches([batch]).cast(schema)


def integers(kind: pa.DataType) -> pa.DataType:
    """Return a type with integers in place of timestamps."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_list(kind):
        return pa.list_(integers(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(integers(field.type)) for field in kind])
    return kind


@given(st.lists(batches(), min_size=1, max_size=3))
def test_packed_batches_equal_the_originals(originals: list[AlertBatch]) -> None:
    found = [one for data in pack_alerts(originals) for one in unpack_alerts(data)]
    originals = [batch for batch in originals if len(batch)]
    assert len(found) == len(originals)
    for one, other in zip(found, originals, strict=True):
        assert encode_batch(one) == encode_batch(other)
        assert repr(as_integers(to_arrow(one)).to_pylist()) == repr(as_integers(to_arrow(other)).to_pylist())
        for name in ROW_ARRAYS:
            if name not in {"id", "quality"}:
                np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        assert (one.version, one.emission_times()) == (other.version, other.emission_times())


def test_batches_are_split_when_they_have_many_rows() -> None:
    batch = lifecycle()[0].take(np.arange(120_000) % 3)
    small = lifecycle()[1]
    packed = pack_alerts([small, batch, small])
    assert [sum(map(len, unpack_alerts(data))) for data in packed] == [1, 50_000, 50_000, 20_001]
    ids = [mark for data in packed for one in unpack_alerts(data) for mark in one.id.tolist()]
    assert ids == [*small.id.tolist(), *batch.id.tolist(), *small.id.tolist()]


@given(batches(), st.data())
def test_taken_rows_are_rows_of_the_batch(batch: AlertBatch, data: st.DataObject) -> None:
    at = data.draw(st.lists(st.integers(0, len(batch) - 1), max_size=4)) if len(batch) else []
    rows = slow_rows(batch)
    assert repr(batch.take(np.array(at, np.int64)).rows()) == repr([rows[i] for i in at])
