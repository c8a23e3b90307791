"""`tocsin run` before Spark starts: errors, arguments, run directories in use, signals, and the last line."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rule_files import load_file
from run_dirs import SyntheticRun
from tocsin.cli.live import batch_text
from tocsin.cli.main import main
from tocsin.cli.run import SignalHandler, format_summary
from tocsin.plan import Plan
from tocsin.run_directory import Progress, RunDir, Tally
from tocsin.run_directory.manifest import build_manifest

GOOD = """\
streams:
  air: {source: {json: {path: in}}, keys: [machine]}
groups:
  - name: g
    rules:
      - {alert: Hot, expr: air > 30, on: [machine]}
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    Path("good.yaml").write_text(GOOD)
    Path("bad.yaml").write_text(GOOD.replace("keys:", "kays:").replace("air > 30", "air >"))


@pytest.fixture(autouse=True)
def _no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if a test starts Spark."""
    pytest.importorskip("pyspark", reason="needs pyspark: install tocsin[spark]")
    from tocsin.spark import run as module

    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("Spark must not start")

    monkeypatch.setattr(module, "run_session", fail)


def test_run_reports_errors_as_check_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "bad.yaml"]) == 1
    output = capsys.readouterr()
    assert len(output.err.splitlines()) > 1
    assert main(["run", "bad.yaml", "--run-dir", "run"]) == 1
    assert capsys.readouterr() == output
    assert main(["run", "bad.yaml", "--run-dir", "run", "--json"]) == 1
    result = json.loads(capsys.readouterr().out)
    places = [line for line in output.err.splitlines() if line.startswith("bad.yaml:")]
    assert [result["ok"], len(result["errors"])] == [False, len(places)]
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["good.yaml"], "the following arguments are required: --run-dir"),
        (["good.yaml", "--run-dir", "run", "--interval", "soon"], "`--interval` must be a duration"),
        (["good.yaml", "--run-dir", "run", "--interval", "0s"], "`--interval` must be at least 1ms; got 0s"),
        (["good.yaml", "--run-dir", "run", "--drain=-1s"], "`--drain` must not be negative"),
        (["good.yaml", "--run-dir", "run", "--conf", "spark.x"], "`--conf` must be KEY=VALUE; got 'spark.x'"),
        (["good.yaml", "--run-dir", "run", "--conf", "=hunter2"], "`--conf` must be KEY=VALUE; got '=***'"),
        (["good.yaml", "--run-dir", "run", "--metrics-port", "70000"], "`--metrics-port` must be from 0 to 65535"),
    ],
)
def test_run_exits_with_2_when_arguments_are_invalid(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["run", *arguments])
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def failure_of(capsys: pytest.CaptureFixture[str], *more: str) -> str:
    assert main(["run", "good.yaml", "--run-dir", "run", *more]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    return line


def test_run_rejects_a_directory_in_use(capsys: pytest.CaptureFixture[str]) -> None:
    with RunDir("run").lock():
        line = failure_of(capsys)
    assert line == f"tocsin run: run directory run is in use by process {os.getpid()}"


def test_run_rejects_a_directory_with_incompatible_state(capsys: pytest.CaptureFixture[str]) -> None:
    Path("run").mkdir()
    manifest = build_manifest(load_file("good.yaml"), Plan(()), (), 2)
    moved = {name: {**stream, "from": "elsewhere"} for name, stream in manifest.streams.items()}
    replace(manifest, streams=moved).write(Path("run"))
    line = failure_of(capsys)
    assert "does not fit this run: stream 'air' had source " in line
    assert line.endswith("run with the earlier settings, or use a new run directory")
    manifest.write(Path("run"))
    assert "`buckets` was 2 and is now 5" in failure_of(capsys, "--buckets", "5")


def test_run_rejects_the_directory_of_a_backtest(capsys: pytest.CaptureFixture[str]) -> None:
    Path("run").mkdir()
    build_manifest(load_file("good.yaml"), Plan(()), (), 2).write(Path("run"))
    Path("run/summary.json").write_text("{}")
    assert "belongs to `tocsin backtest`; use a new directory or the directory of a run" in failure_of(capsys)


def test_run_json_has_the_error_when_it_fails(capsys: pytest.CaptureFixture[str]) -> None:
    Path("run").mkdir()
    Path("run/notes.txt").write_text("")
    assert main(["run", "good.yaml", "--run-dir", "run", "--json"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out) == {"ok": False, "error": err.removeprefix("tocsin run: ").strip()}
    assert "must be new, empty, or have a `manifest.json`; it has other files" in err


def test_run_names_the_package_when_pyspark_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert failure_of(capsys) == "tocsin run: this command needs PySpark; install tocsin[spark]"


def test_first_signal_stops_after_the_micro_batch_and_second_ends_the_process(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    codes: list[int] = []
    monkeypatch.setattr("os._exit", codes.append)
    before = signal.getsignal(signal.SIGTERM)
    with SignalHandler() as signals:
        signal.raise_signal(signal.SIGTERM)
        assert (signals.received.is_set(), signals.name, codes) == (True, "SIGTERM", [])
        signal.raise_signal(signal.SIGINT)
        assert codes == [128 + signal.SIGINT]
    assert signal.getsignal(signal.SIGTERM) is before
    assert "tocsin run: SIGTERM received; stopping after the current micro-batch" in capfd.readouterr().err


def test_run_help_has_examples_and_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["run", "--help"])
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    assert "tocsin run cold-store.yaml --run-dir runs/cold-store --once\n" in shown
    assert "130, 143  stopped by a second signal" in shown


@pytest.mark.parametrize(
    ("count", "counts"), [(0, "0 rows in total, 0 alerts fired, 0 resolved, 0 still firing"),
                        (1, "1 row in total, 1 alert fired, 0 resolved, 1 still firing"),
                        (1000, "1,000 rows in total, 1,000 alerts fired, 0 resolved, 1,000 still firing")]
)  # fmt: skip
def test_last_line_uses_singular_and_plural(count: int, counts: str) -> None:
    text = end_of(Tally(rows={"air": count}, alerts={"Hot": {"firing": count}}))
    assert text == f"all input processed; {counts}; run directory run"


def end_of(total: Tally) -> str:
    from tocsin.spark.run import Ended, Options

    progress = Progress(0, "1970-01-01T00:00:10.000000Z", total, total)
    ended = Ended(stopped=False, progress=progress, delivered=True, sinks={})
    return format_summary(ended, SignalHandler(), Options(Path("run")))


def test_last_line_has_resolved_alerts_and_matches() -> None:
    text = end_of(
        Tally(alerts={"Hot": {"firing": 20, "resolved": 20}, "Wet": {"firing": 6, "resolved": 5, "match": 3}})
    )
    assert "; 0 rows in total, 26 alerts fired, 25 resolved, 1 still firing, 3 matched; run directory run" in text


def test_last_line_has_invalid_rows_and_their_most_frequent_reason() -> None:
    lines = [("ts is missing", 1), ("no \x1b value", 2)]
    dead = [json.dumps({"stream": "air", "reason": why, "raw": ""}) for why, count in lines for _ in range(count)]
    RunDir("run").dead.write(0, dead)
    counts = {"air": {"received": 9, "out_of_domain": 4}, "oil": {"without_limits": 1}}
    text = end_of(Tally(rows={"air": 9}, dead={"air": 3}, counts=counts))
    assert text.split("; ", 2)[2] == (
        r"3 invalid rows (stream `air`: no \x1b value; and other reasons); "
        "4 rows of `air` outside the domain; 1 row of `oil` without a row in a limits table; run directory run"
    )


def test_last_line_has_late_rows_and_buffered_rows() -> None:
    counts = {"air": {"received": 9, "behind": 2, "late": 1, "held": 5}, "oil": {"received": 9, "held": 0, "shed": 3}}
    assert end_of(Tally(rows={"air": 9}, counts=counts)) == (
        "all input read; 9 rows in total, 0 alerts fired, 0 resolved, 0 still firing; "
        "1 row of `air` dropped as late (beyond `allowed_lateness`); "
        "2 rows of `air` evaluated out of order (delayed longer than the reorder wait); "
        "3 rows of `oil` evicted because the memory budget was exceeded; "
        "5 rows of `air` in the reorder buffer; the next run continues with them; run directory run"
    )


def test_run_reports_a_missing_source_before_spark_starts(capsys: pytest.CaptureFixture[str]) -> None:
    Path("in").rmdir()
    line = failure_of(capsys)
    path = load_file("good.yaml").streams["air"].source.options["path"]
    assert line == f"tocsin run: stream `air`: path `{path}` does not exist; it must exist when a run starts"
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("path", "master", "conf"),
    [("in*", "local[*]", {}), ("s3a://bucket/in", "local[*]", {}), ("in", "spark://host:7077", {}),
     ("in", "local[*]", {"spark.hadoop.fs.defaultFS": "hdfs://host"})],
)  # fmt: skip
def test_run_does_not_check_paths_that_can_be_remote(path: str, master: str, conf: dict[str, str]) -> None:
    from tocsin.errors import PlanError
    from tocsin.rules.rulefile import Source, Stream
    from tocsin.spark.sources.registry import check_paths

    Path("in").rmdir()
    check_paths([Stream("air", Source("json", {"path": path}))], master, conf)
    with pytest.raises(PlanError, match="stream `air`: path `in` does not exist"):
        check_paths([Stream("air", Source("json", {"path": "in"}))], "local[*]", {})


def test_warning_suggests_a_time_unit_once_per_stream_when_times_are_far_off(caplog: pytest.LogCaptureFixture) -> None:
    from tocsin.rules.rulefile import Source, Stream
    from tocsin.spark.far_off import Warner

    now = 1_790_000_000_000_000
    # `slow` has seconds that are read as milliseconds. No unit brings the day of `old`, in 1900, near the present.
    newest = {"slow": now // 1000, "old": -70 * 365 * 86_400_000_000, "fine": now - 9 * 365 * 86_400_000_000}
    units = {"slow": "ms", "old": "us", "fine": "us"}
    warner = Warner({name: Stream(name, Source("json"), time_unit=unit) for name, unit in units.items()})
    progress = Progress(0, "2026-09-21T14:13:20.000000Z", Tally(), Tally(newest_us=newest))
    assert progress.seconds * 1e6 == now
    for _ in range(2):
        warner.note(progress)
    assert sorted(caplog.messages) == [
        "stream `old`: its newest row is at 1900-01-18T00:00:00Z, more than ten years ago",
        "stream `slow`: its newest row is at 1970-01-21T17:13:20Z, more than ten years ago; did you mean `time_unit: "
        "s`?",
    ]


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("year", [1985, 2013, 2016, 2026, 2060])
def test_time_unit_hint_names_the_true_unit_when_the_data_is_historic(unit: str, year: int) -> None:
    from tocsin.rules.rulefile import Source, Stream
    from tocsin.spark.far_off import far_off
    from tocsin.spark.sources.row_validation import PER_UNIT

    now_us = 1_790_000_000_000_000
    number = (year - 1970) * 365.25 * 86_400  # seconds
    text = far_off(Stream("air", Source("json"), time_unit=unit), round(number * PER_UNIT[unit]), now_us)
    assert "newest row is at 1970-" in text
    assert text.endswith(", more than ten years ago; did you mean `time_unit: s`?")


@pytest.mark.parametrize(("year", "side"), [(1900, "ago"), (2013, "ago"), (2040, "from now"), (2100, "from now")])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_time_unit_hint_is_absent_when_the_unit_is_right(unit: str, year: int, side: str) -> None:
    from tocsin.rules.rulefile import Source, Stream
    from tocsin.spark.far_off import far_off

    time_us = round((year - 1970) * 365.25 * 86_400) * 1_000_000
    text = far_off(Stream("air", Source("json"), time_unit=unit), time_us, 1_790_000_000_000_000)
    assert text.endswith(f", more than ten years {side}")


def test_batch_log_line_has_retained_rows_and_new_counts() -> None:
    from tocsin.spark.listener import line_of as logged

    gained = Tally(rows={"air": 9}, counts={"air": {"received": 9, "retained": -1, "expired": 4, "omitted": 6}})
    total = Tally(rows={"air": 20}, counts={"air": {"received": 20, "retained": 7, "expired": 5, "omitted": 8}})
    progress = Progress(7, "1970-01-01T00:00:10.000000Z", gained, total)
    assert logged(progress, {}).startswith("batch=7 rows=9 retained=7 expired=4 omitted=6 late=0 quarantined=0 dead=0")


def test_listener_logs_the_number_of_the_run_directory_when_a_repair_moved_the_numbers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    from tocsin.spark.listener import BatchListener

    seconds: list[float] = []
    listener = BatchListener(seconds.append, first_batch=6)
    listener.run_id = "r"
    listener.note(Progress(7, "1970-01-01T00:00:10.000000Z", Tally(rows={"air": 1}), Tally(rows={"air": 1})))
    spark = SimpleNamespace(batchId=1, runId="r", batchDuration=1500)
    with caplog.at_level(logging.INFO, logger="tocsin.run"):
        listener.onQueryProgress(SimpleNamespace(progress=spark))
    assert seconds == [1.5]
    assert caplog.messages[0].startswith("batch=7 rows=1 ")


def test_progress_has_no_lag_when_the_first_rows_of_a_stream_are_history() -> None:
    from tocsin.run_directory.progress import historic_streams, parse_progress
    from tocsin.spark.listener import line_of as logged

    def after(before: Progress, newest_us: dict[str, int]) -> Progress:
        historic = historic_streams(before, newest_us, 1_790_000_000.0)
        total = Tally(newest_us=newest_us)
        return Progress(before.batch + 1, "2026-09-21T14:13:20.000000Z", Tally(), total, historic=historic)

    now, day = 1_790_000_000_000_000, 86_400_000_000
    first = after(Progress(-1, "", Tally(), Tally()), {"old": now - 31 * day, "live": now - 29 * day})
    assert first.historic == ("old",)
    assert first.lag_s == {"live": 29 * 86_400.0}
    only_old = replace(first, total=Tally(newest_us={"old": now - 31 * day}))
    assert "lag" not in batch_text(only_old, 1.0)
    assert "lag_seconds" not in logged(only_old, {})
    (read,) = parse_progress([first.line()])
    assert read == first
    # A live stream that stops keeps its lag. A historic stream that reaches the present gets a lag.
    later = after(read, {"old": now - 30 * day, "live": now - 40 * day})
    assert later.historic == ()
    assert later.lag_s == {"old": 30 * 86_400.0, "live": 40 * 86_400.0}


def test_batch_text_has_counts_lag_and_cpu_recall() -> None:
    gained = Tally(rows={"air": 500, "oil": 500}, batches=1)
    total = Tally(
        rows={"air": 1500, "oil": 500},
        counts={"air": {"retained": 30}, "oil": {"retained": 4}},
        alerts={"Hot": {"firing": 5, "resolved": 3}},
        newest_us={"air": 8_500_000, "oil": 9_000_000},
    )
    progress = Progress(7, "1970-01-01T00:00:10.000000Z", gained, total)
    line = "batch 7: 500 rows/s, 2,000 rows, 34 retained, 2 firing, lag 1.5 s"
    assert batch_text(progress, 2.0) == line
    # A share below 1 is never shown as 100%, and unknown shares are not shown.
    cpu = {"Near": {"rows": 1.0, "results": 0.999}, "Far": {"rows": 0.5, "results": None}}
    assert batch_text(replace(progress, total=total.plus(Tally(cpu=cpu))), 2.0) == f"{line}, CPU recall 99.9%"


def test_run_rejects_a_lost_checkpoint_without_the_repair_option(capsys: pytest.CaptureFixture[str]) -> None:
    run = SyntheticRun(Path("run"))
    run.run(range(2))
    shutil.rmtree(run.checkpoint)
    line = failure_of(capsys)
    assert line == (
        "tocsin run: run directory run: its parts must fit together; `checkpoint` is missing, but results up "
        "to micro-batch 1 are recorded: start again with `--repair` to read all sources from their start "
        "without retained rows; number the next micro-batch 3; "
        "its alerts may repeat alerts of the log"
    )
    assert failure_of(capsys) == line


@pytest.mark.parametrize("once", [True, False])
def test_run_names_the_stream_in_the_first_line_when_it_has_no_valid_row(
    once: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tocsin.rules.rulefile import RuleFile
    from tocsin.spark.run import Ended, Options

    def run(file: RuleFile, options: Options, *_: Any, **__: Any) -> Ended:
        lines = ({"stream": "air", "reason": f"reason {place // 2}", "raw": ""} for place in range(3))
        with RunDir(options.run_dir).lock() as place:
            place.dead.write(0, map(json.dumps, lines))
        return Ended(stopped=False, progress=None, delivered=True, sinks={}, unusable=["air"])

    monkeypatch.setattr("tocsin.spark.run.run", run)
    (tmp_path / "good.yaml").write_text(GOOD)
    code = main(["run", str(tmp_path / "good.yaml"), "--run-dir", str(tmp_path / "run"), "--json", *["--once"] * once])
    out, err = capsys.readouterr()
    line = "stream `air` has no valid row (reason 0; and other reasons)"
    assert code == (1 if once else 0)
    assert json.loads(out)["ok"] == (not once)
    assert json.loads(out)["unusable"] == ([line] if once else [])
    assert (err.splitlines()[0] == f"tocsin run: {line}") == once
