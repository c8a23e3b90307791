"""`tocsin run` before Spark starts: mistakes, usage, a directory that is not to be used, signals."""

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

from loaded import load_file
from run_dirs import SyntheticRun
from tocsin.cli.live import line_of
from tocsin.cli.main import main
from tocsin.cli.run import Stop, _told
from tocsin.plan import Plan
from tocsin.rundir import Progress, RunDir, Tally
from tocsin.rundir.manifest import describe

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
    """Whatever starts Spark here is a mistake of the test."""
    pytest.importorskip("pyspark", reason="needs pyspark: install tocsin[spark]")
    from tocsin.spark import run as module

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("Spark must not start")

    monkeypatch.setattr(module, "run_session", refuse)


def test_mistakes_are_said_as_check_says_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "bad.yaml"]) == 1
    said = capsys.readouterr()
    assert len(said.err.splitlines()) > 1
    assert main(["run", "bad.yaml", "--run-dir", "run"]) == 1
    assert capsys.readouterr() == said
    assert main(["run", "bad.yaml", "--run-dir", "run", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert [told["ok"], len(told["mistakes"])] == [False, len(said.err.splitlines())]
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
def test_wrong_usage_gives_2(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["run", *arguments])
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def refused(capsys: pytest.CaptureFixture[str], *more: str) -> str:
    assert main(["run", "good.yaml", "--run-dir", "run", *more]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    return line


def test_a_directory_in_use_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with RunDir("run").held():
        line = refused(capsys)
    holder = f"process {os.getpid()} holds it"
    assert line == f"tocsin run: run directory run must belong to one run at a time; {holder}"


def test_a_directory_that_was_made_for_something_else_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("run").mkdir()
    made = describe(load_file("good.yaml"), Plan(()), (), 2)
    moved = {name: {**stream, "from": "elsewhere"} for name, stream in made.streams.items()}
    replace(made, streams=moved).write(Path("run"))
    line = refused(capsys)
    assert "must be used with what its state was made for; stream 'air' came from " in line
    assert line.endswith("run with what made it, or take a new run directory")
    made.write(Path("run"))
    assert "`buckets` was 2 and is now 5" in refused(capsys, "--buckets", "5")
    assert "`partitions` was 2 and is now 7" in refused(capsys, "--conf", "spark.sql.shuffle.partitions=7")


def test_the_directory_of_a_backtest_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("run").mkdir()
    describe(load_file("good.yaml"), Plan(()), (), 2).write(Path("run"))
    Path("run/summary.json").write_text("{}")
    assert "must be new or that of a run; it is that of `tocsin backtest`" in refused(capsys)


def test_a_failure_is_told_to_programs_too(capsys: pytest.CaptureFixture[str]) -> None:
    Path("run").mkdir()
    Path("run/letter.txt").write_text("")
    assert main(["run", "good.yaml", "--run-dir", "run", "--json"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out) == {"ok": False, "error": err.removeprefix("tocsin run: ").strip()}
    assert "must be new, empty, or that of a run; it has other files" in err


def test_without_spark_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert refused(capsys) == "tocsin run: Spark must be installed; install tocsin[spark]"


def test_the_first_signal_asks_and_the_second_ends(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    codes: list[int] = []
    monkeypatch.setattr("os._exit", codes.append)
    before = signal.getsignal(signal.SIGTERM)
    with Stop() as stop:
        signal.raise_signal(signal.SIGTERM)
        assert (stop.asked.is_set(), stop.name, codes) == (True, "SIGTERM", [])
        signal.raise_signal(signal.SIGINT)
        assert codes == [128 + signal.SIGINT]
    assert signal.getsignal(signal.SIGTERM) is before
    assert "SIGTERM: the micro-batch that runs is finished, then it stops" in capfd.readouterr().err


def test_help_has_examples_and_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["run", "--help"])
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    assert "tocsin run cold-store.yaml --run-dir runs/cold-store --once\n" in shown
    assert "130, 143  a second signal came" in shown


@pytest.mark.parametrize(
    ("count", "said"), [(0, "0 rows in all, 0 alerts fired, 0 resolved, 0 still fire"),
                        (1, "1 row in all, 1 alert fired, 0 resolved, 1 still fires"),
                        (1000, "1,000 rows in all, 1,000 alerts fired, 0 resolved, 1,000 still fire")]
)  # fmt: skip
def test_the_end_of_a_run_counts_as_people_do(count: int, said: str) -> None:
    text = end_of(Tally(rows={"air": count}, alerts={"Hot": {"firing": count}}))
    assert text == f"the input was taken to its end; {said}; run has them"


def end_of(whole: Tally) -> str:
    from tocsin.spark.run import Ended, Options

    progress = Progress(0, "1970-01-01T00:00:10.000000Z", whole, whole, {})
    return _told(Ended(stopped=False, progress=progress, delivered=True, sinks={}), Stop(), Options(Path("run")))


def test_the_end_of_a_run_tells_alerts_that_ended_and_matches() -> None:
    text = end_of(
        Tally(alerts={"Hot": {"firing": 20, "resolved": 20}, "Wet": {"firing": 6, "resolved": 5, "match": 3}})
    )
    assert "; 0 rows in all, 26 alerts fired, 25 resolved, 1 still fires, 3 matched; run has them" in text


def test_the_end_of_a_run_tells_rows_that_were_not_used_and_the_reason_of_most() -> None:
    lines = [("ts is missing", 1), ("no \x1b value", 2)]
    dead = [json.dumps({"stream": "air", "reason": why, "raw": ""}) for why, count in lines for _ in range(count)]
    RunDir("run").dead.write(0, dead)
    counts = {"air": {"received": 9, "out_of_domain": 4}, "oil": {"without_limits": 1}}
    text = end_of(Tally(rows={"air": 9}, dead={"air": 3}, counts=counts))
    assert text.split("; ", 2)[2] == (
        r"3 rows could not be used (stream `air`: no \x1b value; and other reasons); "
        "4 rows of `air` outside the domain; 1 row of `oil` without a row in a table of limits; run has them"
    )


def test_the_end_of_a_run_tells_rows_too_late_to_be_used_and_rows_that_still_wait() -> None:
    counts = {"air": {"received": 9, "behind": 2, "late": 1, "held": 5}, "oil": {"received": 9, "held": 0, "shed": 3}}
    assert end_of(Tally(rows={"air": 9}, counts=counts)) == (
        "the input was read to its end; 9 rows in all, 0 alerts fired, 0 resolved, 0 still fire; "
        "1 row of `air` further behind than `outage`, not used; "
        "2 rows of `air` came later than rows wait, used out of order; 3 rows of `oil` given up for want of memory; "
        "5 rows of `air` still waiting to be taken in order, which the next run goes on with; run has them"
    )


def test_a_folder_that_is_not_there_is_said_before_spark_starts(capsys: pytest.CaptureFixture[str]) -> None:
    Path("in").rmdir()
    line = refused(capsys)
    path = load_file("good.yaml").streams["air"].source.options["path"]
    assert line == f"tocsin run: stream `air`: path `{path}` must be there when a run starts; it is not"
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("path", "master", "conf"),
    [("in*", "local[*]", {}), ("s3a://bucket/in", "local[*]", {}), ("in", "spark://host:7077", {}),
     ("in", "local[*]", {"spark.hadoop.fs.defaultFS": "hdfs://host"})],
)  # fmt: skip
def test_a_path_that_may_lie_elsewhere_is_left_to_spark(path: str, master: str, conf: dict[str, str]) -> None:
    from tocsin.errors import PlanError
    from tocsin.rules.rulefile import Source, Stream
    from tocsin.spark.sources import check_paths

    Path("in").rmdir()
    check_paths([Stream("air", Source("json", {"path": path}))], master, conf)
    with pytest.raises(PlanError, match="stream `air`: path `in` must be there"):
        check_paths([Stream("air", Source("json", {"path": "in"}))], "local[*]", {})


def test_times_far_off_are_told_once_per_stream_with_the_unit_that_is_meant(caplog: pytest.LogCaptureFixture) -> None:
    from tocsin.rules.rulefile import Source, Stream
    from tocsin.spark.far_off import Warner

    now = 1_790_000_000_000_000
    # Seconds read as milliseconds are a thousandth; a day in 1900 is near by no unit.
    newest = {"slow": now // 1000, "old": -70 * 365 * 86_400_000_000, "fine": now - 9 * 365 * 86_400_000_000}
    units = {"slow": "ms", "old": "us", "fine": "us"}
    warner = Warner({name: Stream(name, Source("json"), time_unit=unit) for name, unit in units.items()})
    progress = Progress(0, "2026-09-21T14:13:20.000000Z", Tally(), Tally(), newest)
    assert progress.seconds * 1e6 == now
    for _ in range(2):
        warner.note(progress)
    assert sorted(caplog.messages) == [
        "stream `old`: its newest row is at 1900-01-18T00:00:00Z, more than ten years ago",
        "stream `slow`: its newest row is at 1970-01-21T17:13:20Z, more than ten years ago; is `time_unit: s` meant?",
    ]


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize("year", [1985, 2013, 2016, 2026, 2060])
def test_time_unit_hint_names_the_true_unit_when_the_data_is_historic(unit: str, year: int) -> None:
    from tocsin.rules.rulefile import Source, Stream
    from tocsin.spark.far_off import far_off
    from tocsin.spark.usable import PER_UNIT

    now_us = 1_790_000_000_000_000
    number = (year - 1970) * 365.25 * 86_400  # seconds
    text = far_off(Stream("air", Source("json"), time_unit=unit), round(number * PER_UNIT[unit]), now_us)
    assert "newest row is at 1970-" in text
    assert text.endswith(", more than ten years ago; is `time_unit: s` meant?")


@pytest.mark.parametrize(("year", "side"), [(1900, "ago"), (2013, "ago"), (2040, "from now"), (2100, "from now")])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_time_unit_hint_is_absent_when_the_unit_is_right(unit: str, year: int, side: str) -> None:
    from tocsin.rules.rulefile import Source, Stream
    from tocsin.spark.far_off import far_off

    time_us = round((year - 1970) * 365.25 * 86_400) * 1_000_000
    text = far_off(Stream("air", Source("json"), time_unit=unit), time_us, 1_790_000_000_000_000)
    assert text.endswith(f", more than ten years {side}")


def test_the_line_of_a_batch_has_counts_that_add_up() -> None:
    from tocsin.spark.listener import line_of as logged

    gained = Tally(rows={"air": 9}, counts={"air": {"received": 9, "retained": -1, "expired": 4, "omitted": 6}})
    whole = Tally(rows={"air": 20}, counts={"air": {"received": 20, "retained": 7, "expired": 5, "omitted": 8}})
    progress = Progress(7, "1970-01-01T00:00:10.000000Z", gained, whole)
    assert logged(progress, {}).startswith("batch=7 rows=9 retained=7 expired=4 omitted=6 late=0 quarantined=0 dead=0")


def test_listener_logs_the_number_of_the_run_directory_when_a_repair_moved_the_numbers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    from tocsin.spark.listener import BatchListener

    seconds: list[float] = []
    listener = BatchListener(seconds.append, first_batch=6)
    listener.run_id = "r"
    listener.note(Progress(7, "1970-01-01T00:00:10.000000Z", Tally({"air": 1}), Tally({"air": 1})))
    spark = SimpleNamespace(batchId=1, runId="r", batchDuration=1500)
    with caplog.at_level(logging.INFO, logger="tocsin.run"):
        listener.onQueryProgress(SimpleNamespace(progress=spark))
    assert seconds == [1.5]
    assert caplog.messages[0].startswith("batch=7 rows=1 ")


def test_progress_has_no_lag_when_the_first_rows_of_a_stream_are_history() -> None:
    from tocsin.rundir.progress import historic_streams, parse_progress
    from tocsin.spark.listener import line_of as logged

    def after(before: Progress, newest_us: dict[str, int]) -> Progress:
        historic = historic_streams(before, newest_us, 1_790_000_000.0)
        return Progress(before.batch + 1, "2026-09-21T14:13:20.000000Z", Tally(), Tally(), newest_us, historic=historic)

    now, day = 1_790_000_000_000_000, 86_400_000_000
    first = after(Progress(-1, "", Tally(), Tally()), {"old": now - 31 * day, "live": now - 29 * day})
    assert first.historic == ("old",)
    assert first.lag_s == {"live": 29 * 86_400.0}
    only_old = replace(first, newest_us={"old": now - 31 * day})
    assert "lag" not in line_of(only_old, 1.0)
    assert "lag_seconds" not in logged(only_old, {})
    (read,) = parse_progress([first.line()])
    assert read == first
    # A live stream that stops keeps its lag. A historic stream that reaches the present gets a lag.
    later = after(read, {"old": now - 30 * day, "live": now - 40 * day})
    assert later.historic == ()
    assert later.lag_s == {"old": 30 * 86_400.0, "live": 40 * 86_400.0}


def test_the_line_that_moves_says_what_matters() -> None:
    gained = Tally(rows={"air": 500, "oil": 500}, batches=1)
    whole = Tally(
        rows={"air": 1500, "oil": 500},
        counts={"air": {"retained": 30}, "oil": {"retained": 4}},
        alerts={"Hot": {"firing": 5, "resolved": 3}},
    )
    progress = Progress(7, "1970-01-01T00:00:10.000000Z", gained, whole, {"air": 8_500_000, "oil": 9_000_000})
    line = "batch 7: 500 rows/s, 2,000 rows, 34 kept, 2 firing, lag 1.5 s"
    assert line_of(progress, 2.0) == line
    # A part that is not all is never called so; of what is not known nothing is said.
    shares = {"Near": (1.0, 0.999), "Far": (0.5, None)}
    assert line_of(replace(progress, cpu=shares), 2.0) == f"{line}, finds more than 99%"


def test_run_directory_with_a_lost_checkpoint_is_repaired_only_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    run = SyntheticRun(Path("run"))
    run.run(range(2))
    shutil.rmtree(run.checkpoint)
    line = refused(capsys)
    assert line == (
        "tocsin run: run directory run: its parts must fit together; `checkpoint` is missing, but results up "
        "to micro-batch 1 are recorded: start again with `--repair` to read all sources from their start "
        "without retained rows; number the next micro-batch 3; "
        "its alerts may repeat alerts of the log"
    )
    assert refused(capsys) == line


@pytest.mark.parametrize("once", [True, False])
def test_run_fails_with_the_stream_in_the_first_line_when_none_of_its_rows_was_usable(
    once: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tocsin.rules.rulefile import RuleFile
    from tocsin.spark.run import Ended, Options

    def run(file: RuleFile, options: Options, *_: Any) -> Ended:
        lines = ({"stream": "air", "reason": f"reason {place // 2}", "raw": ""} for place in range(3))
        with RunDir(options.run_dir).held() as place:
            place.dead.write(0, map(json.dumps, lines))
        return Ended(stopped=False, progress=None, delivered=True, sinks={}, unusable=["air"])

    monkeypatch.setattr("tocsin.spark.run.run", run)
    (tmp_path / "good.yaml").write_text(GOOD)
    code = main(["run", str(tmp_path / "good.yaml"), "--run-dir", str(tmp_path / "run"), "--json", *["--once"] * once])
    out, err = capsys.readouterr()
    line = "stream `air`: no row could be used (reason 0; and other reasons)"
    assert code == (1 if once else 0)
    assert json.loads(out)["ok"] == (not once)
    assert json.loads(out)["unusable"] == ([line] if once else [])
    assert (err.splitlines()[0] == f"tocsin run: {line}") == once
