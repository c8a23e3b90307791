"""`tocsin certify`: verdicts as tables and JSON, domains of the command line and of rule files, exit codes."""

from __future__ import annotations

import json
import math
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tocsin
from rules.files import GOOD, write_tables
from tocsin.cli.certify import _domains
from tocsin.cli.main import main
from tocsin.expr.columns import number_on_arrays
from tocsin.expr.parse import parse_number

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("numba", "pandas", "pyarrow", "pyspark", "rich")
Captured = pytest.CaptureFixture[str]
# A parabola that is highest at 5, so that it rises and then falls on 0..10, and does neither before 5.
HILL = "h*(10 - h) > a"
PAGES = [(ROOT / "docs" / name).read_text("utf-8") for name in ("concepts/proofs.md", "reference/cli.md")]
COMMANDS = re.findall(r"^    \$ tocsin (certify .+)\n((?:    (?!\$ ).*\n)*)", "".join(PAGES), re.M)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PASS", "hunter2")
    write_tables(tmp_path)
    Path("rules.yaml").write_text(GOOD)
    return tmp_path


def _refused(arguments: list[str], capsys: Captured) -> list[str]:
    """The mistakes of a command line, without the marks below them."""
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


def test_a_condition_whose_variables_are_all_proved_gives_a_table_and_0(capsys: Captured) -> None:
    assert main(["certify", "warm.temp > cold", "-d", "warm.temp=-40..60", "-d", "cold=..1e3"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["variable", "verdict", "domain", "proof"]
    assert [row.split()[:3] for row in rows] == [
        ["warm.temp", "increasing", "-40..60"],
        ["cold", "decreasing", "..1000"],
    ]
    assert len({row.index(row.split()[2]) for row in rows}) == 1


def test_a_refuted_variable_shows_three_points_with_the_middle_one_highest_and_gives_1(capsys: Captured) -> None:
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


def test_an_undecided_variable_says_where_and_what_helps_and_gives_1(capsys: Captured) -> None:
    assert main(["certify", "ln(h/100) > -1", "-d", "h=0..100"]) == 1
    out = capsys.readouterr().out
    assert re.search(
        r"^h +undecided +0\.\.100 +`ln\(h / 100\)` is not proved defined and finite for h in \[0, ", out, re.M
    )
    assert re.search(r"^help for h: ", out, re.M)
    assert main(["certify", "ln(h/100) > -1", "-d", "h=0.1..100"]) == 0


def test_a_number_is_certified_as_a_condition_is(capsys: Captured) -> None:
    number = _certified(["sqrt(x*x + y*y)", "-d", "x=-1..1", "-d", "y=-1..1"], capsys)
    assert {name: one["verdict"] for name, one in number["variables"].items()} == {
        "x": "quasiconvex",
        "y": "quasiconvex",
    }


def test_nothing_is_to_be_proved_of_numbers_alone(capsys: Captured) -> None:
    assert main(["certify", "1 > 2"]) == 0
    assert capsys.readouterr().out == "no variables: nothing to prove\n"


def test_a_program_reads_the_certificate_as_python_gives_it(capsys: Captured) -> None:
    wanted = tocsin.certify(HILL, {"h": (0, 10), "a": (0, math.inf)}).to_dict()
    assert _certified([HILL, "-d", "h=0..10", "-d", "a=0.."], capsys) == {"ok": False, **wanted}
    assert wanted["domains"] == {"h": [0.0, 10.0], "a": [0.0, None]}


def test_json_has_no_number_for_a_rounding_that_nothing_bounds(capsys: Captured) -> None:
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
def test_an_end_of_a_domain_may_be_any_number_or_left_out(text: str, domain: tuple[float, float]) -> None:
    mistakes: list[str] = []
    assert _domains([text], ["h"], mistakes) == {"h": domain}
    assert mistakes == []


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
def test_what_is_no_domain_is_refused_with_what_was_found(text: str, capsys: Captured) -> None:
    form = "`-d` must be NAME=LOW..HIGH, with finite numbers or nothing as ends"
    assert _refused(["h > 0", "-d", text], capsys) == [f"{form}; got {text!r}"]


def test_all_mistakes_of_a_command_line_are_said_a_sentence_each(capsys: Captured) -> None:
    given = ["h=9..1", "humid=0..1", "h=0..1", "x", "humidit=0..1"]
    found = _refused(["humidity > h", *(part for text in given for part in ("-d", text))], capsys)
    assert found == [
        "`-d h` must have low <= high; got '9..1'",
        "`-d` must name a variable of the condition (humidity, h); got 'humid'; did you mean `humidity`?",
        "`-d` must name a variable once; 'h' stands twice",
        "`-d` must be NAME=LOW..HIGH, with finite numbers or nothing as ends; got 'x'",
        "`-d` must name a variable of the condition (humidity, h); got 'humidit'; did you mean `humidity`?",
    ]


def test_mistakes_of_a_condition_are_said_together_with_those_of_domains(capsys: Captured) -> None:
    found = _refused(["sqr(x) > sine(y)", "-d", "x=2..1", "-d", "other=0..1"], capsys)
    assert found == [
        "`sqr` is not a function; did you mean `sqrt`?",
        "`sine` is not a function; did you mean `sin`?",
        "`-d x` must have low <= high; got '2..1'",
    ]


@pytest.mark.parametrize("arguments", [[], ["x +"], ["x > 0 >"], ["--jsn", "x > 0"], [""], ["x == 1"]])
def test_wrong_usage_gives_2(arguments: list[str], capsys: Captured) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["certify", *arguments])
    assert caught.value.code == 2
    assert "usage: tocsin" in capsys.readouterr().err


def test_what_a_terminal_would_obey_is_shown_and_not_obeyed(folder: Path, capsys: Captured) -> None:
    for arguments in (["x > \x1b[31m"], ["x > 0", "-d", "x\x1b[31m=0..1"], ["-f", "rules.yaml", "\x1b[31m"]):
        with pytest.raises((SystemExit, StopIteration)):
            raise StopIteration(main(["certify", *arguments]))
    Path("rules.yaml").write_text(GOOD.replace("alert: Pair", 'alert: "\\e[31mPair"'))
    main(["certify", "-f", "rules.yaml"])
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err
    assert "\\x1b[31mPair: air.temp - surface > 15" in out


def test_the_conditions_of_a_rule_file_have_the_domains_of_its_streams_and_tables(
    folder: Path, capsys: Captured
) -> None:
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


def test_one_rule_of_a_file_is_certified_and_its_domain_can_be_tried_otherwise(folder: Path, capsys: Captured) -> None:
    Path("rules.yaml").write_text(GOOD.replace("air.temp - surface > 15", "air + ln(surface) > 15"))
    assert main(["certify", "-f", "rules.yaml", "Pair"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("Pair: air + ln(surface) > 15\nvariable")
    # What is not proved of a column may be of the number that reads it.
    assert "\n  Store surface(heat): keep the largest of every 15s (about 2 rows) by ln(surface.heat)" in out
    assert "\n    ln(surface.heat): increasing: " in out
    assert out.endswith("\nrules.yaml: 1 of 2 variables proved; no stream is kept whole\n")
    assert main(["certify", "-f", "rules.yaml", "-d", "surface=1..100", "Pair"]) == 0
    out = capsys.readouterr().out
    assert "\n    surface.heat: increasing: " in out
    assert "ln(surface.heat)" not in out
    assert out.endswith("\nrules.yaml: 2 of 2 variables proved; no stream is kept whole\n")


def test_a_stream_that_is_proved_in_each_value_and_kept_whole_is_said(folder: Path, capsys: Captured) -> None:
    far = "(air - surface)**2 + (air.temp - surface)**2 > 15"
    Path("rules.yaml").write_text(GOOD.replace("air.temp - surface > 15", far))
    assert main(["certify", "-f", "rules.yaml", "Pair"]) == 0
    out = capsys.readouterr().out
    assert "\n  Store air(value, temp): kept whole\n" in out
    assert out.endswith("\nrules.yaml: 3 of 3 variables proved; kept whole: air\n")
    answer = _certified(["-f", "rules.yaml", "Pair"], capsys)
    assert "Store air(value, temp): kept whole" in answer["rules"][0]["plan"]


def test_the_plan_is_that_of_explain(folder: Path, capsys: Captured) -> None:
    (pair,) = _certified(["-f", "rules.yaml", "Pair"], capsys)["rules"]
    assert main(["explain", "rules.yaml", "Pair"]) == 0
    lines = [line.removeprefix("  ") for line in capsys.readouterr().out.splitlines()]
    assert pair["plan"] == [line for line in lines if not line.startswith(("Watch ", "Threshold ", "  Delay: "))]


def test_a_domain_may_be_tried_by_the_name_that_the_plan_has(folder: Path, capsys: Captured) -> None:
    (one,) = _certified(["-f", "rules.yaml", "Pair", "-d", "surface=1..9"], capsys)["rules"]
    (two,) = _certified(["-f", "rules.yaml", "Pair", "-d", "surface.heat=1..9"], capsys)["rules"]
    assert one == two
    assert _refused(["-f", "rules.yaml", "-d", "surface=1..9", "-d", "surface.heat=1..9"], capsys) == [
        "`-d` must name a variable once; 'surface' stands twice"
    ]


@pytest.mark.parametrize("name", ["rules.yaml", "other.yml", "limits.csv"])
def test_a_file_without_its_option_is_refused(folder: Path, name: str, capsys: Captured) -> None:
    assert _refused([name], capsys) == [f"EXPR must be a condition; got the file {name!r}; did you mean `-f {name}`?"]


def test_nothing_is_asked_of_a_limit_but_its_numbers(folder: Path, capsys: Captured) -> None:
    # The root of a margin is defined only where no key has a negative one.
    Path("rules.yaml").write_text(GOOD.replace("air > by_site.most", "air*sqrt(by_site.most) > 3"))
    answer = _certified(["-f", "rules.yaml", "Site"], capsys)
    assert {name: one["verdict"] for name, one in answer["rules"][0]["variables"].items()} == {"air": "increasing"}
    # With a factor of either sign it rises for some keys and falls for others.
    (folder / "sites.csv").write_text("site,most\nnorth,8\nsouth,-8\n")
    Path("rules.yaml").write_text(GOOD.replace("air > by_site.most", "air*by_site.most > 3"))
    answer = _certified(["-f", "rules.yaml", "Site"], capsys)
    assert {name: one["verdict"] for name, one in answer["rules"][0]["variables"].items()} == {"air": "quasiconvex"}


def test_a_rule_that_the_file_does_not_have_gives_1_and_the_nearest(folder: Path, capsys: Captured) -> None:
    assert main(["certify", "-f", "rules.yaml", "Condensatio"]) == 1
    sentence = "RULE must be an alert of the file (Condensation, Site, Pair); got 'Condensatio'"
    assert capsys.readouterr() == ("", f"tocsin certify: {sentence}; did you mean `Condensation`?\n")


def test_a_domain_that_no_rule_of_the_file_reads_is_refused(folder: Path, capsys: Captured) -> None:
    assert _refused(["-f", "rules.yaml", "Site", "-d", "surface=0..1"], capsys) == [
        "`-d` must name a variable of the condition (air, by_site.most); got 'surface'"
    ]


def test_mistakes_of_a_rule_file_are_said_as_check_says_them(folder: Path, capsys: Captured) -> None:
    Path("rules.yaml").write_text(GOOD.replace("for: 10m\n        rec", "for: -5s\n        rec"))
    assert main(["certify", "-f", "rules.yaml"]) == 1
    said = capsys.readouterr()
    main(["check", "rules.yaml"])
    assert said == capsys.readouterr()
    assert "`for` must not be negative" in said.err


def test_it_imports_no_engine_and_a_pipe_no_terminal() -> None:
    code = (
        "import sys; from tocsin.cli.main import main; "
        f"main(['certify', {HILL!r}, '-d', 'h=0..10']); main(['certify', '-f', 'examples/cold-store.yaml']); "
        f"print(*[name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.stdout.splitlines()[-1] == "", done.stderr


def test_the_help_says_what_the_exit_codes_mean(capsys: Captured) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["certify", "--help"])
    assert caught.value.code == 0
    assert re.search(
        r"0  every variable is proved;.*\n  1  one is refuted or.*\n  2  wrong usage", capsys.readouterr().out
    )


@pytest.mark.parametrize(("command", "shown"), COMMANDS, ids=[command for command, _ in COMMANDS])
def test_a_command_of_the_page_prints_what_is_shown(
    command: str, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(ROOT)
    main(shlex.split(command))
    # Which points a search meets is not promised; what is said of them is.
    printed, wanted = (
        re.sub(r"-?[0-9][0-9.,]*(?:e[-+]?[0-9]+)?", "#", text).split()
        for text in (capsys.readouterr().out, textwrap.dedent(shown))
    )
    assert printed == wanted


@pytest.mark.parametrize("points", [11, 1001])
def test_the_page_is_right_that_a_grid_is_fooled(points: int) -> None:
    (expr,) = {shlex.split(command)[1] for command, _ in COMMANDS if "fan" in command}
    fan = np.linspace(0, 6000, points)
    assert (np.diff(number_on_arrays(parse_number(expr.removesuffix("> 1")), {("fan", None): fan})) > 0).all()
    assert number_on_arrays(parse_number(expr.removesuffix("> 1")), {("fan", None): np.array([3217.4])})[0] > 1
    assert tocsin.certify(expr, {"fan": (0, 6000)})["fan"].verdict == "refuted"
