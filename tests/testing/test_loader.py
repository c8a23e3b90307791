"""Errors in test files and their positions. `»` in a text marks the position of the error."""

from __future__ import annotations

from pathlib import Path

import pytest

from rules.files import marked
from tests.testing.files import check, errors_of, write_rules
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

# Text of the valid file, its replacement, and the error.
ERRORS = [
    ("fuzzy_compare: false", "»fuzy_compare: false",
     "test file: `fuzy_compare` is not a key of a test file; did you mean `fuzzy_compare`?"),
    ("fuzzy_compare: false", "fuzzy_compare: »maybe",
     "test file: `fuzzy_compare` must be one of true, false; got 'maybe'"),
    ("fuzzy_compare: false", "»group_eval_order: [a]",
     "test file: `group_eval_order` is not supported; groups have no evaluation order, because rules do not read each "
     "other; remove it"),
    ("evaluation_interval: 1m", "evaluation_interval: »0s",
     "test file: `evaluation_interval` must be longer than 0; got '0s'"),
    ("rule_files: [rules.yaml]\n", "", "1:1: test file: `rule_files` must be given; found evaluation_interval, "
     "fuzzy_compare, tests"),
    ("[rules.yaml]", "»[]", "test file: `rule_files` must have at least one file; it is empty"),
    ("[rules.yaml]", "»{a: b}", "test file: `rule_files` must be a list; got a mapping"),
    ("[rules.yaml]", "[rules.yaml, »[x]]", "test file: `rule_files` must contain paths of rule files; got a list"),
    ("[rules.yaml]", "[rules.yaml, »'none*.yaml']",
     "test file: `rule_files` must match existing files; got 'none*.yaml'"),
    ("  - name: one", "  - »nam: one",
     "test 1: `nam` is not a key of a test; did you mean `name`?"),
    ("    interval: 1m", "    interval: »-1m", f"{TEST}: `interval` must not be negative; got '-1m'"),
    ("    interval: 1m", "    »promql_expr_test: []",
     f"{TEST}: `promql_expr_test` is not supported; there are no recording rules; test the alert with `exp_value`, "
     "`exp_margin` and `exp_witness` of `alert_rule_test`"),
    ("    interval: 1m", "    »expr_test: []",
     f"{TEST}: `expr_test` is not supported; test the expression through its alert, with `exp_value`, `exp_margin` and "
     "`exp_witness` of `alert_rule_test`"),
    ("    interval: 1m", "    »external_labels: {a: b}",
     f"{TEST}: `external_labels` is not supported; alerts have the labels of their rule, its group and its keys; "
     "remove it"),
    ("    interval: 1m", "    »external_url: x",
     f"{TEST}: `external_url` is not supported; templates have no URL; remove it"),
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
    ("values: 20+1x3 _ 20", "values: '20 1»+x3'", f"{AIR}: {WANTED}; got `+x3` after `1`"),
    ("values: 20+1x3 _ 20", "values: 20 »1x1000000000",
     f"{AIR}: `values` must have at most 100,000 samples; `1x1000000000` would exceed it"),
    ("values: 20+1x3 _ 20", "values: »[20, 21]", f"{AIR}: `values` must be text; got a list"),
    ("delay: 0s x2 30s", "delay: 0s x2 »soon", f"{AIR}: `delay` {DURATION}; got 'soon'"),
    ("delay: 0s x2 30s", "delay: 0s x2 »30s x9",
     f"{AIR}: `delay` must have at most as many items as `values` has samples (6)"),
    ("interval: 1m\n    start_timestamp: 0", "interval: 1000000d",
     f"9:17: {AIR}: `values` must cover less than 3,000 years"),
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
     'test "one": series air.value{machine="m1"}: `series` must be unique in a test; line 9 has the same series'),
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
    ("team: hvac}", "»tea: hvac}", f"{FIRST}: `exp_labels` must contain labels of 'Apart' (alertname, machine, team, "
     "severity); got 'tea'; did you mean `team`?"),
    ("team: hvac}", "team: hvac, »alertname: Warm}", f"{FIRST}: `exp_labels.alertname` must equal `alertname`"),
    ("cause: 18}", "»caus: 18}", f"{FIRST}: `exp_annotations` must contain annotations of 'Apart' (summary, cause); "
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
    ("surface: 18}", "»surfac: 18}", f"{FIRST}: `exp_witness` must contain variables of 'Apart' (air, surface); "
     "got 'surfac'; did you mean `surface`?"),
    ("surface: 18}", "surface: ».inf}", f"{FIRST}: `exp_witness.surface` must be a number; got '.inf'"),
]  # fmt: skip


def test_check_reports_no_error_when_the_file_is_valid(tmp_path: Path) -> None:
    assert errors_of(tmp_path, GOOD) == []


@pytest.mark.parametrize(("old", "new", "message"), ERRORS, ids=[new.partition("»")[2][:30] for _, new, _ in ERRORS])
def test_check_reports_an_error_with_its_position(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert GOOD.count(old) == 1
    text = GOOD.replace(old, new)
    if "»" in text:
        text, place = marked(text)
        message = f"{place}: {message}"
    assert f"test.yaml:{message}" in errors_of(tmp_path, text)


def test_check_reports_an_error_once(tmp_path: Path) -> None:
    several = {"»fuzy", "»nam: one", "»promql", "»valus", "»evaltime", "1000000d"}
    for old, new, _ in ERRORS:
        if not any(word in new for word in several):
            assert len(errors_of(tmp_path, GOOD.replace(old, new.replace("»", "")))) == 1, new


def test_check_reports_all_errors_in_order_of_position(tmp_path: Path) -> None:
    text = (
        GOOD.replace("fuzzy_compare: false", "fuzzy_compare: 1")
        .replace("18x5", "18y5")
        .replace("eval_time: 2m", "x: 1")
    )
    assert [line.split(":")[1] for line in errors_of(tmp_path, text)] == ["3", "12", "14", "14"]


def test_series_of_one_row_need_equal_delays_and_all_read_columns(tmp_path: Path) -> None:
    text = GOOD.replace("surface.temp{machine", "air.hum{machine")
    assert errors_of(tmp_path, text) == [
        'test.yaml:12:18: test "one": series air.hum{machine="m1"}: `delay` must equal the delay of '
        'air{machine="m1"}, because both series form the same rows'
    ]
    alone = GOOD.replace("alertname: Apart", "alertname: Both").split("        exp_alerts:")[0]
    assert errors_of(tmp_path, alone) == [
        'test.yaml:9:17: test "one": series air{machine="m1"}: `series` is required for every column of \'air\' that '
        "the tested rules read; 'hum' is missing for these labels"
    ]


def test_check_rejects_a_file_when_all_series_exceed_the_sample_limit(tmp_path: Path) -> None:
    many = "".join(f"      - {{series: 'air{{machine=\"a{n}\"}}', values: 1x99999}}\n" for n in range(11))
    text = GOOD.replace("    alert_rule_test:\n", many + "    alert_rule_test:\n", 1)
    place = "\n".join(text.split("\n")[:23])
    assert errors_of(tmp_path, text)[0] == (
        f'test.yaml:{place.count(chr(10))}:47: test "one": series "air{{machine="a9"}}": '
        "a file must have at most 1,000,000 samples in all series"
    )


@pytest.mark.parametrize(("raw", "message"), [
    (b"", "1:1: test file: a file must have `rule_files` and `tests`; this file is empty"),
    (b"- 1", "1:1: test file: a test file must be a mapping; got a list"),
    (b"a: [", "1:5: test file: invalid YAML: while parsing a flow node, did not find expected node content"),
    (b"a: \xff", "1:4: test file: a file must be in UTF-8; got the byte 0xff"),
    (b"[" * 60, "1:51: test file: a file must be nested at most 50 deep"),
    (b"!!python/object:x {}", "1:1: test file: a file must not use tags; got `tag:yaml.org,2002:python/object:x`"),
])  # fmt: skip
def test_errors_name_the_test_file_when_it_cannot_be_parsed(tmp_path: Path, raw: bytes, message: str) -> None:
    assert f"test.yaml:{message}" in errors_of(tmp_path, raw)


def test_check_reports_an_error_when_the_file_is_missing(tmp_path: Path) -> None:
    checked = SuiteLoader().check(tmp_path / "none.yaml")
    assert [error.sentence for error in checked.errors] == ["the file cannot be read: no such file or directory"]


def test_errors_of_rule_files_follow_those_of_the_test_file(tmp_path: Path) -> None:
    write_rules(tmp_path)
    (tmp_path / "bad.yaml").write_text("streams: {}\ngroups: [{name: g, rules: [{alert: A, expr: air >}]}]\n")
    text = GOOD.replace("[rules.yaml]", "[bad.yaml, none.yaml]").replace("20+1x3", "20+y")
    assert errors_of(tmp_path, text) == [
        f"test.yaml:10:19: {AIR}: {WANTED}; got `+y` after `20`",
        'bad.yaml:2:50: group "g": rule "A": `expr`: expected a number, a stream, a function or `(`; got the end',
        "none.yaml:1:1: rule file: the file cannot be read: no such file or directory",
    ]


def test_loader_reads_a_rule_file_once_when_several_test_files_name_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tocsin.testing import loader

    read: list[Path] = []
    check_rule_file = loader.check_rule_file
    monkeypatch.setattr(
        loader, "check_rule_file", lambda path, *rest: read.append(path) or check_rule_file(path, *rest)
    )
    check(tmp_path, GOOD)
    suites = SuiteLoader()
    read.clear()
    assert suites.check(tmp_path / "test.yaml").suite
    assert suites.check(tmp_path / "test.yaml").suite
    assert len(read) == 1
