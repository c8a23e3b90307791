"""`tocsin edge` as a process: its imports, formats, counts, exit codes and help."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.edge.command import (
    CODE,
    DEFAULTS,
    LONG_S,
    has_all_extremes,
    json_lines,
    last_counts,
    read_up_to,
    run_edge,
    start_edge,
)

HEAVY = ("numba", "llvmlite", "pandas", "pyarrow", "pyspark", "yaml", "rich", "scipy", "matplotlib")
# Runs the command, then prints the imported modules on standard error.
LIST_MODULES = (
    "import sys, json; from tocsin.cli import edge, main; main.COMMANDS = (edge,); code = main.main(); "
    "print(json.dumps(sorted(sys.modules)), file=sys.stderr); sys.exit(code)"
)
BLOCK_IMPORTS = (
    "import sys\n"
    "class Block:\n"
    "    def find_spec(self, name, path=None, target=None):\n"
    f"        if name.partition('.')[0] in {HEAVY!r}: raise ImportError(name)\n"
    "sys.meta_path.insert(0, Block())\n" + CODE
)


def test_command_imports_only_numpy_and_the_standard_library() -> None:
    with start_edge(code=LIST_MODULES) as child:
        _, stderr = child.process.communicate(b"".join(json_lines(300)) + b"nonsense\n", timeout=LONG_S)
    assert child.process.returncode == 0
    modules = json.loads(stderr.splitlines()[-1])
    foreign = {name.partition(".")[0] for name in modules} - set(sys.stdlib_module_names) - {"__mp_main__"}
    assert {name for name in foreign if not name.startswith("_")} <= {"numpy", "tocsin", "sitecustomize"}
    parts = {".".join(name.split(".")[:2]) for name in modules if name.startswith("tocsin.")}
    assert not parts & {"tocsin.plan", "tocsin.local", "tocsin.spark", "tocsin.demo"}


def test_command_runs_when_only_numpy_is_installed() -> None:
    with start_edge(code=BLOCK_IMPORTS) as child:
        out, stderr = child.process.communicate(b"".join(json_lines(300)), timeout=LONG_S)
    assert child.process.returncode == 0, stderr
    assert has_all_extremes(json_lines(300), out.splitlines(keepends=True))


@pytest.mark.parametrize("max_delay", ["0", "3us", "20us"])
def test_output_has_input_lines_and_all_extremes_for_any_maximum_delay(max_delay: str) -> None:
    lines = json_lines(400)
    out, counts, code = run_edge(b"".join(lines), "--max-delay", max_delay)
    assert code == 0
    assert has_all_extremes(lines, out.splitlines(keepends=True))
    assert counts["sent"] == len(out.splitlines())
    assert counts["bytes_out"] == len(out)
    assert counts["bytes_in"] == len(b"".join(lines))
    assert counts["omitted"] == 0 if max_delay == "0" else counts["omitted"] > 100


def test_output_is_empty_when_the_input_is_empty() -> None:
    out, counts, code = run_edge(b"")
    assert (out, counts["received"], code) == (b"", 0, 0)


def test_csv_rows_are_reduced_when_input_and_output_are_files(tmp_path: Path) -> None:
    text = "machine;when;temp\n" + "".join(f'"a";2026-01-01T00:00:{s:02}Z;{v}\n' for s, v in enumerate([5, 1, 3, 6, 2]))
    (tmp_path / "in.csv").write_text(text)
    plain = ("--format", "csv", "--delimiter", ";", "--key", "machine", "--time", "when", "--value", "temp")
    with (tmp_path / "in.csv").open("rb") as source, (tmp_path / "out.csv").open("wb") as target:
        options = (*plain, "--interval", "1m", "--shape", "increasing")
        with start_edge(defaults=options, stdin=source, stdout=target) as child:
            _, stderr = child.process.communicate(timeout=LONG_S)
    assert child.process.returncode == 0
    lines = text.splitlines(keepends=True)
    assert (tmp_path / "out.csv").read_text() == "".join(lines[i] for i in (0, 1, 4, 5))
    written = (tmp_path / "out.csv").stat().st_size
    message = (
        f"tocsin edge: 5 received = 3 sent + 0 held + 2 omitted + 0 malformed; {len(text)} bytes in, {written} out"
    )
    assert stderr.decode() == f"{message} ({written / len(text):.1%})\n"


def test_progress_is_shown_when_a_file_takes_longer_than_two_seconds(tmp_path: Path) -> None:
    lines = json_lines(10_000)
    (tmp_path / "in.jsonl").write_bytes(b"".join(lines))
    options = [option for option in DEFAULTS if option != "--json"]
    environment = {name: value for name, value in os.environ.items() if name != "TOCSIN_PROGRESS"}
    with (tmp_path / "in.jsonl").open("rb") as source:
        with start_edge("--max-delay", "0", defaults=options, stdin=source, env=environment) as child:
            # The filter waits, because nobody reads its output.
            assert re.fullmatch(
                r"tocsin edge: filtering: [\d,]+ rows, [\d,]+ rows/s, 2 s\n", child.stderr.readline().decode()
            )
            out, _ = child.process.communicate(timeout=LONG_S)
    assert out == b"".join(lines)


def test_output_is_complete_when_it_is_a_socket() -> None:
    lines = json_lines(2000)
    here, there = socket.socketpair()
    with here, start_edge("--max-delay", "0", stdout=there) as child:
        there.close()
        child.stdin.write(b"".join(lines))
        child.stdin.close()
        assert read_up_to(here.fileno(), len(b"".join(lines)) + 1) == b"".join(lines)
        assert child.process.wait(LONG_S) == 0


def test_malformed_lines_are_sent_dropped_or_written_to_a_file_as_configured(tmp_path: Path) -> None:
    good, bad = json_lines(3), [b"nonsense\n", b"\xff\xfe\n", b'{"t": 1}\n']
    data = b"".join(line for pair in zip(good, bad, strict=True) for line in pair)
    for option in ("pass", "drop", str(tmp_path / "malformed")):
        out, counts, code = run_edge(data, "--max-delay", "0", "--malformed", option)
        assert out == (data if option == "pass" else b"".join(good))
        assert (counts["sent"], counts["malformed"], code) == (3, 3, 0)
        assert counts["why"] == {"`v` is missing": 1, "not JSON": 1, "not UTF-8": 1}
    assert (tmp_path / "malformed").read_bytes() == b"".join(bad)


def test_counts_add_up_when_a_signal_requests_them() -> None:
    with start_edge("--max-delay", "3us", "--flush-after", "1h") as child:
        child.stdin.write(b"".join(json_lines(500)) + b"nonsense\n")
        # The signal handlers are set before the first output. The malformed line is the last output.
        while b"nonsense" not in os.read(child.stdout.fileno(), 1 << 16):
            pass
        child.process.send_signal(signal.SIGUSR1)
        counts = last_counts(child.stderr.readline())
        assert (counts["received"], counts["malformed"]) == (501, 1)
        assert counts["held"] > 0
        _, rest = child.process.communicate(timeout=LONG_S)
    assert last_counts(rest)["held"] == 0


def test_held_rows_are_sent_when_the_input_pauses() -> None:
    line = json_lines(1)[0]
    with start_edge("--flush-after", "100ms") as child:
        child.stdin.write(line)
        assert read_up_to(child.stdout.fileno(), len(line)) == line
        assert child.process.poll() is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--max-delay", "21us"), "`--max-delay` must be between 0 and the interval"),
        (("--max-delay", "soon"), "`--max-delay` must be a duration such as '10s'"),
        (("--shape", "convex"), "`--shape` must be one of quasiconvex, increasing, decreasing; got 'convex'"),
        (("--domain", "60"), "`--domain` must be LOW,HIGH; got '60'"),
        (("--domain", "60,-40"), "`--domain` must not end before it begins; got 60.0,-40.0"),
        (("--max-backlog", "0"), "`--max-backlog` must be above 0; got 0"),
        (("--max-backlog", "many"), "invalid int value"),
    ],
)
def test_exit_code_is_2_when_an_option_is_invalid(options: tuple[str, ...], message: str) -> None:
    with start_edge(*options) as child:
        _, stderr = child.process.communicate(timeout=LONG_S)
    assert child.process.returncode == 2
    assert message in stderr.decode()


@pytest.mark.parametrize(
    ("options", "data", "message"),
    [
        (("--format", "csv"), b"a,b\n1,2\n", "line 1: the header must have the column `t`; it has a, b"),
        (("--state", "{tmp}/other.state"), b"", "state page is damaged or was not written by Tocsin"),
        (("--state", "{tmp}/none/edge.state"), b"", os.strerror(errno.ENOENT)),
        (("--malformed", "{tmp}/none/malformed"), b"", os.strerror(errno.ENOENT)),
    ],
)
def test_exit_code_is_1_when_the_run_cannot_start(
    tmp_path: Path, options: tuple[str, ...], data: bytes, message: str
) -> None:
    (tmp_path / "other.state").write_bytes(b"something else")
    with start_edge(*(option.format(tmp=tmp_path) for option in options)) as child:
        out, stderr = child.process.communicate(data, timeout=LONG_S)
    assert (child.process.returncode, out) == (1, b"")
    assert message in stderr.decode()
    assert "Traceback" not in stderr.decode()


def test_help_has_exit_codes_and_guarantees() -> None:
    run = subprocess.run([sys.executable, "-c", CODE, "edge", "--help"], capture_output=True, check=True)
    text = run.stdout.decode()
    for part in (
        "exit codes:",
        "--max-delay",
        "received = sent + held + omitted + malformed",
        "kill -9",
        *DEFAULTS[::2],
    ):
        assert part in text


def test_warning_appears_once_and_early_when_all_lines_are_malformed() -> None:
    wrong = tuple("when" if word == "t" else word for word in DEFAULTS if word != "--json")
    warning = b"warning: all %d lines so far are malformed: `when` is missing (%d); check `--format`"
    with start_edge(defaults=wrong) as child:
        child.stdin.write(b"".join(json_lines(10)))
        warned = read_up_to(child.stderr.fileno(), 1)
        _, stderr = child.process.communicate(b"".join(json_lines(300)), timeout=LONG_S)
    assert child.process.returncode == 0
    assert (warned + stderr).count(b"warning: ") == 1
    assert warning % (10, 10) in warned + stderr
    # Fewer lines cause the warning at the end of the input.
    with start_edge(defaults=wrong) as child:
        _, stderr = child.process.communicate(b"".join(json_lines(3)), timeout=LONG_S)
    assert warning % (3, 3) in stderr


def test_warning_is_absent_when_one_line_is_a_row() -> None:
    with start_edge() as child:
        _, stderr = child.process.communicate(json_lines(1)[0] + b"nonsense\n" * 50, timeout=LONG_S)
    assert b"warning" not in stderr
    assert last_counts(stderr)["malformed"] == 50
