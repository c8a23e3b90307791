"""Columns of an answer on their way through the operator, as one text of JSON; they come back as they were.

JSON has maps by text alone: others go as lists of keys and values, wherever they stand in a column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

# Microseconds must survive as text, with a zone and without; zones of old times have seconds, which their text lacks.
_TEXT = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "ignoreNullFields": "false",
}


def can_be_carried(kind: DataType) -> bool:
    """Whether a column of this kind comes back as it was: fields of one name in a struct could not be told apart."""
    if isinstance(kind, StructType):
        names = kind.names if _is_plain(kind) else [name.lower() for name in kind.names]
        return len(set(names)) == len(names) and all(can_be_carried(one.dataType) for one in kind.fields)
    if isinstance(kind, ArrayType):
        return can_be_carried(kind.elementType)
    return not isinstance(kind, MapType) or all(map(can_be_carried, (kind.keyType, kind.valueType)))


def carry(columns: Sequence[tuple[Column, DataType]], *more: Column) -> Column:
    """Make one text of columns, each with its kind; more may travel with them."""
    fields = [_each(column, kind, _listed).alias(f"c{i}") for i, (column, kind) in enumerate(columns)]
    return F.make_valid_utf8(F.to_json(F.struct(*fields, *more), _TEXT))


def carried(text: Column, kinds: Sequence[DataType]) -> Column:
    """What such a text has, as a struct with the columns c0, c1 and so on, to be read by `column_of`."""
    return F.from_json(text, StructType([StructField(f"c{i}", _form(kind)) for i, kind in enumerate(kinds)]), _TEXT)


def column_of(struct: Column, number: int, kind: DataType) -> Column:
    """One of the columns that a text has."""
    return _each(struct[f"c{number}"], kind, _mapped)


def _is_plain(kind: DataType) -> bool:
    """Whether JSON has it."""
    return _form(kind) == kind


def _form(kind: DataType) -> DataType:
    """The kind in which a column travels."""
    if isinstance(kind, ArrayType):
        return ArrayType(_form(kind.elementType), kind.containsNull)
    if isinstance(kind, StructType):
        return StructType([StructField(one.name, _form(one.dataType), one.nullable) for one in kind.fields])
    if not isinstance(kind, MapType):
        return kind
    if isinstance(kind.keyType, StringType):
        return MapType(kind.keyType, _form(kind.valueType), kind.valueContainsNull)
    entry = StructType([StructField("k", _form(kind.keyType), False), StructField("v", _form(kind.valueType))])
    return ArrayType(entry, False)


def _each(column: Column, kind: DataType, odd: Callable[[Column, MapType], Column]) -> Column:
    """A column in which every map that JSON has not, wherever it stands, is made something else."""
    if _is_plain(kind):
        return column
    if isinstance(kind, ArrayType):
        return F.transform(column, lambda one: _each(one, kind.elementType, odd))
    if isinstance(kind, StructType):
        fields = [_each(column[one.name], one.dataType, odd).alias(one.name) for one in kind.fields]
        return F.when(column.isNotNull(), F.struct(*fields))
    assert isinstance(kind, MapType)
    if isinstance(kind.keyType, StringType):
        return F.transform_values(column, lambda _, value: _each(value, kind.valueType, odd))
    return odd(column, kind)


def _listed(column: Column, kind: MapType) -> Column:
    """A map as a list of keys and values."""
    return F.transform(
        F.map_entries(column),
        lambda one: F.struct(
            _each(one["key"], kind.keyType, _listed).alias("k"), _each(one["value"], kind.valueType, _listed).alias("v")
        ),
    )


def _mapped(column: Column, kind: MapType) -> Column:
    """The map that a list of keys and values was."""
    entries = F.transform(
        column,
        lambda one: F.struct(
            _each(one["k"], kind.keyType, _mapped).alias("k"), _each(one["v"], kind.valueType, _mapped)
        ),
    )
    return F.map_from_entries(entries)
