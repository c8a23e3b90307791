"""Rules whose memory is limited: never more than that, nothing invented, nothing lost while all fits, and the laws."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from tests.driver import Driver, parts_of, plan_of, retained_rows, settled, stories, watch_logics
from tocsin import NoData, Rule, RuleError, local
from tocsin.columns import EPOCH
from tocsin.plan import Plan
from tocsin.runtime.contract import Out
from tocsin.runtime.metrics import OUTCOMES
from tocsin.runtime.session import Session

Columns = dict[str, dict[str, Any]]
SECOND = 1_000_000


def zipf_streams(rows: int, keys: int, seed: int, *, disorder: int = 0, payload: bool = False) -> Columns:
    """Two streams whose keys are Zipf, one row a millisecond; some come later than their time."""
    draw = np.random.default_rng(seed)
    streams: Columns = {}
    chance = 1 / np.arange(1, keys + 1)
    for name in ("a", "b"):
        key = draw.choice(keys, rows, p=chance / chance.sum())
        time = np.sort(draw.integers(0, 1000 * rows, rows))
        arrival = time + (draw.integers(0, disorder, rows) if disorder else 0)
        streams[name] = {
            "ts": time,
            "machine": np.array([f"k{number}" for number in key], dtype=object),
            "value": draw.normal(0, 1, rows),
            "arrival": arrival,
        }
        if payload:
            streams[name]["note"] = np.array(["x" * int(n) for n in draw.integers(0, 30, rows)], dtype=object)
    return streams


def pairs(emit: str = "all", **more: Any) -> Rule:
    return Rule("pair", "a + b > 1", within="100ms", on="machine", emit=emit, allowed_lateness="1s", **more)


class Watcher(Driver):
    """A driver that also holds the budget to its word after each call."""

    def __init__(self, plan: Plan, **options: Any) -> None:
        super().__init__(plan, **options)
        self.most = 0

    def take(self, out: Out) -> list[dict[str, Any]]:
        alerts = super().take(out)
        self.most = max(self.most, sum(map(len, self.pages.values())))
        return alerts


def run(streams: Columns, rule: Rule, cuts: Sequence[int] = (), *, through_pages: bool = True) -> tuple[Out, Watcher]:
    plan = plan_of(streams, rule, arrival="arrival")
    driver = Watcher(plan, through_pages=through_pages)
    return driver.run(parts_of(plan, streams, cuts, "arrival")), driver


def matches(out: Out) -> Counter[Any]:
    def of(row: Mapping[str, Any]) -> Any:
        return tuple(sorted(row["labels"].items())), tuple(
            (part["time"], *part["values"].values()) for part in row["witness"]
        )

    return Counter(of(row) for row in out.alert_rows())


def test_a_life_that_is_over_takes_the_same_wherever_its_rows_were_cut() -> None:
    # It is open at one of the cuts, and what it shows is stored there.
    row = {"ts": np.arange(4) * SECOND // 100, "machine": ["x"] * 4, "value": [9.0, 9.0, -9.0, -9.0]}
    row |= {"arrival": row["ts"], "note": ["shown"] * 4}
    sizes = []
    for cuts in ([], [2], [4], [6]):
        out, driver = run({"a": dict(row), "b": dict(row)}, pairs("witness", quality={"memory": "1MB"}), cuts)
        assert [alert["state"] for alert in out.alert_rows()] == ["firing", "resolved"]
        watch = watch_logics(driver.session)[0]
        sizes.append(sum(shard.size for shard in watch.shards))
    assert len(set(sizes)) == 1


@pytest.mark.parametrize("emit", ["all", "witness"])
@pytest.mark.parametrize("payload", [False, True])
@pytest.mark.parametrize("memory", [40_000, 70_000])
def test_the_pages_never_take_more_than_the_memory(memory: int, payload: bool, emit: str) -> None:
    streams = zipf_streams(1200, 800, 5, payload=payload)
    out, driver = run(streams, pairs(emit, quality={"memory": memory}), list(range(100, 2_400, 200)))
    assert sum(counts["shed"] for counts in out.counts.values()) > 0
    assert 0.2 * memory < driver.most <= memory


@pytest.mark.parametrize("disorder", [0, 100_000])
def test_the_pages_take_no_more_than_the_memory_after_any_row_though_evaluations_wait(disorder: int) -> None:
    # Keys are few, so most rows find a partner, and wait for the other stream.
    streams = zipf_streams(400, 30, 8, disorder=disorder, payload=True)
    rule = pairs("witness", quality={"memory": 36_000})
    whole, _ = run(streams, rule, through_pages=False)
    split, driver = run(streams, rule, list(range(1, 800)))
    assert driver.most <= 36_000
    assert settled(split.counts) == settled(whole.counts)
    assert sum(counts["shed"] for counts in split.counts.values()) > 0


@pytest.mark.parametrize("through_pages", [False, True])
@pytest.mark.parametrize("ending", ["end", "advance"])
def test_alerts_without_new_rows_report_the_loss_of_earlier_calls(ending: str, through_pages: bool) -> None:
    streams = zipf_streams(2000, 40, 6)
    plan = plan_of(streams, pairs("witness", stale="1h", quality={"memory": "40 rows"}), arrival="arrival")
    driver = Driver(plan, through_pages=through_pages)
    driver.take(driver.session.push(parts_of(plan, streams, (), "arrival")[0], 0))
    assert sum(counts["shed"] for counts in driver.result.counts.values()) > 0
    last = driver.session.end() if ending == "end" else driver.session.advance(10**13)
    rows = driver.take(last)
    assert rows
    assert all(row["quality"].startswith("subset") for row in rows), {row["quality"] for row in rows}


@pytest.mark.parametrize("rows", [16, 100, 1000])
def test_no_more_rows_are_remembered_than_the_memory_has(rows: int) -> None:
    streams = zipf_streams(1500, 50, 6)
    plan = plan_of(streams, pairs(quality={"memory": f"{rows} rows"}), arrival="arrival")
    driver = Driver(plan, through_pages=False)
    for part in parts_of(plan, streams, list(range(37, 3000, 37)), "arrival"):
        driver.take(driver.session.push(part))
        assert retained_rows(driver.session) <= rows
    assert sum(counts["shed"] for counts in driver.result.counts.values()) > 0


@pytest.mark.parametrize("emit", ["all", "witness"])
def test_nothing_is_shed_and_alerts_are_exact_while_everything_fits(emit: str) -> None:
    streams = zipf_streams(2000, 100, 7)
    limited, _ = run(streams, pairs(emit, quality={"memory": "10MB"}))
    free, _ = run(streams, pairs(emit))
    assert stories(limited.alert_rows()) == stories(free.alert_rows())
    assert settled(limited.counts) == settled(free.counts)


def test_what_is_found_is_a_part_of_what_there_is_and_says_so() -> None:
    streams = zipf_streams(2500, 200, 8)
    out, _ = run(streams, pairs(quality={"memory": "100 rows"}))
    exact, _ = run(streams, pairs())
    found, whole = matches(out), matches(exact)
    assert not found - whole
    assert 0.2 < found.total() / whole.total() < 0.9
    qualities = Counter(row["quality"].split()[0] for row in out.alert_rows())
    assert set(qualities) <= {"exact", "subset"}
    assert qualities["subset"] > 0.9 * found.total()


@pytest.mark.parametrize("more", [{}, {"for_": "100ms"}])
def test_lives_that_say_exact_are_those_of_unlimited_memory(more: dict[str, Any]) -> None:
    """Rows are shed while they are dense; a life that should have begun then goes on long after."""
    stated = {"within": "100ms", "on": "machine", "allowed_lateness": "1s", "keep_firing_for": "1s", **more}
    for seed in (0, 1):
        streams = zipf_streams(900, 30, seed)
        for columns in streams.values():
            columns["ts"] = np.where(columns["ts"] > 300_000, columns["ts"] * 8 - 2_100_000, columns["ts"])
            columns["arrival"] = columns["ts"]
        limited, _ = run(
            streams, Rule("pair", "a + b > 1", quality={"memory": "60 rows"}, **stated), through_pages=False
        )
        free, _ = run(streams, Rule("pair", "a + b > 1", **stated), through_pages=False)
        exact = [row for row in limited.alert_rows() if row["quality"] == "exact"]
        assert exact
        assert all(row in free.alert_rows() for row in exact)


def test_models_find_more_than_the_newest_rows_do() -> None:
    """Keys are Zipf, so frequent ones give most: PROB is right, and is found without being asked for."""
    streams = zipf_streams(14_000, 3000, 9)
    stated: dict[str, Any] = {"within": "1s", "on": "machine", "emit": "all"}
    # Values have nothing to do with keys and times: one pair in a dozen is as good a sample of all of them as any.
    rule = Rule("pair", "a + b > 2", allowed_lateness="0s", quality={"memory": "200 rows"}, **stated)
    plan = plan_of(streams, rule, arrival="arrival")
    driver = Driver(plan, through_pages=False)
    out = driver.run(parts_of(plan, streams, (), "arrival"))
    logic = watch_logics(driver.session)[0]
    budget = logic.operators.budget
    assert budget.utility is not None
    assert budget.utility.policy == ["PROB", "PROB"]
    exact = local.run_local_detailed(streams, Rule("pair", "a + b > 2", **stated), arrival="arrival")
    # A model is chosen when some windows are over: what counts is the last quarter.
    begin = 11 * SECOND
    found = sum(row["startsAt"] > begin for row in out.alert_rows())
    reached = found / sum(row["startsAt"] > EPOCH + timedelta(microseconds=begin) for row in exact.alerts)
    assert reached > 4 * 200 / (2 * 1000)
    assert abs(budget.utility.predicted - reached) < 0.1


def test_the_recall_that_a_join_reaches_is_measured() -> None:
    """The newest tenth of the rows find a tenth of the results, whatever the keys are."""
    streams = zipf_streams(12_000, 3000, 9)
    rule = Rule(
        "pair",
        "a + b > 2.8",
        within="2s",
        on="machine",
        emit="all",
        allowed_lateness="0s",
        quality={"memory": "400 rows", "model": {"by": "none"}},
    )
    plan = plan_of(streams, rule, arrival="arrival")
    driver = Driver(plan, through_pages=False)
    driver.run(parts_of(plan, streams, (), "arrival"))
    logic = watch_logics(driver.session)[0]
    budget = logic.operators.budget
    assert budget.utility is not None
    reached = budget.utility.monitor.reached()
    assert reached is not None
    assert abs(reached - 0.1) < 0.03
    told = local.run_local_detailed(streams, rule, arrival="arrival", cuts=[9000]).metrics.section("memory")["pair"]
    assert told["reached"] == reached
    assert told["predicted"] == budget.found["memory_predicted"]


@pytest.mark.parametrize(("by", "policy"), [("key", "PROB"), ("age", "AGE"), ("none", "RECENT")])
def test_what_rows_are_judged_by_can_be_set_by_hand(by: str, policy: str) -> None:
    """Keys are Zipf and ages say nothing; what is said is obeyed all the same."""
    streams = zipf_streams(2500, 300, 8)

    def plan(**model: str) -> Plan:
        rule = Rule(
            "pair",
            "a + b > 3",
            within="200ms",
            on="machine",
            emit="all",
            quality={"memory": "200 rows", "model": model},
        )
        return plan_of(streams, rule, arrival="arrival")

    said = plan(by=by, granularity="20ms")
    driver = Watcher(said)
    out = driver.run(parts_of(said, streams, (2500,), "arrival"))
    worth = watch_logics(driver.session)[0].operators.budget.utility
    assert worth.policy == [policy, policy]
    assert worth.priorities.shape == (2, 10)
    assert (out.metrics.section("memory")["pair"]["predicted"] is None) == (by == "none")
    assert out.metrics.section("memory")["pair"]["reached"] is not None
    # It has been read back; under another model it is judged anew.
    assert watch_logics(Session(plan(granularity="20ms"), driver.pages))[0].operators.budget.utility.policy == [
        "RECENT",
        "RECENT",
    ]
    words = "rows are not ranked" if by == "none" else f"rows are ranked by {by}"
    assert f"; {words}, age classes of 20ms (`quality.model`)" in str(said)


def test_joins_that_are_judged_otherwise_do_not_remember_together() -> None:
    streams = zipf_streams(1, 1, 0)
    rules = [Rule(n, "a + b > 1", within="1s", on="machine", quality={"model": {"by": n}}) for n in ("key", "age")]
    assert (
        str(local.explain(streams, rules, arrival="arrival", quality={"memory": "200KB"})).count("Memory: 100KB") == 2
    )


def test_open_alerts_that_fill_the_memory_are_kept_and_rows_that_come_are_counted_as_shed() -> None:
    keys = 800
    time = np.arange(keys) * 10
    machine = np.array([f"machine-with-a-long-name-{i}" for i in range(keys)], dtype=object)
    stream = {"ts": time, "machine": machine, "value": np.ones(keys), "arrival": time}
    rule = Rule("open", "a + b > 0", within="1h", on="machine", stale="1h", quality={"memory": "60KB"})
    out, driver = run({"a": stream, "b": stream}, rule, list(range(50, 2 * keys, 50)))
    assert driver.most <= 60_000
    opened = [row["id"] for row in out.alert_rows() if row["state"] == "firing"]
    ended = [row["id"] for row in out.alert_rows() if row["state"] == "resolved"]
    assert len(opened) == len(set(opened)) > 50
    assert set(ended) <= set(opened)
    for counts in out.counts.values():
        assert counts["shed"] > 0


@pytest.mark.parametrize("seed", [3, 4, 7])
def test_a_row_that_is_larger_than_the_memory_costs_no_other_row_its_place(seed: int) -> None:
    # About as many rows are shed as without it.
    streams, rule = zipf_streams(600, 60, seed, payload=True), pairs("witness", quality={"memory": "60KB"})
    without = {"a": {name: np.delete(column, 200) for name, column in streams["a"].items()}, "b": streams["b"]}
    before, _ = run(without, rule)
    streams["a"]["note"][200] = "é" * 30_000
    out, driver = run(streams, rule, [100, 500])
    assert driver.most <= 60_000
    shed, shed_before = (sum(counts["shed"] for counts in one.counts.values()) for one in (out, before))
    # Its bound makes a decision due earlier, so a few other rows can change.
    assert shed_before < shed < 1.05 * shed_before


def most_rows(streams: Columns, rule: Rule) -> int:
    plan = plan_of(streams, rule, arrival="arrival")
    session, most = Session(plan), 0
    for part in parts_of(plan, streams, range(2 * len(streams["a"]["ts"])), "arrival"):
        session.push(part)
        most = max(most, retained_rows(session))
    return most


def test_nothing_is_shed_where_all_rows_just_fit() -> None:
    streams, stated = (
        zipf_streams(500, 4, 3),
        {"within": "20ms", "on": "machine", "emit": "all", "allowed_lateness": "0s"},
    )
    most = most_rows(streams, Rule("pair", "a + b > 1", **stated))
    assert most < 400
    # A row that comes has its place before those go that it puts past their window.
    limited, _ = run(
        streams, Rule("pair", "a + b > 1", quality={"memory": f"{most + 1} rows"}, **stated), through_pages=False
    )
    assert sum(counts.get("shed", 0) for counts in limited.counts.values()) == 0


def filled(memory: str, emit: str = "all") -> tuple[Plan, Watcher]:
    """A watch whose memory is full, of rows or of open alerts."""
    keys = 800
    time = np.arange(keys) * 10
    machine = np.array([f"machine-with-a-long-name-{i}" for i in range(keys)], dtype=object)
    stream = {"ts": time, "machine": machine, "value": np.ones(keys), "arrival": time}
    streams = {"a": stream, "b": stream}
    rule = Rule("open", "a + b > 0", within="1h", on="machine", stale="1h", quality={"memory": memory}, emit=emit)
    plan = plan_of(streams, rule, arrival="arrival").over(1, told=True)
    driver = Watcher(plan)
    for part in parts_of(plan, streams, range(0, 2 * keys, 400), "arrival"):
        driver.take(driver.session.push(part))
    return plan, driver


def test_what_open_alerts_take_beyond_a_share_is_told_and_nobody_else_gets_it() -> None:
    plan, driver = filled("80KB", "witness")
    terms = {"watch": plan.watches[0].name, "terms": plan.watches[0].budget.terms}
    driver.take(driver.session.control([terms | {"share": 33_000}]))
    taken = sum(map(len, driver.pages.values()))
    assert taken > 33_000
    assert driver.session.push([]).reports[0]["share"] >= taken


@pytest.mark.parametrize("call", ["push", "advance"])
def test_a_smaller_memory_holds_from_the_first_call_though_no_row_comes(call: str) -> None:
    plan, driver = filled("80KB")
    small, rule = plan.watches[0].budget.memory.amount // 2, plan.watches[0].rules[0]
    assert driver.most > small
    streams = {name: {"ts": [], "machine": [], "value": [], "arrival": []} for name in "ab"}
    smaller = Rule(
        rule.alert, "a + b > 0", within="1h", on="machine", stale="1h", quality={"memory": small}, emit="all"
    )
    driver.plan = plan_of(streams, smaller, arrival="arrival").over(1, told=True)
    driver.session = Session(driver.plan, driver.pages)
    driver.take(driver.session.push([]) if call == "push" else driver.session.advance(0))
    assert sum(map(len, driver.pages.values())) <= small


def test_joins_that_share_the_memory_of_a_run_have_parts_of_it() -> None:
    streams = zipf_streams(3000, 300, 10)
    rules = [pairs(), Rule("other", "a - b > 1", within="50ms", on="machine", emit="all", quality={"weight": 2.0})]
    result = local.run_local_detailed(streams, rules, arrival="arrival", quality={"memory": "90KB"})
    assert result.state_bytes <= 90_000
    text = local.explain(streams, rules, arrival="arrival", quality={"memory": "90KB"})
    assert str(text).count("  Memory: 45KB, initial share of the budget of the run") == 2
    assert "weight 2" in str(text)


def test_rules_of_one_stream_and_silences_take_nothing_of_the_memory_of_a_run() -> None:
    streams = zipf_streams(400, 5, 1)
    single = [Rule(name, f"{name} > 1", on="machine") for name in "ab"]
    rules = [*single, NoData("a", for_="20ms", on="machine"), pairs()]
    text = str(local.explain(streams, rules, arrival="arrival", quality={"memory": "40KB"}))
    assert text.count("Memory:") == text.count("Memory: 40KB") == 1
    limited, free = (
        local.run_local_detailed(streams, rules, arrival="arrival", quality={"memory": memory})
        for memory in ("40KB", None)
    )
    unlimited = {"a", "b", "NoData"}
    names = {row["alert"] for row in free.alerts}
    assert unlimited < names
    alike = [[row for row in out.alerts if row["alert"] in unlimited] for out in (limited, free)]
    assert stories(alike[0]) == stories(alike[1])


WEIGHT = "`quality.weight` must be a number of at least 0.000001 and at most 1,000,000"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory": "20 dogs"}, "`quality.memory` must be a size such as 200MB, 64KiB or 10000 rows; got '20 dogs'"),
        ({"memory": "0MB"}, "`quality.memory` must be at least 1 and at most"),
        ({"memory": True}, "`quality.memory` must be a size such as 200MB, 64KiB or 10000 rows; got True"),
        ({"prefer": "best"}, "`quality.prefer` must be one of subset, sample; got 'best'"),
        ({"model": "key"}, "`quality.model` must be a mapping such as {by: key}; got 'key'"),
        ({"model": {"by": "luck"}}, "`quality.model.by` must be one of auto, key, age, none; got 'luck'"),
        ({"model": {"bye": "key"}}, "`bye` is not a key of `quality.model`; did you mean `by`?"),
        ({"model": {"granularity": "0s"}}, "`quality.model.granularity` must be longer than 0; got '0s'"),
        ({"model": {"granularity": "soon"}}, "`quality.model.granularity` must be a duration"),
        ({"weight": 0}, f"{WEIGHT}; got 0"),
        ({"weight": 1e-300}, f"{WEIGHT}; got 1e-300"),
        ({"weight": float("nan")}, f"{WEIGHT}; got nan"),
        ({"weight": 10**400}, f"{WEIGHT}; got 1000"),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(RuleError, match="^" + re.escape(f'rule "x": {message}')):
        Rule("x", "a + b > 0", within="1s", on="machine", emit="all", quality=options)


def test_a_sample_is_rejected_when_the_rule_does_not_emit_all_results() -> None:
    message = "`quality.prefer: sample` needs `emit: all`, because a sample carries no information about a maximum"
    with pytest.raises(RuleError, match="^" + re.escape(f'rule "x": {message}; got `emit: witness`')):
        Rule("x", "a + b > 0", within="1s", on="machine", quality={"prefer": "sample"})


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (
            Rule("x", "a > 0", on="machine", quality={"memory": "1MB"}),
            "`quality.memory` needs two or more streams; `expr` reads 1",
        ),
        (
            Rule("x", "a + b > 0", within="1s", on="machine", quality={"memory": "1MB", "wait": "5s"}),
            "`quality.memory` cannot be combined with `quality.wait`, because buffered rows are not shed; "
            "got 1MB, and rows wait 5s",
        ),
        (
            Rule(
                "x", "a + b > 0", within="10m", on="machine", quality={"memory": "1MB", "model": {"granularity": "1s"}}
            ),
            "`quality.model.granularity` must be at least 3s (at most 200 age classes); got 1s (600 age classes)",
        ),
    ],
)
def test_what_a_plan_cannot_keep_is_refused(rule: Rule, message: str) -> None:
    with pytest.raises(RuleError, match="^" + re.escape(f'rule "x": {message}') + "$"):
        plan_of(zipf_streams(1, 1, 0), rule, arrival="arrival")


@pytest.mark.parametrize(("own", "run", "unit"), [("500 rows", "1MB", "bytes"), ("100KB", "5000 rows", "rows")])
def test_a_part_in_rows_of_a_whole_in_bytes_is_refused_and_so_is_the_reverse(own: str, run: str, unit: str) -> None:
    streams = zipf_streams(1, 1, 0)
    rules = [pairs(quality={"memory": own}), Rule("y", "a - b > 0", within="1s", on="machine")]
    message = (
        f'rule "pair": `quality.memory` must be in {unit}, because it is a share of the memory of the run .*; got {own}'
    )
    with pytest.raises(RuleError, match=message):
        local.explain(streams, rules, arrival="arrival", quality={"memory": run})


@pytest.mark.parametrize(("before", "after"), [(None, "1MB"), ("1MB", None), ("1MB", "50KB"), ("1MB", "99 rows")])
def test_open_alerts_and_rows_stay_when_memory_becomes_another(before: str | None, after: str | None) -> None:
    """Beside it are a rule of one stream and a silence, which share its key columns and go on too."""
    streams, out = zipf_streams(200, 5, 1), Out()
    whole = 2 * len(streams["a"]["ts"])
    pages: dict[str, bytes] = {}
    for memory, cut in ((before, slice(0, 1)), (after, slice(1, 2))):
        others = [Rule("hot", "a > 0", within="5ms", on="machine", stale="1h"), NoData("a", "10ms", ["machine"])]
        # Without limit all of them share pages; with it the join has its own, and takes along what it had.
        rules = [Rule("pair", "a + b > -99", within="100ms", on="machine", stale="1h", quality={"memory": memory})]
        plan = plan_of(streams, rules + (others if before is None else []), arrival="arrival")
        session = Session(plan, pages)
        for part in parts_of(plan, streams, [whole // 2], "arrival")[cut]:
            out.add(session.push(part))
        for name, page in session.changed_pages().items():
            pages[name] = page or b""
        pages = {name: page for name, page in pages.items() if page}
    opened = [row["id"] for row in out.alert_rows() if row["state"] == "firing" and row["alert"] == "pair"]
    assert len(opened) == len(set(opened)) == 5
    assert not [row for row in out.alert_rows() if "rule-changed" in row["quality"]]
    for name, counts in out.counts.items():
        assert counts["received"] == sum(counts.get(outcome, 0) for outcome in OUTCOMES), (name, counts)
