"""State registry: sections of random schemas behave like a dictionary of keys, through growth, shrinkage and pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.runtime.state_registry import (
    Column,
    Derived,
    OperatorState,
    OptionalStateArray,
    Ragged,
    Section,
    SectionSpec,
    Shard,
    StateArray,
    StateSchema,
    Table,
)

Key = tuple[str, ...]
KINDS: dict[type, tuple[Any, Any]] = {
    np.int64: (-(2**62), st.integers(-(2**63), 2**63 - 1)),
    np.float64: (0.0, st.floats(allow_nan=True)),
    np.bool_: (False, st.booleans()),
    object: (None, st.one_of(st.none(), st.text(max_size=4))),
}
COLUMNS = st.tuples(st.sampled_from(list(KINDS)), st.sampled_from([None, 1, 2]))
LENGTHS = Derived("length", lambda names: np.array([len("".join(name)) for name in names], np.int64))


def columns_of(prefix: str, drawn: Sequence[tuple[type, int | None]]) -> tuple[Column, ...]:
    return tuple(Column(f"{prefix}{i}", kind, KINDS[kind][0], width) for i, (kind, width) in enumerate(drawn))


@st.composite
def schemas(draw: st.DrawFn) -> StateSchema:
    parts = [columns_of(prefix, draw(st.lists(COLUMNS, max_size=3))) for prefix in ("k", "r", "t", "a")]
    ragged = (Ragged("begin", parts[1]),) if draw(st.booleans()) else ()
    tables = (Table("of", parts[2]),) if draw(st.booleans()) else ()
    derived = (LENGTHS,) if draw(st.booleans()) else ()
    return StateSchema("kind", parts[0], ragged, tables, derived, parts[3])


def cells(draw: st.DrawFn, column: Column, rows: int) -> np.ndarray:
    array = column.new(rows)
    flat = array.reshape(-1)
    for i in range(len(flat)):
        if draw(st.booleans()):
            flat[i] = draw(KINDS[column.kind][1])
    return array


def plain(array: np.ndarray) -> list[Any]:
    """Return the rows as comparable values. Bits of floats are compared, because NaN differs from itself."""
    return array.view(np.int64).tolist() if array.dtype == np.float64 else array.tolist()


@dataclass
class Model:
    """State of one section as dictionaries: per key its values, its ragged rows and its rows of the table."""

    names: list[Key] = field(default_factory=list)
    values: dict[Key, list[Any]] = field(default_factory=dict)
    ragged: dict[Key, list[Any]] = field(default_factory=dict)
    table: list[tuple[Key, Any]] = field(default_factory=list)
    arrays: list[Any] = field(default_factory=list)


def read(section: Section, names: Sequence[Key]) -> Model:
    """Return the state of a section as a model."""
    schema, arrays = section.schema, section.arrays
    model = Model(list(names))
    per_key = [plain(arrays[column.name]) for column in schema.per_key]
    model.values = {name: [column[i] for column in per_key] for i, name in enumerate(names)}
    for ragged in schema.ragged:
        rows = [plain(arrays[column.name]) for column in ragged.columns]
        for i, name in enumerate(names):
            begin, end = arrays[ragged.offsets][i : i + 2].tolist()
            model.ragged[name] = [[column[row] for column in rows] for row in range(begin, end)]
    for table in schema.tables:
        rows = [plain(arrays[column.name]) for column in table.columns]
        for row, key in enumerate(arrays[table.key].tolist()):
            model.table.append((names[key], [column[row] for column in rows]))
    model.arrays = [plain(arrays[column.name]) for column in schema.arrays]
    return model


def fill(draw: st.DrawFn, section: Section) -> None:
    """Write random values into all arrays of a section, as an operator does."""
    for column in section.schema.per_key:
        section.arrays[column.name] = cells(draw, column, section.keys)
    for ragged in section.schema.ragged:
        counts = draw(st.lists(st.integers(0, 3), min_size=section.keys, max_size=section.keys))
        section.arrays[ragged.offsets] = np.concatenate([[0], np.cumsum(np.array(counts, np.int64))])
        for column in ragged.columns:
            section.arrays[column.name] = cells(draw, column, sum(counts))
    for table in section.schema.tables:
        of = draw(st.lists(st.integers(0, section.keys - 1), max_size=5)) if section.keys else []
        section.arrays[table.key] = np.array(of, np.int64)
        for column in table.columns:
            section.arrays[column.name] = cells(draw, column, len(of))
    for column in section.schema.arrays:
        section.arrays[column.name] = cells(draw, column, draw(st.integers(0, 4)))


def through_page(shard: Shard, schemas: Sequence[StateSchema]) -> Shard:
    """Return a shard that has read the page of another shard, with the same operators."""
    page = shard.to_bytes()
    assert len(page) <= shard.size
    again = Shard.read(page, 1)
    for i, schema in enumerate(schemas):
        assert again.attach(SectionSpec(f"id{i}", schema, {"number": i}))
    assert not again.leftover
    assert again.to_bytes() == page
    return again


@given(st.data())
def test_a_shard_behaves_like_a_dictionary_of_keys(data: st.DataObject) -> None:
    drawn = [data.draw(schemas()) for _ in range(data.draw(st.integers(1, 2)))]
    shard, serial = Shard(1), 0
    for i, schema in enumerate(drawn):
        shard.attach(SectionSpec(f"id{i}", schema, {"number": i}))
    models = [read(section, ()) for section in shard.sections.values()]
    for _ in range(data.draw(st.integers(1, 5))):
        action = data.draw(st.sampled_from(["add", "drop", "fill", "page"]))
        if action == "add":
            names = [(f"é{serial + i}",) for i in range(data.draw(st.integers(0, 40)))]
            serial += len(names)
            shard.add_keys(names)
            assert shard.is_dirty
            for i, section in enumerate(shard.sections.values()):
                fresh = read(section, shard.keys.names)
                assert all(fresh.values[name] == models[i].values[name] for name in models[i].names)
                for name in names:
                    defaults = [plain(column.new(1))[0] for column in section.schema.per_key]
                    assert fresh.values[name] == defaults
                    assert not fresh.ragged.get(name)
                assert fresh.table == models[i].table
        elif action == "drop":
            gone = np.array(data.draw(st.lists(st.booleans(), min_size=len(shard.keys), max_size=len(shard.keys))))
            gone = gone.astype(np.bool_)
            left = [name for name, is_gone in zip(shard.keys.names, gone.tolist(), strict=True) if not is_gone]
            shard.drop_keys(gone)
            for i, section in enumerate(shard.sections.values()):
                kept = read(section, left)
                assert kept.values == {name: models[i].values[name] for name in left}
                assert kept.ragged == {name: rows for name, rows in models[i].ragged.items() if name in left}
                assert kept.table == [(name, row) for name, row in models[i].table if name in left]
                assert kept.arrays == models[i].arrays
        elif action == "fill":
            fill(data.draw, shard.sections["id0"])
        else:
            before = [read(section, shard.keys.names) for section in shard.sections.values()]
            names = shard.keys.names
            shard = through_page(shard, drawn)
            assert shard.keys.names == names
            assert [read(section, names) for section in shard.sections.values()] == before
        shard.check()
        for section in shard.sections.values():
            if section.schema.derived:
                assert section.arrays["length"].tolist() == [len(name[0]) for name in shard.keys.names]
        models = [read(section, shard.keys.names) for section in shard.sections.values()]
    through_page(shard, drawn)


NEWEST = StateSchema("admission", (Column("newest", default=-(1 << 62)), Column("seen")))
ROWS = StateSchema("retention", (), (Ragged("offsets", (Column("time"), Column("text", object, None))),))


def small_shard() -> Shard:
    shard = Shard(2)
    for spec in (SectionSpec("aa", NEWEST), SectionSpec("bb", ROWS, "r", "rule")):
        shard.attach(spec)
    shard.add_keys([("x", "1"), ("y", "2")])
    shard.sections["aa"].arrays["newest"] = np.array([5, 1 << 40])
    shard.sections["bb"].arrays |= {
        "offsets": np.array([0, 2, 2]),
        "time": np.array([3, 5]),
        "text": np.array(["{}", None], dtype=object),
    }
    return shard


def test_the_bytes_of_a_page_are_part_of_the_state_format() -> None:
    """A change of these bytes needs another number of the state format."""
    page = small_shard().to_bytes()
    head = (
        b'{"facts": {"sections": [["aa", "admission", null, ""], ["bb", "retention", "r", "rule"]]}, "arrays": '
        b'[["keys", "text", [2, 2], 20], ["aa.newest", "<i8", [2], 16], ["aa.seen", "<i8", [2], 16], '
        b'["bb.offsets", "<i8", [2], 16], ["bb.time", "<i8", [2], 16], ["bb.text", "text", [2], 12]]}'
    )
    numbers = [5, 1 << 40, 0, 0, 2, 0, 3, 5]
    body = b'["x", "1", "y", "2"]' + np.array(numbers, "<i8").tobytes() + b'["{}", null]'
    assert page[:13].hex() == "544f4353494e00040058b75038"
    assert page[13:] == len(head).to_bytes(8, "little") + head + body


def test_the_bytes_of_a_long_page_are_part_of_the_state_format() -> None:
    shard = Shard(1)
    shard.attach(SectionSpec("aa", NEWEST))
    shard.add_keys([("x",)] * 40)
    shard.sections["aa"].arrays["newest"][7] = -1
    shard.sections["aa"].arrays["seen"] = np.arange(1000, 1040)
    head = (
        b'{"facts": {"sections": [["aa", "admission", null, ""]]}, "arrays": [["keys", "text", [40, 1], 200], '
        b'["aa.newest", "<i8", [40], 9, [-4611686018427387904, 1, "|u1"]], ["aa.seen", "<i8", [40], 40, '
        b'[1000, "|u1"]]]}'
    )
    body = b"\x07" + b"\xff" * 8 + bytes(range(40))
    assert shard.to_bytes()[21:] == head + b"[" + b", ".join([b'"x"'] * 40) + b"]" + body


def test_a_section_without_an_operator_is_left_over_with_its_state() -> None:
    shard = Shard.read(small_shard().to_bytes(), 2)
    assert shard.attach(SectionSpec("aa", NEWEST))
    assert shard.sections["aa"].arrays["newest"].tolist() == [5, 1 << 40]
    (left,) = shard.leftover.values()
    assert (left.id, left.kind, left.facts, left.owner) == ("bb", "retention", "r", "rule")
    assert left.arrays["time"].tolist() == [3, 5]
    # A new operator begins without state.
    assert not shard.attach(SectionSpec("cc", ROWS))
    assert shard.sections["cc"].arrays["offsets"].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (StateSchema("admission", (Column("newest"),)), "must have the columns of its schema only; got seen"),
        (StateSchema("admission", (Column("newest", np.float64), Column("seen"))), "column `newest` must be float64"),
        (StateSchema("admission", (Column("newest", width=2), Column("seen"))), r"of shape \(2, 2\); got int64"),
        (StateSchema("admission", (), (), (Table("newest"), Table("seen"))), "column `newest` must number 2 keys"),
    ],
)
def test_a_stored_section_is_rejected_when_it_does_not_fit_the_schema(schema: StateSchema, message: str) -> None:
    shard = Shard.read(small_shard().to_bytes(), 2)
    with pytest.raises(ValueError, match=message):
        shard.attach(SectionSpec("aa", schema))


def test_a_page_is_rejected_when_its_key_columns_differ() -> None:
    with pytest.raises(ValueError, match="keys must have 1 columns; got 2"):
        Shard.read(small_shard().to_bytes(), 1)


def test_a_key_with_default_values_takes_few_bytes() -> None:
    columns = tuple(Column(f"c{i}", np.float64, 0.0, 4) for i in range(20))
    shard = Shard(1)
    shard.attach(SectionSpec("aa", StateSchema("lifecycle", columns, tables=(Table("of"),))))
    shard.add_keys([(f"{number:04}",) for number in range(4000)])
    assert len(shard.to_bytes()) < 4000 * 9


def test_state_arrays_are_attributes_of_an_operator_state() -> None:
    class State(OperatorState):
        newest, chance = StateArray("newest"), OptionalStateArray("chance")

    chance = Column("chance", np.float64, 1.0, is_optional=True)
    schema = StateSchema("kind", (Column("newest"),), (Ragged("offsets", (chance,)),))
    state = State(Section(SectionSpec("aa", schema)))
    state.section.add_keys([("x",), ("y",)])
    state.newest = np.array([1, 2])
    assert state.section.arrays["newest"].tolist() == [1, 2]
    assert state.chance is None
    state.section.check()
    state.chance = np.zeros(0)
    assert state.section.arrays["chance"] is state.chance
    state.chance = None
    assert "chance" not in state.section.arrays


def test_a_transient_column_is_not_written() -> None:
    position = Column("position", is_optional=True, is_transient=True)
    spec = SectionSpec("aa", StateSchema("kind", (), (Ragged("offsets", (Column("time"), position)),)))
    shard = Shard(1)
    shard.attach(spec)
    shard.add_keys([("x",)])
    arrays = shard.sections["aa"].arrays
    arrays |= {"offsets": np.array([0, 2]), "time": np.array([3, 4])}
    page, size = shard.to_bytes(), shard.size
    arrays["position"] = np.array([70, 80])
    assert (shard.to_bytes(), shard.size) == (page, size)
    shard.drop_keys(np.array([True]))
    assert not len(arrays["position"])
