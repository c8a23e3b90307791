"""`tocsin test`: its output, its exit codes, and the modules that it must not import."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.testing.files import one_test, write_rules
from tocsin.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = "examples/cold-store-test.yaml"
M1 = 'air{machine="m1"}'
WARM = "exp_labels: {machine: m1, team: hvac}"
FAILING = f"""
{{eval_time: 0, alertname: Warm}}
{{eval_time: 1m, alertname: Warm}}
{{eval_time: 0, alertname: Warm, exp_alerts: [{WARM}]}}
{{eval_time: 1m, alertname: Warm, exp_alerts: [{{{WARM}, exp_value: 22, exp_starts_at: 0s}}]}}
"""
LINES = """\
Unit Testing: bad.yaml
  FAILED: 3 of 4 cases
    name: one, alertname: Warm, time: 1m (line 10)
        exp: nothing
        got: {machine="m1", team="hvac"} firing since 1m, value 21, margin 1 (air.value 21)
    name: one, alertname: Warm, time: 0s (line 11)
        exp: {machine="m1", team="hvac"} firing
        got: nothing; closest: margin -1 at 0s (air 19)
    name: one, alertname: Warm, time: 1m (line 12)
        {machine="m1", team="hvac"} firing
          value
            exp: 22
            got: 21
          starts at
            exp: 0s
            got: 1m

"""
ERROR = 'wrong.yaml:9:21: test "one": alert_rule_test "Warm": `eval_time` must not be negative; got \'-1m\'\n'


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_rules(tmp_path)
    good = one_test({M1: "19 21"}, f"{{eval_time: 1m, alertname: Warm, exp_alerts: [{WARM}]}}")
    Path("good.yaml").write_text(good)
    Path("bad.yaml").write_text(one_test({M1: "19 21"}, FAILING))
    Path("wrong.yaml").write_text(good.replace("eval_time: 1m", "eval_time: -1m"))


def test_command_exits_with_0_when_tests_pass(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["test", "good.yaml"]) == 0
    assert capsys.readouterr() == ("Unit Testing: good.yaml\n  SUCCESS: 1 test, 1 case\n\n", "")


def test_command_prints_expected_and_actual_alerts_when_a_test_fails(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["test", "bad.yaml", "good.yaml"]) == 1
    assert capsys.readouterr() == (LINES + "Unit Testing: good.yaml\n  SUCCESS: 1 test, 1 case\n\n", "")


def test_other_files_run_when_a_file_has_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["test", "wrong.yaml", "bad.yaml", "none.yaml"]) == 1
    none = "none.yaml:1:1: test file: the file cannot be read: no such file or directory\n"
    assert capsys.readouterr() == (LINES, ERROR + none)


def test_error_of_a_rule_file_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    Path("rules.yaml").write_text("streams: {}\n")
    assert main(["test", "good.yaml", "bad.yaml"]) == 1
    assert capsys.readouterr() == ("", "rules.yaml:1:1: rule file: `groups` must be given; found streams\n")


def test_run_option_selects_tests_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["test", "--run", "^o.e$", "good.yaml"]) == 0
    assert main(["test", "--run", "two", "good.yaml", "bad.yaml"]) == 2
    out, err = capsys.readouterr()
    assert (out.count("SUCCESS"), out.count("FAILED")) == (1, 0)
    assert err == "tocsin test: no test has a name that matches 'two'\n"


def test_debug_option_shows_series_and_alert_events(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["test", "--debug", "good.yaml"]) == 0
    shown = '{machine="m1", team="hvac"} firing since 1m, value 21, margin 1 (air.value 21)'
    assert capsys.readouterr().out.splitlines() == [
        "Unit Testing: good.yaml",
        "    DEBUG: one (line 3)",
        '        air{machine="m1"}: 19 21',
        f"        1m: Warm {shown}",
        f"        at 1m: Warm {shown}",
        "  SUCCESS: 1 test, 1 case",
        "",
    ]


def test_json_has_tests_cases_and_differences(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["test", "--json", "--debug", "good.yaml", "bad.yaml", "wrong.yaml"]) == 1
    out, err = capsys.readouterr()
    answer = json.loads(out)
    good, bad, wrong = answer["files"]
    alert = {
        "alertname": "Warm", "state": "firing", "labels": {"machine": "m1", "team": "hvac"}, "annotations": {},
        "starts_at": "1m", "ends_at": None, "value": 21, "margin": 1, "witness": {"air": {"value": 21}}, "late": False,
    }  # fmt: skip
    assert err == ""
    assert (answer["ok"], good["ok"], bad["ok"], wrong["ok"]) == (False, True, False, False)
    assert good["tests"] == [{
        "name": "one", "line": 3, "ok": True,
        "cases": [{
            "eval_time": "1m", "alertname": "Warm", "line": 9, "ok": True, "error": None,
            "expected": [{"labels": {"machine": "m1", "team": "hvac"}, "annotations": {}}],
            "got": [alert], "differences": [],
        }],
        "alerts": [{"time": "1m", **alert}],
    }]  # fmt: skip
    assert [[one["kind"] for one in case["differences"]] for case in bad["tests"][0]["cases"]] == [
        [], ["unexpected"], ["missing"], ["different"]
    ]  # fmt: skip
    assert bad["tests"][0]["cases"][3]["expected"][0] | {"labels": 0, "annotations": 0} == {
        "labels": 0, "annotations": 0, "value": 22, "starts_at": "0s"
    }  # fmt: skip
    assert bad["tests"][0]["cases"][3]["differences"][0]["details"] == [
        {"what": "value", "expected": "22", "got": "21"}, {"what": "starts at", "expected": "0s", "got": "1m"}
    ]  # fmt: skip
    assert (wrong["tests"], wrong["errors"][0]["line"], wrong["errors"][0]["column"]) == ([], 9, 21)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: FILE"),
        (["--run", "(", "good.yaml"], "argument --run: must be a regular expression (missing )"),
        (["--jsn", "good.yaml"], "unrecognized arguments: --jsn"),
    ],
)
def test_command_exits_with_2_when_arguments_are_invalid(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["test", *arguments])
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_help_describes_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["test", "--help"])
    assert caught.value.code == 0
    assert re.search(
        r"0  all tests passed\n  1  a test failed, a file has errors.*\n  2  invalid arguments", capsys.readouterr().out
    )


def test_output_escapes_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    text = Path("bad.yaml").read_text().replace("name: one", 'name: "\\e[31mred"')
    Path("bad.yaml").write_text(text)
    assert main(["test", "bad.yaml"]) == 1
    assert "\x1b" not in capsys.readouterr().out


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


def test_verdict_is_coloured_when_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = _Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    assert main(["test", "good.yaml"]) == 0
    assert "\x1b[32m  SUCCESS: 1 test, 1 case" in out.text


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, cwd=ROOT)


def test_example_passes_without_processes_and_engines() -> None:
    heavy = ("numba", "pandas", "pyarrow", "pyspark", "py4j", "rich")
    code = (
        "import sys, subprocess, os; from tocsin.cli.main import main; "
        "starts = {'subprocess.Popen', 'os.fork', 'os.posix_spawn'}; "
        "sys.addaudithook(lambda event, _: event in starts and os._exit(9)); "
        f"print(main(['test', {EXAMPLE!r}]), *[name for name in {heavy!r} if name in sys.modules])"
    )
    done = _run("-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1:] == ["  SUCCESS: 2 tests, 7 cases", "", "0"]


def test_100_cases_take_less_than_5_cpu_seconds_without_compilation() -> None:
    head, tests, warm = Path("good.yaml").read_text().partition("tests:\n")
    series = '      - series: surface{machine="m1"}\n        values: 18x20\n    alert_rule_test:'
    warm = warm.replace("values: 19 21", "values: 19 21x19").replace("    alert_rule_test:", series)
    apart = "exp_alerts: [{exp_labels: {machine: m1, team: hvac, severity: critical}, exp_annotations: "
    apart += "{summary: 'm1: 3', cause: '18'}}]"
    joined = warm.replace("alertname: Warm", "alertname: Apart").replace(f"exp_alerts: [{WARM}]", apart)
    Path("many.yaml").write_text(head + tests + 50 * (warm + joined))
    begin = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = _run("-m", "tocsin", "test", str(Path("many.yaml").resolve()))
    assert done.stdout.splitlines()[1] == "  SUCCESS: 100 tests, 100 cases", done.stdout
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    # CPU seconds, because the machine can be busy.
    assert end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime < 5
