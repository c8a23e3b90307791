"""Every message about a test file, with its place; `»` in a text stands where the mistake is."""

from __future__ import annotations

from pathlib import Path

import pytest

from rules.files import marked
from tests.testing.files import check, said, write_rules
from tocsin.testing import SuiteLoader

GOOD = """\
rule_files: [rules.yaml]
evaluation_interval: 1m
fuzzy_compare: false
tests:
  - name: one
    interval: 1m
    start_timestamp: 0
    input_series:
      - series: air{machine="m1"}
        values: 20+1x3 _ 20
        delay: 0s x2 30s
      - {series: 'surface.temp{machine="m1"}', values: 18x5}
    alert_rule_test:
      - eval_time: 2m
        alertname: Apart
        exp_alerts:
          - exp_labels: {machine: m1, severity: critical, team: hvac}
            exp_annotations: {summary: "m1: 3", cause: 18}
            exp_state: firing
            exp_value: 3
            exp_margin: 1
            exp_starts_at: 1m
            exp_witness: {air: 21, surface: 18}
  - alert_rule_test: [{eval_time: 1m, alertname: Warm}]
"""
ALERTS = "(Warm, Damp, Both, WarmFor, WarmKept, Apart, Slow, Reduced, Matches, Two, Limited, Recovers, Door, Undefined)"
TEST, CASE = 'test "one"', 'test "one": alert_rule_test "Apart"'
FIRST = f"{CASE}: alert 1"
AIR = 'test "one": series "air{machine="m1"}"'
WANTED = "`values` must be samples such as `1`, `1+2x3`, `1x4`, `_` or `_x5`"
DURATION = "must be a duration such as '10s', '1h30m' or '500ms'"

# What is replaced in the good file, what it becomes, and what is said.
MISTAKES = [
    ("fuzzy_compare: false", "»fuzy_compare: false",
     "test file: `fuzy_compare` is not a key of a test file; did you mean `fuzzy_compare`?"),
    ("fuzzy_compare: false", "fuzzy_compare: »maybe",
     "test file: `fuzzy_compare` must be one of true, false; got 'maybe'"),
    ("fuzzy_compare: false", "»group_eval_order: [a]",
     "test file: `group_eval_order` must not be given; rules read streams and not each other, so groups have no order; "
     "leave it out"),
    ("evaluation_interval: 1m", "evaluation_interval: »0s",
     "test file: `evaluation_interval` must be longer than 0; got '0s'"),
    ("rule_files: [rules.yaml]\n", "", "1:1: test file: `rule_files` must be given; found evaluation_interval, "
     "fuzzy_compare, tests"),
    ("[rules.yaml]", "»[]", "test file: `rule_files` must have at least one file; it is empty"),
    ("[rules.yaml]", "»{a: b}", "test file: `rule_files` must be a list; got a mapping"),
    ("[rules.yaml]", "[rules.yaml, »[x]]", "test file: `rule_files` must be paths of rule files; got a list"),
    ("[rules.yaml]", "[rules.yaml, »'none*.yaml']",
     "test file: `rule_files` must match files; 'none*.yaml' matches none"),
    ("  - name: one", "  - »nam: one",
     "test 1: `nam` is not a key of a test; did you mean `name`?"),
    ("    interval: 1m", "    interval: »-1m", f"{TEST}: `interval` must not be negative; got '-1m'"),
    ("    interval: 1m", "    »promql_expr_test: []",
     f"{TEST}: `promql_expr_test` must not be given; there are no recording rules; test the alert, with `exp_value`, "
     "`exp_margin` and `exp_witness` of `alert_rule_test`"),
    ("    interval: 1m", "    »expr_test: []",
     f"{TEST}: `expr_test` must not be given; an expression is tested by its alert, with `exp_value`, `exp_margin` and "
     "`exp_witness` of `alert_rule_test`"),
    ("    interval: 1m", "    »external_labels: {a: b}",
     f"{TEST}: `external_labels` must not be given; alerts have the labels of their rule, its group and its keys; "
     "leave it out"),
    ("    interval: 1m", "    »external_url: x",
     f"{TEST}: `external_url` must not be given; templates know no URL; leave it out"),
    ("start_timestamp: 0", "start_timestamp: »yesterday",
     f"{TEST}: `start_timestamp` must be Unix seconds, or a time such as 2021-01-01T00:00:00Z; got 'yesterday'"),
    ("start_timestamp: 0", "start_timestamp: »2021-01-01T00:00:00",
     f"{TEST}: `start_timestamp` must be Unix seconds, or a time such as 2021-01-01T00:00:00Z; got "
     "'2021-01-01T00:00:00'"),
    ("start_timestamp: 0", "start_timestamp: »1e300",
     f"{TEST}: `start_timestamp` must be Unix seconds, or a time such as 2021-01-01T00:00:00Z; got '1e300'"),
    ("values: 20+1x3 _ 20\n        delay: 0s x2 30s", "»valus: 1\n        delay: 0s",
     f"{AIR}: `valus` is not a key of a series; did you mean `values`?"),
    ("values: 20+1x3 _ 20", "values: 20+1x3 _ »two", f"{AIR}: {WANTED}; got `two`"),
    ("values: 20+1x3 _ 20", "values: '20 1»+x3'", f"{AIR}: {WANTED}; got `+x3` behind `1`"),
    ("values: 20+1x3 _ 20", "values: 20 »1x1000000000",
     f"{AIR}: `values` must have at most 100,000 samples; `1x1000000000` would make more"),
    ("values: 20+1x3 _ 20", "values: »[20, 21]", f"{AIR}: `values` must be text; got a list"),
    ("delay: 0s x2 30s", "delay: 0s x2 »soon", f"{AIR}: `delay` {DURATION}; got 'soon'"),
    ("delay: 0s x2 30s", "delay: 0s x2 »30s x9",
     f"{AIR}: `delay` must not have more items than `values` has samples (6); got more"),
    ("interval: 1m\n    start_timestamp: 0", "interval: 1000000d",
     f"9:17: {AIR}: `values` must end within 3,000 years; they do not"),
    ('air{machine="m1"}', 'air{»machine=m1}',
     'test "one": series "air{machine=m1}": `series` must look like `air{machine="m1"}` or `air.temp{machine="m1"}`; '
     "got `machine=m1}` among the labels"),
    ('air{machine="m1"}', '»aira{machine="m1"}',
     'test "one": series "aira{machine="m1"}": `series` must name a stream of the rule files (air, surface, door); '
     "got 'aira'; did you mean `air`?"),
    ('air{machine="m1"}', '»air.humm{machine="m1"}',
     'test "one": series "air.humm{machine="m1"}": `series` must name a column of \'air\' (value, hum); got \'humm\'; '
     "did you mean `hum`?"),
    ('air{machine="m1"}', '»air{machin="m1"}',
     'test "one": series "air{machin="m1"}": `series` must have the key columns of \'air\' as labels (machine); '
     "got 'machin'; did you mean `machine`?"),
    ('air{machine="m1"}', "»air",
     'test "one": series "air": `series` must have the key columns of \'air\' as labels (machine); '
     "'machine' is missing"),
    ("'surface.temp{machine=\"m1\"}'", "»'air.value{machine=\"m1\"}'",
     'test "one": series air.value{machine="m1"}: `series` must stand once in a test; line 9 has the same'),
    ("alertname: Apart", "alertname: »Apar", 'test "one": alert_rule_test "Apar": `alertname` must be an alert of the '
     f"rule files {ALERTS}; got 'Apar'; did you mean `Apart`?"),
    ("      - eval_time: 2m\n        alertname", "      - »evaltime: 2m\n        alertname",
     f"{CASE}: `evaltime` is not a key of an `alert_rule_test`; did you mean `eval_time`?"),
    ("eval_time: 2m", "eval_time: »soon", f"{CASE}: `eval_time` {DURATION}; got 'soon'"),
    ("eval_time: 2m", "eval_time: »-2m", f"{CASE}: `eval_time` must not be negative; got '-2m'"),
    ("[{eval_time: 1m, alertname: Warm}]", "»[]",
     "test 2: `alert_rule_test` must have at least one entry; it is empty"),
    ("[{eval_time: 1m, alertname: Warm}]", "»Warm", "test 2: `alert_rule_test` must be a list; got 'Warm'"),
    ("  - alert_rule_test: [{eval_time: 1m, alertname: Warm}]", "  - »{}",
     "test 2: `alert_rule_test` must be given; found nothing"),
    ("  - alert_rule_test: [{eval_time: 1m, alertname: Warm}]", "  - »none",
     "test 2: a test must be a mapping; got 'none'"),
    ("team: hvac}", "»tea: hvac}", f"{FIRST}: `exp_labels` must name labels of 'Apart' (alertname, machine, team, "
     "severity); got 'tea'; did you mean `team`?"),
    ("team: hvac}", "team: hvac, »alertname: Warm}", f"{FIRST}: `exp_labels.alertname` must be `alertname`"),
    ("cause: 18}", "»caus: 18}", f"{FIRST}: `exp_annotations` must name annotations of 'Apart' (summary, cause); "
     "got 'caus'; did you mean `cause`?"),
    ("{summary: \"m1: 3\", cause: 18}", "»three",
     f"{FIRST}: `exp_annotations` must map names to text; got 'three'"),
    ("exp_state: firing", "exp_state: »fireing",
     f"{FIRST}: `exp_state` must be one of firing, pending, match; got 'fireing'; did you mean `firing`?"),
    ("exp_value: 3", "exp_value: »three", f"{FIRST}: `exp_value` must be a number; got 'three'"),
    ("exp_value: 3", "»exp_values: 3",
     f"{FIRST}: `exp_values` is not a key of an alert of `exp_alerts`; did you mean `exp_value`?"),
    ("exp_starts_at: 1m", "exp_starts_at: »1x", f"{FIRST}: `exp_starts_at` {DURATION}; got '1x'"),
    ("surface: 18}", "surface: »cold}", f"{FIRST}: `exp_witness.surface` must be a number; got 'cold'"),
    ("surface: 18}", "»surfac: 18}", f"{FIRST}: `exp_witness` must name variables of 'Apart' (air, surface); "
     "got 'surfac'; did you mean `surface`?"),
    ("surface: 18}", "surface: ».inf}", f"{FIRST}: `exp_witness.surface` must be a number; got '.inf'"),
]  # fmt: skip


def test_the_good_file_is_good(tmp_path: Path) -> None:
    assert said(tmp_path, GOOD) == []


@pytest.mark.parametrize(
    ("old", "new", "message"), MISTAKES, ids=[new.partition("»")[2][:30] for _, new, _ in MISTAKES]
)
def test_a_mistake_is_said_with_its_place(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert GOOD.count(old) == 1
    text = GOOD.replace(old, new)
    if "»" in text:
        text, place = marked(text)
        message = f"{place}: {message}"
    assert f"test.yaml:{message}" in said(tmp_path, text)


def test_a_mistake_is_said_once(tmp_path: Path) -> None:
    several = {"»fuzy", "»nam: one", "»promql", "»valus", "»evaltime", "1000000d"}
    for old, new, _ in MISTAKES:
        if not any(word in new for word in several):
            assert len(said(tmp_path, GOOD.replace(old, new.replace("»", "")))) == 1, new


def test_all_mistakes_are_said_at_once_by_place(tmp_path: Path) -> None:
    text = (
        GOOD.replace("fuzzy_compare: false", "fuzzy_compare: 1")
        .replace("18x5", "18y5")
        .replace("eval_time: 2m", "x: 1")
    )
    assert [line.split(":")[1] for line in said(tmp_path, text)] == ["3", "12", "14", "14"]


def test_columns_of_one_row_have_one_delay_and_all_that_is_read(tmp_path: Path) -> None:
    text = GOOD.replace("surface.temp{machine", "air.hum{machine")
    assert said(tmp_path, text) == [
        'test.yaml:12:18: test "one": series air.hum{machine="m1"}: `delay` must be that of air{machine="m1"}, whose '
        "samples are columns of the same rows; it is another"
    ]
    alone = GOOD.replace("alertname: Apart", "alertname: Both").split("        exp_alerts:")[0]
    assert said(tmp_path, alone) == [
        'test.yaml:9:17: test "one": series air{machine="m1"}: `series` must be given for every column of \'air\' that '
        "the tested rules read; 'hum' is missing for these labels"
    ]


def test_a_file_has_a_limit_of_samples_in_all(tmp_path: Path) -> None:
    many = "".join(f"      - {{series: 'air{{machine=\"a{n}\"}}', values: 1x99999}}\n" for n in range(11))
    text = GOOD.replace("    alert_rule_test:\n", many + "    alert_rule_test:\n", 1)
    place = "\n".join(text.split("\n")[:23])
    assert said(tmp_path, text)[0] == (
        f'test.yaml:{place.count(chr(10))}:47: test "one": series "air{{machine="a9"}}": '
        "a file must have at most 1,000,000 samples in all series; here are more"
    )


@pytest.mark.parametrize(("raw", "message"), [
    (b"", "1:1: test file: a file must have `rule_files` and `tests`; it is empty"),
    (b"- 1", "1:1: test file: a test file must be a mapping; got a list"),
    (b"a: [", "1:5: test file: a file must be YAML; while parsing a flow node, did not find expected node content"),
    (b"a: \xff", "1:4: test file: a file must be UTF-8; got the byte 0xff"),
    (b"[" * 60, "1:51: test file: a file must be nested at most 50 deep"),
    (b"!!python/object:x {}", "1:1: test file: a file must not use tags; got `tag:yaml.org,2002:python/object:x`"),
])  # fmt: skip
def test_a_file_that_cannot_be_read_is_said_to_be_a_test_file(tmp_path: Path, raw: bytes, message: str) -> None:
    assert f"test.yaml:{message}" in said(tmp_path, raw)


def test_a_file_that_is_not_there_is_a_mistake(tmp_path: Path) -> None:
    checked = SuiteLoader().check(tmp_path / "none.yaml")
    assert [mistake.message for mistake in checked.mistakes] == ["a file must be readable; no such file or directory"]


def test_mistakes_of_rule_files_follow_and_hide_none_of_the_test_file(tmp_path: Path) -> None:
    write_rules(tmp_path)
    (tmp_path / "bad.yaml").write_text("streams: {}\ngroups: [{name: g, rules: [{alert: A, expr: air >}]}]\n")
    text = GOOD.replace("[rules.yaml]", "[bad.yaml, none.yaml]").replace("20+1x3", "20+y")
    assert said(tmp_path, text) == [
        f"test.yaml:10:19: {AIR}: {WANTED}; got `+y` behind `20`",
        'bad.yaml:2:50: group "g": rule "A": `expr`: expected a number, a stream, a function or `(`; got the end',
        "none.yaml:1:1: rule file: a file must be readable; no such file or directory",
    ]


def test_a_rule_file_that_several_test_files_name_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tocsin.testing import load

    read: list[Path] = []
    check_rule_file = load.check_rule_file
    monkeypatch.setattr(load, "check_rule_file", lambda path, *rest: read.append(path) or check_rule_file(path, *rest))
    check(tmp_path, GOOD)
    loader = SuiteLoader()
    read.clear()
    assert loader.check(tmp_path / "test.yaml").suite
    assert loader.check(tmp_path / "test.yaml").suite
    assert len(read) == 1
