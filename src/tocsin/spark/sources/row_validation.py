"""Usable rows: keys, time and values are made of fields in one place, which says of other rows why they are none.

A row is dead, and only shown and counted, if its key or time is missing or cannot be read, if a value is there and is
no finite number, or if all its values are missing (a request may have none). A row that lacks some values goes on, for
the rules that read the others. A dead row has neither time nor values, so nothing can use it by mistake.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    NumericType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from tocsin.errors import PlanError
from tocsin.rules.durations import duration_text
from tocsin.rules.rulefile import Stream
from tocsin.runtime.contract import FIRST_US, LAST_US
from tocsin.spark.blobs import ARRIVAL, PAYLOAD, RAW, REASON, TIME
from tocsin.spark.feeds import latest_us
from tocsin.spark.sources.raw_fields import Fields

# Most characters that are shown of a row that cannot be used.
MOST_SHOWN = 65_536
# Microseconds in each unit of time.
PER_UNIT = {"s": 1_000_000.0, "ms": 1_000.0, "us": 1.0, "ns": 0.001}
_GIVEN, _READ = "_tocsin_given_{}", "_tocsin_read_{}"
_WHOLE = (ByteType, ShortType, IntegerType, LongType)
_KEYS = (StringType, BooleanType, *_WHOLE)
# Possessive, so that a megabyte of digits is read once; without Java's suffixes and hexadecimal.
_NUMBER = r"^\s*+[+-]?+(\d++(\.\d*+)?+|\.\d++)([eE][+-]?+\d++)?+\s*+$"
# More digits than any time has need not be worked out.
_TIME_NUMBER = r"^\s*[+-]?(\d{1,30}(\.\d{0,30})?|\.\d{1,30})([eE][+-]?\d{1,2})?\s*$"
# ISO 8601 in three forms. Spark alone would also take `12:30`, as a time of today.
_DATE, _CLOCK = r"^\d{4}-\d{2}-\d{2}", r"[T ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?"


def usable(fields: Fields, stream: Stream) -> DataFrame:
    """Give key columns as text, `TIME`, `ARRIVAL`, values as doubles, the rest as `PAYLOAD`, `REASON` and `RAW`.

    In steps, each a projection: Spark would work out anew what one projection names twice. The columns of the source go
    along to the last, which makes a text of them for dead rows alone; Spark leaves out those that nobody asks for.
    """
    used = sorted({name for name in (*stream.keys, stream.time, stream.arrival, *stream.values) if name})
    picked = {name: fields.field(name) for name in used}
    _check_keys(stream, {name: picked[name][1] for name in stream.keys})
    given = fields.frame.select("*", *(picked[name][0].alias(_GIVEN.format(i)) for i, name in enumerate(used)))
    names = _Names({name: i for i, name in enumerate(used)})
    read = given.withColumns(_readings(stream, names, {name: kind for name, (_, kind) in picked.items()}))
    time_kind = picked[stream.time][1]
    told = read.withColumn(REASON, F.coalesce(fields.broken, _reasons(stream, names, time_kind)))
    return _without_the_dead(told, fields, stream, names)


class _Names:
    """The columns of a name on the way: what was given, and what was read of it."""

    def __init__(self, places: Mapping[str, int]) -> None:
        self._places = places

    def given(self, name: str) -> Column:
        return F.col(_GIVEN.format(self._places[name]))

    def read_as(self, name: str) -> str:
        return _READ.format(self._places[name])

    def read(self, name: str) -> Column:
        return F.col(self.read_as(name))


def _check_keys(stream: Stream, kinds: Mapping[str, DataType]) -> None:
    for name, kind in kinds.items():
        if not isinstance(kind, _KEYS):
            place, found = f"stream `{stream.name}`: key column {name!r}", kind.simpleString()
            message = f"{place} must contain strings, integers or booleans; its type is {found}"
            raise PlanError(message)


def _readings(stream: Stream, names: _Names, kinds: Mapping[str, DataType]) -> dict[str, Column]:
    """What is read of each field: a text, a time, a number, or null."""
    columns = {names.read_as(name): names.given(name).cast("string") for name in stream.keys}
    columns |= {names.read_as(name): _number(names.given(name), kinds[name]) for name in stream.values}
    for name in (stream.time, stream.arrival):
        if name is not None:
            columns[names.read_as(name)] = _micros(names.given(name), kinds[name], stream.time_unit)
    return columns


def _reasons(stream: Stream, names: _Names, time_kind: DataType) -> Column:
    """Why a row cannot be used; empty if it can."""
    reasons = []
    for name in stream.keys:
        reasons.append(_why(names.given(name), F.is_valid_utf8(names.read(name)), f"key `{name}`", "text in UTF-8"))
    in_range = F.coalesce(_in_range(names.read(stream.time)), F.lit(False))
    has_unit = not isinstance(time_kind, TimestampType | TimestampNTZType)
    rule = "a time from year 1 to 9999" + f" (`time_unit: {stream.time_unit}`)" * has_unit
    no_form = f"time `{stream.time}` is neither a number nor a time in ISO 8601 such as 2015-02-02T14:19:59Z"
    reasons.append(
        F.when(_has_no_form(names.given(stream.time), names.read(stream.time), time_kind), no_form).otherwise(
            _why(names.given(stream.time), in_range, f"time `{stream.time}`", rule)
        )
    )
    if stream.max_ahead_us is not None:
        reasons.append(_ahead(stream, names, stream.max_ahead_us))
    nothing = F.lit(bool(stream.values) and not stream.is_requests)
    for name in stream.values:
        fine = F.coalesce(F.abs(names.read(name)) < float("inf"), F.lit(False))
        reasons.append(F.when(names.given(name).isNotNull() & ~fine, f"value `{name}` is not a finite number"))
        nothing &= names.given(name).isNull()
    listed = ", ".join(f"`{name}`" for name in stream.values)
    missing = f"all values are missing: {listed}" if len(stream.values) > 1 else f"value {listed} is missing"
    return F.concat_ws("; ", *reasons, F.when(nothing, missing))


def _ahead(stream: Stream, names: _Names, max_ahead_us: int) -> Column:
    """Reject a time that is later than the arrival or than the time of the micro-batch by more than `max_ahead`."""
    reason = (
        f"time `{stream.time}` is later than the arrival or the clock by more than `max_ahead` "
        f"({duration_text(max_ahead_us)})"
    )
    latest = latest_us(max_ahead_us)
    if stream.arrival is not None:
        arrival = names.read(stream.arrival)
        # A device that sends a wrong time may send a wrong arrival too. `least` ignores an arrival that is null.
        latest = F.least(latest, F.when(_in_range(arrival), arrival + F.lit(max_ahead_us)))
    return F.when(_in_range(names.read(stream.time)) & (names.read(stream.time) > latest), reason)


def _without_the_dead(told: DataFrame, fields: Fields, stream: Stream, names: _Names) -> DataFrame:
    """Take time and values from dead rows, and their text from the others."""
    lives = F.col(REASON) == ""
    arrival = fields.arrived
    if stream.arrival is not None:
        arrival = F.when(_in_range(names.read(stream.arrival)), names.read(stream.arrival))
    used = {name for name in (*stream.keys, stream.time, stream.arrival, *stream.values) if name}
    payload = fields.rest(used)
    cut = F.when(F.length(fields.text) > MOST_SHOWN, f"; only {MOST_SHOWN:,} characters are shown").otherwise("")
    shown = F.substring(F.coalesce(F.make_valid_utf8(fields.text), F.lit("")), 1, MOST_SHOWN)
    return told.select(
        *(F.when(F.is_valid_utf8(names.read(name)), names.read(name)).alias(name) for name in stream.keys),
        F.when(lives, names.read(stream.time)).alias(TIME),
        arrival.alias(ARRIVAL),
        *(F.when(lives, names.read(name)).alias(name) for name in stream.values),
        *([] if payload is None else [F.make_valid_utf8(payload).alias(PAYLOAD)]),
        F.when(~lives, F.concat(F.col(REASON), F.coalesce(cut, F.lit("")))).alias(REASON),
        F.when(~lives, shown).alias(RAW),
    )


def _in_range(micros: Column) -> Column:
    return micros.between(FIRST_US, LAST_US)


def _why(given: Column, fine: Column, what: str, wanted: str) -> Column:
    return F.when(given.isNull(), f"{what} is missing").when(~fine, f"{what} is not {wanted}")


def _number(given: Column, kind: DataType) -> Column:
    """A double, or null; what is neither a number nor the text of one is none."""
    if isinstance(kind, NumericType):
        return given.cast("double")
    if isinstance(kind, StringType):
        return F.when(given.rlike(_NUMBER), given.try_cast("double"))
    return F.lit(None).cast("double")


def _micros(given: Column, kind: DataType, unit: str) -> Column:
    """Microseconds since 1970, or null, in any year; numbers count in the stream's unit, texts are numbers or ISO 8601.

    A time without a zone is UTC. A cast would take the session's zone for it, so it goes by its text.
    """
    if isinstance(kind, TimestampType):
        micros = F.unix_micros(given)
    elif isinstance(kind, _WHOLE) and unit != "ns":
        micros = F.try_multiply(given.cast("long"), F.lit(int(PER_UNIT[unit])).cast("long"))
    elif isinstance(kind, NumericType):
        micros = _scaled(given, unit)
    elif isinstance(kind, TimestampNTZType):
        micros = _of_iso(given.cast("string"))
    elif isinstance(kind, StringType):
        micros = F.when(given.rlike(_TIME_NUMBER), _scaled(given, unit)).otherwise(_of_iso(given))
    else:
        micros = F.lit(None).cast("long")
    return micros


def _has_no_form(given: Column, read: Column, kind: DataType) -> Column:
    """Return whether a time is given in a form that `_micros` does not read, in whatever year."""
    if isinstance(kind, NumericType | TimestampType | TimestampNTZType):
        return F.lit(False)
    return given.isNotNull() & read.isNull() & ~given.cast("string").rlike(_NUMBER)


def _of_iso(given: Column) -> Column:
    text = F.trim(given)
    # Spark takes a zone only behind seconds.
    clock = F.regexp_replace(text, r"^(.{10}[T ]\d\d:\d\d)(?!:)", "$1:00")
    whole = (
        F.when(text.rlike(rf"{_DATE}{_CLOCK}(Z|[+-]\d{{2}}(:?\d{{2}})?)$"), clock)
        .when(text.rlike(rf"{_DATE}{_CLOCK}$"), F.concat(clock, F.lit("Z")))
        .when(text.rlike(rf"{_DATE}$"), F.concat(text, F.lit("T00:00:00Z")))
    )
    return F.unix_micros(F.try_to_timestamp(whole))


def _scaled(number: Column, unit: str) -> Column:
    """Whole microseconds of a number; whole numbers stay exact."""
    whole = number.try_cast("decimal(38,9)")
    scaled = F.try_multiply(whole, F.lit(PER_UNIT[unit]).cast("decimal(10,3)"))
    return F.floor(scaled).try_cast("long")
