"""Queries drawn at random, most of them valid, and Spark's own SQL for what they ask; engine-free."""

from __future__ import annotations

import datetime as dt
import random
import re
from decimal import Decimal
from typing import Any

from tocsin.query import Aggregates, JoinQuery, Selection
from tocsin.query.dialect import CLAUSES, Tocsin
from tocsin.query.model import BOOLEAN, FRACTION, MOMENT, TEXT, WHOLE, Kind
from tocsin.query.read import Script

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
SCHEMA = "ts timestamp, item int, price double, note string, fine decimal(38,18), big long, ok boolean, `odd name` int"
TABLES = ("north", "south")
# What these columns hold, as queries tell it apart; each table has them all.
KINDS = {
    "ts": Kind("timestamp", MOMENT),
    "item": Kind("int", WHOLE),
    "price": Kind("double", FRACTION),
    "note": Kind("string", TEXT),
    "fine": Kind("decimal(38,18)", FRACTION, is_double=False),
    "big": Kind("bigint", WHOLE, is_double=False),
    "ok": Kind("boolean", BOOLEAN),
    "odd name": Kind("int", WHOLE),
}
COLUMNS_OF, KINDS_OF = {name: list(KINDS) for name in TABLES}, dict.fromkeys(TABLES, KINDS)
_NUMBERS = ("item", "price", "fine", "big", "`odd name`")
_COLUMNS = ("ts", *_NUMBERS, "note", "ok")
_SIGNS = ("=", "<>", "<", "<=", ">", ">=")
_VALUES = {
    "item": ["0", "2", "-1", "2.5", "1e0"],
    "price": ["3", "3.0", "-0.1", "17.25", "1e300"],
    "fine": ["0.5", "0.500000000000000001", "0", "1e-18"],
    "big": ["9007199254740993", "9007199254740992", "0", "9007199254740993.0"],
    "`odd name`": ["1", "2", "- 3"],
    "note": ["'a'", "'b'", "''", "'qu\"ö'"],
    "ok": ["TRUE", "false"],
    "ts": ["TIMESTAMP '2026-01-01 00:00:10'", "TIMESTAMP '2026-01-01 00:00:20.000001'"],
}


# What a mutation may put anywhere.
_WORDS = (
    "SELECT FROM WHERE AND OR NOT IN IS NULL LIKE = < ( ) , . ; * / + - % :: ? 'a' \" ` 1 2.5 1e400 0x1F 1L 1.5D "
    "x'ff' DATE'2026-01-01' a b north south price item note ts fine `odd name` COUNT(*) CASE JOIN OVER [1] {} @v :p "
    "WINDOW SLIDE BUDGET UNITS PER TUPLE WITH PREFERENCE desc FADE FACTOR HISTOGRAM SUMMARY.Estimate.Count(a.item) DAY"
).split()


def rows(draw: random.Random, number: int) -> list[tuple[Any, ...]]:
    """Rows with ties, nulls and numbers that are no doubles."""
    found = []
    for _ in range(number):
        time = START + dt.timedelta(microseconds=draw.randrange(60) * 500_000 + draw.choice([0, 0, 1]))
        price = draw.choice([None, float("nan"), 3.0, -0.1, draw.uniform(-5, 50)])
        fine = draw.choice([None, Decimal("0.5") + Decimal(draw.randrange(-2, 3)).scaleb(-18), Decimal(0)])
        big = draw.choice([None, (1 << 53) + draw.randrange(-3, 4), draw.randrange(5)])
        rest = draw.choice([None, True, False]), draw.choice([None, 1, 2, -3])
        note = draw.choice([None, "a", "b", "", 'qu"ö'])
        found.append((time, draw.choice([None, 0, 1, 2, 2]), price, note, fine, big, *rest))
    return found


def draw_text(draw: random.Random) -> str:
    """A query of any kind; about one in ten is of columns or values that do not fit."""
    return draw.choice([_join, _selection, _selections, _aggregates])(draw)


def mutate(draw: random.Random, text: str) -> str:
    """Take words out, put some in, let two change places."""
    parts = re.findall(r"\w+|\s+|[^\w\s]", text)
    for _ in range(draw.randrange(1, 4)):
        at, kind = draw.randrange(len(parts)), draw.randrange(4)
        word = f" {draw.choice(_WORDS)} "
        if kind == 0:
            parts[at] = ""
        elif kind == 1:
            parts[at] = word
        elif kind == 2:
            parts.insert(at, word)
        else:
            other = draw.randrange(len(parts))
            parts[at], parts[other] = parts[other], parts[at]
    return "".join(parts)


def _filter(draw: random.Random, alias: str = "") -> str:
    column = draw.choice(_COLUMNS)
    values = _VALUES[column if draw.random() < 0.95 else draw.choice(_COLUMNS)]
    place = f"{alias}{column}"
    kind = draw.randrange(8)
    if kind == 0:
        return f"{place} IS {draw.choice(['', 'NOT '])}NULL"
    if kind == 1:
        return f"{place} IN ({', '.join(draw.choice(values) for _ in range(draw.randrange(1, 4)))})"
    if kind == 2:
        return f"{place} BETWEEN {draw.choice(values)} AND {draw.choice(values)}"
    sides = [place, draw.choice(values)]
    if kind == 3:
        sides.reverse()
    return f"{sides[0]} {draw.choice(_SIGNS)} {sides[1]}"


def _items(draw: random.Random, aliases: tuple[str, ...]) -> str:
    if draw.random() < 0.2:
        return draw.choice(["*", *(f"{alias}*" for alias in aliases if alias)])
    names = [f"{draw.choice(aliases)}{draw.choice(_COLUMNS)}" for _ in range(draw.randrange(1, 4))]
    return ", ".join(name + draw.choice(["", f" AS n{i}"]) for i, name in enumerate(names))


def _term(draw: random.Random, alias: str) -> str:
    column = f"{alias}{draw.choice(['item', 'price', '`odd name`', 'price'])}"
    return draw.choice([column, f"{column} * 2", f"({column} - 1.5)", f"abs({column})", f"greatest({column}, 1)"])


def _where(parts: list[str]) -> str:
    return f" WHERE {' AND '.join(parts)}" if parts else ""


def _join(draw: random.Random) -> str:
    one, two = draw.choice([("north", "south"), ("north", "north")])
    key = draw.choice(["item", "note", "ok", "big", "`odd name`"])
    parts = [f"a.{key} = b.{key}"] + [_filter(draw, draw.choice(["a.", "b."])) for _ in range(draw.randrange(3))]
    if draw.random() < 0.4:
        parts.append(f"{_term(draw, 'a.')} {draw.choice(_SIGNS[2:])} {_term(draw, 'b.')}")
    draw.shuffle(parts)
    prefer = f" WITH PREFERENCE asc SUMMARY.Estimate.Count(a.{key})" if draw.random() < 0.3 else ""
    window = draw.choice(["WINDOW 3 SECONDS", "WINDOW 1 MICROSECOND", "WINDOW 1 HOUR"])
    return f"SELECT {_items(draw, ('a.', 'b.'))} FROM {one} a, {two} AS b{_where(parts)}{prefer} {window}"


def _summary(draw: random.Random) -> str:
    if draw.random() < 0.3:
        return ""
    column = draw.choice(_NUMBERS)
    more = draw.choice(["", " AND GRANULARITY 4 SECONDS", " AND ZONES 3 AND VARIANT T3"])
    return f"CREATE SUMMARY h ON north({column}) WITH HISTOGRAM(-5, 50, {draw.randrange(1, 30)}){more}; "


def _selection(draw: random.Random) -> str:
    parts = [_filter(draw) for _ in range(draw.randrange(4))]
    summary = _summary(draw)
    window = " WINDOW 9 SECONDS" if summary or draw.random() < 0.5 else ""
    return f"{summary}SELECT {_items(draw, ('',))} FROM north{_where(parts)}{window}"


def _selections(draw: random.Random) -> str:
    head = "CREATE SUMMARY h ON north(price) WITH HISTOGRAM(-5, 50, 9); "
    ends = [(draw.uniform(-6, 30), draw.uniform(0, 20)) for _ in range(draw.randrange(2, 4))]
    one = "SELECT ts, price FROM north WHERE price BETWEEN {:.3f} AND {:.3f} WINDOW 9 SECONDS"
    return head + "; ".join(one.format(low, low + wide) for low, wide in ends)


def _aggregates(draw: random.Random) -> str:
    summary, column = _summary(draw), draw.choice(_NUMBERS)
    kinds = draw.sample(["SUM", "AVG", "COUNT", "MEDIAN"], draw.randrange(1, 4))
    items = ", ".join(f"{kind}({column}) AS n{i}" for i, kind in enumerate(kinds))
    window = draw.choice(["10 SECONDS", "10 SECONDS SLIDE 3 SECONDS", "1 HOUR"])
    return (
        f"{summary}SELECT {items} FROM north{_where([_filter(draw) for _ in range(draw.randrange(3))])} WINDOW {window}"
    )


def spark_text(script: Script, asked: JoinQuery | Selection | Aggregates) -> str:
    """Spark's own SQL for what a query asks without a budget: only numbers count where a number is read."""
    texts = []
    for number, select in enumerate(script.selects, 1):
        plain = select.copy()
        for clause in CLAUSES:
            plain.set(f"tocsin_{clause.lower()}", None)
        for condition in _conditions(asked):
            plain = plain.where(condition, dialect="spark", copy=False)
        text = plain.sql(dialect=Tocsin)
        if isinstance(asked, Aggregates):
            slide_us = asked.slide_us or asked.layout.window_us
            window = f"window(ts, '{asked.layout.window_us} microseconds', '{slide_us} microseconds')"
            text = text.replace("SELECT ", f"SELECT {window} AS w, ", 1) + " GROUP BY 1"
        elif len(script.selects) > 1:
            text = text.replace("SELECT ", f"SELECT {number} AS query, ", 1)
        texts.append(text)
    return " UNION ALL ".join(texts)


def _conditions(asked: JoinQuery | Selection | Aggregates) -> list[str]:
    """What is said nowhere in the text of a query."""
    aliases = [source.alias for source in asked.streams]
    if isinstance(asked, JoinQuery):
        near = f"abs(unix_micros({aliases[0]}.ts) - unix_micros({aliases[1]}.ts)) <= {asked.layout.window_us}"
        read = [(alias, name) for alias, names in zip(aliases, asked.read, strict=True) for name in names]
        return [near, *(_is_number(f"{alias}.`{name}`") for alias, name in read)]
    return [_is_number(f"`{name}`") for name in asked.needed[0]]


def _is_number(column: str) -> str:
    return f"NOT isnan(double({column})) AND {column} IS NOT NULL"
