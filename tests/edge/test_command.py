"""The command as a process: what it imports, formats, counts, exit codes, help."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.edge.command import CODE, LONG_S, PLAIN, counts, edge, excused, read_some, rows, whole

HEAVY = ("numba", "llvmlite", "pandas", "pyarrow", "pyspark", "yaml", "rich", "scipy", "matplotlib")
# Runs the command, then tells on its standard error which modules were imported.
TELLING = (
    "import sys, json; from tocsin.cli import edge, main; main.COMMANDS = (edge,); code = main.main(); "
    "print(json.dumps(sorted(sys.modules)), file=sys.stderr); sys.exit(code)"
)
BLOCKING = (
    "import sys\n"
    "class Refuse:\n"
    "    def find_spec(self, name, path=None, target=None):\n"
    f"        if name.partition('.')[0] in {HEAVY!r}: raise ImportError(name)\n"
    "sys.meta_path.insert(0, Refuse())\n" + CODE
)


def test_the_command_imports_numpy_and_nothing_else_that_is_not_pythons_own() -> None:
    with edge(code=TELLING) as child:
        _, told = child.process.communicate(b"".join(rows(300)) + b"nonsense\n", timeout=LONG_S)
    assert child.process.returncode == 0
    modules = json.loads(told.splitlines()[-1])
    foreign = {name.partition(".")[0] for name in modules} - set(sys.stdlib_module_names) - {"__mp_main__"}
    assert {name for name in foreign if not name.startswith("_")} <= {"numpy", "tocsin", "sitecustomize"}
    parts = {".".join(name.split(".")[:2]) for name in modules if name.startswith("tocsin.")}
    assert not parts & {"tocsin.plan", "tocsin.local", "tocsin.spark", "tocsin.demo"}


def test_the_command_runs_where_nothing_but_numpy_can_be_imported() -> None:
    with edge(code=BLOCKING) as child:
        out, told = child.process.communicate(b"".join(rows(300)), timeout=LONG_S)
    assert child.process.returncode == 0, told
    assert excused(rows(300), out.splitlines(keepends=True))


@pytest.mark.parametrize("hold", ["0", "3us", "20us"])
def test_what_goes_out_are_lines_that_came_in_and_every_window_keeps_its_extremes(hold: str) -> None:
    lines = rows(400)
    out, told, code = whole(b"".join(lines), "--hold", hold)
    assert code == 0
    assert excused(lines, out.splitlines(keepends=True))
    assert told["sent"] == len(out.splitlines())
    assert told["bytes_out"] == len(out)
    assert told["bytes_in"] == len(b"".join(lines))
    assert told["omitted"] == 0 if hold == "0" else told["omitted"] > 100


def test_an_empty_input_gives_an_empty_output() -> None:
    out, told, code = whole(b"")
    assert (out, told["received"], code) == (b"", 0, 0)


def test_csv_from_a_file_to_a_file(tmp_path: Path) -> None:
    text = "machine;when;temp\n" + "".join(f'"a";2026-01-01T00:00:{s:02}Z;{v}\n' for s, v in enumerate([5, 1, 3, 6, 2]))
    (tmp_path / "in.csv").write_text(text)
    plain = ("--format", "csv", "--delimiter", ";", "--key", "machine", "--time", "when", "--value", "temp")
    with (tmp_path / "in.csv").open("rb") as source, (tmp_path / "out.csv").open("wb") as target:
        options = (*plain, "--interval", "1m", "--shape", "increasing")
        with edge(plain=options, stdin=source, stdout=target) as child:
            _, told = child.process.communicate(timeout=LONG_S)
    assert child.process.returncode == 0
    lines = text.splitlines(keepends=True)
    assert (tmp_path / "out.csv").read_text() == "".join(lines[i] for i in (0, 1, 4, 5))
    written = (tmp_path / "out.csv").stat().st_size
    said = f"tocsin edge: 5 received = 3 sent + 0 held + 2 omitted + 0 malformed; {len(text)} bytes in, {written} out"
    assert told.decode() == f"{said} ({written / len(text):.1%})\n"


def test_output_may_be_a_socket() -> None:
    lines = rows(2000)
    here, there = socket.socketpair()
    with here, edge("--hold", "0", stdout=there) as child:
        there.close()
        child.stdin.write(b"".join(lines))
        child.stdin.close()
        assert read_some(here.fileno(), len(b"".join(lines)) + 1) == b"".join(lines)
        assert child.process.wait(LONG_S) == 0


def test_malformed_lines_pass_are_dropped_or_go_to_a_file(tmp_path: Path) -> None:
    good, bad = rows(3), [b"nonsense\n", b"\xff\xfe\n", b'{"t": 1}\n']
    data = b"".join(line for pair in zip(good, bad, strict=True) for line in pair)
    for where in ("pass", "drop", str(tmp_path / "aside")):
        out, told, code = whole(data, "--hold", "0", "--malformed", where)
        assert out == (data if where == "pass" else b"".join(good))
        assert (told["sent"], told["malformed"], code) == (3, 3, 0)
        assert told["why"] == {"`v` is missing": 1, "not JSON": 1, "not UTF-8": 1}
    assert (tmp_path / "aside").read_bytes() == b"".join(bad)


def test_counts_are_told_when_asked_for_and_add_up() -> None:
    with edge("--hold", "3us", "--flush-after", "1h") as child:
        child.stdin.write(b"".join(rows(500)) + b"nonsense\n")
        # With the first output the handlers stand; the line that is no row comes out last.
        while b"nonsense" not in os.read(child.stdout.fileno(), 1 << 16):
            pass
        child.process.send_signal(signal.SIGUSR1)
        told = counts(child.stderr.readline())
        assert (told["received"], told["malformed"]) == (501, 1)
        assert told["held"] > 0
        _, rest = child.process.communicate(timeout=LONG_S)
    assert counts(rest)["held"] == 0


def test_what_is_held_is_sent_when_the_input_is_silent_for_long() -> None:
    line = rows(1)[0]
    with edge("--flush-after", "100ms") as child:
        child.stdin.write(line)
        assert read_some(child.stdout.fileno(), len(line)) == line
        assert child.process.poll() is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--hold", "21us"), "`--hold` must be between 0 and the interval"),
        (("--hold", "soon"), "`--hold` must be a duration such as '10s'"),
        (("--shape", "convex"), "`--shape` must be one of quasiconvex, increasing, decreasing; got 'convex'"),
        (("--domain", "60"), "`--domain` must be two numbers with a comma between; got '60'"),
        (("--domain", "60,-40"), "`--domain` must not end before it begins; got 60.0,-40.0"),
        (("--max-backlog", "0"), "`--max-backlog` must be above 0; got 0"),
        (("--max-backlog", "many"), "invalid int value"),
    ],
)
def test_wrong_usage_has_exit_code_2(options: tuple[str, ...], message: str) -> None:
    with edge(*options) as child:
        _, told = child.process.communicate(timeout=LONG_S)
    assert child.process.returncode == 2
    assert message in told.decode()


@pytest.mark.parametrize(
    ("options", "data", "message"),
    [
        (("--format", "csv"), b"a,b\n1,2\n", "line 1: the header must have the column `t`; it has a, b"),
        (("--state", "{tmp}/other.state"), b"", "state page must begin with Tocsin's mark"),
        (("--state", "{tmp}/none/edge.state"), b"", "No such file or directory"),
        (("--malformed", "{tmp}/none/aside"), b"", "No such file or directory"),
    ],
)
def test_what_makes_a_run_impossible_has_exit_code_1(
    tmp_path: Path, options: tuple[str, ...], data: bytes, message: str
) -> None:
    (tmp_path / "other.state").write_bytes(b"something else")
    with edge(*(option.format(tmp=tmp_path) for option in options)) as child:
        out, told = child.process.communicate(data, timeout=LONG_S)
    assert (child.process.returncode, out) == (1, b"")
    assert message in told.decode()
    assert "Traceback" not in told.decode()


def test_help_tells_exit_codes_and_what_is_guaranteed() -> None:
    run = subprocess.run([sys.executable, "-c", CODE, "edge", "--help"], capture_output=True, check=True)
    text = run.stdout.decode()
    for said in ("exit codes:", "--hold", "received = sent + held + omitted + malformed", "kill -9", *PLAIN[::2]):
        assert said in text


def test_lines_of_which_none_is_a_row_are_warned_of_once_and_before_the_input_ends() -> None:
    wrong = tuple("when" if word == "t" else word for word in PLAIN if word != "--json")
    said = b"must fit the lines; all %d so far are malformed: `when` is missing (%d)\n"
    with edge(plain=wrong) as child:
        child.stdin.write(b"".join(rows(10)))
        warned = read_some(child.stderr.fileno(), 1)
        _, told = child.process.communicate(b"".join(rows(300)), timeout=LONG_S)
    assert child.process.returncode == 0
    assert (warned + told).count(b"warning: ") == 1
    assert said % (10, 10) in warned + told
    # Few lines are warned of when no more can come.
    with edge(plain=wrong) as child:
        _, told = child.process.communicate(b"".join(rows(3)), timeout=LONG_S)
    assert said % (3, 3) in told


def test_one_row_among_malformed_lines_is_enough_for_no_warning() -> None:
    with edge() as child:
        _, told = child.process.communicate(rows(1)[0] + b"nonsense\n" * 50, timeout=LONG_S)
    assert b"warning" not in told
    assert counts(told)["malformed"] == 50
