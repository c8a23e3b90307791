"""`tocsin certify`: verdicts as tables and JSON, domains from the command line and from rule files, exit codes."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tocsin
from rules.files import GOOD, write_tables
from tocsin.cli.certify import _domains
from tocsin.cli.main import main
from tocsin.expr.column_evaluation import evaluate_number_with_numpy
from tocsin.expr.parser import parse_number

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("numba", "pandas", "pyarrow", "pyspark", "rich")
Captured = pytest.CaptureFixture[str]
# A parabola with its maximum at 5: it rises and then falls on 0..10.
HILL = "h*(10 - h) > a"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PASS", "hunter2")
    write_tables(tmp_path)
    Path("rules.yaml").write_text(GOOD)
    return tmp_path


def _usage_errors(arguments: list[str], capsys: Captured) -> list[str]:
    """Run a command with invalid arguments, and return its errors without the lines that mark positions."""
    with pytest.raises(SystemExit) as caught:
        main(["certify", *arguments])
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    return [line.partition("error: ")[2] for line in err.splitlines() if line.startswith("tocsin certify: error: ")]


def _certified(arguments: list[str], capsys: Captured) -> dict[str, Any]:
    code = main(["certify", *arguments, "--json"])
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert code == (0 if answer["ok"] else 1)
    return answer


def test_certify_prints_a_table_when_all_variables_are_proved(capsys: Captured) -> None:
    assert main(["certify", "warm.temp > cold", "-d", "warm.temp=-40..60", "-d", "cold=..1e3"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["variable", "verdict", "domain", "proof"]
    assert [row.split()[:3] for row in rows] == [
        ["warm.temp", "increasing", "-40..60"],
        ["cold", "decreasing", "..1000"],
    ]
    assert len({row.index(row.split()[2]) for row in rows}) == 1


def test_certify_prints_a_counterexample_when_a_variable_is_refuted(capsys: Captured) -> None:
    assert main(["certify", HILL, "-d", "h=0..10", "-d", "a=0..5"]) == 1
    out = capsys.readouterr().out
    assert re.search(r"^h +refuted +0\.\.10 ", out, re.M)
    assert re.search(r"^a +decreasing +0\.\.5 ", out, re.M)
    (a,) = re.findall(r"^counterexample for h, with a = (\S+):$", out, re.M)
    points = [(float(h), float(f)) for h, f in re.findall(r"^  h = (\S+) +f = (\S+)$", out, re.M)]
    assert [h for h, _ in points] == sorted({h for h, _ in points})
    for h, f in points:
        assert f == pytest.approx(h * (10 - h) - float(a), rel=1e-5)
    (_, low), (_, top), (_, high) = points
    assert top > max(low, high)
    assert re.search(r"^help for h: ", out, re.M)
    assert "help for a" not in out


def test_certify_prints_a_reason_and_help_when_a_variable_is_undecided(capsys: Captured) -> None:
    assert main(["certify", "ln(h/100) > -1", "-d", "h=0..100"]) == 1
    out = capsys.readouterr().out
    assert re.search(r"^h +undecided +0\.\.100 +`ln\(h / 100\)` may be undefined or infinite for h in \[0, ", out, re.M)
    assert re.search(r"^help for h: ", out, re.M)
    assert main(["certify", "ln(h/100) > -1", "-d", "h=0.1..100"]) == 0


def test_certify_accepts_a_numeric_expression(capsys: Captured) -> None:
    number = _certified(["sqrt(x*x + y*y)", "-d", "x=-1..1", "-d", "y=-1..1"], capsys)
    assert {name: one["verdict"] for name, one in number["variables"].items()} == {
        "x": "quasiconvex",
        "y": "quasiconvex",
    }


def test_certify_has_nothing_to_prove_when_there_are_no_variables(capsys: Captured) -> None:
    assert main(["certify", "1 > 2"]) == 0
    assert capsys.readouterr().out == "no variables: nothing to prove\n"


def test_certify_json_equals_the_certificate_in_python(capsys: Captured) -> None:
    wanted = tocsin.certify(HILL, {"h": (0, 10), "a": (0, math.inf)}).to_dict()
    assert _certified([HILL, "-d", "h=0..10", "-d", "a=0.."], capsys) == {"ok": False, **wanted}
    assert wanted["domains"] == {"h": [0.0, 10.0], "a": [0.0, None]}


def test_certify_json_has_null_when_the_rounding_error_is_unbounded(capsys: Captured) -> None:
    expr = "(x*x)**0.5"
    assert math.isinf(tocsin.certify(expr, {"x": (-1, 2)})["x"].rounding)
    assert main(["certify", expr, "-d", "x=-1..2", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert (answer["variables"]["x"]["verdict"], answer["variables"]["x"]["rounding"]) == ("quasiconvex", None)


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        ("h=0..100", (0, 100)),
        ("h=0..", (0, math.inf)),
        ("h=..100", (-math.inf, 100)),
        ("h=..", (-math.inf, math.inf)),
        ("h=-1e3..2.5e4", (-1000, 25000)),
        ("h = -.5 .. +1.", (-0.5, 1)),
        ("h=0...5", (0, 0.5)),
        ("h=3..3", (3, 3)),
    ],
)
def test_domain_option_accepts_numbers_and_open_ends(text: str, domain: tuple[float, float]) -> None:
    errors: list[str] = []
    assert _domains([text], ["h"], errors) == {"h": domain}
    assert errors == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "h",
        "h=",
        "h=5",
        "h=0.100",
        "=0..1",
        "h=a..b",
        "h=nan..1",
        "h=..inf",
        "h=1e999..",
        "h=1_0..20",
        "h=\u0661..2",
    ],
)
def test_domain_option_is_rejected_when_it_is_invalid(text: str, capsys: Captured) -> None:
    form = "`-d` must be NAME=LOW..HIGH with finite numbers, or with an open end"
    assert _usage_errors(["h > 0", "-d", text], capsys) == [f"{form}; got {text!r}"]


def test_certify_reports_all_errors_of_its_arguments(capsys: Captured) -> None:
    given = ["h=9..1", "humid=0..1", "h=0..1", "x", "humidit=0..1"]
    found = _usage_errors(["humidity > h", *(part for text in given for part in ("-d", text))], capsys)
    assert found == [
        "`-d h` must have low <= high; got '9..1'",
        "`-d` must be a variable of the condition (humidity, h); got 'humid'; did you mean `humidity`?",
        "`-d` must declare a variable once; got 'h' twice",
        "`-d` must be NAME=LOW..HIGH with finite numbers, or with an open end; got 'x'",
        "`-d` must be a variable of the condition (humidity, h); got 'humidit'; did you mean `humidity`?",
    ]


def test_certify_reports_errors_of_the_condition_and_of_domains_together(capsys: Captured) -> None:
    found = _usage_errors(["sqr(x) > sine(y)", "-d", "x=2..1", "-d", "other=0..1"], capsys)
    assert found == [
        "`sqr` is not a function; did you mean `sqrt`?",
        "`sine` is not a function; did you mean `sin`?",
        "`-d x` must have low <= high; got '2..1'",
    ]


@pytest.mark.parametrize("arguments", [[], ["x +"], ["x > 0 >"], ["--jsn", "x > 0"], [""], ["x == 1"]])
def test_certify_exits_with_2_when_arguments_are_invalid(arguments: list[str], capsys: Captured) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["certify", *arguments])
    assert caught.value.code == 2
    assert "usage: tocsin" in capsys.readouterr().err


def test_certify_escapes_control_characters(folder: Path, capsys: Captured) -> None:
    for arguments in (["x > \x1b[31m"], ["x > 0", "-d", "x\x1b[31m=0..1"], ["-f", "rules.yaml", "\x1b[31m"]):
        with pytest.raises((SystemExit, StopIteration)):
            raise StopIteration(main(["certify", *arguments]))
    Path("rules.yaml").write_text(GOOD.replace("alert: Pair", 'alert: "\\e[31mPair"'))
    main(["certify", "-f", "rules.yaml"])
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err
    assert "\\x1b[31mPair: air.temp - surface > 15" in out


def test_certify_uses_domains_of_streams_and_limits_when_given_a_rule_file(folder: Path, capsys: Captured) -> None:
    answer = _certified(["-f", "rules.yaml"], capsys)
    assert (answer["ok"], answer["file"]) == (True, "rules.yaml")
    assert [rule["alert"] for rule in answer["rules"]] == ["Condensation", "Site", "Pair"]
    first, site, pair = answer["rules"]
    assert first["labels"] == {"team": "hvac", "severity": "critical"}
    assert first["domains"] == {
        "air": [-40.0, 85.0],
        "surface": [0.0, math.nextafter(100, 0)],
        "by_machine.margin": [-0.5, 1.5],
    }
    assert site["domains"] == {"air": [-40.0, 85.0], "by_site.most": [8.0, 8.0]}
    assert pair["domains"]["air.temp"] == [None, None]
    assert {name: one["verdict"] for name, one in first["variables"].items()} == {
        "air": "increasing",
        "surface": "decreasing",
    }


def test_certify_replaces_a_domain_of_the_file_when_the_option_is_given(folder: Path, capsys: Captured) -> None:
    Path("rules.yaml").write_text(GOOD.replace("air.temp - surface > 15", "air + ln(surface) > 15"))
    assert main(["certify", "-f", "rules.yaml", "Pair"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("Pair: air + ln(surface) > 15\nvariable")
    # The column has no proved shape, but the part of the expression that reads it has one.
    assert "\n  Retention surface(heat): keep the maximum of ln(surface.heat) in every 15s window (about 2 rows)" in out
    assert "\n    ln(surface.heat): increasing, proved by " in out
    assert out.endswith("\nrules.yaml: 1 of 2 variables proved; unreduced streams: none\n")
    assert main(["certify", "-f", "rules.yaml", "-d", "surface=1..100", "Pair"]) == 0
    out = capsys.readouterr().out
    assert "\n    surface.heat: increasing, proved by " in out
    assert "ln(surface.heat)" not in out
    assert out.endswith("\nrules.yaml: 2 of 2 variables proved; unreduced streams: none\n")


def test_certify_lists_streams_that_are_proved_but_unreduced(folder: Path, capsys: Captured) -> None:
    far = "(air - surface)**2 + (air.temp - surface)**2 > 15"
    Path("rules.yaml").write_text(GOOD.replace("air.temp - surface > 15", far))
    assert main(["certify", "-f", "rules.yaml", "Pair"]) == 0
    out = capsys.readouterr().out
    assert "\n  Retention air(value, temp): unreduced\n" in out
    assert out.endswith("\nrules.yaml: 3 of 3 variables proved; unreduced streams: air\n")
    answer = _certified(["-f", "rules.yaml", "Pair"], capsys)
    assert "Retention air(value, temp): unreduced" in answer["rules"][0]["plan"]


def test_certify_plan_equals_the_output_of_explain(folder: Path, capsys: Captured) -> None:
    (pair,) = _certified(["-f", "rules.yaml", "Pair"], capsys)["rules"]
    assert main(["explain", "rules.yaml", "Pair"]) == 0
    lines = [line.removeprefix("  ") for line in capsys.readouterr().out.splitlines()]
    assert pair["plan"] == [line for line in lines if not line.startswith(("Pipeline ", "Rule ", "  Delay: "))]


def test_domain_option_accepts_the_variable_name_of_the_plan(folder: Path, capsys: Captured) -> None:
    (one,) = _certified(["-f", "rules.yaml", "Pair", "-d", "surface=1..9"], capsys)["rules"]
    (two,) = _certified(["-f", "rules.yaml", "Pair", "-d", "surface.heat=1..9"], capsys)["rules"]
    assert one == two
    assert _usage_errors(["-f", "rules.yaml", "-d", "surface=1..9", "-d", "surface.heat=1..9"], capsys) == [
        "`-d` must declare a variable once; got 'surface' twice"
    ]


@pytest.mark.parametrize("name", ["rules.yaml", "other.yml", "limits.csv"])
def test_certify_suggests_the_file_option_when_the_expression_is_a_file(
    folder: Path, name: str, capsys: Captured
) -> None:
    assert _usage_errors([name], capsys) == [
        f"EXPR must be a condition; got the file {name!r}; did you mean `-f {name}`?"
    ]


def test_certify_uses_only_the_range_of_limits(folder: Path, capsys: Captured) -> None:
    # The square root is defined only if no key has a negative limit.
    Path("rules.yaml").write_text(GOOD.replace("air > by_site.most", "air*sqrt(by_site.most) > 3"))
    answer = _certified(["-f", "rules.yaml", "Site"], capsys)
    assert {name: one["verdict"] for name, one in answer["rules"][0]["variables"].items()} == {"air": "increasing"}
    # With factors of both signs, the condition rises for some keys and falls for others.
    (folder / "sites.csv").write_text("site,most\nnorth,8\nsouth,-8\n")
    Path("rules.yaml").write_text(GOOD.replace("air > by_site.most", "air*by_site.most > 3"))
    answer = _certified(["-f", "rules.yaml", "Site"], capsys)
    assert {name: one["verdict"] for name, one in answer["rules"][0]["variables"].items()} == {"air": "quasiconvex"}


def test_certify_suggests_a_rule_when_the_name_is_unknown(folder: Path, capsys: Captured) -> None:
    assert main(["certify", "-f", "rules.yaml", "Condensatio"]) == 1
    message = "RULE must be an alert of the file (Condensation, Site, Pair); got 'Condensatio'"
    assert capsys.readouterr() == ("", f"tocsin certify: {message}; did you mean `Condensation`?\n")


def test_certify_rejects_a_domain_when_no_rule_reads_the_variable(folder: Path, capsys: Captured) -> None:
    assert _usage_errors(["-f", "rules.yaml", "Site", "-d", "surface=0..1"], capsys) == [
        "`-d` must be a variable of the condition (air, by_site.most); got 'surface'"
    ]


def test_certify_reports_errors_of_a_rule_file_as_check_does(folder: Path, capsys: Captured) -> None:
    Path("rules.yaml").write_text(GOOD.replace("for: 10m\n        rec", "for: -5s\n        rec"))
    assert main(["certify", "-f", "rules.yaml"]) == 1
    output = capsys.readouterr()
    main(["check", "rules.yaml"])
    assert output == capsys.readouterr()
    assert "`for` must not be negative" in output.err


def test_certify_imports_no_engine() -> None:
    code = (
        "import sys; from tocsin.cli.main import main; "
        f"main(['certify', {HILL!r}, '-d', 'h=0..10']); main(['certify', '-f', 'examples/cold-store.yaml']); "
        f"print(*[name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.stdout.splitlines()[-1] == "", done.stderr


def test_certify_help_describes_the_exit_codes(capsys: Captured) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["certify", "--help"])
    assert caught.value.code == 0
    assert re.search(
        r"0  every variable is proved\n  1  a variable is refuted or.*\n  2  invalid arguments", capsys.readouterr().out
    )


@pytest.mark.parametrize("points", [11, 1001])
def test_grid_search_misses_the_counterexample_when_a_peak_is_narrow(points: int) -> None:
    expr = "fan/6000 + 3/(1 + ((fan*fan - 10351663)/50)**2) > 1"
    fan = np.linspace(0, 6000, points)
    assert (np.diff(evaluate_number_with_numpy(parse_number(expr.removesuffix("> 1")), {("fan", None): fan})) > 0).all()
    assert (
        evaluate_number_with_numpy(parse_number(expr.removesuffix("> 1")), {("fan", None): np.array([3217.4])})[0] > 1
    )
    assert tocsin.certify(expr, {"fan": (0, 6000)})["fan"].verdict == "refuted"
