"""`tocsin dashboard`: what it refuses, where it listens, and when it ends."""

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
    Path("long").write_text("a-token-that-nobody-guesses\n")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["none"], "RUN_DIR must be the directory of a run; none is not there"),
        (["long"], "RUN_DIR must be the directory of a run; long is not a directory"),
        (
            ["empty"],
            "must be a directory that `tocsin run` or `tocsin backtest --run-dir` wrote; empty has no manifest",
        ),
        (["run", "photos"], "photos has no manifest.json\n"),
        (["runs"], "runs has no manifest.json; it has run directories inside: runs/february, runs/january\n"),
        (["run", "--address", "0.0.0.0"], "can be reached by others, and so needs `--token-file`"),
        (["run", "--token-file", "none"], "`--token-file` must be readable; none: no such file"),
        (["run", "--token-file", "short"], "the token must have at least 16 characters; it has 5"),
        (
            ["run", "--address", "no such address", "--token-file", "long"],
            "`--address` no such address must be one of this machine; ",
        ),
        (
            ["run", "--address", "192.0.2.1", "--token-file", "long"],
            "`--address` 192.0.2.1 must be one of this machine; ",
        ),
    ],
)
def test_what_cannot_be_served_is_refused_in_a_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dashboard", *arguments]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("tocsin dashboard: ")
    assert sentence in err
    assert len(err.splitlines()) == 1


def test_dashboard_names_some_run_directories_when_a_folder_has_many(capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(9):
        Path("runs", f"a{number}").mkdir()
        Path("runs", f"a{number}", "manifest.json").write_text("{}")
    assert main(["dashboard", "runs"]) == 1
    assert "inside: runs/a0, runs/a1, runs/a2, runs/a3, runs/a4, ...\n" in capsys.readouterr().err


def test_dashboard_serves_a_folder_when_a_starting_run_holds_its_lock() -> None:
    Path("empty/lock").write_text(f"{os.getpid()}\n")
    command = [sys.executable, "-m", "tocsin", "dashboard", "empty", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline().startswith("dashboard at http://127.0.0.1:")
        server.terminate()


def test_a_port_that_is_taken_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["dashboard", "run", "--port", str(port)]) == 1
    assert f"`--port` {port} must be free on 127.0.0.1; address already in use" in capsys.readouterr().err


def test_beside_a_run_a_port_that_is_taken_is_told_in_one_sentence() -> None:
    """Its input stays open, as a run leaves it: whoever waits for its end must not hold up the end of Python."""
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
def test_wrong_usage_gives_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["dashboard", *arguments])
    assert caught.value.code == 2
    assert capsys.readouterr().err


@pytest.mark.parametrize("how", ["a signal", "the end of its input"])
def test_it_serves_until_it_is_told_to_end(how: str) -> None:
    # Beside a run, the folder is empty before the run writes its manifest.
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
