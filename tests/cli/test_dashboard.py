"""`tocsin dashboard`: errors, addresses, and termination."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tocsin.cli.main import main


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run").mkdir()
    Path("run/manifest.json").write_text("{}")
    Path("empty").mkdir()
    Path("photos").mkdir()
    Path("photos/manifest").write_text("{}")
    for name in ("january", "february"):
        Path("runs", name).mkdir(parents=True)
        Path("runs", name, "manifest.json").write_text("{}")
    Path("short").write_text("short\n")
    Path("long").write_text("a-token-of-some-length\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none"], "RUN_DIR must be a run directory; none does not exist"),
        (["long"], "RUN_DIR must be a run directory; long is not a directory"),
        (
            ["empty"],
            "must be a directory that `tocsin run` or `tocsin backtest --run-dir` wrote; empty has no manifest",
        ),
        (["run", "photos"], "photos has no manifest.json\n"),
        (["runs"], "runs has no manifest.json; it contains the run directories runs/february, runs/january\n"),
        (["run", "--address", "0.0.0.0"], "can be reached by others, and so needs `--token-file`"),
        (["run", "--token-file", "none"], "`--token-file`: none: no such file"),
        (["run", "--token-file", "short"], "the token must have at least 16 characters; it has 5"),
        (
            ["run", "--address", "unknown address", "--token-file", "long"],
            "`--address` unknown address must be one of this machine; ",
        ),
        (
            ["run", "--address", "192.0.2.1", "--token-file", "long"],
            "`--address` 192.0.2.1 must be one of this machine; ",
        ),
    ],
)
def test_dashboard_prints_one_line_when_it_cannot_start(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dashboard", *arguments]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("tocsin dashboard: ")
    assert message in err
    assert len(err.splitlines()) == 1


def test_dashboard_names_some_run_directories_when_a_folder_has_many(capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(9):
        Path("runs", f"a{number}").mkdir()
        Path("runs", f"a{number}", "manifest.json").write_text("{}")
    assert main(["dashboard", "runs"]) == 1
    assert "run directories runs/a0, runs/a1, runs/a2, runs/a3, runs/a4, ...\n" in capsys.readouterr().err


def test_dashboard_serves_a_folder_when_a_starting_run_holds_its_lock() -> None:
    Path("empty/lock").write_text(f"{os.getpid()}\n")
    command = [sys.executable, "-m", "tocsin", "dashboard", "empty", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline().startswith("dashboard at http://127.0.0.1:")
        server.terminate()


def test_dashboard_reports_a_port_in_use(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["dashboard", "run", "--port", str(port)]) == 1
    assert f"`--port` {port} must be free on 127.0.0.1; address already in use" in capsys.readouterr().err


def test_dashboard_of_a_run_reports_a_port_in_use_in_one_line() -> None:
    """Keep the input open, as a run does: the thread that reads it must not delay the exit of Python."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "tocsin", "dashboard", "run", "--port", str(port), "--until-input-ends"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as server:
            assert server.wait(60) == 1
            assert server.stdout is not None
            (line,) = server.stdout.read().splitlines()
    assert line.startswith(f"tocsin dashboard: `--port` {port} must be free on 127.0.0.1")


@pytest.mark.parametrize("arguments", [[], ["run", "--port", "70000"], ["run", "--port", "x"]])
def test_dashboard_exits_with_2_when_arguments_are_invalid(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["dashboard", *arguments])
    assert caught.value.code == 2
    assert capsys.readouterr().err


@pytest.mark.parametrize("how", ["a signal", "the end of its input"])
def test_dashboard_serves_until_a_signal_or_the_end_of_input(how: str) -> None:
    # A run starts the dashboard before it writes its manifest.
    more = ["run"] if how == "a signal" else ["empty", "--until-input-ends"]
    command = [sys.executable, "-m", "tocsin", "dashboard", *more, "--port", "0"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ}
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        address = server.stdout.readline().split()[-1]
        assert address.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(f"{address}health", timeout=60) as answer:
            assert answer.read() == b"ok\n"
        if how == "a signal":
            server.send_signal(signal.SIGTERM)
        else:
            server.stdin.close()
        assert server.wait(60) == 0
