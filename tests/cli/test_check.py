"""`tocsin check`: its output, its exit codes, and the modules that it must not import."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from rules.files import GOOD, write_tables
from tocsin.cli.live import write_line, write_table
from tocsin.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = "examples/cold-store.yaml"
HEAVY = ("numba", "pandas", "pyarrow", "pyspark", "rich")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PASS", "hunter2")
    write_tables(tmp_path)
    Path("good.yaml").write_text(GOOD)
    Path("bad.yaml").write_text(GOOD.replace("for: 10m", "for: -5s").replace("archive:", "archiv:"))
    Path("spare.yaml").write_text(GOOD.replace("limits:\n", "  spare: {source: {csv: {path: x}}}\nlimits:\n"))


ERRORS = """\
bad.yaml:9:20: stream "air": no_data: `for` must not be negative; got '-5s'
  for: -5s
       ^^^
bad.yaml:26:14: group "cold-store": rule "Condensation": `for` must not be negative; got '-5s'
  for: -5s
       ^^^
bad.yaml:44:1: rule file: `archiv` is not a key of a rule file; did you mean `archive`?
  archiv
  ^^^^^^
"""
DELAY = "events are emitted up to 1m later if a stream is slow; set `idle_timeout` of the streams to change this"


def success(path: str, streams: int = 2, first_line: int = 22) -> str:
    """Return the output for a file without errors, with the notes on its rules of two streams."""
    lines = [f"{path}: 1 group, 3 rules, {streams} streams: ok"]
    for name, line in (("Condensation", first_line), ("Pair", first_line + 13)):
        lines.append(f'{path}:{line}:16: note: group "cold-store": rule "{name}": {DELAY}')
    return "".join(f"{line}\n" for line in lines)


WARNING = 'spare.yaml:14:3: warning: stream "spare": no rule reads it\n  spare\n  ^^^^^\n'


def test_check_prints_one_line_and_notes_when_a_file_has_no_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "good.yaml"]) == 0
    assert capsys.readouterr() == (success("good.yaml"), "")


def test_check_underlines_the_part_that_an_error_is_about(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "bad.yaml"]) == 1
    assert capsys.readouterr() == ("", ERRORS)


def test_check_reports_each_of_several_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "bad.yaml", "good.yaml", "none.yaml"]) == 1
    none = "none.yaml:1:1: rule file: the file cannot be read: no such file or directory\n"
    assert capsys.readouterr() == (success("good.yaml"), ERRORS + none)


def test_warnings_change_the_exit_code_when_strict(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "spare.yaml"]) == 0
    assert capsys.readouterr() == (success("spare.yaml", 3, 23), WARNING)
    assert main(["check", "--strict", "spare.yaml"]) == 1
    assert main(["check", "--strict", "good.yaml"]) == 0


def test_check_reports_no_delay_when_no_stream_can_be_slow(capsys: pytest.CaptureFixture[str]) -> None:
    Path("alone.yaml").write_text(
        "streams:\n  air: {source: {json: {path: air}}, keys: [m]}\n  oil: {source: {json: {path: oil}}, keys: [m]}\n"
        "groups:\n  - name: g\n    rules:\n      - {alert: Hot, expr: air > 30, on: [m]}\n"
        "      - {alert: Each, expr: air > oil, within: 1h, on: [m], emit: all}\n"
    )
    assert main(["check", "alone.yaml"]) == 0
    assert capsys.readouterr() == ("alone.yaml: 1 group, 2 rules, 2 streams: ok\n", "")


@pytest.mark.parametrize(
    ("given", "delay"), [("", "1h"), (", idle_timeout: 5m", "5m"), (", quality: {wait: 30s}, within: 5s", "1m")]
)
def test_check_and_explain_report_the_idle_timeout_as_delay_when_streams_are_joined(
    given: str, delay: str, capsys: pytest.CaptureFixture[str]
) -> None:
    on_stream = given if "idle_timeout" in given else ""
    rule = "within: 1h" if "within" not in given else given.removeprefix(", ")
    Path("slow.yaml").write_text(
        f"streams:\n  air: {{source: {{json: {{path: air}}}}, keys: [m]{on_stream}}}\n"
        "  oil: {source: {json: {path: oil}}, keys: [m]}\n"
        f"groups:\n  - name: g\n    rules:\n      - {{alert: Apart, expr: air > oil, on: [m], for: 1s, {rule}}}\n"
    )
    delayed = f"events are emitted up to {delay} later if a stream is slow"
    assert main(["check", "slow.yaml"]) == 0
    assert delayed in capsys.readouterr().out
    assert main(["explain", "slow.yaml"]) == 0
    assert f"    Delay: {delayed}" in capsys.readouterr().out


def test_check_json_has_counts_errors_warnings_and_notes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--json", "good.yaml", "bad.yaml", "spare.yaml"]) == 1
    out, err = capsys.readouterr()
    answer = json.loads(out)
    good, bad, spare = answer["files"]
    assert err == ""
    assert answer["ok"] is False
    assert [(note["line"], note["message"]) for note in good.pop("notes")] == [(22, DELAY), (35, DELAY)]
    assert good == {
        "file": "good.yaml", "ok": True, "groups": 1, "rules": 3, "streams": 2, "errors": [], "warnings": []
    }  # fmt: skip
    assert (bad["ok"], len(bad["errors"])) == (False, 3)
    assert bad["errors"][1] == {
        "file": "bad.yaml", "line": 26, "column": 14, "where": 'group "cold-store": rule "Condensation"',
        "code": "out-of-range", "path": ["groups", 0, "rules", 0, "for"],
        "message": "`for` must not be negative; got '-5s'", "found": "'-5s'", "hint": "",
    }  # fmt: skip
    assert [warning["line"] for warning in spare["warnings"]] == [14]


@pytest.mark.parametrize("arguments", [[], ["chek"], ["check"], ["check", "--jsn", "good.yaml"]])
def test_check_exits_with_2_when_arguments_are_invalid(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: tocsin" in capsys.readouterr().err


def test_check_output_contains_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", "--json", "good.yaml", "bad.yaml"])
    main(["check", "good.yaml", "bad.yaml"])
    out, err = capsys.readouterr()
    assert "hunter2" not in out + err


def test_help_describes_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--help"], ["check", "--help"]):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 0
    shown = capsys.readouterr().out
    assert "Exit codes: 0 success" in shown
    assert re.search(r"0  no errors.*\n  1  errors, or.*\n  2  invalid arguments", shown)


class _Terminal:
    def __init__(self) -> None:
        self.text = ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        """Do nothing, because nothing is buffered."""


def test_write_line_prints_colours_and_no_markup_when_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal, line = _Terminal(), "a.yaml:1:2: [bold]x[/bold] " + "y" * 200
    write_line(line, terminal, "red")  # type: ignore[arg-type]
    assert "\x1b[" in terminal.text
    assert re.sub(r"\x1b\[[0-9;]*m", "", terminal.text) == line + "\n"


def test_write_table_wraps_and_colours_one_column_when_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = _Terminal()
    rows = [["x", "refuted", "[bold]proof[/bold] " + "word " * 30], ["y", "constant", "a\x1b[31m"]]
    write_table(["variable", "verdict", "proof"], rows, terminal, 1, ["red", "green"])  # type: ignore[arg-type]
    assert "\x1b[31mrefuted" in terminal.text
    assert "\x1b[32mconstant" in terminal.text
    plain = re.sub(r"\x1b\[[0-9;]*m", "", terminal.text)
    assert "[bold]proof[/bold]" in plain
    assert "a\\x1b[31m" in plain
    assert plain.count("word") == 30
    assert max(len(line) for line in plain.splitlines()) <= 60


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, cwd=ROOT)


def test_check_imports_no_engine() -> None:
    code = (
        "import sys; from tocsin.cli.main import main; "
        f"print(main(['check', {EXAMPLE!r}]), *[name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = _run("-c", code)
    assert done.stdout.splitlines()[-1] == "0", done.stderr


def test_module_runs_as_the_command() -> None:
    done = _run("-m", "tocsin", "check", EXAMPLE)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, f"{EXAMPLE}: 1 group, 3 rules, 3 streams: ok")
    assert _run("-m", "tocsin").returncode == 2


def test_command_prints_no_traceback_when_its_output_is_closed() -> None:
    code = f"{sys.executable} -m tocsin check --json {' '.join([EXAMPLE] * 200)} | head -c 1"
    done = subprocess.run(
        ["bash", "-c", code], capture_output=True, text=True, check=False, cwd=ROOT, env=dict(os.environ)
    )
    assert (done.stdout, done.stderr) == ("{", "")


def test_demo_serves_a_dashboard_while_it_runs(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    seen: dict[str, str] = {}

    def play(folder: Path) -> None:
        assert (folder / "run").is_dir()
        output, stop = "", time.monotonic() + 100
        while not (found := re.search(r"dashboard at (\S+)", output)):
            assert time.monotonic() < stop
            time.sleep(0.1)
            output += capfd.readouterr().err
        seen["address"] = found[1]
        seen["page"] = urllib.request.urlopen(found[1], timeout=60).read().decode()

    monkeypatch.setattr("tocsin.demo.main", play)
    assert main(["demo"]) == 0
    assert "no micro-batch yet" in seen["page"] or "reading the run directory" in seen["page"]
    # The dashboard ends with the demo, because standard input is not a terminal.
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(seen["address"], timeout=10)


def test_version_option_prints_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("tocsin 0.")


def test_check_shows_proofs_of_each_rule_when_proofs_is_set(capsys: pytest.CaptureFixture[str]) -> None:
    example = str(Path(__file__).resolve().parents[2] / "examples" / "cold-store.yaml")
    assert main(["check", "--proofs", example]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "    air.value: increasing, proved by composition of -; exact in floating point" in lines
    assert sum(line.startswith("  Retention ") for line in lines) == 3
    assert main(["check", "--proofs", "--json", example]) == 0
    (file,) = json.loads(capsys.readouterr().out)["files"]
    proofs = {one["alert"]: one["proofs"] for one in file["rules_proved"]}
    assert proofs["DoorOpen"]["surface.temp"]["verdict"] == "decreasing"


def test_check_reports_an_error_when_the_shared_memory_budget_is_too_small(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("small.yaml").write_text(f"quality: {{memory: 20KB}}\n{GOOD}")
    assert main(["check", "small.yaml"]) == 1
    error = "rule file: `quality.memory` of the run must leave at least 32.77KB for each join without own memory"
    assert error in capsys.readouterr().err
    Path("small.yaml").write_text(f"quality: {{memory: 2MB}}\n{GOOD}")
    assert main(["check", "small.yaml"]) == 0


def test_check_reports_an_error_when_the_memory_budget_of_a_rule_is_out_of_range(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for run, rule, error in [
        ("1MB", "3KB", 'rule "C": `quality.memory` must be at least 32.77KB for each bucket; got 3KB'),
        (
            "1MB",
            "2MB",
            "`quality.memory` of the run must not be less than the sum over its rules; got 1MB, and the rules have 2MB",
        ),
    ]:
        Path("own.yaml").write_text(
            f"quality: {{memory: {run}}}\n"
            "streams:\n"
            "  a: {source: {parquet: {path: x}}, keys: [k]}\n"
            "  b: {source: {parquet: {path: x}}, keys: [k]}\n"
            "groups:\n"
            "  - name: g\n"
            "    rules:\n"
            f"      - {{alert: C, expr: a - b > 3, on: [k], within: 1m, emit: all, quality: {{memory: {rule}}}}}\n"
        )
        assert main(["check", "own.yaml"]) == 1
        assert error in capsys.readouterr().err


def test_check_warns_when_no_rule_can_use_a_budget_of_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    streams = "\n".join(f"  {name}: {{source: {{parquet: {{path: x}}}}, keys: [k]}}" for name in "abc")
    for budget, rule, warning in [
        ("cpu: 50%", "expr: a > b, within: 1m", "`quality.cpu` has no effect: no rule has `emit: all`"),
        ("deadline: 5s", "expr: a + b > c, within: 1m, emit: all", "`quality.deadline` has no effect"),
        ("cpu: 50%", "expr: a > b, within: 1m, emit: all", ""),
        ("memory: 5MB", "expr: a > 3", "`quality.memory` has no effect: no rule joins streams"),
        ("memory: 5MB", "expr: a > b, within: 1m", ""),
    ]:
        rules = f"groups:\n  - name: g\n    rules:\n      - {{alert: C, {rule}, on: [k]}}\n"
        Path("idle.yaml").write_text(f"quality: {{{budget}}}\nstreams:\n{streams}\n{rules}")
        assert main(["check", "idle.yaml"]) == 0
        found = capsys.readouterr().err
        assert (warning in found) if warning else ("has no effect" not in found)
