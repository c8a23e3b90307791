"""The benchmark of memory-limited joins: its streams follow the paper's recipe, a quick run gives all parts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import memory, memory_automatic, memory_recordings, memory_runs, memory_samples
from benchmarks import memory_data as data
from benchmarks.memory_bars import bars
from benchmarks.memory_data import UNIT, W1
from benchmarks.papers.p001 import policies as policy
from benchmarks.recordings import VARIABLE
from tocsin.operators.retention.utility.sample_estimates import windowed

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("shape", data.SHAPES)
def test_aged_streams_have_the_rates_and_the_curve_of_the_recipe(shape: str) -> None:
    p = data.age_shape(shape)
    streams = data.aged(p, 20_000, 1)
    assert all(
        (column == again).all() for column, again in zip(streams.times, data.aged(p, 20_000, 1).times, strict=True)
    )
    for stream, nominal in enumerate((data.R1, data.R2)):
        gaps = np.diff(streams.times[stream]) / UNIT
        assert gaps.min() >= 0.5 / nominal - 0.001
        assert gaps.max() <= 2 / nominal + 0.001
        assert streams.rate(stream) * UNIT == pytest.approx(0.8 * nominal, rel=0.01)
    late = streams.times[1] > W1
    assert (streams.keys[0] == np.arange(len(streams.times[0]))).all()
    ages = streams.times[1][late] - streams.times[0][streams.keys[1][late]]
    assert ages.min() >= 0
    assert ages.max() < W1
    shares = np.bincount(ages * data.BUCKETS // W1, minlength=data.BUCKETS) / late.sum()
    assert np.abs(shares - p).max() < 0.005


def test_age_shapes_are_those_of_the_paper() -> None:
    for shape, first, middle, last in (("INC", 1, 100, 400), ("DEC", 361, 100, 0), ("BELL", 1, 100, 0)):
        p = data.age_shape(shape)
        assert p.sum() == pytest.approx(1)
        assert (p[[0, 9, 19]] / p[9] * 100).tolist() == pytest.approx([first, middle, last])


def test_values_are_zipf_and_ordered_alike_inversely_or_neither() -> None:
    f = data.zipf(2.0)
    assert (f[0] / f[9], len(f)) == (pytest.approx(100), 50)
    same, inverse, other = (data.frequencies(case, 1.5, 1) for case in data.CASES)
    assert (same[0] == same[1]).all()
    assert (inverse[0] == inverse[1][::-1]).all()
    assert sorted(other[1]) == sorted(other[0])
    assert abs(np.corrcoef(np.argsort(other[0]), np.argsort(other[1]))[0, 1]) < 0.5
    streams = data.drawn(*inverse, 20_000, 1)
    for stream in (0, 1):
        shares = np.bincount(streams.keys[stream], minlength=50) / len(streams.keys[stream])
        assert np.abs(shares - inverse[stream]).max() < 0.01


def test_the_wan_trace_comes_as_asked_and_its_age_curve_peaks_near_63_seconds() -> None:
    streams = data.wan(600, 1)
    assert [len(times) for times in streams.times] == [30_000, 30_000]
    assert all((np.diff(times) >= 0).all() for times in streams.times)
    assert set(np.diff(np.sort(streams.keys[1]))) == {20_000}
    p = memory_runs.observed(streams, *data.WAN_BAND, data.WAN_W1, data.WAN_GRANULE)
    # 11 rows are sent in 0.2 s, both ends counted.
    assert p.sum() == pytest.approx(11, rel=0.001)
    assert abs(int(np.argmax(p)) / 10 - 63) < 1.5
    # The same by the definition, for one row of S1.
    row = 5_000
    time, value = streams.times[0][row], streams.keys[0][row]
    matching = (streams.keys[1] - value >= 59_900_000) & (streams.keys[1] - value <= 60_100_000)
    assert matching.sum() == 11
    assert (streams.times[1][matching] - time <= data.WAN_W1).all()


@pytest.mark.recordings
def test_bids_come_after_their_auction_opened_and_within_a_week() -> None:
    streams = data.auctions(3, 1)
    assert len(streams.times[0]) == 3 * 284
    assert len(streams.times[1]) == 3 * 4737
    ages = streams.times[1] - streams.times[0][streams.keys[1]]
    assert ages.min() >= 0
    assert ages.max() <= 7 * memory_recordings.DAY
    assert all((np.diff(times) >= 0).all() for times in streams.times)


@pytest.mark.recordings
def test_trades_are_dealt_out_in_turn() -> None:
    by_symbol, by_price = (data.trades(600_000, by_price=whether) for whether in (False, True))
    assert [len(times) for times in by_symbol.times] == [295_506, 295_506]
    assert np.bincount(np.concatenate(by_symbol.keys)).tolist() == [68_693, 214_044, 57_674, 250_601]
    # A symbol and a price determine the symbol.
    pairs = {(a, b) for a, b in zip(by_price.keys[0].tolist(), by_symbol.keys[0].tolist(), strict=True)}
    assert len(pairs) == len({price for price, _ in pairs})


def test_recall_is_of_the_results_behind_the_warm_up() -> None:
    join, curve, rate = memory_runs.aged_join(data.age_shape("DEC"), 3_000)
    assert join.recall((10_000, policy.recent(W1))) == 1.0
    assert join.recall((0, policy.recent(W1))) == 0.0
    assert join.exact == pytest.approx(rate * curve.n * (3_000 * UNIT - W1), rel=0.01)


def test_the_exact_averages_of_figures_8_and_9_are_those_of_all_results() -> None:
    of = memory_samples.sampling("IC", 1, 2_000)
    stream, time, key, value = of.stream.tolist(), of.time, of.key, of.value
    at = int(of.at[len(of.at) // 2])
    mine = [i for i in range(len(stream)) if stream[i] == 0 and time[i] <= at]
    pairs = [
        (i, j)
        for i in mine
        for j in np.flatnonzero((of.stream == 1) & (key == key[i])).tolist()
        if j > i and time[j] - time[i] <= W1 and at - memory_samples.W_AGG <= time[j] <= at
    ]
    for attribute, side in (("S1", 0), ("S2", 1)):
        found, count = memory_samples.averages(of.whole, attribute, np.array([at]))
        assert count[0] == len(pairs)
        assert found[0] == pytest.approx(np.mean([value[pair[side]] for pair in pairs]))
        x = of.whole.held_value if attribute == "S1" else of.whole.probe_value
        estimate = windowed(of.whole.time, of.whole.held, of.whole.probability, x, of.at, memory_samples.W_AGG).averages
        truth, _ = memory_samples.averages(of.whole, attribute, of.at)
        assert estimate.value == pytest.approx(truth)
        none = memory_samples.errors(of, estimate, attribute, 1.0)
        assert (none["error"], none["without"]) == (pytest.approx(0, abs=1e-9), 0)


def test_all_of_the_memory_is_used_on_average_where_that_is_the_budget() -> None:
    of = memory_samples.sampling("UC", 1, 20_000)
    for way in memory_samples.WAYS:
        p = of.fraction(way, 0.3 * of.most)
        join, _ = of.run(way, p, len(of.time), 1)
        assert 0.3 * of.most < join.most_held[0] < 0.5 * of.most
        hard, _ = of.run(way, p, int(0.3 * of.most), 1)
        assert hard.most_held[0] <= 0.3 * of.most
        assert hard.state.one.fraction[0] < p


@pytest.mark.recordings
def test_a_policy_that_never_changes_gives_what_one_join_gives() -> None:
    of = next(iter(memory_automatic.recordings(quick=True)))
    join = memory_runs.Join(of.arrivals, of.lengths, int(max(column.max() for column in of.streams.keys)) + 1, of.since)
    pieces = memory_automatic.chosen(of, join, (20,))[20]
    recent = [policy.recent(length) for length in of.lengths]
    same = [piece._replace(policies=recent, budgets=[200, 200]) for piece in pieces]
    found = int(memory_automatic.run(of, join, same)[join.counted].sum()) / join.exact
    assert found == join.recall((200, recent[0]), (200, recent[1]))


def test_the_bars_of_the_figures_hold_on_shorter_streams() -> None:
    runs = [*memory_runs.wan("wan", quick=True), *memory_runs.powers("powers", quick=True)]
    for shape in data.SHAPES:
        join, curve, rate = memory_runs.aged_join(data.age_shape(shape), 40_000)
        facts = {"part": "ages", "data": shape, "k_opt": curve.k_opt * curve.granule / UNIT}
        runs += memory_runs.by_policy(facts, join, curve, rate, W1, (10, 40, 80))
    assert [bar["what"] for bar in bars(runs) if not bar["met"]] == []


# Parts of the benchmark that read nothing but recordings.
RECORDED = {"retail", "trades", "auctions", "automatic", "recorded"}


def quick_results(parts: set[str], folder: Path) -> dict[str, Any]:
    file = folder / "memory.json"
    assert memory.main(["--quick", "--only", ",".join(parts), "--json", str(file), "--plots", str(folder)]) == 0
    results: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return results


def test_quick_run_writes_results_and_plots_of_all_synthetic_parts(tmp_path: Path) -> None:
    parts = set(memory.PARTS) - RECORDED
    results = quick_results(parts, tmp_path)
    assert {row["part"] for row in results["runs"]} == parts
    assert {bar["met"] for bar in results["bars"]} <= {True, False}
    assert {f"memory_figure_{n}.png" for n in (5, 6, 7, 8, 9, 10, 11)} <= {file.name for file in tmp_path.glob("*.png")}


@pytest.mark.recordings
def test_quick_run_writes_results_and_plots_of_all_recorded_parts(tmp_path: Path) -> None:
    results = quick_results(RECORDED, tmp_path)
    assert {row["part"] for row in results["runs"]} == RECORDED
    assert {bar["met"] for bar in results["bars"]} <= {True, False}
    figures = {f"memory_{name}.png" for name in ("retail", "trades", "auctions", "automatic")}
    assert figures <= {file.name for file in tmp_path.glob("*.png")}


def test_quick_run_omits_recorded_parts_when_no_recordings_are_set(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    command = [sys.executable, "-m", "benchmarks", "memory", "--quick", "--only", "retail", "--json", "memory.json"]
    environment["PYTHONPATH"] = str(Path(memory.__file__).parents[1])
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    assert json.loads((tmp_path / "memory.json").read_text(encoding="utf-8"))["runs"] == []
