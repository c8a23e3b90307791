"""Rules with ranges in memory: against an oracle, any cut, every row counted, what cannot be used refused in words."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tocsin
from naive import range_rules
from tests.example_counts import ENGINE
from tocsin import local
from tocsin.runtime.metrics import OUTCOMES
from tocsin.runtime.session import Session

SETTINGS = [(None, None), (None, 0), (None, 5), (7, None), (7, 0), (20, 6)]
Row = dict[str, Any]


def rule(dims: int = 1, **settings: Any) -> tocsin.RangeRule:
    values = ["trades.price", "trades.index"][:dims]
    return tocsin.RangeRule("Sold", values, "orders", weight="trades.volume", on="symbol", **settings)


def run(rows: list[tuple[str, Row]], asked: tocsin.RangeRule, cuts: list[int] | tuple[int, ...] = ()) -> local.Result:
    """Run rows in the order in which they are given."""
    ask = ["id", "action", "threshold", "low", "high", "low_price", "high_price", "low_index", "high_index", "owner"]
    columns = {"orders": ask, "trades": ["price", "index", "volume", "note"]}
    streams = {}
    for kind, name in (("ask", "orders"), ("count", "trades")):
        mine = [(number, row) for number, (which, row) in enumerate(rows) if which == kind]
        table = {column: np.array([row.get(column) for _, row in mine], dtype=object) for column in columns[name]}
        for column in {*table} - {"id", "action", "owner", "note"}:
            table[column] = np.array([math.nan if x is None else x for x in table[column]], dtype=np.float64)
        table["symbol"] = np.array([row["key"] for _, row in mine], dtype=object)
        table["ts"] = np.array([row["ts"] for _, row in mine], dtype=np.int64)
        table["came"] = np.array([number for number, _ in mine], dtype=np.int64)
        streams[name] = table
    return local.run_local_detailed(streams, asked, arrival="came", cuts=cuts)


def micros(time: Any) -> int:
    return round((time - local.EPOCH).total_seconds() * 1_000_000)


def reached(result: local.Result) -> list[tuple[str, str, int, int, int]]:
    """What the alerts say, as the oracle says it."""
    return sorted(
        (
            alert["labels"]["symbol"],
            alert["labels"]["query"],
            micros(alert["startsAt"]),
            int(alert["value"]),
            int(alert["value"] - alert["margin"]),
        )
        for alert in result.alerts
    )


def check_counts(counts: Mapping[str, Mapping[str, int]]) -> None:
    for stream, parts in counts.items():
        assert parts["received"] == sum(parts.get(outcome, 0) for outcome in OUTCOMES), (stream, parts)


@st.composite
def days(draw: st.DrawFn, dims: int = 1) -> list[tuple[str, Row]]:
    """Requests and elements of two keys in one order; few distinct values, so that ends are often met."""
    numbers = st.integers(0, 5).map(float)
    rows: list[tuple[str, Row]] = []
    time = 0
    for _ in range(draw(st.integers(0, 40))):
        key, time = draw(st.sampled_from("ab")), time + draw(st.integers(-9, 6))
        row: Row = {"key": key, "ts": 1000 + max(time, -900)}
        if draw(st.integers(0, 2)):
            row |= {"price": draw(numbers), "index": draw(numbers), "weight": draw(st.integers(1, 5))}
            rows.append(("count", row | {"volume": row["weight"]}))
            continue
        row |= {"id": draw(st.integers(0, 3)), "threshold": draw(st.integers(1, 12))}
        row["action"] = draw(st.sampled_from(["register", "register", None, "terminate"]))
        for name in [""] if dims == 1 else ["_price", "_index"]:
            low, high = sorted([draw(numbers), draw(numbers)])
            row |= {
                f"low{name}": draw(st.sampled_from([low, None])),
                f"high{name}": draw(st.sampled_from([high, None])),
            }
        rows.append(("ask", row))
    return rows


@pytest.mark.parametrize(("within", "rearm"), SETTINGS)
@pytest.mark.parametrize("dims", [1, 2])
@ENGINE
@given(data=st.data())
def test_alerts_and_counts_are_those_of_the_definition_whatever_the_cuts(
    within: int | None, rearm: int | None, dims: int, data: st.DataObject
) -> None:
    rows = data.draw(days(dims))
    cuts = sorted(data.draw(st.sets(st.integers(0, max(len(rows), 1)), max_size=5)))
    settings = {
        name: timedelta(microseconds=us) for name, us in (("within", within), ("rearm", rearm)) if us is not None
    }
    wanted = range_rules.run(rows, ["price", "index"][:dims], within, rearm)
    for found in (run(rows, rule(dims, **settings)), run(rows, rule(dims, **settings), cuts)):
        assert reached(found) == sorted(wanted.reached)
        check_counts(found.counts)
        orders, trades = (found.counts.get(name, {}) for name in ("orders", "trades"))
        assert orders.get("quarantined", 0) == wanted.refused
        assert orders.get("retained", 0) == wanted.alive
        assert trades.get("late", 0) == wanted.late
        assert trades.get("retained", 0) == wanted.window


ASK: Row = {"key": "a", "ts": 1, "id": 7, "low": 100.0, "high": 105.0, "threshold": 1000, "owner": "anna"}
SALE: Row = {"key": "a", "ts": 2, "price": 101.0, "volume": 600, "note": "x"}


def test_an_alert_has_the_query_its_owner_its_total_and_the_element() -> None:
    (alert,) = run([("ask", ASK), ("count", SALE), ("count", SALE | {"ts": 3})], rule(labels={"team": "desk"})).alerts
    assert alert["state"] == "match"
    assert alert["labels"] == {"symbol": "a", "query": "7", "team": "desk"}
    assert (alert["value"], alert["margin"], micros(alert["startsAt"]), micros(alert["endsAt"])) == (1200, 200, 3, 3)
    request, element = alert["witness"]
    assert (request["stream"], micros(request["time"])) == ("orders", 1)
    assert request["values"] == {"low": 100.0, "high": 105.0, "threshold": 1000.0}
    assert request["payload"]["owner"] == "anna"
    assert "id" not in request["payload"]
    assert (element["stream"], element["values"]) == ("trades", {"price": 101.0, "volume": 600.0})
    assert element["payload"]["note"] == "x"


WRONG_REQUESTS = [
    ({"id": None}, "`id` must be a string or an integer; got null"),
    ({"id": ""}, "`id` must be a string or an integer; got ''"),
    ({"id": 1.5}, "`id` must be a string or an integer; got 1.5"),
    ({"id": "x" * 1025}, "`id` must have at most 1,024 characters; got 1,025"),
    ({"action": "drop"}, "`action` must be register or terminate; got 'drop'"),
    ({"threshold": 0}, "`threshold` must be an integer from 1 to 2^53 - 1; got 0"),
    ({"threshold": 2.5}, "`threshold` must be an integer from 1 to 2^53 - 1; got 2.5"),
    ({"threshold": None}, "`threshold` must be an integer from 1 to 2^53 - 1; the value is missing"),
    ({"threshold": 2.0**60}, "`threshold` must be an integer from 1 to 2^53 - 1; got 1.152921504606847e+18"),
    ({"threshold": 2**53 + 1}, "`threshold` must be an integer from 1 to 2^53 - 1; got 9007199254740992"),
    ({"low": 106.0}, "`low` must be at most `high`, each finite or open; got 106 and 105"),
    ({"low": math.inf, "high": math.inf}, "`low` must be at most `high`, each finite or open; got inf and inf"),
]
WRONG_ELEMENTS = [
    ({"price": math.nan}, "`price` must be a finite number; the value is missing"),
    ({"price": -math.inf}, "`price` must be a finite number; got -inf"),
    ({"volume": 0}, "`volume` must be an integer from 1 to 2^40; got 0"),
    ({"volume": -3}, "`volume` must be an integer from 1 to 2^40; got -3"),
    ({"volume": 1.0000000001}, "`volume` must be an integer from 1 to 2^40; got 1.0000000001"),
    ({"volume": 0.5}, "`volume` must be an integer from 1 to 2^40; got 0.5"),
    ({"volume": math.nan}, "`volume` must be an integer from 1 to 2^40; the value is missing"),
    ({"volume": 2.0**41}, "`volume` must be an integer from 1 to 2^40; got 2199023255552"),
]


@pytest.mark.parametrize(
    ("kind", "change", "reason"),
    [("ask", *one) for one in WRONG_REQUESTS] + [("count", *one) for one in WRONG_ELEMENTS],
)
def test_a_row_that_cannot_be_used_is_counted_and_shown_with_the_reason(kind: str, change: Row, reason: str) -> None:
    wrong = (kind, (ASK if kind == "ask" else SALE) | change)
    found = run([wrong, ("ask", ASK | {"id": "fine"}), ("count", SALE | {"volume": 1000})], rule())
    stream = "orders" if kind == "ask" else "trades"
    assert [alert["labels"]["query"] for alert in found.alerts] == ["fine"]
    assert found.counts[stream]["quarantined"] == 1
    (dead,) = found.dead
    assert (dead["stream"], dead["reason"]) == (stream, reason)
    assert json.loads(dead["raw"])["symbol"] == "a"
    assert json.loads(dead["raw"])["rule"] == "Sold"
    check_counts(found.counts)


def test_an_id_may_be_registered_again_once_it_was_reached_but_not_while_it_is_alive() -> None:
    rows = [
        ("ask", ASK),
        ("ask", ASK | {"threshold": 1}),
        ("count", SALE),
        ("count", SALE),
        ("ask", ASK),
        ("count", SALE),
    ]
    found = run(rows, rule())
    assert reached(found) == [("a", "7", 2, 1200, 1000)]
    assert [dead["reason"] for dead in found.dead] == [
        "`id` is in use by an active request; terminate that request first"
    ]
    assert found.counts["orders"] == {"received": 3, "quarantined": 1, "retained": 1, "expired": 1}


def test_a_termination_without_effect_is_used_up_and_not_wrong() -> None:
    found = run([("ask", {"key": "a", "ts": 1, "id": "never", "action": "terminate"})], rule())
    assert not found.dead
    assert found.counts["orders"] == {"received": 1, "quarantined": 0, "retained": 0, "expired": 1}


def test_an_empty_cell_of_pandas_is_missing_and_a_refused_row_warns() -> None:
    pandas = pytest.importorskip("pandas")
    rows = [{"symbol": "a", "ts": 1, "id": 7, "high": 9.0, "threshold": 1}]
    rows.append({"symbol": "a", "ts": 1, "action": "register", "low": 0.0, "threshold": 1})
    orders = pandas.DataFrame(rows)
    trades = {"symbol": ["a"], "ts": [2], "price": [5.0], "volume": [1]}
    with pytest.warns(UserWarning, match="in stream `orders`: `id` must be a string or an integer; got null"):
        (alert,) = tocsin.run_local({"orders": orders, "trades": trades}, rule())
    assert alert["labels"]["query"] == "7"


def test_a_stream_of_requests_without_ids_is_refused() -> None:
    streams: Any = {"orders": {name: [] for name in ("symbol", "ts", "low", "high", "threshold")}}
    streams["trades"] = {name: [] for name in ("symbol", "ts", "price", "volume")}
    with pytest.raises(tocsin.RuleError, match="stream `orders` must have the columns 'id'; its columns are"):
        local.explain(streams, rule())


def test_text_and_number_are_one_id_and_whole_floats_too() -> None:
    rows = [
        ("ask", ASK | {"id": "7"}),
        ("ask", ASK | {"id": 7.0, "action": "terminate"}),
        ("count", SALE | {"volume": 5000}),
    ]
    assert not run(rows, rule()).alerts


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"values": "trades.cost"}, 'rule "Sold": stream `trades` must have the value column'),
    ({"values": ["trades.price", "orders.low"]}, "`values` must be columns of one stream; got orders, trades"),
    ({"values": []}, "`values` must list one or more columns, each once; got []"),
    ({"values": ["trades.price", "trades.price"]}, "`values` must list one or more columns, each once"),
    ({"weight": "orders.low"}, "`weight` must be a column of `trades` like `values`; got `orders.low`"),
    ({"requests": "asks"}, "`asks` must be one of the streams orders, trades"),
    ({"requests": "trades"}, "`requests` must differ from the stream whose rows are counted; got `trades` for both"),
    ({"within": "0s"}, "`within` must be longer than 0"),
    ({"rearm": "-1s"}, "`rearm`"),
    ({"shards": 0}, "`shards` must be an integer from 1 to 1024; got 0"),
    ({"shards": True}, "`shards` must be an integer from 1 to 1024; got True"),
    ({"on": "query"}, "`on` must not contain `query`, the label with the id of the request"),
    ({"on": ["symbol", "action"]}, "`on` must not contain `action`, a column of requests"),
    ({"labels": {"query": "x"}}, "`labels` must not contain key columns or `query`; got 'query'"),
    ({"annotations": {"text": "{{ $labels.nobody }}"}}, "must name labels of the alert; got `$labels.nobody`"),
]


@pytest.mark.parametrize(("change", "sentence"), MISTAKES)
def test_a_mistake_in_a_rule_is_told_in_words(change: dict[str, Any], sentence: str) -> None:
    given = {"alert": "Sold", "values": "trades.price", "requests": "orders", "weight": "trades.volume", "on": "symbol"}
    columns: Any = {"orders": {name: [] for name in ("symbol", "ts", "id", "low", "high", "threshold")}}
    columns["trades"] = {name: [] for name in ("symbol", "ts", "price", "volume", "query")}
    with pytest.raises(tocsin.RuleError, match=re.escape(sentence)):
        local.explain(columns, tocsin.RangeRule(**(given | change)))


def test_beside_another_rule_nothing_changes() -> None:
    rows = [("ask", ASK), ("count", SALE), ("count", SALE | {"ts": 3})]
    high = tocsin.Rule("High", "trades.price > 100", on="symbol")
    streams_rule: Any = [rule(), high]
    found = run(rows, streams_rule)
    assert {alert["alert"] for alert in found.alerts} == {"Sold", "High"}
    assert [a for a in found.alerts if a["alert"] == "Sold"] == run(rows, rule()).alerts


def test_how_long_ago_somebody_asked_is_no_lag() -> None:
    orders = {
        "symbol": ["A"],
        "ts": [5],
        "id": ["1"],
        "action": ["register"],
        "threshold": [9.0],
        "low": [0.0],
        "high": [9.0],
    }
    trades = {"symbol": ["A", "A"], "ts": [1, 2], "price": [1.0, 2.0], "volume": [1.0, 1.0]}
    streams = {name: {column: np.array(values) for column, values in table.items()}
               for name, table in (("orders", orders), ("trades", trades))}  # fmt: skip
    plan = local.explain(streams, rule())
    out = Session(plan).push(local._batches(0, plan.ranges[0], streams, "ts", None))
    assert (out.counts["orders"]["received"], out.metrics.section("newest_us")) == (1, {"trades": 2})
