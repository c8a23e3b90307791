"""The choice of a form by Eq. 1."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tocsin.stages.promising.anytime_join import COSTS
from tocsin.stages.promising.choose import Load, choose, hit, insertion, output
from tocsin.stages.promising.count_sketch import CountSketch
from tocsin.stages.promising.layout import Layout

LAYOUT = Layout(buckets=4, scheme=CountSketch(5, 256))


def test_output_is_eq_1() -> None:
    load = Load(tau=200.0, window=600.0, results=40.0)
    for variant in ("SHJ", "T1", "T2", "T3", "T4"):
        form = replace(LAYOUT, variant=variant)
        assert output(form, load) == pytest.approx((load.tau - insertion(form, load)) / hit(form, load))
        assert output(form, load._replace(tau=1.0)) == 0.0


def test_with_units_for_all_results_nothing_is_summarised() -> None:
    assert choose(LAYOUT, Load(tau=1e6, window=600.0, results=40.0)).variant in ("SHJ", "T1")


def test_t1_costs_a_scan_of_the_window() -> None:
    load = Load(tau=100.0, window=600.0, results=3.0)
    assert hit(replace(LAYOUT, variant="T1"), load) == COSTS.emit + COSTS.scan * 200.0
    assert insertion(replace(LAYOUT, variant="T1"), load) == COSTS.insert


def test_few_units_and_small_windows_choose_a_form_without_summaries() -> None:
    rare = Load(tau=22.0, window=600.0, results=0.1, matching=0.08)
    assert choose(LAYOUT, rare).variant in ("SHJ", "T1")
    assert choose(LAYOUT, rare._replace(tau=200.0, window=20.0)).variant in ("SHJ", "T1")


def test_large_windows_choose_summaries() -> None:
    load = Load(tau=200.0, window=5_000.0, results=1.0, matching=0.1)
    chosen = choose(LAYOUT, load)
    # T3 is as good by the model, and T4 where streams change too.
    assert chosen.variant == "T4"
    assert output(chosen, load) == output(replace(LAYOUT, variant="T3"), load)
    assert output(chosen, load) > output(replace(LAYOUT, variant="SHJ"), load)
