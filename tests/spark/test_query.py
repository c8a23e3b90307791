"""`tocsin.sql` on Spark against Spark's own SQL: without a budget every answer is the exact one."""

from __future__ import annotations

import datetime as dt
import json
import random
import re
from collections import Counter
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame

import tocsin
from benchmarks.recordings import recording
from tocsin.cli.main import main
from tocsin.errors import PlanError, SqlError

pytestmark = pytest.mark.spark
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
SCHEMA = (
    "ts timestamp, item int, price double, note string, cost decimal(12,3), day date, plain timestamp_ntz, ok boolean"
)


def rows(seed: int, number: int = 300) -> list[tuple[Any, ...]]:
    """Rows with ties, nulls, equal rows, and every kind of column."""
    draw, found = random.Random(seed), list[Any]()
    for _ in range(number):
        time = START + dt.timedelta(microseconds=draw.randrange(0, 200) * 500_000 + draw.choice([0, 0, 7]))
        price = draw.choice([None, float("nan"), round(draw.random() * 50, 2), 3.0, 3.0])
        note = draw.choice([None, "a", "b", 'qu"ote\\ü\n', "a"])
        plain = (time - dt.timedelta(hours=2)).replace(tzinfo=None)
        cost = Decimal(draw.randrange(10**9)) / 1000
        found.append(
            (time, draw.choice([None, 1, 2, 3, 5, 8]), price, note, cost, time.date(), plain, draw.random() < 0.5)
        )
    return found + found[:20]


@pytest.fixture(scope="module")
def views(spark: Any) -> Any:
    for name, seed in (("north", 1), ("south", 2)):
        spark.createDataFrame(rows(seed), SCHEMA).repartition(3).createOrReplaceTempView(name)
    yield spark
    for name in ("north", "south"):
        spark.catalog.dropTempView(name)


def counted(frame: Any) -> Counter[Any]:
    """Rows with their number; a NaN is not equal to itself."""
    return Counter(tuple(map(repr, row)) for row in frame.collect())


NEAR = " AND abs(unix_micros(a.ts) - unix_micros(b.ts)) <= {}"
JOINS = [
    "SELECT a.item, a.ts, b.ts, a.price, b.note, b.cost, a.day, a.plain, b.ok FROM north a, south b "
    "WHERE a.item = b.item",
    "SELECT a.item FROM north a, south b WHERE a.item = b.item AND a.note IS NULL",
    "SELECT a.*, b.price AS other FROM north a, south b WHERE a.item = b.item AND a.note = 'a' AND b.ok = TRUE",
    "SELECT a.ts, b.ts FROM north a, south b WHERE b.item = a.item AND a.price > b.price * 2 AND b.price IS NOT NULL",
    "SELECT a.ts, b.ts FROM north a, north b WHERE a.note = b.note AND a.item IN (1, 2) AND b.item <> 2",
    "SELECT a.ts, b.item FROM north a, south b WHERE a.ok = b.ok AND a.ts >= TIMESTAMP '2026-01-01 00:01:00' "
    "AND b.item > 3",
]


# Drawn queries join in each build, too (`test_query_drawn.py`).
@pytest.mark.parametrize("query", [*JOINS[:2], *(pytest.param(query, marks=pytest.mark.slow) for query in JOINS[2:])])
def test_a_join_is_that_of_spark(views: Any, query: str) -> None:
    found = tocsin.sql(f"{query} WITH PREFERENCE asc SUMMARY.Estimate.Count(a.item) FADE FACTOR 0.9 WINDOW 3 SECONDS"
                       if "a.item = b.item" in query else f"{query} WINDOW 3 SECONDS", spark=views)  # fmt: skip
    wanted = views.sql(query + NEAR.format(3_000_000))
    assert found.dtypes == wanted.dtypes
    # A comparison with what is not a number is never true here; Spark takes it for the largest.
    nan = "price" in query.partition("WHERE")[2]
    wanted = (
        views.sql(query + NEAR.format(3_000_000) + " AND NOT isnan(a.price) AND NOT isnan(b.price)") if nan else wanted
    )
    expected = counted(wanted)
    assert sum(expected.values()) > 50
    assert counted(found) == expected


SUMMARY = "CREATE SUMMARY prices ON north(price) WITH GRANULARITY 4 SECONDS AND HISTOGRAM(0, 50, 20); "
SELECTIONS = [
    "SELECT ts, price, note, cost, plain FROM north WHERE price BETWEEN 3 AND 17.5",
    "SELECT * FROM north WHERE price > 3 AND price < 40 AND note <> 'b' AND item IS NOT NULL",
    "SELECT n.ts FROM north n WHERE price = 3 AND ts >= TIMESTAMP '2026-01-01 00:00:30' "
    "AND ts < TIMESTAMP '2026-01-01 00:01:10'",
]


@pytest.mark.parametrize("query", SELECTIONS)
def test_a_selection_is_that_of_spark(views: Any, query: str) -> None:
    found = tocsin.sql(
        f"{SUMMARY}{query} WITH PREFERENCE desc prices.Estimate.Count(price) WINDOW 9 SECONDS", spark=views
    )
    expected = counted(views.sql(query + " AND NOT isnan(price)"))
    assert sum(expected.values()) > 10
    assert counted(found) == expected


def test_without_a_budget_no_summary_is_needed(views: Any) -> None:
    for query in ("SELECT * FROM north", "SELECT ts, note FROM north WHERE price > 3 AND item IN (1, 2)"):
        wanted = counted(views.sql(query))
        assert sum(wanted.values()) > 20
        assert counted(tocsin.sql(query, spark=views)) == wanted
        assert counted(tocsin.sql(f"{query} WINDOW 9 SECONDS", spark=views)) == wanted
    for items in ("COUNT(*) AS n", "MEDIAN(item) AS n, SUM(item) AS m"):
        query = f"SELECT {items} FROM north WHERE note = 'a'"
        found = tocsin.sql(f"{query} WINDOW 30 SECONDS", spark=views).collect()
        wanted = views.sql(query.replace("SELECT", "SELECT window(ts, '30 seconds') AS w,") + " GROUP BY 1").collect()
        assert {row.window_start: row.n for row in found} == {row.w.start: row.n for row in wanted}


def test_selections_asked_together_are_told_apart(views: Any) -> None:
    ranges = [(0, 10), (3, 3), (5.5, 40), (45, 50)]
    asked = [f"SELECT ts, price FROM north WHERE price BETWEEN {low} AND {high}" for low, high in ranges]
    found = tocsin.sql(SUMMARY + "; ".join(f"{one} WINDOW 9 SECONDS" for one in asked), spark=views)
    wanted = " UNION ALL ".join(one.replace("SELECT", f"SELECT {n} AS query,") for n, one in enumerate(asked, 1))
    assert found.columns == ["query", "ts", "price"]
    assert counted(found) == counted(views.sql(wanted))


@pytest.mark.parametrize("length", [4, 30])
def test_aggregates_are_those_of_spark(views: Any, length: int) -> None:
    items = "COUNT(*) AS n, AVG(price) AS a, SUM(price) AS s, MEDIAN(price) AS m"
    found = tocsin.sql(f"{SUMMARY}SELECT {items} FROM north WHERE price >= 3 WINDOW {length} SECONDS", spark=views)
    wanted = views.sql(
        f"SELECT window(ts, '{length} seconds') AS w, {items} FROM north "
        "WHERE price >= 3 AND NOT isnan(price) GROUP BY 1"
    )
    told = {row.window_start: row for row in found.collect()}
    exact = {row.w.start: row for row in wanted.collect()}
    assert told.keys() == exact.keys()
    assert len(told) >= 100 // length
    for start, row in told.items():
        assert row.window_end - row.window_start == dt.timedelta(seconds=length)
        for name in "nasm":
            assert row[name] == pytest.approx(exact[start][name])
            assert row[f"{name}_error"] == 0


def test_another_column_is_added_up_and_a_whole_stream_is_told_once(
    views: Any, caplog: pytest.LogCaptureFixture
) -> None:
    items = "SUM(item) AS s, AVG(item) AS a, COUNT(item) AS n"
    memory = SUMMARY.replace("; ", " AND MEMORY 10000 TUPLES; ")
    (told,) = tocsin.sql(f"{memory}SELECT {items} FROM north WHERE price > 3", spark=views).collect()
    (exact,) = views.sql(f"SELECT {items} FROM north WHERE price > 3 AND NOT isnan(price)").collect()
    assert told.asDict() == {
        **{k: pytest.approx(v) for k, v in exact.asDict().items()},
        "s_error": 0,
        "a_error": 0,
        "n_error": 0,
    }
    assert (
        "the result may be incomplete: only the newest rows of the stream are retained, because the query has no window"
        in caplog.text
    )


def test_a_budget_gives_a_part_and_all_windows_and_that_is_said(views: Any, caplog: pytest.LogCaptureFixture) -> None:
    query = JOINS[0]
    exact = counted(views.sql(query + NEAR.format(3_000_000)))
    some = counted(tocsin.sql(f"{query} WINDOW 3 SECONDS BUDGET 3000 UNITS PER TUPLE", spark=views))
    assert some <= exact
    assert 0 < sum(some.values()) < sum(exact.values())
    assert "the result may be incomplete: the CPU budget is 3000 units per tuple" in caplog.text
    told = tocsin.sql(
        f"{SUMMARY}SELECT SUM(price) AS s FROM north WHERE price > 4.4 WINDOW 30 SECONDS BUDGET 8 UNITS PER TUPLE",
        spark=views,
    ).collect()
    assert len(told) == 4
    assert max(row.s_error for row in told) > 0


@pytest.mark.parametrize("names", [("pairs", "some"), pytest.param(("timed",), marks=pytest.mark.slow)], ids="-".join)
def test_a_streaming_query_gives_what_the_bounded_one_gives(views: Any, tmp_path: Path, names: tuple[str, ...]) -> None:
    for part, moment in enumerate(("2026-01-01 00:00:50", "2026-01-01 00:02:00")):
        since = "1970-01-01" if part == 0 else "2026-01-01 00:00:50"
        for name in ("north", "south"):
            mine = views.sql(f"SELECT * FROM {name} WHERE ts >= TIMESTAMP '{since}' AND ts < TIMESTAMP '{moment}'")
            mine.coalesce(1).write.mode("append").parquet(str(tmp_path / name))
    streams = {
        name: views.readStream.schema(views.table(name).schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(tmp_path / name))
        for name in ("north", "south")
    }
    asked = {
        "pairs": "SELECT a.item, a.ts, b.ts FROM north a, south b WHERE a.item = b.item WINDOW 3 SECONDS",
        "some": SUMMARY + "SELECT ts, price FROM north WHERE price BETWEEN 3 AND 17.5 WINDOW 9 SECONDS",
    }
    # Units are measured, and there are enough of them.
    asked["timed"] = asked["some"] + " BUDGET 50 %"
    for name in names:
        text = asked[name]
        query = (
            tocsin.sql(text, streams)
            .writeStream.format("memory").queryName(name).option("checkpointLocation", str(tmp_path / f"cp-{name}"))
            .trigger(availableNow=True).start()
        )  # fmt: skip
        assert query.awaitTermination(240)
        bounded = counted(tocsin.sql(text, spark=views))
        found = counted(views.table(name))
        if name == "pairs":
            assert found == bounded
        else:
            # What came in the last zone is looked at when the next row comes.
            assert found <= bounded
            assert sum(found.values()) > 0.7 * sum(bounded.values())


@pytest.mark.parametrize(("text", "message"), [
    ("SELECT ts FROM «nowhere» WINDOW 1 SECOND", "`nowhere` must be a stream; expected one of"),
    ("SELECT ts FROM «`no;rth`» WINDOW 1 SECOND", "`no;rth` must be a stream; expected one of"),
    (SUMMARY + "SELECT ts FROM north WHERE note = «5» WINDOW 9 SECONDS",
     "`note` must be compared with a value of its type, string; got 5"),
    (SUMMARY + "SELECT ts FROM north WHERE day = «'2026-01-01'» WINDOW 9 SECONDS", "of its type, date; got '2026"),
    ("SELECT a.ts FROM north a, south b WHERE «a.price = b.price» WINDOW 1 DAY",
     "join columns must both be strings, integers or booleans; got double and double"),
    ("SELECT a.ts FROM north a, south b WHERE «a.note = b.item» WINDOW 1 SECOND",
     "join columns must both be strings, integers or booleans; got string and int"),
    ("CREATE SUMMARY «h ON north(note) WITH HISTOGRAM(0, 1, 2)»; SELECT ts FROM north WINDOW 9 SECONDS",
     "`note` must hold numbers here; it holds string"),
    ("SELECT a.ts FROM north a, south b WHERE a.item = b.item AND «a.note» > b.price WINDOW 1 SECOND",
     "`note` must hold numbers here; it holds string"),
    ("SELECT a.ts FROM north a, south b WHERE a.item = b.item WITH PREFERENCE desc «a.note» WINDOW 1 SECOND",
     "`note` must hold numbers here; it holds string"),
    (SUMMARY + "SELECT AVG(«note») FROM north WINDOW 9 SECONDS", "`note` must hold numbers here; it holds string"),
    (SUMMARY + "SELECT ts FROM north WINDOW 9 SECONDS «SLIDE 1 SECOND»", "`SLIDE` needs aggregates"),
])  # fmt: skip
def test_what_the_kinds_of_columns_do_not_allow_is_underlined(views: Any, text: str, message: str) -> None:
    start, stop = text.index("«"), text.index("»") - 1
    with pytest.raises(SqlError, match=re.escape(message)) as caught:
        tocsin.sql(text.replace("«", "").replace("»", ""), {"other": views.table("south")}, spark=views)
    assert (caught.value.start, caught.value.stop) == (start, stop)


def test_a_stream_must_have_a_time(views: Any) -> None:
    query = "SELECT item FROM north WINDOW 1 SECOND"
    with pytest.raises(
        SqlError, match="1:18: stream `north` must have exactly one time column 'when'; its columns are ts, item"
    ):
        tocsin.sql(query, spark=views, time="when")
    with pytest.raises(SqlError, match="column 'note' must be a timestamp or integer microseconds; its type is string"):
        tocsin.sql(query, spark=views, time="note")
    with pytest.raises(PlanError, match="`streams` must map names to DataFrames; got an empty mapping"):
        tocsin.sql(query)


ODD = (
    "SELECT timestamp_seconds(id DIV 2) AS ts, CAST(id % 5 AS INT) AS item, CAST(id AS DOUBLE) AS x, -id AS X, "
    "id AS `a.b`, 1.0D AS tocsin_one, map(id, 'a', -id - 1, NULL) AS m, "
    "array(map(date'2026-01-01', array(id))) AS deep, "
    "named_struct('m', map(1.5D, id), 'Ab', id) AS s, map('k', map(id, id)) AS mm, 9007199254740990 + id AS big, "
    "CAST(IF(id < 6, '17.49999999999999999' || (id + 4), '17.50000000000000000' || (id - 6)) AS DECIMAL(38, 18)) "
    "AS fine, "
    "IF(id = 3, NULL, named_struct('deep', array(map(id, 1)))) AS hole FROM range(12)"
)
X = "CREATE SUMMARY h ON odd({}) WITH HISTOGRAM(-20, 20, 8); "


def test_odd_columns_come_back_as_they_were(views: Any) -> None:
    odd = views.sql(ODD)
    found = tocsin.sql(X.format("x") + "SELECT * FROM odd WHERE x >= 3 WINDOW 9 SECONDS", {"odd": odd})
    assert found.dtypes == odd.dtypes
    expected = [row for row in odd.collect() if row[2] >= 3]
    assert counted(found) == Counter(tuple(map(repr, row)) for row in expected)
    pairs = tocsin.sql("SELECT a.*, b.X FROM odd a, odd b WHERE a.item = b.item WINDOW 3 SECONDS", {"odd": odd})
    rows = odd.collect()
    near = [(*a, b[3]) for a in rows for b in rows if a[1] == b[1] and abs((a[0] - b[0]).total_seconds()) <= 3]
    assert len(near) > 12
    assert counted(pairs) == Counter(tuple(map(repr, row)) for row in near)
    # The range is one of `x`, what is added up is of `X`; a dot in a name is no field of a struct.
    (told,) = tocsin.sql(
        X.format("x") + "SELECT SUM(X) AS n FROM odd WHERE x < 5 WINDOW 1 HOUR", {"odd": odd}
    ).collect()
    assert (told.n, told.n_error) == (-10, 0)
    dotted = tocsin.sql(X.format("`a.b`") + "SELECT `a.b` FROM odd WHERE `a.b` < 5 WINDOW 1 HOUR", {"odd": odd})
    assert sorted(row[0] for row in dotted.collect()) == [0, 1, 2, 3, 4]


# Conditions on a column with a summary, and the numbers of the rows that fulfil them.
DIGITS = {
    "big": {
        "big = 9007199254740993": [3],
        "big > 9007199254740992 AND big <= 9007199254740995": [3, 4, 5],
        "big IN (9007199254740993, 9007199254740997.0)": [3, 7],
    },
    "fine": {
        "fine = 17.5": [6],
        "fine > 17.5": [7, 8, 9, 10, 11],
        "fine BETWEEN 17.499999999999999998 AND 17.500000000000000001": [4, 5, 6, 7],
    },
}


@pytest.mark.parametrize("column", DIGITS)
def test_a_summarised_column_is_compared_to_its_last_digit(views: Any, column: str) -> None:
    odd, cases = views.sql(ODD), DIGITS[column]

    def rows_of(item: str) -> dict[str, list[int]]:
        # A comparison beyond the digits of a double is not a range, so one script cannot have several conditions.
        answers = [
            tocsin.sql(
                X.format(column) + f"SELECT {item} AS n FROM odd WHERE {where} WINDOW 9 SECONDS", {"odd": odd}
            ).selectExpr(f"{number} AS number", "n")
            for number, where in enumerate(cases)
        ]
        found = reduce(DataFrame.unionAll, answers).collect()
        return {where: sorted(row.n for row in found if row.number == n) for n, where in enumerate(cases)}

    assert rows_of("`a.b`") == cases
    assert {where: sum(counts) for where, counts in rows_of("COUNT(*)").items()} == {
        where: len(numbers) for where, numbers in cases.items()
    }


@pytest.mark.parametrize(("text", "message"), [
    ("SELECT a.ts FROM odd a, odd b WHERE a.item = b.item AND «a.tocsin_one» > b.big WINDOW 1 DAY",
     "the names tocsin_key, tocsin_time, tocsin_one, tocsin_row are reserved; rename the column first"),
    ("SELECT a.ts FROM odd a, odd b WHERE a.item = b.item AND «a.X» > b.big WINDOW 1 DAY",
     "names in an expression must differ in more than upper and lower case; got ['x', 'X']"),
    ("SELECT «*» FROM two WINDOW 1 DAY", "`*` needs columns with different names; `two` has several columns `v`"),
    ("SELECT «v» FROM two WINDOW 1 DAY", "`v` is ambiguous; the matching names are v, v"),
    ("SELECT «pair» FROM two WINDOW 1 DAY",
     "`pair` cannot be a column of the result: its type struct<a:int,a:int> is not supported"),
])  # fmt: skip
def test_columns_that_cannot_be_told_apart_are_underlined(views: Any, text: str, message: str) -> None:
    two = views.sql(
        "SELECT timestamp_seconds(0) AS ts, 1.5D AS x, 1 AS v, 2 AS v, named_struct('a', 1, 'a', 2) AS pair"
    )
    plain = ("CREATE SUMMARY h ON two(x) WITH HISTOGRAM(0, 9, 3); " if "FROM two" in text else "") + text
    start, stop = plain.index("«"), plain.index("»") - 1
    with pytest.raises(SqlError, match=re.escape(message)) as caught:
        tocsin.sql(plain.replace("«", "").replace("»", ""), {"odd": views.sql(ODD), "two": two})
    assert (caught.value.start, caught.value.stop) == (start, stop)


def test_windows_that_slide_are_those_of_spark(views: Any) -> None:
    items = "COUNT(*) AS n, SUM(price) AS s, MEDIAN(price) AS m"
    found = tocsin.sql(
        f"{SUMMARY}SELECT {items} FROM north WHERE price > 3 WINDOW 30 SECONDS SLIDE 7 SECONDS", spark=views
    )
    wanted = views.sql(
        f"SELECT window(ts, '30 seconds', '7 seconds') AS w, {items} FROM north "
        "WHERE price > 3 AND NOT isnan(price) GROUP BY 1"
    )
    told = {(row.window_start, row.window_end): row for row in found.collect()}
    exact = {(row.w.start, row.w.end): row for row in wanted.collect()}
    assert told.keys() == exact.keys()
    assert len(told) > 15
    for window, row in told.items():
        assert [row[name] for name in "nsm"] == [pytest.approx(exact[window][name]) for name in "nsm"]


RULES = """
streams:
  belt:
    source: {json: {path: lines}}
    keys: [item]
    time: at
    values: {weight: {}}
groups:
  - name: belts
    rules:
      - {alert: Heavy, expr: belt > 100, on: [item]}
"""


def test_rows_of_a_rule_file_that_cannot_be_used_are_counted_and_explained(
    views: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [f'{{"item": "a", "at": "2026-01-01T00:00:{n:02d}Z", "weight": {n}}}' for n in range(10)]
    lines += ['{"item": "a", "at": "noon", "weight": 1}', '{"item": "a", "at": "2026-01-01T00:00:03Z", "weight": "x"}']
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "some.json").write_text("\n".join([*lines, "{broken"]) + "\n")
    (tmp_path / "rules.yaml").write_text(RULES.replace("path: lines", f"path: {tmp_path}/lines"))
    texts = [
        "CREATE SUMMARY h ON belt(weight) WITH HISTOGRAM(0, 10, 5); "
        "SELECT item, weight FROM belt WHERE weight > 4 AND item <> 'b' WINDOW 1 HOUR",
        "SELECT a.weight FROM belt a, belt b WHERE a.item = b.item AND a.weight > b.weight WINDOW 1 HOUR",
    ]
    for text, aliases, rows in zip(texts, [["belt"], ["a", "b"]], [5, 45], strict=True):
        assert main(["query", text, "--rules", str(tmp_path / "rules.yaml"), "--time", "ts", "--json"]) == 0
        out, err = capsys.readouterr()
        answer = json.loads(out)
        assert len(answer["rows"]) == rows
        for alias in aliases:
            counts = answer["streams"][alias]
            assert (counts["received"], counts["quarantined"]) == (13, 3)
            assert f"3 invalid rows (stream `{alias}`: " in err
            assert (
                "time `at` is neither a number nor a time in ISO 8601 such as 2015-02-02T14:19:59Z"
                in answer["reasons"][alias]
            )


def test_the_command_prints_and_writes_an_answer(
    views: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("north", "south"):
        frame = views.table(name).select("ts", "item", "price", "note")
        frame.write.parquet(str(tmp_path / f"{name}.parquet"))
    whole = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"
    frame.select("ts", "item").write.csv(str(tmp_path / "south.csv"), header=True, timestampFormat=whole)
    query = "SELECT a.item, a.ts, b.ts FROM north a, south b WHERE a.item = b.item"
    sources = [f"north={tmp_path}/north.parquet", f"south={tmp_path}/south.csv"]
    number = views.sql(query + NEAR.format(1_000_000)).count()
    assert main(["query", f"{query} WINDOW 1 SECOND", *sources, "--limit", "3"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].split() == ["item", "ts", "ts"]
    assert out[1].split()[1].startswith("2026-01-01T00:0")
    assert out[-1] == f"and {number - 3:,} more rows (use --limit or --out)"
    written = tmp_path / "answer.csv"
    pairs = "SELECT a.ts AS one, b.ts AS other FROM north a, south b WHERE a.item = b.item WINDOW 1 SECOND"
    assert main(["query", pairs, *sources, "--out", str(written)]) == 0
    capsys.readouterr()
    times = views.read.csv(str(written), header=True).collect()
    assert len(times) == number
    assert all(re.fullmatch(r"[^.]+\.\d{6}\+00:00", row.one) for row in times)
    (tmp_path / "query.sql").write_text(f"{query}\nWINDOW 1 SECOND BUDGET 500 UNITS PER TUPLE")
    assert main(["query", "-f", str(tmp_path / "query.sql"), *sources, "--json"]) == 0
    out, err = capsys.readouterr()
    answer = json.loads(out)
    assert answer["exact"] is False
    assert answer["columns"] == ["item", "ts", "ts"]
    assert 0 < len(answer["rows"]) + answer["more"] < number
    assert (
        answer["streams"]["a"]["received"]
        == answer["streams"]["a"]["quarantined"] + views.table("north").where("item is not null").count()
    )
    assert "the result may be incomplete: the CPU budget is 500 units per tuple" in err
    assert "evicted before they were fully processed (CPU budget too small)" in err
    assert main(["query", f"{query} WINDOW 1 SECOND BUDGET 1000000 UNITS PER TUPLE", *sources, "--json"]) == 0
    out, ample = capsys.readouterr()
    whole = json.loads(out)
    assert (len(whole["rows"]) + whole["more"], whole["exact"], "shortage" in whole) == (number, True, False)
    assert "exact" not in ample
    assert f"{answer['streams']['a']['quarantined']} invalid rows (stream `a`: `ts` or `item` is missing" in err
    assert main(["query", f"{query} WINDOW 1 SECOND", *sources, "--out", str(tmp_path / "out.parquet")]) == 1
    assert "--out needs unique column names; got `ts` twice: rename one with AS" in capsys.readouterr().err
    other = query.replace("b.ts FROM", "b.ts AS other FROM")
    assert main(["query", f"{other} WINDOW 1 SECOND", *sources, "--out", str(tmp_path / "out.parquet")]) == 0
    assert views.read.parquet(str(tmp_path / "out.parquet")).count() == number
    assert main(["query", f"{query} AND a.nothing = 3 WINDOW 1 SECOND", *sources]) == 1
    place = len(f"{query} AND a.") + 1
    assert f"1:{place}: `nothing` must be a column of `north`" in capsys.readouterr().err


@pytest.mark.recordings
def test_two_stores_are_joined_as_spark_joins_them(spark: Any) -> None:
    from pyspark.sql import functions as F

    sales = spark.read.parquet(str(recording("retail_completejourney/transactions_w01_w10.parquet")))
    sales = sales.withColumn("ts", F.timestamp_seconds("t_s"))
    sales.createOrReplaceTempView("sales")
    try:
        by_size = sales.groupBy("store_id").count().orderBy("count", ascending=False)
        first, second = (row.store_id for row in by_size.limit(2).collect())
        query = (
            "SELECT a.product_id, a.ts, b.ts, b.basket_id FROM sales a, sales b WHERE a.product_id = b.product_id "
            f"AND a.store_id = {first} AND b.store_id = {second}"
        )
        wanted = counted(spark.sql(query + NEAR.format(3_600_000_000)))
        assert sum(wanted.values()) > 100
        prefer = "WITH PREFERENCE desc SUMMARY.Estimate.Count(a.product_id) WINDOW 1 HOUR"
        assert counted(tocsin.sql(f"{query} {prefer}", spark=spark)) == wanted
        some = counted(tocsin.sql(f"{query} {prefer} BUDGET 250 UNITS PER TUPLE", spark=spark))
        assert 0 < sum(some.values()) < sum(wanted.values())
        assert some <= wanted
    finally:
        spark.catalog.dropTempView("sales")


def test_a_file_with_times_in_nanoseconds_is_refused_with_what_helps(
    views: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "north.parquet"
    times = pa.array([0, 1], pa.timestamp("ns", "UTC"))
    pq.write_table(pa.table({"ts": times, "item": ["a", "b"]}), path, version="2.6")
    assert main(["query", "SELECT item FROM north WHERE item = 'a'", f"north={path}"]) == 1
    assert f"{path} must have columns that Spark can read" in (said := capsys.readouterr().err)
    assert 'to_parquet(..., coerce_timestamps="us")' in said
