"""Progress line: its schedule and text, and a clean terminal and standard output."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.cli.live import ERASE, FIRST_S, LONGEST_S, SHORTEST_S, SWITCH, ProgressLine, Schedule, Status, fit_width
from tocsin.cli.main import main

LINE = "2026-01-01T00:00:00.000000Z FIRING   Condensation{} " + "x" * 300
# A command of two phases, each longer than the times between lines, which are shortened.
SLOW = """
import sys, time
from tocsin.cli import live
from tocsin.cli.arguments import run_command
live.FIRST_S = live.SHORTEST_S = 0.3
def work(arguments, progress):
    progress.start_phase("starting Spark")
    time.sleep(1)
    progress.start_phase("reading streams")
    for rows in range(0, 100_000, 1_000):
        progress.update(rows, 100_000)
        time.sleep(0.01)
    print("noted", file=sys.stderr, flush=True)
    time.sleep(0.6)
    progress.stop()
    print("the result")
    return 0
sys.exit(run_command("work", work, None))
"""


class Terminal(io.StringIO):
    """Text that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def progress_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turn progress on, and show it only when the test calls `show`."""
    monkeypatch.delenv(SWITCH)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("tocsin.cli.live._LOOK_S", 3600.0)


def use_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Replace both outputs by one terminal. A fixture cannot: pytest replaces them when a test begins."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "stdout", terminal)
    return terminal


def shown_after(progress: ProgressLine, clock: Clock, read: Callable[[], str], seconds: list[float]) -> list[str]:
    """Return the output that the progress line adds at some seconds after its start."""
    begin, found = clock.now, []
    for at in seconds:
        clock.now = begin + at
        before = len(read())
        progress.show()
        found.append(read()[before:])
    return found


def test_plain_lines_are_printed_at_growing_intervals(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    with ProgressLine("backtest", clock) as progress:
        progress.start_phase("starting Spark")
        found = shown_after(progress, clock, log.getvalue, [0.0, 1.9, 2.0, 4.9, 5.0, 7.9, 8.0])
    begun = "tocsin backtest: starting Spark, "
    assert found == ["", "", f"{begun}2 s\n", "", f"{begun}5 s\n", "", f"{begun}8 s\n"]


@given(st.lists(st.floats(0.01, 500), max_size=200))
def test_schedule_keeps_its_intervals_when_time_passes_in_any_steps(steps: list[float]) -> None:
    schedule, now, last = Schedule(), 0.0, None
    for step in steps:
        now += step
        if schedule.take(now):
            assert now >= FIRST_S
            assert last is None or now - last >= min(LONGEST_S, max(SHORTEST_S, last / 2))
            last = now
        else:
            assert now < (FIRST_S if last is None else last + LONGEST_S)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_is_silent_when_a_command_ends_within_two_seconds(
    is_terminal: bool, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Terminal() if is_terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with ProgressLine("check", clock) as progress:
        progress.start_phase("checking rules")
        clock.now += 1.99
        progress.show()
    assert stream.getvalue() == ""


def test_progress_is_silent_when_it_is_switched_off(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv(SWITCH, "off")
    with ProgressLine("check", clock) as progress:
        clock.now += 100
        progress.show()
    assert stream.getvalue() == ""


def test_progress_is_plain_when_the_terminal_is_dumb(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = use_terminal(monkeypatch)
    monkeypatch.setenv("TERM", "dumb")
    with ProgressLine("check", clock) as progress:
        clock.now += 3
        progress.show()
    assert terminal.getvalue() == "tocsin check: starting, 3 s\n"


def test_amounts_have_the_time_and_rate_of_their_phase(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = use_terminal(monkeypatch)
    amounts = iter([Status("reading", 600), Status("reading", 1_200), Status("evaluating", 300, 1_200), None])
    with ProgressLine("backtest", clock) as progress:
        clock.now += 10
        progress.start_phase(lambda: next(amounts))
        found = shown_after(progress, clock, terminal.getvalue, [2.0, 4.0, 4.0, 5.0])
    assert found == [
        f"{ERASE}reading: 600 rows, 300 rows/s, 2 s",
        f"{ERASE}reading: 1,200 rows, 300 rows/s, 4 s",
        f"{ERASE}evaluating: 300 of 1,200 rows, 0 s",
        ERASE,
    ]


def test_phase_for_terminals_is_omitted_from_plain_lines(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    with ProgressLine("run", clock) as progress:
        progress.start_phase("batch 7", is_plain=False)
        clock.now += 100
        progress.show()
    assert log.getvalue() == ""


def test_output_is_whole_and_above_the_line_when_it_is_long(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = use_terminal(monkeypatch)
    with ProgressLine("run", clock) as progress:
        clock.now += 3
        progress.show()
        print(LINE)
        progress.show()
    assert terminal.getvalue() == f"{ERASE}starting, 3 s{ERASE}{LINE}\n{ERASE}starting, 3 s{ERASE}"
    assert sys.stdout is sys.stderr is terminal


def test_line_waits_until_a_begun_line_of_output_ends(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = use_terminal(monkeypatch)
    with ProgressLine("run", clock) as progress:
        clock.now += 3
        print("begin", end="")
        progress.show()
        assert terminal.getvalue() == "begin"
        print()
        progress.show()
    assert terminal.getvalue() == f"begin\n{ERASE}starting, 3 s{ERASE}"


def test_output_to_a_file_is_untouched(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = use_terminal(monkeypatch)
    file = io.StringIO()
    monkeypatch.setattr(sys, "stdout", file)
    with ProgressLine("run", clock) as progress:
        clock.now += 3
        progress.show()
        print(LINE)
    assert file.getvalue() == LINE + "\n"
    assert "FIRING" not in terminal.getvalue()


def test_line_fits_the_width_of_the_terminal(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = use_terminal(monkeypatch)
    with ProgressLine("run", clock) as progress:
        progress.start_phase("読" * 100)
        clock.now += 3
        progress.show()
    assert terminal.getvalue() == f"{ERASE}{'読' * 39}{ERASE}"


@given(st.text(), st.integers(0, 30))
def test_fit_width_returns_the_longest_begin_that_fits(text: str, columns: int) -> None:
    begin = fit_width(text, columns)
    assert text.startswith(begin)
    assert len(begin) == len(text) or fit_width(text[: len(begin) + 1], columns) == begin


def test_stop_returns_when_a_measure_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr("tocsin.cli.live._LOOK_S", 0.01)
    monkeypatch.setattr("tocsin.cli.live._JOIN_S", 0.1)
    clock = Clock()
    with ProgressLine("run", clock) as progress:
        progress.start_phase(lambda: time.sleep(3600))
        clock.now += 10


# A shell starts background jobs with an ignored signal, and the tests can be such a job.
SIGNALS = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"


def run_in_terminal(code: str, interrupt_at: str = "") -> tuple[int, str]:
    """Run Python code with a pseudo-terminal of 60 columns; return its exit code and everything it wrote.

    With `interrupt_at`, send the signal of Ctrl-C once that text was written.
    """
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", SIGNALS + code],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )
    os.close(terminal)
    written, waits = b"", bool(interrupt_at)
    while True:
        try:
            part = os.read(controller, 65_536)
        except OSError:
            break
        if not part:
            break
        written += part
        if waits and interrupt_at.encode() in written:
            process.send_signal(signal.SIGINT)
            waits = False
    os.close(controller)
    return process.wait(), written.decode()


def last_screen_lines(written: str) -> list[str]:
    """Return the lines that stay on a terminal. Text before the last erasure of a line disappears."""
    lines = [line.rpartition("\x1b[K")[2] for line in written.replace("\r\n", "\n").split("\n")]
    return [line for line in lines if line]


def test_command_shows_phases_in_a_terminal_and_leaves_its_output() -> None:
    code, written = run_in_terminal(SLOW)
    assert code == 0
    assert re.search(r"\r\x1b\[Kstarting Spark, \d s", written)
    assert re.search(r"\r\x1b\[Kreading streams: [\d,]+ of 100,000 rows, [\d,]+ rows/s, \d s", written)
    assert last_screen_lines(written) == ["noted", "the result"]
    assert "\x1b[?25l" not in written


def test_command_leaves_a_clean_terminal_when_it_is_interrupted() -> None:
    # 100 seconds, so that the signal arrives before the end on a busy machine.
    endless = SLOW.replace("100_000, 1_000", "100_000, 10")
    code, written = run_in_terminal(endless, interrupt_at="reading streams: ")
    assert code == 130
    assert "\r\x1b[K" in written
    assert last_screen_lines(written) == ["tocsin work: interrupted"]


def test_command_writes_progress_to_standard_error_only() -> None:
    run = subprocess.run([sys.executable, "-c", SLOW], capture_output=True, text=True, check=True)
    assert run.stdout == "the result\n"
    # On a busy machine, a phase has several lines.
    phases = (
        r"(tocsin work: starting Spark, \d+ s\n)+"
        r"(tocsin work: reading streams: [\d,]+ of 100,000 rows, [\d,]+ rows/s, \d+ s\n)+noted\n"
    )
    assert re.match(phases, run.stderr)
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", run.stderr)


def test_test_command_shows_how_many_tests_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tocsin.cli.live.FIRST_S", 0.1)
    monkeypatch.setattr("tocsin.cli.live.SHORTEST_S", 0.1)
    monkeypatch.setattr("tocsin.cli.live._LOOK_S", 0.02)
    (tmp_path / "rules.yaml").write_text(
        "streams: {a: {source: {csv: {path: a}}, keys: [k], time: ts, values: {v: {}}}}\n"
        "groups: [{name: g, rules: [{alert: High, on: [k], expr: a.v > 1}]}]\n"
    )
    test = "{name: n%d, interval: 1m, input_series: [{series: 'a{k=\"x\"}', values: '0x400'}], alert_rule_test: [%s]}"
    case = "{eval_time: 300m, alertname: High, exp_alerts: []}"
    tests = ", ".join(test % (number, case) for number in range(300))
    (tmp_path / "test.yaml").write_text(f"rule_files: [rules.yaml]\ntests: [{tests}]\n")
    assert main(["test", "--json", str(tmp_path / "test.yaml")]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["ok"] is True
    assert re.search(r"tocsin test: (checking test files|running tests): \d", err), err
