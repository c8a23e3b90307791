"""What a run gave, added up; and which alerts are drawn."""

from __future__ import annotations

from tests.report.cases import HOT, MINUTE, life, result, streams
from tocsin import Rule, local
from tocsin.report import Result, StoreSummary, choose
from tocsin.rules.no_data import NoData


def test_numbers_of_rules_and_streams_add_up() -> None:
    tables = streams(["m1", "m2", "m3"])
    found = result(tables)
    (rule,) = found.rules
    alerts = [row for row in local.run(tables, HOT).alerts if row["state"] == "firing"]
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
    passing = StoreSummary("air", {"received": 10, "expired": 9, "quarantined": 1}, remembers=False)
    assert (passing.kept, passing.plain) == (0, 0)
    assert passing.parts == {"passed": 9, "quarantined": 1}


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
