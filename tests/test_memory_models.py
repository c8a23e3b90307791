"""What rules with limited memory find where results go by age or by key, beside the shedding join and its theory.

The models of a rule are learnt, those of the join are given; in the end the rule is to find what the join finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from benchmarks.papers.p001 import policies as policy
from benchmarks.papers.p001.policies import Policy
from benchmarks.papers.p001.shedding_join import SheddingJoin, equi, open_window
from tests.driver import Driver, parts_of, plan_of, watch_logics
from tests.test_memory import Columns
from tocsin import Rule
from tocsin.operators.retention.utility import frequency_model as frequency
from tocsin.operators.retention.utility.age_model import AgeCurve
from tocsin.operators.retention.utility.memory_curves import RateCurve, divide, together
from tocsin.operators.retention.utility.row_utility import RowUtility

MS, WITHIN = 1000, 400
# Rows of each stream, one a millisecond; the moment from which it counts; and memory in rows.
ROWS, SINCE, MEMORY = 6000, 4500, 220
# What a rule may find less: it makes room for a sixteenth of the memory at a time, and its models are estimates.
LESS, MORE = 0.09, 0.05

Pairs = tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def followed(delay: np.ndarray, back: np.ndarray | None = None) -> Pairs:
    """A pair a millisecond, each with a key of its own: b follows a by so many ms; where it is `back`, a follows b."""
    first = np.arange(len(delay))
    second, swapped = first + delay, np.zeros(len(delay), np.bool_) if back is None else back
    times, keys = [], []
    for time in (np.where(swapped, second, first), np.where(swapped, first, second)):
        order = np.argsort(time, kind="stable")
        times.append(time[order] * MS)
        keys.append(order)
    return (times[0], times[1] + 1), (keys[0], keys[1])


def columns(pairs: Pairs) -> Columns:
    return {
        name: {
            "ts": time,
            "machine": np.array([f"k{number}" for number in key], dtype=object),
            "value": np.ones(len(time)),
            "arrival": time,
        }
        for name, time, key in zip("ab", *pairs, strict=True)
    }


def ruled(
    pairs: Pairs, memory: int | None, model: dict[str, Any] | None = None, **more: Any
) -> tuple[int, RowUtility | None]:
    """How many results a rule finds of which both rows came after `SINCE`, and its models."""
    stated: dict[str, Any] = {"within": f"{WITHIN}ms", "on": "machine", "emit": "all", "allowed_lateness": "0s"} | more
    quality = {"memory": None if memory is None else f"{memory} rows", "model": model}
    rule = Rule("pair", "a + b > 0", quality=quality, **stated)
    plan = plan_of(columns(pairs), rule, arrival="arrival")
    driver = Driver(plan, through_pages=False)
    out = driver.run(parts_of(plan, columns(pairs), (), "arrival"))
    logic = watch_logics(driver.session)[0]
    worth = logic.operators.budget.utility if logic.operators.budget else None
    return sum(row["startsAt"] > SINCE * MS for row in out.alert_rows()), worth


def staged(pairs: Pairs, budgets: Sequence[float], policies: Sequence[Policy | None]) -> float:
    """Which share of the results after `SINCE` the shedding join finds; without a policy there is no window."""
    arrivals, keys = equi(*pairs), int(max(key.max() for key in pairs[1])) + 1

    def count(budgets: Sequence[float]) -> int:
        windows = [
            None if way is None else open_window(WITHIN * MS, int(budget), way, keys)
            for budget, way in zip(budgets, policies, strict=True)
        ]
        return int(SheddingJoin(windows).count(arrivals)[arrivals.clock[:, 0] > SINCE * MS].sum())

    return count(budgets) / count([len(arrivals.stream) * (way is not None) for way in policies])


def check(pairs: Pairs, curves: Sequence[RateCurve], policies: Sequence[Policy | None], **more: Any) -> RowUtility:
    """What a rule finds, beside the join with the models that the streams were made by, and beside the theory."""
    whole, shares = together(curves), divide(curves, MEMORY)
    theory, stage = whole.recall_at(MEMORY), staged(pairs, shares, policies)
    assert stage == pytest.approx(theory, abs=0.04)
    found, worth = ruled(pairs, MEMORY, **more)
    exact, _ = ruled(pairs, None, **more | {"model": None})
    assert theory - LESS < found / exact < theory + MORE
    assert worth is not None
    assert worth.predicted == pytest.approx(theory, abs=0.12)
    return worth


def age_curve(delay: np.ndarray, share: float = 1.0) -> AgeCurve:
    """The age curve of rows of which a share meets one row each, after so many ms."""
    granule = WITHIN * MS // 20
    return AgeCurve(share * np.bincount(delay * MS // granule, minlength=20) / len(delay), granule)


NOTHING = RateCurve(np.zeros(1), np.zeros(1))
BELL = np.random.default_rng(1).integers(100, 260, ROWS)
# Half of the pairs are 20 to 60 ms apart, the others 240 to 280: an age curve with a minimum.
MINIMA = np.random.default_rng(2).integers(20, 60, ROWS) + 220 * np.random.default_rng(3).integers(0, 2, ROWS)


@pytest.mark.parametrize("by", ["auto", "age"])
@pytest.mark.parametrize("delay", [BELL, MINIMA], ids=["bell", "minima"])
def test_age_in_one_direction_finds_what_the_theory_says(delay: np.ndarray, by: str) -> None:
    """S2 has nothing to look back for: all memory is for S1."""
    curve = age_curve(delay)
    ways = [policy.age(curve, WITHIN * MS), None]
    worth = check(followed(delay), [curve.rate_curve(1 / MS), NOTHING], ways, model={"by": by})
    assert worth.policy[0] == "AGE"
    assert worth.split > 0.95


def test_age_in_both_directions_finds_what_the_theory_says() -> None:
    """Every second time b comes first, and a soon after: few rows of S2 are enough, the others are of S1."""
    back = np.arange(ROWS) % 2 == 1
    delay = np.where(back, 20 + BELL // 10, BELL)
    ages = [age_curve(delay[~back], 0.5), age_curve(delay[back], 0.5)]
    ways = [policy.age(curve, WITHIN * MS) for curve in ages]
    worth = check(followed(delay, back), [curve.rate_curve(1 / MS) for curve in ages], ways)
    assert worth.policy[0] == "AGE"
    assert 0.7 < worth.split < 0.9


def test_keys_in_one_direction_find_what_the_theory_says() -> None:
    """Keys are Zipf, and b must follow a: memory is for frequent keys of S1."""
    draw, share = np.random.default_rng(4), 1 / np.arange(1, 301)
    share /= share.sum()
    time, keys = np.arange(ROWS) * MS, (draw.choice(300, ROWS, p=share), draw.choice(300, ROWS, p=share))
    curve = frequency.rate_curve(share, share, 1 / MS, 1 / MS, WITHIN * MS)
    within = {("a", "b"): ("0s", f"{WITHIN}ms")}
    worth = check(((time, time + 1), keys), [curve, NOTHING], [policy.prob(share), None], within=within)
    assert worth.policy[0] == "PROB"
    assert worth.split > 0.95
