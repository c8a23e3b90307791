"""What buckets told comes to one wait: when it is agreed on, when it is worth telling, and who is heard no more."""

from __future__ import annotations

from typing import Any

from tests.plan.test_shared_wait import NAME, PLAN, SECOND, START, control
from tocsin.operators.reorder.wait_agreement import WaitAgreement


def told(bucket: int, time_s: float, delay_s: float = 1.0, watch: str = NAME) -> tuple[int, dict[str, Any]]:
    """What a bucket tells of which all rows, and all results, were late by some seconds."""
    late = [[round(delay_s * 100)], [500]]
    facts = {"observed": late, "delays": [late, late], "skews_us": [0, 0], "true": 100.0}
    return bucket, {"watch": watch, "time_us": START + round(time_s * SECOND), **facts}


def agreement() -> WaitAgreement:
    """Two buckets have been heard for P, 10 s."""
    found = WaitAgreement(PLAN.watches)
    for time_s in (0, 10):
        found.receive(*told(0, time_s))
        found.receive(*told(1, time_s - 1))
        if not time_s:
            assert found.decide() == []
    return found


def test_what_is_agreed_on_holds_from_the_largest_time_of_a_bucket() -> None:
    assert agreement().decide() == [control(1, 10)]


def test_nothing_is_agreed_on_before_p_has_passed_nor_by_one_bucket() -> None:
    found = WaitAgreement(PLAN.watches)
    for time_s in range(0, 100, 5):
        found.receive(*told(0, time_s))
        found.receive(*told(3, time_s, watch="another"))
        assert found.decide() == []
    found.receive(*told(1, 99))
    assert found.decide() == [control(1, 99)]


def test_a_wait_is_told_when_it_is_longer_by_a_16th_or_shorter_by_an_8th_and_5_grains() -> None:
    found = agreement()
    assert found.decide() == [control(1, 10)]
    assert found.decide() == []
    steps = [
        (1.04, False),
        (1.2, True),
        (1.1, False),
        (1, True),
        (0.1, True),
        (0.06, False),
        (0.04, True),
        (0.05, True),
    ]
    for time_s, (delay_s, worth) in enumerate(steps, 20):
        for bucket in (0, 1):
            found.receive(*told(bucket, time_s, delay_s))
        assert found.decide() == ([control(delay_s, time_s)] if worth else [])


def test_a_bucket_whose_clocks_are_in_the_future_does_not_keep_the_others_from_it() -> None:
    found = agreement()
    found.receive(*told(2, 10**6))
    assert found.decide() == [control(1, 10)]


def slow_third() -> WaitAgreement:
    """Buckets 0 and 1, and a third one whose rows come 5 s late; half of all results need that."""
    found = agreement()
    found.receive(*told(2, 10, 5.0))
    found.receive(*told(3, 10, 5.0))
    assert found.decide() == [control(5, 10)]
    return found


def test_what_a_bucket_told_is_forgotten_when_it_is_silent_for_p() -> None:
    found = slow_third()
    for time_s in (15, 20):
        for bucket in (0, 1):
            found.receive(*told(bucket, time_s))
        assert found.decide() == [], "10 s have not passed yet"
    for bucket in (0, 1):
        found.receive(*told(bucket, 21))
    assert found.decide() == [control(1, 21)]
    # It may come again.
    found.receive(*told(2, 22, 5.0))
    found.receive(*told(3, 22, 5.0))
    assert found.decide() == [control(5, 22)]


def test_time_goes_on_where_most_buckets_are_silent() -> None:
    """Two of five go on: by the times of all most would be in the past for ever."""
    found = agreement()
    for bucket in (2, 3, 4):
        found.receive(*told(bucket, 10, 5.0))
    assert found.decide() == [control(5, 10)]
    for time_s in range(15, 60, 5):
        for bucket in (0, 1):
            found.receive(*told(bucket, time_s))
        rows = found.decide()
        assert rows == ([control(1, 25)] if time_s == 25 else [])


def test_buckets_that_seldom_have_rows_are_not_forgotten_between_them() -> None:
    """Ten buckets tell something once in 100 s each, one after the other; P is 10 s."""
    found, seen = WaitAgreement(PLAN.watches), []
    for time_s in range(0, 1000, 10):
        found.receive(*told(time_s // 10 % 10, time_s, 5.0 if time_s % 100 == 50 else 1.0))
        seen += [row["wait_us"] for row in found.decide()]
    # After the first round it is known how seldom they do: the one that is 5 s late always counts.
    assert len(found.pipelines[NAME].known) == 10
    assert seen[-1] == 5 * SECOND


def test_a_clock_that_leaps_makes_no_bucket_silent() -> None:
    found = slow_third()
    found.receive(*told(0, 10**6))
    assert found.decide() == []
    assert len(found.pipelines[NAME].known) == 4
