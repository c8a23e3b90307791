"""What a run gave, added up; and which alerts are drawn."""

from __future__ import annotations

from tests.report.cases import HOT, MINUTE, life, result, streams
from tocsin import RangeRule, Rule, local
from tocsin.plan import make_plan
from tocsin.report import Gatherer, Limited, Result, StoreSummary, choose
from tocsin.rules.no_data import NoData
from tocsin.run_directory.manifest import pass_through_shares
from tocsin.runtime.metrics import Metrics


def test_numbers_of_rules_and_streams_add_up() -> None:
    tables = streams(["m1", "m2", "m3"])
    found = result(tables)
    (rule,) = found.rules
    alerts = [row for row in local.run_local_detailed(tables, HOT).alerts if row["state"] == "firing"]
    assert (rule.alerts, rule.keys, rule.late, rule.open) == (len(alerts), 3, 0, 0)
    assert rule.firing_us == sum(found.end_of(one) - one.start_us for one in found.lives)
    for store in found.stores:
        assert sum(store.parts.values()) == store.received == store.plain == 900
        assert 0 < store.kept < 300
    assert found.rows == 1800
    assert found.state_bytes > 0
    assert (found.oldest_us, found.newest_us) == (0, 299 * MINUTE)


def test_rules_of_one_name_have_their_own_numbers() -> None:
    low, high = (Rule("Hot", f"air > {n}", on="machine", labels={"level": str(n)}) for n in (24, 40))
    found = result(streams(["m1"]), low, high)
    assert [(rule.labels, rule.alerts > 0) for rule in found.rules] == [
        ((("level", "24"),), True),
        ((("level", "40"),), False),
    ]
    assert [len(lives) for _, _, lives in found.by_rule] == [rule.alerts for rule in found.rules]


def test_an_open_life_lasts_to_the_last_row() -> None:
    found = Result("x", result(streams(["m1"])).plan, (), (), (life(5, None),), newest_us=50)
    assert found.end_of(found.lives[0]) == 50


def test_a_plain_join_remembers_all_that_came_in_time() -> None:
    counts = {"received": 10, "retained": 1, "expired": 2, "omitted": 3, "late": 3, "quarantined": 1}
    store = StoreSummary("air", counts)
    assert (store.kept, store.plain) == (3, 6)
    passing = StoreSummary("air", {"received": 10, "expired": 9, "quarantined": 1}, passing=1.0)
    assert (passing.kept, passing.plain) == (0, 0)
    assert passing.parts == {"passed": 9, "quarantined": 1}
    shed = StoreSummary("air", {"received": 10, "retained": 1, "shed": 9})
    assert (shed.kept, shed.plain, shed.parts) == (1, 10, {"retained": 1, "shed": 9})


def test_rows_of_a_join_are_told_from_those_that_a_rule_of_one_stream_lets_pass() -> None:
    """One name counts both: each takes every row."""
    counts = {"received": 20, "retained": 1, "expired": 12, "omitted": 7}
    both = StoreSummary("air", counts, passing=0.5)
    assert (both.passed, both.kept, both.plain) == (10, 3, 10)
    assert both.parts == {"retained": 1, "expired": 2, "passed": 10, "omitted": 7}
    assert list(both.parts) == ["retained", "expired", "passed", "omitted"]


def test_a_rule_of_one_stream_beside_a_join_does_not_change_what_the_join_kept() -> None:
    """By the engine itself: both are counted as `air`."""
    tables = streams(["m1", "m2"])
    kept = []
    for rules in ([HOT], [HOT, Rule("Warm", "air > 25", on="machine", quality={"wait": "1m"})]):
        passing = pass_through_shares(local.explain(tables, rules))
        counts = local.run_local_detailed(tables, rules).counts
        stores = {name: StoreSummary(name, counts[name], passing[name]) for name in ("air", "surface")}
        kept.append({name: (store.kept, store.plain) for name, store in stores.items()})
        assert all(sum(store.parts.values()) == store.received for store in stores.values())
    assert kept[0] == kept[1]
    assert counts["air"]["received"] == 1200
    assert 0 < kept[0]["air"][0] < kept[0]["air"][1] == 600


def test_which_names_count_rows_that_nothing_remembers() -> None:
    held = Rule("Apart", "abs(air - oil) > 3", on="machine", within="5s")
    alone = Rule("Hot", "air > 3", on="machine", quality={"wait": "1s"})
    columns = {name: ["ts", "machine", "value"] for name in ("air", "oil", "gas")}
    plan = make_plan([held, alone, NoData("air", "1m", ["machine"]), NoData("gas", "1m", ["machine"])], columns)
    assert pass_through_shares(plan) == {"air": 0.5, "oil": 0.0, "gas": 1.0}


def test_requests_are_kept_and_the_rows_that_they_count_for_a_window() -> None:
    orders = {"ts": [0, 0, 0], "id": ["a", "b", "c"], "low": [0, 0, 50], "high": [9, 9, 60], "threshold": [2, 90, 90]}
    tables = {"orders": orders, "trades": {"ts": [1, 2, 3, 4], "price": [5.0, 6.0, 7.0, 99.0]}}
    for within, counted in ((None, (0, 0)), ("1h", (4, 4))):
        rule = RangeRule("Sold", "trades.price", requests="orders", within=within)
        passing, counts = (
            pass_through_shares(local.explain(tables, rule)),
            local.run_local_detailed(tables, rule).counts,
        )
        stores = {name: StoreSummary(name, counts[name], passing[name]) for name in tables}
        assert {name: (store.kept, store.plain) for name, store in stores.items()} == {
            "orders": (3, 3),
            "trades": counted,
        }
        assert stores["orders"].parts == {"retained": 2, "expired": 1}


def test_the_first_the_longest_and_the_largest_are_drawn_once_each() -> None:
    found = result(streams(["m1", "m2", "m3"]))
    picks = choose(found)
    assert 1 <= len(picks) <= 3
    reasons = [reason for pick in picks for reason in pick.why.split(", ")]
    assert sorted(reasons) == ["first", "largest margin", "longest"]
    assert all(pick.from_us <= pick.life.start_us <= pick.to_us for pick in picks)
    assert choose(found, most=1)[0].why.startswith("largest margin")


def test_nothing_is_drawn_where_nothing_fired() -> None:
    assert choose(result(streams(["m1"]), Rule("Hot", "air > 99", on="machine"))) == []


def test_silence_is_told_among_the_rules() -> None:
    tables = streams(["m1"])
    there = (tables["surface"]["ts"] < 100 * MINUTE) | (tables["surface"]["ts"] > 200 * MINUTE)
    tables["surface"] = {name: column[there] for name, column in tables["surface"].items()}
    found = result(tables, HOT, NoData("surface", "10m", on="machine"))
    assert [(rule.alert, rule.alerts) for rule in found.rules] == [("Hot", 1), ("NoData", 1)]
    assert found.rules[1].longest_us > 85 * MINUTE
    assert {pick.rule.alert for pick in choose(found)} == {"Hot"}


def test_what_limited_memory_finds_is_that_of_the_worst_part_of_the_keys() -> None:
    tables, rule = (
        streams(["m1"]),
        Rule("Hot", "air - surface > 5", within="5m", on="machine", quality={"memory": "1MB"}),
    )
    gatherer = Gatherer("rules.yaml", local.explain(tables, [rule, Rule("Free", "air > 9", on="machine")]))
    names = ("predicted", "reached", "error_predicted", "error_reached")

    def limited(*found: float | None) -> tuple[Limited, ...]:
        return (Limited("Hot", "1MB", dict(zip(names, found, strict=True))),)

    assert gatherer.result().limited == limited(None, None, None, None)
    for bucket, (predicted, reached) in enumerate([(0.9, 0.8), (0.7, None), (1.0, 0.95)]):
        gatherer.count(Metrics(memory={"Hot": {"predicted": 0.1, "reached": 0.1}}), bucket)
        gatherer.count(Metrics(memory={"Hot": {"predicted": predicted, "reached": reached}}), bucket)
    gatherer.lives.append(life(1, 2))
    assert gatherer.result().limited == limited(0.7, 0.8, None, None)
    gatherer.count(Metrics(memory={"Hot": {"predicted": None, "reached": 0.85}}), 3)
    assert gatherer.result().limited == limited(None, 0.8, None, None)
