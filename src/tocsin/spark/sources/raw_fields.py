"""Fields: rows of a source before they mean anything, whatever they came as: JSON, CSV, or columns with types."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType

LINE, ARRIVED = "_tocsin_line", "_tocsin_arrived"
_PARSED = "_tocsin_parsed"
# Spark's parser of CSV gives up, and with it the query, where a line has more fields than this.
_MOST_FIELDS = 20_000


@dataclass(frozen=True)
class Fields:
    """Rows, and how their parts are found.

    `field` gives the column of a name and its type, `rest` the fields that are not named, as JSON, or None if there can
    be none; `text` is a row as it came, for people; `broken` says why a row has no fields at all, else it is null.
    """

    frame: DataFrame
    field: Callable[[str], tuple[Column, DataType]]
    rest: Callable[[Collection[str]], Column | None]
    text: Column
    broken: Column
    arrived: Column


def absent() -> tuple[Column, DataType]:
    """A field that no row has."""
    return F.lit(None).cast("string"), StringType()


def of_columns(frame: DataFrame) -> Fields:
    """Fields that have columns and types already."""
    kinds = {field.name: field.dataType for field in frame.schema.fields}

    def field(name: str) -> tuple[Column, DataType]:
        return (F.col(_quoted(name)), kinds[name]) if name in kinds else absent()

    def rest(used: Collection[str]) -> Column | None:
        return _json([F.col(_quoted(name)) for name in kinds if name not in used])

    text = _json([F.col(_quoted(name)) for name in kinds]) if kinds else None
    nothing = F.lit(None).cast("string")
    return Fields(frame, field, rest, nothing if text is None else text, nothing, F.lit(None).cast("long"))


def of_json(lines: DataFrame) -> Fields:
    """A map of texts per line; of a repeated field the first counts. Broken is what is no JSON object in UTF-8."""
    # Spark reads one object and looks at nothing behind it: two on a line would be one. An array shows both.
    array = F.concat(F.lit("["), F.col(LINE), F.lit(",{}]"))
    objects = F.from_json(array, "array<map<string,string>>", {"allowSingleQuotes": "false"})
    found = lines.withColumn(_PARSED, F.when(F.is_valid_utf8(LINE), objects))
    frame = found.withColumn(_PARSED, F.when(F.size(_PARSED) == 2, F.col(_PARSED)[0]))

    def rest(used: Collection[str]) -> Column:
        others = F.map_filter(_PARSED, lambda name, _: ~name.isin(*used))
        return F.nullif(F.to_json(others), F.lit("{}"))

    broken = F.when(F.col(_PARSED).isNull(), "the line is not a JSON object in UTF-8")
    return Fields(frame, lambda name: (F.col(_PARSED)[name], StringType()), rest, F.col(LINE), broken, _arrived(lines))


def of_csv(lines: DataFrame, names: Sequence[str]) -> Fields:
    """Texts by the names of a header; broken where a line is not UTF-8 or has more or fewer fields than that."""
    # Names in the schema are ours: those of a header may be empty, or differ in case alone.
    places = {name: f"c{place}" for place, name in enumerate(names)}
    schema = ", ".join(f"c{place} string" for place in range(len(names))) + ", broken string"
    commas = F.length(LINE) - F.length(F.replace(F.col(LINE), F.lit(","), F.lit("")))
    takes = F.is_valid_utf8(LINE) & ((F.length(LINE) < _MOST_FIELDS) | (commas < _MOST_FIELDS))
    parsed = F.from_csv(F.when(takes, F.col(LINE)), schema, {"columnNameOfCorruptRecord": "broken"})
    frame = lines.withColumn(_PARSED, parsed)

    def field(name: str) -> tuple[Column, DataType]:
        return (F.col(_PARSED)[places[name]], StringType()) if name in places else absent()

    def rest(used: Collection[str]) -> Column | None:
        return _json([F.col(_PARSED)[place].alias(name) for name, place in places.items() if name not in used])

    no_fields = F.col(_PARSED).isNull() | F.col(_PARSED)["broken"].isNotNull()
    broken = F.when(no_fields, f"the line is not CSV in UTF-8 with {len(names)} fields")
    return Fields(frame, field, rest, F.col(LINE), broken, _arrived(lines))


def _arrived(lines: DataFrame) -> Column:
    return F.col(ARRIVED) if ARRIVED in lines.columns else F.lit(None).cast("long")


def _json(columns: list[Column]) -> Column | None:
    return F.to_json(F.struct(*columns), {"ignoreNullFields": "false"}) if columns else None


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
