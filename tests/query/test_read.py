"""SQL becomes trees that can be written out again, or one error that marks its place; whatever the text is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.errors import RuleError, SqlError
from tocsin.query import JoinQuery, Selection, parse_sql, resolve
from tocsin.query.dialect import CLAUSES, SETTINGS, Tocsin
from tocsin.query.model import MOMENT, TEXT, WHOLE, Kind
from tocsin.query.read import MAX_LENGTH

COLUMNS = {"Store1": ["ItemNo", "TimeStamp", "price"], "Store2": ["ItemNo", "TimeStamp"], "s": ["x", "y", "ts", "z"]}
# As Ali, Aref and ElTabakh print them: Figures 3 and 6, and the preferences of section 4.3.
DECLARED = "CREATE SUMMARY summary_name ON Store1 (ItemNo) WITH GRANULARITY 1 MINUTE AND COLLAPSE(4, 3)"
JOINED = """\
SELECT S1.ItemNo, S1.TimeStamp, S2.TimeStamp
FROM Store1 S1, Store2 S2
WHERE S1.ItemNo= S2.ItemNo
WITH PREFERENCE {}
      SUMMARY.Estimate.Count(S1.ItemNo) ·
      SUMMARY.Estimate.Count(S2.ItemNo)
FADE FACTOR 0.8
WINDOW 1 MINUTE"""
OF_ONE = "CREATE SUMMARY h ON Store1(ItemNo) WITH HISTOGRAM(0, 1000, 100); "
AVERAGE = (
    "SELECT AVG(S1.ItemNo) FROM Store1 S1 WITH PREFERENCE weighted SUMMARY.Estimate.Count(S1.ItemNo) WINDOW 1 MINUTE"
)
SUM = (
    "SELECT SUM(S1.ItemNo) FROM Store1 S1 WITH PREFERENCE desc SUMMARY.Estimate.Count(S1.ItemNo) × S1.ItemNo "
    "WINDOW 1 MINUTE"
)
OURS = [
    "CREATE SUMMARY a ON b(c)",
    "create summary a on b(c) with granularity 1.5 seconds, collapse(2, 9) buckets 8 and zones 4 and sketch(5, 256)"
    " and theta 0.3 and maxlength 10 seconds and variant t3 and memory 100 tuples",
    "CREATE SUMMARY `odd name` ON b(`odd column`) WITH HISTOGRAM(-1.5, 10, 100)",
    "CREATE SUMMARY a ON b(c) WITH EXACT",
    "SELECT * FROM s WHERE x BETWEEN 1 AND 5 AND y IN (1, 2) AND z IS NOT NULL WINDOW 10 SECONDS BUDGET 50 %",
    "SELECT AVG(x) FROM s WINDOW 1 MINUTE SLIDE 10 SECONDS BUDGET 50 %",
    "SELECT x AS a, s.* FROM s BUDGET 2.5 UNITS PER TUPLE WINDOW 1 HOUR",
    "SELECT COUNT(*), MEDIAN(x) FROM s WHERE ts >= TIMESTAMP '2026-01-01 00:00:00' WITH PREFERENCE asc x",
    "SELECT a.x FROM s AS a, s AS b WHERE a.x = b.x AND a.y > b.y * 2 + 1 WITH PREFERENCE desc a.y FADE FACTOR 0.5",
]
PRINTED = [DECLARED, AVERAGE, SUM, *(JOINED.format(order) for order in ("desc", "asc", "weighted"))]


@pytest.mark.parametrize("text", [*PRINTED, *OURS])
def test_a_statement_is_written_out_and_read_again_as_the_same_tree(text: str) -> None:
    (tree,) = Tocsin().parse(text)
    assert tree is not None
    written = tree.sql(dialect=Tocsin)
    (again,) = Tocsin().parse(written)
    assert again == tree
    assert again.sql(dialect=Tocsin) == written


def test_every_setting_and_clause_has_a_round_trip() -> None:
    text = " ".join(OURS).upper()
    assert [word for word in (*SETTINGS, *CLAUSES) if word not in text] == []


@pytest.mark.parametrize("order", ["desc", "asc", "weighted"])
def test_the_join_of_the_paper_is_understood(order: str) -> None:
    asked = resolve(parse_sql(f"{DECLARED}; {JOINED.format(order)};"), COLUMNS, "TimeStamp")
    assert str(asked) == (
        "Join Store1 S1 with Store2 S2 where S1.ItemNo = S2.ItemNo\n"
        "  window 1m; summary T4, CountSketch\n"
        f"  preference {order} (count(S1.ItemNo) * count(S2.ItemNo)), fade 0.8\n"
        "  budget unlimited: exact"
    )
    assert (asked.layout.granularity_us, asked.layout.rate, asked.layout.depth) == (60_000_000, 4, 3)


@pytest.mark.parametrize(
    ("text", "preference"), [(AVERAGE, "weighted count(s.value)"), (SUM, "desc (count(s.value) * s.value)")]
)
def test_the_aggregates_of_the_paper_are_understood(text: str, preference: str) -> None:
    asked = resolve(parse_sql(OF_ONE + text), COLUMNS, "TimeStamp")
    assert asked.preference is not None
    assert f"{asked.preference.order} {asked.preference.expr}" == preference


def test_hundreds_of_selections_are_asked_together() -> None:
    head = "CREATE SUMMARY h ON s(x) WITH HISTOGRAM(0, 1000, 100); "
    many = ";\n".join(f"SELECT x, ts FROM s WHERE x BETWEEN {n} AND {n + 5.5} WINDOW 1 MINUTE" for n in range(300))
    asked = resolve(parse_sql(head + many), COLUMNS, "ts")
    assert isinstance(asked, Selection)
    assert [(query.low, query.high) for query in asked.queries] == [(n, n + 5.5) for n in range(300)]
    assert str(asked).splitlines()[0] == "Select from s by 300 ranges of x"


@pytest.mark.parametrize(("call", "meant"), [("log10", "log10"), ("log", "ln"), ("LN", "ln")])
def test_logarithms_mean_what_they_do_in_spark(call: str, meant: str) -> None:
    text = f"SELECT a.x FROM s a, s b WHERE a.x = b.x AND {call}(a.y) > b.z WINDOW 1 DAY"
    asked = resolve(parse_sql(text), COLUMNS)
    assert isinstance(asked, JoinQuery)
    assert asked.condition == f"{meant}(a.y) > b.z"


@pytest.mark.parametrize("number", ["1234567890123456789", "99999999999999999999", "-0.1000000000000000055", "1e300"])
def test_a_number_is_compared_to_its_last_digit(number: str) -> None:
    asked = resolve(parse_sql(f"SELECT a.x FROM s a, s b WHERE a.x = b.x AND a.y = {number} WINDOW 1 DAY"), COLUMNS)
    assert str(asked.streams[0].filters[0].values[0]) == number.replace("1e300", "1e+300")


# What is marked stands between « and »; at the end of the text nothing does.
MISTAKES = [
    ("«DROP» TABLE s", "expected CREATE SUMMARY or SELECT; got `DROP`"),
    ("«WITH» a AS (SELECT 1) SELECT 2", "expected CREATE SUMMARY or SELECT; got `WITH`"),
    ("CREATE «TABLE» x (y INT)", "expected `SUMMARY`; got `TABLE`"),
    ("CREATE SUMMARY«»", "expected the name of the summary; got the end"),
    ("CREATE SUMMARY a ON «(»x)", "expected the stream of the summary; got `(`"),
    ("CREATE SUMMARY a ON s(x) WITH «SPEED» 4", "expected one of GRANULARITY, COLLAPSE, BUCKETS"),
    ("CREATE SUMMARY a ON s(x) WITH GRANULARITY 1 «FORTNIGHT»", "expected a unit of time"),
    ("CREATE SUMMARY a ON s(x) WITH GRANULARITY «x»", "expected a number; got `x`"),
    ("CREATE SUMMARY a ON s(x) WITH MEMORY 5 «ROWS»", "expected `TUPLES`; got `ROWS`"),
    ("CREATE SUMMARY a ON «t»(x); SELECT x FROM s", "`t` must be a stream; expected one of Store1, Store2, s"),
    ("CREATE SUMMARY a ON s(«xx»); SELECT x FROM s", "`xx` must be a column of `s`; expected one of x, y, ts, z"),
    ("CREATE SUMMARY a ON s(x) WITH «COLLAPSE(4)»; SELECT x FROM s", "`COLLAPSE` must have 2 numbers: rate, depth"),
    ("CREATE SUMMARY a ON s(x) WITH COLLAPSE(4, «0»); SELECT x FROM s", "`depth` must be an integer from 1 to 30"),
    ("CREATE SUMMARY a ON s(x) WITH BUCKETS «2.5»; SELECT x FROM s", "`BUCKETS` must be an integer from 1"),
    ("CREATE SUMMARY a ON s(x) WITH «GRANULARITY 1e999999999 DAYS»; SELECT x FROM s",
     "an integer number of microseconds, from 1 to"),
    ("CREATE SUMMARY a ON s(x) WITH «MAXLENGTH 0.5 MICROSECONDS»; SELECT x FROM s",
     "an integer number of microseconds, from 1 to"),
    ("CREATE SUMMARY a ON s(x) WITH «HISTOGRAM(5, 5, 10)»; SELECT x FROM s", "needs finite `low` < `high`"),
    ("CREATE SUMMARY a ON s(x) WITH «HISTOGRAM(-1e308, 1e308, 5)»; SELECT x FROM s", "from -1e+150 to 1e+150; got"),
    ("CREATE SUMMARY a ON s(x) WITH «HISTOGRAM(0, 5e-324, 5)»; SELECT x FROM s", "so that each bin from 0.0 to"),
    ("CREATE SUMMARY a ON s(x) WITH EXACT, «SKETCH(5, 256)»; SELECT x FROM s",
     "must have only one of SKETCH, HISTOGRAM"),
    ("CREATE SUMMARY a ON s(x) WITH EXACT AND «EXACT»; SELECT x FROM s", "`EXACT` must be set once"),
    ("CREATE SUMMARY a ON s(x) WITH «THETA 2»; SELECT x FROM s", "`THETA` is a confidence: it must be from 0 to 1"),
    ("CREATE SUMMARY a ON s(x) WITH «VARIANT T9»; SELECT x FROM s", "`VARIANT` must be one of SHJ, T1, T2, T3, T4"),
    ("CREATE SUMMARY a ON s(x); CREATE SUMMARY «A» ON s(y); SELECT x FROM s", "names of summaries must be unique"),
    ("CREATE SUMMARY a ON s(x)«»", "expected a SELECT statement; got only CREATE SUMMARY"),
    ("SELECT x FROM«»", "unexpected end of the statement"),
    ("SELECT (x «FROM» s", "expected `)`; got `FROM`"),
    ("SELECT x y «z» FROM s", "unexpected `z`"),
    ("SELECT x«,» FROM s", "unexpected comma before FROM"),
    ("SELECT x FROM «s@v1» WINDOW 1 DAY", "FROM must list names of streams"),
    ("SELECT a.x FROM s a, «s@v3» WHERE a.x = s.x WINDOW 1 DAY", "FROM must list names of streams"),
    ("SELECT x FROM s WHERE y = «'»abc", "unterminated `'`: add the closing delimiter"),
    ("SELECT x FROM s WITH «TIES» 5", "expected `PREFERENCE`; got `TIES`"),
    ("SELECT x FROM s WITH PREFERENCE «up» x", "expected one of desc, asc, weighted; got `up`"),
    ("SELECT x FROM s WITH PREFERENCE desc«»", "expected an expression; got the end"),
    ("SELECT x FROM s WINDOW «w» AS (ORDER BY x)", "expected a number; got `w`"),
    ("SELECT x FROM s BUDGET 5«»", "expected `%` or `UNITS PER TUPLE`; got the end"),
    ("SELECT x FROM s WINDOW 1 DAY «WINDOW» 2 DAYS", "`WINDOW` must be set once"),
    ("SELECT x FROM «nowhere» WINDOW 1 DAY", "`nowhere` must be a stream; expected one of Store1, Store2, s"),
    ("SELECT «x FROM s UNION SELECT y FROM s»", "a statement must be CREATE SUMMARY or one plain SELECT"),
    ("SELECT a.x FROM s a JOIN «s b ON a.x = b.x» WINDOW 1 DAY", "streams must be separated by commas"),
    ("SELECT a.x FROM s a, s b, «s c» WHERE a.x = b.x WINDOW 1 DAY", "a query must read one or two streams"),
    ("SELECT s.x FROM s, «s» WHERE s.x = s.y WINDOW 1 DAY", "names in FROM must be unique"),
    ("SELECT a.x FROM s a, s b WHERE a.x = b.x AND «a.y = b.y» WINDOW 1 DAY", "a join must have exactly one equality"),
    ("SELECT a.x FROM s a, s b WHERE «a.x > b.x» WINDOW 1 DAY",
     "a join must have exactly one equality between columns"),
    ("SELECT «x» FROM s a, s b WHERE a.x = b.x WINDOW 1 DAY",
     "`x` is ambiguous: both streams have this column; write `stream.x`"),
    ("SELECT «c».x FROM s a, s b WHERE a.x = b.x WINDOW 1 DAY", "`c` must be a stream of FROM; expected one of a, b"),
    ("SELECT «a.x FROM s a, s b WHERE a.x = b.x»",
     "needs a summary WITH MEMORY n TUPLES, and its result is then not exact"),
    ("SELECT a.x FROM s a, s b WHERE a.x = b.x WITH PREFERENCE desc «nosuch».Estimate.Count(a.x) WINDOW 1 DAY",
     "`nosuch` must be SUMMARY or a summary of a.x (no summary is declared)"),
    ("SELECT a.x FROM s a, s b WHERE a.x = b.x WITH PREFERENCE desc SUMMARY.Estimate.Count(«a.y») WINDOW 1 DAY",
     "an estimate must use the join column `x`; got `y`"),
    ("SELECT a.x FROM s a, s b WHERE a.x = b.x WITH PREFERENCE desc «SUMMARY.Estimate.Sum(a.x)» WINDOW 1 DAY",
     "an estimate must be written `name.Estimate.Count(stream.column)`"),
    ("SELECT a.x FROM s a, s b WHERE a.x = b.x WITH PREFERENCE desc «java_method('a', 'b')» WINDOW 1 DAY",
     "an expression may contain numbers, columns"),
    ("SELECT a.x FROM s a, s b WHERE a.x = b.x WITH PREFERENCE desc «1e999» WINDOW 1 DAY", "a number must be finite"),
    ("SELECT a.x FROM s a, s b WHERE a.x = b.x WITH PREFERENCE desc a.x «FADE FACTOR 1.5» WINDOW 1 DAY",
     "`FADE FACTOR` must be above 0 and at most 1; got 1.5"),
    ("SELECT a.x FROM s a, s b WHERE a.x = b.x «FADE FACTOR 0.5» WINDOW 1 DAY", "`FADE FACTOR` needs a PREFERENCE"),
    ("SELECT a.x FROM s a, s b WHERE a.x = b.x WINDOW 1 DAY «BUDGET 0 %»", "`BUDGET` must be above 0 and at most"),
    ("SELECT a.x FROM s a, s b WHERE a.x = b.x WINDOW 1 DAY «BUDGET -1 UNITS PER TUPLE»", "above 0 and at most 1,000"),
    ("SELECT x FROM «s» WHERE x > 5 WINDOW 1 DAY BUDGET 5 %", "needs exactly one summary, for example CREATE SUMMARY"),
    ("CREATE SUMMARY h ON «Store1»(ItemNo); SELECT x FROM s WINDOW 1 DAY",
     "a summary must belong to a stream of FROM; `Store1` is not in FROM"),
    ("SELECT x FROM «s» WITH PREFERENCE desc x WINDOW 1 DAY", "needs exactly one summary, for example CREATE SUMMARY"),
    ("SELECT SUM(x), «AVG(y)» FROM s WINDOW 1 DAY", "all aggregates must read the same column"),
    ("SELECT «COUNT(*) FROM s»", "a query over the whole stream needs a summary WITH MEMORY n TUPLES"),
    ("SELECT abs.x FROM s abs, s b WHERE «abs.x = b.x» WINDOW 1 DAY",
     "is a reserved word or a function; use another alias"),
    ("SELECT b.x FROM s `or`, s b WHERE «`or`.x = b.x» WINDOW 1 DAY",
     "is a reserved word or a function; use another alias"),
    ("SELECT a.x FROM s a ANTI JOIN «s b» WHERE a.x = b.x WINDOW 1 DAY", "streams must be separated by commas"),
    ("SELECT a.x FROM s a SEMI JOIN «s b» WHERE a.x = b.x WINDOW 1 DAY", "streams must be separated by commas"),
    ("SELECT a.x FROM «s AS a(y, x)», s b WHERE a.x = b.x WINDOW 1 DAY", "FROM must list names of streams"),
    ("SELECT «a.* EXCEPT (x)» FROM s a, s b WHERE a.x = b.x WINDOW 1 DAY",
     "`*` must not be combined with AS or other words"),
    ("SELECT a.x FROM s a, s b WHERE a.x = b.x WITH PREFERENCE desc «q.SUMMARY.Estimate.Count(a.x)» WINDOW 1 DAY",
     "an estimate must be written `name.Estimate.Count(stream.column)`"),
    ("SELECT a.x FROM s a, s b WHERE a.x = b.x WITH PREFERENCE desc «SUMMARY».Estimate.Count() WINDOW 1 DAY",
     "`Count()` without a column needs a summary that only one stream of the join has; add the column"),
    ("CREATE SUMMARY h ON s(x); "
     "SELECT a.x FROM s a, s b WHERE a.x = b.x WITH PREFERENCE desc «h».Estimate.Count() WINDOW 1 DAY",
     "`Count()` without a column needs a summary that only one stream"),
    ("CREATE SUMMARY «h ON s(y)»; SELECT a.x FROM s a, s b WHERE a.x = b.x WINDOW 1 DAY",
     "a summary must be on the join column, s(x); a summary of another column is not used"),
]  # fmt: skip
MISTAKES += [
    (
        "CREATE SUMMARY «h ON s(x) WITH HISTOGRAM(0, 10, 1000000) ZONES 10000»; SELECT x FROM s WINDOW 1 DAY",
        "a summary must take at most 256 MB; these settings need 76",
    ),
]
H = "CREATE SUMMARY h ON s(x) WITH HISTOGRAM(0, 100, 50); "
OF_ONE_STREAM = [
    ("SELECT x FROM s WINDOW 1 DAY «FADE FACTOR 0.5»", "`FADE FACTOR` needs a join; this query reads one stream"),
    ("SELECT «DISTINCT» x FROM s WINDOW 1 DAY", "got `DISTINCT`; use distinct() of the resulting DataFrame"),
    ("SELECT x FROM s «GROUP BY» x WINDOW 1 DAY", "got `GROUP BY`; use groupBy() of the resulting DataFrame"),
    ("SELECT x FROM s «group by» x, y HAVING x > 1", "got `GROUP BY`; use groupBy() of the resulting DataFrame"),
    ("SELECT x FROM s «HAVING» x > 1", "got `HAVING`; use filter() of the resulting DataFrame"),
    ("SELECT x FROM s «ORDER BY» x LIMIT 3", "got `ORDER BY`; use orderBy() of the resulting DataFrame"),
    ("SELECT x FROM s WHERE x > 1 «LIMIT» 3", "got `LIMIT`; use limit() of the resulting DataFrame"),
    ("SELECT a.x FROM s a, s b WHERE a.x = b.x «GROUP BY» a.x", "got `GROUP BY`; use groupBy()"),
    ("SELECT «x + 1» FROM s WINDOW 1 DAY", "SELECT must list columns, or aggregates"),
    ("SELECT «x», AVG(x) FROM s WINDOW 1 DAY", "SELECT must list either columns or aggregates of one stream, not both"),
    ("SELECT «AVG(x) OVER (PARTITION BY y)» FROM s WINDOW 1 DAY", "SELECT must list columns, or aggregates"),
    ("SELECT «* AS y» FROM s WINDOW 1 DAY", "`*` must not be combined with AS or other words"),
    ("SELECT «COUNT(x, y)» FROM s WINDOW 1 DAY", "an aggregate must have one column as its argument"),
    (
        "SELECT «COUNT(DISTINCT x)» FROM s WINDOW 1 DAY",
        "the argument of an aggregate must be a column, or `*` for COUNT",
    ),
    ("SELECT AVG(x), «SUM(y)» FROM s WINDOW 1 DAY", "all aggregates must read the same column"),
    ("SELECT «AVG(x) FROM s»", "a query over the whole stream needs a summary WITH MEMORY n TUPLES"),
    ("SELECT x FROM s WHERE «x = 1 OR x = 2» WINDOW 1 DAY", "WHERE must consist of comparisons joined by AND"),
    ("SELECT x FROM s WHERE NOT «x = 1» WINDOW 1 DAY", "WHERE must consist of comparisons joined by AND"),
    ("SELECT x FROM s WHERE «sin(x) > 5» WINDOW 1 DAY", "a comparison must be between a column and a value"),
    ("SELECT x FROM s WHERE «x = (SELECT 1)» WINDOW 1 DAY", "a comparison must be between a column and a value"),
    ("SELECT x FROM s WHERE «x > 5 AND x < 2» WINDOW 1 DAY", "WHERE must allow at least one value and time"),
    ("SELECT x FROM s WHERE x > 5 AND y = «1e400» WINDOW 1 DAY", "with a finite number, a string, TRUE or FALSE"),
    (
        "SELECT SUM(y), «MEDIAN(y)», AVG(y) FROM s WINDOW 1 DAY",
        "MEDIAN and COUNT(*) work only on the summarised column `x`",
    ),
    ("SELECT «COUNT(*)», AVG(y) FROM s WINDOW 1 DAY", "MEDIAN and COUNT(*) work only on the summarised column `x`"),
    ("SELECT x FROM s WHERE ts > «5» WINDOW 1 DAY", "the time must be compared with a time such as TIMESTAMP"),
    ("SELECT x FROM s WHERE ts > TIMESTAMP «'noon'» WINDOW 1 DAY", "a time must be in ISO 8601"),
    ("SELECT x FROM s WITH PREFERENCE desc «y» WINDOW 1 DAY", "must use only the summarised column `x`"),
    ("SELECT «AVG(x) AS window_start» FROM s WINDOW 1 DAY", "`window_start` is used twice"),
    ("SELECT AVG(x) AS a, «SUM(x) AS A_error» FROM s WINDOW 1 DAY", "`a_error` is used twice"),
    ("SELECT AVG(x), «AVG(x)» FROM s WINDOW 1 DAY", "`avg(x)` is used twice"),
    (
        "SELECT AVG(x) FROM s WINDOW 1 DAY «SLIDE 2 DAYS»",
        "`SLIDE` must be from 1/1000 of the window to the whole window",
    ),
    (
        "SELECT AVG(x) FROM s WINDOW 1 DAY «SLIDE 1 SECOND»",
        "`SLIDE` must be from 1/1000 of the window to the whole window",
    ),
    ("SELECT AVG(x) FROM s WINDOW 1 DAY SLIDE«»", "expected a number; got the end"),
    ("SELECT x FROM s WINDOW 1 DAY «SLIDE 1 HOUR»", "`SLIDE` needs aggregates"),
    (
        "SELECT «x AS query FROM s WHERE x < 2 WINDOW 1 DAY»; SELECT x AS query FROM s WHERE x > 3 WINDOW 1 DAY",
        "a script with several SELECTs must not have a column `query`",
    ),
    ("SELECT x FROM s WINDOW 1 DAY; SELECT «y FROM s WINDOW 1 DAY»", "several SELECTs may differ only in the ranges"),
    ("SELECT x FROM s WINDOW 1 DAY; SELECT «x FROM s WINDOW 2 DAYS»", "several SELECTs may differ only in the ranges"),
    (
        "SELECT x FROM s WINDOW 1 DAY; SELECT «AVG(x) FROM s WINDOW 1 DAY»",
        "several SELECTs supports only selections of one stream",
    ),
]


KINDS = {
    "s": {
        "x": Kind("bigint", WHOLE, is_double=False),
        "y": Kind("string", TEXT),
        "ts": Kind("timestamp", MOMENT),
        "z": Kind("interval", is_shown=False),
    }
}
OF_KINDS = [
    ("SELECT x FROM s WHERE x = «'a'» WINDOW 1 DAY", "`x` must be compared with a value of its type, bigint; got 'a'"),
    ("SELECT x FROM s WHERE y IN ('a', «2») WINDOW 1 DAY", "`y` must be compared with a value of its type, string"),
    (
        "SELECT x FROM s WHERE y = «TRUE» WINDOW 1 DAY",
        "`y` must be compared with a value of its type, string; got TRUE",
    ),
    ("SELECT «z» FROM s WINDOW 1 DAY", "`z` cannot be a column of the result: its type interval is not supported"),
    ("SELECT SUM(«y») FROM s WINDOW 1 DAY", "`y` must hold numbers here; it holds string"),
    (
        "SELECT a.x FROM s a, s b WHERE «a.x = b.y» WINDOW 1 DAY",
        "join columns must both be strings, integers or booleans; got bigint and string",
    ),
    (
        "SELECT a.x FROM s a, s b WHERE «a.z = b.z» WINDOW 1 DAY",
        "join columns must both be strings, integers or booleans; got interval and interval",
    ),
    ("SELECT a.x FROM s a, s b WHERE a.x = b.x AND «a.y» > b.x WINDOW 1 DAY", "`y` must hold numbers here"),
    ("SELECT x FROM s WHERE x < «1.23456789012345678901234567890123456789» WINDOW 1 DAY", "at most 38 digits"),
]


@pytest.mark.parametrize(("text", "message"), OF_KINDS)
def test_a_column_is_used_for_what_its_kind_allows(text: str, message: str) -> None:
    plain, start, stop = marked(H + text)
    with pytest.raises(SqlError, match=r"^\d+:\d+: ") as caught:
        resolve(parse_sql(plain), COLUMNS, "ts", KINDS)
    assert message in caught.value.message
    assert (caught.value.start, caught.value.stop) == (start, stop)


def test_a_range_of_numbers_that_are_no_doubles_is_decided_by_itself_too() -> None:
    for where, filters in (
        ("x > 9007199254740991 AND x < 5e18", 1),
        ("x > 9007199254740992", 1),
        ("x > 9007199254740993", 1),
        ("x <= 20.5", 0),
        ("x >= 20.00000000000000000001", 1),
    ):
        asked = resolve(parse_sql(f"{H}SELECT x FROM s WHERE {where} WINDOW 1 DAY"), COLUMNS, "ts", KINDS)
        assert len(asked.streams[0].filters) == filters
    (one,) = resolve(
        parse_sql(f"{H}SELECT x FROM s WHERE x > 9007199254740993 WINDOW 1 DAY"), COLUMNS, "ts", KINDS
    ).queries  # type: ignore[union-attr]
    # Made a double, the next number is this one.
    assert one.low <= float(9007199254740994)


def marked(text: str) -> tuple[str, int, int]:
    start, stop = text.index("«"), text.index("»") - 1
    return text.replace("«", "").replace("»", ""), start, stop


def mistake(text: str) -> SqlError:
    with pytest.raises(SqlError, match=r"^\d+:\d+: ") as caught:
        resolve(parse_sql(text), COLUMNS, "ts")
    return caught.value


@pytest.mark.parametrize(("text", "message"), MISTAKES + [(H + text, message) for text, message in OF_ONE_STREAM])
def test_a_mistake_is_underlined_and_explained(text: str, message: str) -> None:
    plain, start, stop = marked(text)
    error = mistake(plain)
    assert message in error.message
    assert (error.start, max(error.stop, error.start + 1)) == (start, max(stop, start + 1))
    line, column = plain.count("\n", 0, start) + 1, start - (plain.rfind("\n", 0, start) + 1) + 1
    assert str(error).startswith(f"{line}:{column}: ")
    assert set(str(error).splitlines()[-1].strip()) <= {"^"}


def test_of_a_query_without_a_summary_nothing_is_said_that_nobody_declared() -> None:
    asked = resolve(parse_sql("SELECT x FROM s WHERE y = 1"), COLUMNS)
    assert str(asked) == "Select from s (1 filter) by filters\n  exact: each row is evaluated separately"
    asked = resolve(parse_sql("SELECT AVG(x) FROM s WINDOW 1 MINUTE"), COLUMNS)
    assert str(asked).splitlines()[1:] == [
        "  window 1m; summary none declared", "  no preference", "  budget unlimited: exact"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("where", "values"),
    [("z = ';'", (";",)), ("z IN (" + ", ".join(["'('"] * 60) + ")", ("(",) * 60), ("z = 'WINDOW'", ("WINDOW",))],
)
def test_a_text_is_no_sign_of_the_language(where: str, values: tuple[str, ...]) -> None:
    asked = resolve(parse_sql(f"SELECT x FROM s WHERE {where}"), COLUMNS)
    assert asked.streams[0].filters[0].values == values


@pytest.mark.parametrize(
    ("literal", "text"),
    [
        ("'east''s'", "east's"),
        ("''", ""),
        ("''''", "'"),
        ("'a''''b'", "a''b"),
        ("'''a'''", "'a'"),
        ('"a""b"', 'a"b'),
        ('\'say ""x""\'', 'say ""x""'),
        ("\"it''s\"", "it''s"),
        (r"'\\''x'", r"\'x"),
        (r"'it\'s'''", "it's'"),
    ],
)  # Spark 4.2 reads each literal as the same text.
def test_text_literal_contains_a_quote_when_the_quote_is_doubled(literal: str, text: str) -> None:
    asked = resolve(parse_sql(f"SELECT x FROM s WHERE z = {literal} AND y IN ({literal}, 1)"), COLUMNS)
    assert [one.values for one in asked.streams[0].filters] == [(text,), (text, 1)]


CHARACTERS = st.characters(exclude_categories=("C", "Z")) | st.sampled_from("'\"\\ ")


@given(st.text(CHARACTERS, max_size=20), st.sampled_from("'\""))
def test_text_literal_equals_the_text_when_quotes_are_doubled(text: str, quote: str) -> None:
    literal = quote + text.replace("\\", "\\\\").replace(quote, 2 * quote) + quote
    script = parse_sql(f"SELECT x FROM s WHERE z = {literal}")
    asked = resolve(script, COLUMNS)
    assert asked.streams[0].filters[0].values == (text,)
    assert resolve(parse_sql(script.select.sql(dialect=Tocsin)), COLUMNS) == asked


@pytest.mark.parametrize("literals", ["'a' 'b'", "'a'\n'b'", "'a'/**/'b'", "'a'\"b\""])
def test_text_literals_are_refused_when_they_are_apart_or_differ_in_quotes(literals: str) -> None:
    assert "a comparison must be between a column and a value" in str(mistake(f"SELECT x FROM s WHERE z = {literals}"))


def test_error_marks_the_whole_literal_when_a_quote_is_doubled() -> None:
    error = str(mistake("SELECT x FROM s WHERE ts > 'east''s'"))
    assert error.endswith("WHERE ts > 'east''s'\n                             ^^^^^^^^^")


def test_a_name_in_quotes_is_no_clause() -> None:
    asked = resolve(parse_sql("SELECT `window`.x FROM s `window` WHERE x > 1 WINDOW 1 DAY"), COLUMNS)
    assert asked.streams[0].alias == "window"
    with pytest.raises(SqlError, match=r"expected a unit of time .*; got `MINUTE`"):
        parse_sql("SELECT x FROM s WINDOW 1 'MINUTE'")


def test_a_place_is_told_by_line_and_column() -> None:
    error = mistake("SELECT a.x\nFROM s a, s b\nWHERE a.x = b.x AND a.q = 3\nWINDOW 1 DAY")
    assert str(error) == (
        "3:23: `q` must be a column of `s`; expected one of x, y, ts, z\n"
        "  WHERE a.x = b.x AND a.q = 3\n"
        "                        ^"
    )


def test_sql_must_be_text() -> None:
    with pytest.raises(TypeError, match="SQL must be text; got int"):
        parse_sql(5)  # type: ignore[arg-type]


PAIRS = "SELECT a.x FROM s a, s b WHERE a.x = b.x AND "


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT x FROM s WHERE x > \x1b[31m5", r"1:27: SQL must be printable text; got U\+001B"),
        ("SELECT\x00 x", r"1:7: SQL must be printable text; got U\+0000"),
        ("SELECT \u202e x", r"1:8: SQL must be printable text; got U\+202E \(RIGHT-TO-LEFT OVERRIDE\)"),
        ("SELECT x FROM s WHERE " + "x > 1 AND " * 9000 + "x > 1", "at most 50,000 characters"),
        ("SELECT " + "x," * 6000 + "x FROM s", "at most 10,000 tokens"),
        ("SELECT " + "(" * 4000 + "x", "parentheses must be nested at most 50 deep"),
        ("SELECT x FROM s WHERE x > " + "- " * 4000 + "1", "is nested too deeply|unexpected|WHERE must"),
        ("SELECT x FROM s WHERE " + "NOT " * 4000 + "x", "is nested too deeply|WHERE must"),
        ("SELECT " + "CASE WHEN " * 1900, "is nested too deeply|unexpected end"),
        ("SELECT x FROM s WHERE x > 1" + " + 1" * 2000, "."),
        ("SELECT x FROM s WITH PREFERENCE desc x" + " + 1" * 2000 + " WINDOW 1 DAY", "."),
        ("SELECT " + "f(" * 49 + ")" * 49 + " FROM s", "."),
        ("SELECT " + "a." * 2000 + "a FROM s", "."),
        ("SELECT x FROM s" + " s" * 2000, "."),
        (";" * 3000, "."),
        (PAIRS + "a.y < b.y" + " + b.y" * 150 + " WINDOW 1 DAY", "1:46: invalid condition: .* at most 100 deep"),
        (PAIRS + "a.y < b.y" + " + b.y" * 1500 + " WINDOW 1 DAY", "1:52: the expression is nested too deeply"),
        (PAIRS + "a.y < " + "- " * 60 + "b.y WINDOW 1 DAY", "1:46: invalid condition: .* at most 100 deep"),
        (PAIRS + "a.y < b.y AND " * 900 + "a.y < b.y WINDOW 1 DAY", "invalid condition: .* at most 10000 char"),
        (PAIRS + "a.y < 1 WITH PREFERENCE desc a.y" + " * a.y" * 1500 + " WINDOW 1 DAY", "is nested too deeply"),
    ],
)  # fmt: skip
def test_hostile_text_gives_one_error(text: str, message: str) -> None:
    with pytest.raises(SqlError, match=message) as caught:
        resolve(parse_sql(text), COLUMNS, "ts")
    assert len(str(caught.value)) < 1000
    assert caught.value.__cause__ is None


WORDS = [
    *(word for text in [*PRINTED, *OURS] for word in text.replace("(", " ( ").replace(")", " ) ").split()),
    *("x", "s", "ts", "1", "1.5", "-", "'", '"', "`", "/*", "--", ";", "\n", "JOIN", "CASE", "NULL", "::", "@", "?"),
]  # fmt: skip


def refused(text: str) -> SqlError | None:
    try:
        str(resolve(parse_sql(text), COLUMNS, "ts"))
    except SqlError as error:
        return error
    return None


def check_either(text: str) -> None:
    """It is understood, or refused with a place inside of it."""
    error = refused(text)
    if error is not None:
        assert 0 <= error.start <= len(text)
        assert error.start <= error.stop <= len(text) + 1
        assert "^" in str(error) or not text.strip()
        assert len(str(error)) < 2 * MAX_LENGTH


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    check_either(text)


@given(st.lists(st.sampled_from(WORDS), max_size=25).map(" ".join))
def test_any_words_are_read_or_refused(text: str) -> None:
    check_either(text)


@given(
    st.sampled_from([H + text.replace("«", "").replace("»", "") for text, _ in OF_ONE_STREAM] + PRINTED + OURS),
    st.data(),
)
def test_any_change_of_a_statement_is_read_or_refused(text: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text)))
    until = data.draw(st.integers(at, min(len(text), at + 12)))
    check_either(text[:at] + data.draw(st.sampled_from(["", *WORDS])) + text[until:])


def test_an_error_of_sql_is_one_of_what_the_user_wrote() -> None:
    assert issubclass(SqlError, RuleError)


def test_an_estimate_without_a_column_is_of_the_one_that_its_summary_is_of() -> None:
    join = (
        f"{DECLARED}; SELECT S1.ItemNo FROM Store1 S1, Store2 S2 WHERE S1.ItemNo = S2.ItemNo "
        "WITH PREFERENCE desc summary_name.Estimate.Count({}) * summary_name.Estimate.Count(S2.ItemNo) WINDOW 1 MINUTE"
    )
    short, whole = (resolve(parse_sql(join.format(column)), COLUMNS, "TimeStamp") for column in ("", "S1.ItemNo"))
    assert short.preference == whole.preference
    assert short.preference is not None
    one = "SELECT S1.ItemNo FROM Store1 S1 WITH PREFERENCE desc h.Estimate.Count({}) WINDOW 1 MINUTE BUDGET 50 %"
    short, whole = (resolve(parse_sql(OF_ONE + one.format(column)), COLUMNS, "TimeStamp") for column in ("", "ItemNo"))
    assert short.preference == whole.preference
    assert short.preference is not None
