"""Memory over joins and buckets: by demand, never more than there is, and nothing given before it is free."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.driver import parts_of, watch_logics
from tests.naive import memory as naive
from tests.test_memory import zipf_streams
from tocsin import Rule, RunError
from tocsin.operators.retention.utility.memory_rebalancing import Allotment, Sampled, Told
from tocsin.plan import make_plan
from tocsin.rules.quality import parse_quality
from tocsin.runtime.session import Session, store_pages

BUCKETS = 4
COLUMNS = {name: list(columns) for name, columns in zipf_streams(1, 1, 0).items()}


def plan_of(*rules: Rule, memory: str | None = None) -> Any:
    quality = parse_quality({"memory": memory})
    return make_plan(rules, COLUMNS, arrival="arrival", quality=quality).over(BUCKETS, told=True)


def pair(alert: str, **more: Any) -> Rule:
    return Rule(alert, "a + b > 1", within="1s", on="machine", emit="all", **more)


def told(name: str, share: int, need: int, points: Any = ()) -> dict[str, Any]:
    return {"watch": name, "share": share, "fixed": 1000, "need": need, "points": points}


def share_of(plan: Any, share: int, watch: int = 0) -> dict[str, Any]:
    of = plan.watches[watch]
    return {"watch": of.name, "share": share, "terms": of.budget.terms}


def stored(session: Any) -> dict[str, bytes]:
    return {name: page for name, page in session.changed_pages().items() if page is not None}


def test_nothing_is_given_before_every_bucket_has_told() -> None:
    plan = plan_of(pair("x", quality={"memory": "1MB"}))
    name, allotment = plan.watches[0].name, Allotment(plan.watches)
    for bucket in range(BUCKETS - 1):
        allotment.hear(bucket, told(name, 250_000, 10**6 if bucket == 0 else 1000))
        assert allotment.rows() == []
    allotment.hear(3, told(name, 250_000, 1000))
    assert allotment.rows()


def test_a_bucket_grows_only_when_others_have_told_that_they_shrank() -> None:
    plan = plan_of(pair("x", quality={"memory": "1MB"}))
    name, allotment = plan.watches[0].name, Allotment(plan.watches)
    shares = dict.fromkeys(range(BUCKETS), 250_000)
    needs = {0: 900_000, 1: 10_000, 2: 10_000, 3: 10_000}
    for bucket, share in shares.items():
        allotment.hear(bucket, told(name, share, needs[bucket]))
    first = allotment.rows()
    assert {row["bucket"] for row in first} == {1, 2, 3}
    assert all(row["share"] < 250_000 for row in first)
    shares |= {row["bucket"]: row["share"] for row in first}
    for bucket in (1, 2):
        allotment.hear(bucket, told(name, shares[bucket], needs[bucket]))
    second = allotment.rows()
    assert [row["bucket"] for row in second] == [0]
    assert second[0]["share"] + shares[1] + shares[2] + 250_000 <= 1_000_000
    assert second[0]["share"] > 500_000


def test_the_memory_goes_where_it_finds_most() -> None:
    plan = plan_of(pair("x", quality={"memory": "1MB"}))
    name, allotment = plan.watches[0].name, Allotment(plan.watches)
    steep = [(0, 0.0), (100_000, 0.9), (400_000, 1.0)]
    flat = [(0, 0.0), (400_000, 1.0)]
    for bucket in range(BUCKETS):
        allotment.hear(bucket, told(name, 250_000, 400_000, steep if bucket else flat))
    wanted = allotment._wanted([name], 1_000_000)
    assert wanted[name, 0] > max(wanted[name, bucket] for bucket in (1, 2, 3))


@pytest.mark.parametrize("seed", range(20))
def test_shares_never_add_up_to_more_than_the_memory(seed: int) -> None:
    """Buckets take what they are given late, in any order, and are killed; needs change all the time."""
    draw = random.Random(seed)
    rules = [
        pair("x"),
        pair("y", quality={"weight": 2.0}),
        pair("z", quality={"memory": "400KB"}),
        pair("s", quality={"prefer": "sample"}),
    ]
    plan = plan_of(*rules, memory="2MB")
    names = [watch.name for watch in plan.watches]
    total = {
        name: sum(w.budget.memory.amount for w in plan.watches if w.budget.pooled == of.budget.pooled)
        for name, of in zip(names, plan.watches, strict=True)
    }
    shares = {(w.name, b): w.budget.share for w in plan.watches for b in range(BUCKETS)}
    allotment, waiting = Allotment(plan.watches), list[dict[str, Any]]()
    for _ in range(300):
        if draw.random() < 0.02:  # The driver starts anew: what it knew is gone, what it wrote is still there.
            allotment = Allotment(plan.watches)
            for row in waiting:
                shares[row["watch"], row["bucket"]] = row["share"]
            waiting = []
            called = list(shares)
        else:
            called = draw.sample(list(shares), draw.randint(1, len(shares)))
        taken = [row for row in waiting if (row["watch"], row["bucket"]) in called]
        for row in taken:
            shares[row["watch"], row["bucket"]] = row["share"]
        waiting = [row for row in waiting if row not in taken]
        for name, bucket in called:
            points = [(10_000, 0.5), (90_000, draw.random() / 2), (400_000, 0.0)] if draw.random() < 0.5 else ()
            more = {"results": draw.choice([0.0, 1.0, 9.0])}
            allotment.hear(bucket, told(name, shares[name, bucket], draw.randint(1000, 10**6), points) | more)
        waiting += allotment.rows()
        for name in names:
            mine = [n for n in names if total[n] == total[name]]
            assert sum(share for (watch, _), share in shares.items() if watch in mine) <= total[name]


def falling(least: int, first: float, steps: int) -> list[tuple[int, float]]:
    """Errors whose squares fall ever more slowly, down to none."""
    variance = [first * (steps - i) ** 2 / steps**2 for i in range(steps + 1)]
    return [(least * (i + 1), one**0.5) for i, one in enumerate(variance)]


@pytest.mark.parametrize("room", [60, 130, 200])
@pytest.mark.parametrize("weights", [(1.0, 1.0), (1.0, 3.0)])
def test_joins_that_sample_have_memory_by_error_and_a_pool_of_their_own(
    room: int, weights: tuple[float, float]
) -> None:
    rules = [
        pair(name, quality={"prefer": "sample", "weight": weight}) for name, weight in zip("st", weights, strict=True)
    ]
    if weights[0] == weights[1]:
        rules[1] = pair("t", quality={"prefer": "sample", "weight": 1.0 + 1e-9})
    plan = plan_of(*rules, pair("x"), memory="4000 rows")
    names = {watch.rules[0].alert: watch.name for watch in plan.watches}
    points = {"s": [falling(3, 0.04, 6), falling(5, 0.01, 6)], "t": [falling(4, 0.5, 6), falling(4, 0.1, 6)]}
    results, subset = [3.0, 1.0], [(0.0, 0.0), (50.0, 0.8), (100.0, 1.0)]
    of = {}
    for join, parts in points.items():
        each = [Told(0, 0, int(p[-1][0]), p, n) for p, n in zip(parts, results, strict=True)]
        of[names[join]] = Sampled.of(each)
    found = Allotment(plan.watches)._alloc({names["x"]: [Told(0, 0, 100, subset).curve]}, of, room)
    whole = {"x": 100, **{join: sum(p[-1][0] for p in parts) for join, parts in points.items()}}
    pool = room * (whole["s"] + whole["t"]) / sum(whole.values())
    assert found[names["x"]] == pytest.approx(room - pool)
    assert found[names["s"]] + found[names["t"]] <= pool + 1e-9

    def error_at(join: str) -> Any:
        samples = list(zip(points[join], results, strict=True))
        return lambda memory: naive.best_error_of_sum(samples, int(memory + 1e-9))

    largest = max(w * error_at(join)(found[names[join]]) for join, w in zip("st", weights, strict=True))
    best = naive.best_largest([error_at("s"), error_at("t")], int(pool), weights)
    # Between two corners of its curve a join is not given what does not lower its error.
    assert largest <= best * 1.25 + 1e-9
    in_proportion = {join: pool * whole[join] / (whole["s"] + whole["t"]) for join in "st"}
    assert largest < max(w * error_at(join)(in_proportion[join]) for join, w in zip("st", weights, strict=True))


def test_buckets_of_a_sample_have_memory_by_what_it_takes_off_the_error_of_all() -> None:
    plan = plan_of(pair("x", quality={"memory": "1MB", "prefer": "sample"}))
    name, allotment = plan.watches[0].name, Allotment(plan.watches)
    points = [(1000.0, 1.0), (100_000.0, 0.3), (400_000.0, 0.0)]
    for bucket in range(BUCKETS):
        more = {"results": 50.0 if bucket == 2 else 1.0}
        allotment.hear(bucket, told(name, 250_000, 400_000, points) | more)
    wanted = allotment._wanted([name], 1_000_000)
    assert wanted[name, 2] > 400_000
    assert sum(wanted.values()) <= 1_000_000
    assert allotment.shares == {"x": 1_000_000}


def test_where_nothing_is_known_of_a_sample_memory_goes_by_what_is_used() -> None:
    curve = Told(10, 1, 1000, [], 0.0, 10, 100).errors
    assert curve.memory_for(0.0) == 1000
    # Of 100 rows that give equally many results, a half that is kept by chance gives 1 / sqrt(100).
    assert curve.error_at(500) == pytest.approx(0.1, rel=0.15)
    told_, results = [Told(10, 1, 1000, [], 0.0, 10, 100), Told(10, 1, 10, [(1.0, 0.5), (9.0, 0.0)], 5.0)], [1000, 10]
    assert Sampled.of(told_).results == results


def test_a_share_that_is_told_holds_at_once_and_its_page_remembers_it() -> None:
    plan = plan_of(pair("x", quality={"memory": "800KB"}))
    session = Session(plan)
    watch = watch_logics(session)[0]
    session.control([share_of(plan, 90_000)])
    assert watch.operators.budget.pool.share == 90_000
    pages = stored(session)
    assert watch_logics(Session(plan, pages))[0].operators.budget.pool.share == 90_000
    assert session.control([share_of(plan, 5) | {"watch": "gone"}]).alert_rows() == []
    wrong: list[dict[str, Any]] = [{"share": 0}, {"share": True}, {"watch": 3}, {"terms": None}, {"more": 1}]
    for row in [*(share_of(plan, 9) | one for one in wrong), {"share": 9}]:
        with pytest.raises(RunError, match="control rows must address a pipeline of the plan"):
            session.control([row])


def test_of_a_smaller_memory_every_bucket_takes_its_part_at_once() -> None:
    large, small = plan_of(pair("x", quality={"memory": "800KB"})), plan_of(pair("x", quality={"memory": "400KB"}))
    session = Session(large)
    session.control([share_of(large, 100_000)])
    pages = stored(session)
    assert watch_logics(Session(small, pages))[0].operators.budget.pool.share == 50_000
    grown = Session(plan_of(pair("x", quality={"memory": "1600KB"})), pages)
    assert watch_logics(grown)[0].operators.budget.pool.share == 100_000


def test_what_a_bucket_tells_is_a_curve_that_rises() -> None:
    curve = Told(10, 1, 1000, [(0.0, 0.0), (50.0, 0.5), (100.0, 1.0)]).curve
    assert curve.needed == 1000
    assert curve.recall_at(500) == pytest.approx(0.5)
    assert Told(10, 1, 1000, []).curve.recall_at(250) == pytest.approx(0.25)


def test_a_share_that_was_told_under_another_budget_says_nothing() -> None:
    """The last control rows of a run are taken by the next one, whose file may say less."""
    large, small = plan_of(pair("x", quality={"memory": "800KB"})), plan_of(pair("x", quality={"memory": "400KB"}))
    session = Session(small)
    session.control([share_of(large, 500_000)])
    assert watch_logics(session)[0].operators.budget.pool.share == 100_000


def test_where_others_share_a_run_no_bucket_has_more_than_its_first_part() -> None:
    """X had most of what it shared with Y; Z does not know that, and begins with its own part."""
    before, after = (plan_of(pair("x"), pair(other, quality={"weight": 2.0}), memory="800KB") for other in "yz")
    shares = {"x": 190_000, "y": 10_000}
    session = Session(before)
    session.control([share_of(before, shares[w.rules[0].alert], i) for i, w in enumerate(before.watches)])
    again = Session(after, stored(session))
    assert BUCKETS * sum(watch.operators.budget.pool.share for watch in watch_logics(again)) <= 800_000


def test_a_memory_in_rows_that_was_one_in_bytes_begins_anew() -> None:
    for begin, then in (("400 rows", "800KB"), ("800KB", "400 rows")):
        first, second = plan_of(pair("x", quality={"memory": begin})), plan_of(pair("x", quality={"memory": then}))
        session = Session(first)
        session.control([share_of(first, first.watches[0].budget.share // 2)])
        assert (
            watch_logics(Session(second, stored(session)))[0].operators.budget.pool.share
            == second.watches[0].budget.share
        )


def test_a_watch_that_gets_another_name_takes_its_share_along_at_once() -> None:
    one, two = (plan_of(pair("x"), *more, memory="800KB") for more in ([], [pair("y")]))
    session = Session(one)
    session.push(parts_of(one, zipf_streams(20, 5, 0), (), "arrival")[0])
    session.control([share_of(one, 50_000)])
    pages = stored(session)
    again = Session(two, pages)
    again.push([])
    store_pages(pages, again.changed_pages())
    assert watch_logics(Session(two, pages))[0].operators.budget.pool.share == 50_000


def test_a_bucket_that_cannot_shrink_yet_is_not_asked_again_and_again() -> None:
    plan = plan_of(pair("x", quality={"memory": "1MB"}))
    name, allotment = plan.watches[0].name, Allotment(plan.watches)
    needs = {0: 900_000, 1: 10_000, 2: 10_000, 3: 10_000}
    for bucket, need in needs.items():
        allotment.hear(bucket, told(name, 250_000, need))
    assert {row["bucket"] for row in allotment.rows()} == {1, 2, 3}
    for bucket, need in needs.items():
        allotment.hear(bucket, told(name, 250_000, need))
    assert allotment.rows() == []
