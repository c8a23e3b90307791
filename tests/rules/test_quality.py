"""Tests of the quality block: all keys, all errors and their positions, in rule files and in Python."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin import Rule, RuleError, local
from tocsin.plan import make_plan, plan_rules
from tocsin.rules.load import Checked, check_rule_file
from tocsin.rules.options import MODEL, QUALITY, RUN_QUALITY
from tocsin.rules.quality import (
    AGE,
    FIXED,
    KEY,
    MAX,
    NO_QUALITY,
    NONE,
    RECALL,
    ROWS,
    RULE_KEYS,
    RUN_KEYS,
    SAMPLE,
    Cpu,
    Memory,
    Quality,
    ReorderWait,
    UtilityModel,
    parse_quality,
)

SECOND = 1_000_000
FILE = """\
{top}
streams:
  air: {{source: {{parquet: {{path: air}}}}, keys: [m]}}
  wall: {{source: {{parquet: {{path: wall}}}}, keys: [m]}}
groups:
  - name: g
    rules:
      - alert: A
        expr: air - wall > 3
        within: 10s
        on: [m]
        emit: all
        {rule}
"""
# Lines of `{rule}` and `{top}`.
RULE_LINE, TOP_LINE = 13, 1
SAMPLE_ROWS = {"ts": [], "m": [], "value": []}


def check(folder: Path, *, top: str = "", rule: str = "") -> Checked:
    path = folder / "rules.yaml"
    path.write_text(FILE.format(top=top, rule=rule))
    return check_rule_file(path, plan_rules, {})


def errors(checked: Checked) -> list[tuple[int, int, str]]:
    return [(error.line, error.column, error.sentence) for error in checked.errors]


def rule(**options: Any) -> Rule:
    return Rule("A", "air - wall > 3", within="10s", on="m", emit="all", quality=options)


def message_of(error: pytest.ExceptionInfo[RuleError]) -> str:
    return str(error.value).removeprefix('rule "A": ')


# A block in Python, the same block in a rule file, and the parsed options.
BLOCKS: list[tuple[dict[str, Any], str, Quality]] = [
    ({}, "{}", NO_QUALITY),
    ({"wait": "none"}, "{wait: none}", Quality(wait=ReorderWait(NONE))),
    ({"wait": "5s"}, "{wait: 5s}", Quality(wait=ReorderWait(FIXED, 5 * SECOND))),
    ({"wait": "max"}, "{wait: max}", Quality(wait=ReorderWait(MAX))),
    ({"recall": 0.99}, "{recall: 0.99}", Quality(wait=ReorderWait(RECALL, recall=0.99))),
    (
        {"recall": 1, "period": "2m", "adapt_every": "5s", "step": "100ms", "in_order": True, "strategy": "noneqsel"},
        "{recall: 1, period: 2m, adapt_every: 5s, step: 100ms, in_order: true, strategy: noneqsel}",
        Quality(
            wait=ReorderWait(RECALL, 0, 1.0, 120 * SECOND, 5 * SECOND, 100_000, in_order=True, strategy="noneqsel")
        ),
    ),
    (
        {"recall": 0.9, "strategy": "eqsel", "in_order": False},
        "{recall: 0.9, strategy: eqsel, in_order: false}",
        Quality(wait=ReorderWait(RECALL, recall=0.9, strategy="eqsel")),
    ),
    ({"memory": "200MB"}, "{memory: 200MB}", Quality(memory=Memory(200_000_000))),
    ({"memory": 65536}, "{memory: 65536}", Quality(memory=Memory(65_536))),
    ({"memory": "10,000 rows"}, "{memory: '10,000 rows'}", Quality(memory=Memory(10_000, ROWS))),
    (
        {"memory": "5MB", "prefer": "sample", "weight": 2},
        "{memory: 5MB, prefer: sample, weight: 2}",
        Quality(memory=Memory(5_000_000), prefer=SAMPLE, weight=2.0),
    ),
    (
        {"memory": "5MB", "model": {"by": "age", "granularity": "1s"}},
        "{memory: 5MB, model: {by: age, granularity: 1s}}",
        Quality(memory=Memory(5_000_000), model=UtilityModel(AGE, SECOND)),
    ),
    (
        {"memory": "5MB", "model": {"by": "key"}},
        "{memory: 5MB, model: {by: key}}",
        Quality(memory=Memory(5_000_000), model=UtilityModel(KEY)),
    ),
    ({"cpu": "50%"}, "{cpu: 50%}", Quality(cpu=Cpu(0.5))),
    ({"deadline": "5s"}, "{deadline: 5s}", Quality(cpu=Cpu(None, 5 * SECOND))),
    ({"cpu": "2 cores", "deadline": "5s"}, "{cpu: 2 cores, deadline: 5s}", Quality(cpu=Cpu(2.0, 5 * SECOND))),
]


@pytest.mark.parametrize(("options", "yaml", "expected"), BLOCKS, ids=[yaml for _, yaml, _ in BLOCKS])
def test_block_is_equal_in_a_rule_file_and_in_python(
    tmp_path: Path, options: dict[str, Any], yaml: str, expected: Quality
) -> None:
    assert rule(**options).quality_options == expected
    checked = check(tmp_path, rule=f"quality: {yaml}")
    assert errors(checked) == []
    assert checked.file is not None
    assert [one.quality_options for one in checked.file.rules] == [expected]


@pytest.mark.parametrize(
    ("options", "yaml", "expected"), [block for block in BLOCKS if block[0].keys() <= set(RUN_KEYS)]
)
def test_block_is_equal_when_it_belongs_to_the_rule_file(
    tmp_path: Path, options: dict[str, Any], yaml: str, expected: Quality
) -> None:
    assert parse_quality(options, RUN_KEYS) == expected
    checked = check(tmp_path, top=f"quality: {yaml}")
    assert errors(checked) == []
    assert checked.file is not None
    assert checked.file.quality == expected


def test_option_is_ignored_when_its_value_is_none() -> None:
    assert parse_quality(dict.fromkeys(RULE_KEYS)) == NO_QUALITY
    assert Rule("A", "air > 3").quality_options == NO_QUALITY


def test_durations_can_be_timedeltas() -> None:
    assert rule(wait=timedelta(microseconds=5)).quality_options.wait == ReorderWait(FIXED, 5)


@pytest.mark.parametrize(
    ("period", "adapt_every_us"), [("1h", SECOND), ("1d", 24 * SECOND), ("7200000001us", 2_000_001)]
)
def test_interval_is_longer_when_the_period_would_have_more_than_3600(period: str, adapt_every_us: int) -> None:
    assert rule(recall=0.9, period=period).quality_options.wait.adapt_every_us == adapt_every_us


def test_tables_of_the_reference_page_have_the_known_keys() -> None:
    assert tuple(field.name for field in QUALITY) == RULE_KEYS
    assert tuple(field.name for field in RUN_QUALITY) == RUN_KEYS


@pytest.mark.parametrize("field", [field for field in (*QUALITY, *MODEL) if field.default], ids=lambda one: one.name)
def test_defaults_of_the_reference_page_change_nothing(field: Any) -> None:
    if field in MODEL:
        assert parse_quality({"model": {field.name: field.default}}).model == UtilityModel()
    else:
        options = {"recall": 0.9} if field.name in ("period", "adapt_every", "step", "in_order", "strategy") else {}
        assert parse_quality({**options, field.name: field.default}) == parse_quality(options)


SIZE = "`quality.memory` must be a size such as 200MB, 64KiB or 10000 rows"
SHARE = "`quality.cpu` must be a share of a core such as 50%, or a number of cores such as 2 cores"
NUMBER = "`quality.recall` must be a number above 0 and at most 1, such as 0.99"
KNOWN = ", ".join(RULE_KEYS)
# Options in Python, the block of a rule file with the position of the error, and the message.
ERRORS: list[tuple[dict[str, Any], str, str]] = [
    (
        {"wait": "5x"},
        "{wait: »5x}",
        "`quality.wait` must be a duration such as '10s', '1h30m' or '500ms', or one of none, max; got '5x'",
    ),
    ({"wait": "-5s"}, "{wait: »-5s}", "`quality.wait` must not be negative; got '-5s'"),
    ({"recall": "0"}, "{recall: »0}", f"{NUMBER}; got '0'"),
    ({"recall": "1.5"}, "{recall: »1.5}", f"{NUMBER}; got '1.5'"),
    ({"recall": "much"}, "{recall: »much}", f"{NUMBER}; got 'much'"),
    (
        {"period": "1m"},
        "»{period: 1m}",
        "`quality.period` needs `quality.recall`, such as 0.99; it is missing",
    ),
    ({"recall": 0.9, "period": "0s"}, "{recall: 0.9, period: »0s}", "`quality.period` must be longer than 0; got '0s'"),
    (
        {"recall": 0.9, "adapt_every": "2m"},
        "{recall: 0.9, adapt_every: »2m}",
        "`quality.adapt_every` (2m) must not be longer than `quality.period` (1m)",
    ),
    (
        {"recall": 0.9, "adapt_every": "1us"},
        "{recall: 0.9, adapt_every: »1us}",
        "`quality.period` (1m) must not be longer than 3,600 times `quality.adapt_every` (1us)",
    ),
    (
        {"recall": 0.9, "period": "100ms"},
        "{recall: 0.9, period: »100ms}",
        "`quality.adapt_every` (1s) must not be longer than `quality.period` (100ms)",
    ),
    (
        {"recall": 0.9, "step": "20d"},
        "{recall: 0.9, step: »20d}",
        "`quality.step` must not be longer than 1w3d; got 2w6d",
    ),
    (
        {"recall": 0.9, "in_order": "yes"},
        "{recall: 0.9, in_order: »yes}",
        "`quality.in_order` must be true or false; got 'yes'",
    ),
    (
        {"recall": 0.9, "strategy": "EqSel"},
        "{recall: 0.9, strategy: »EqSel}",
        "`quality.strategy` must be one of observed, eqsel, noneqsel; got 'EqSel'; did you mean `eqsel`?",
    ),
    (
        {"wait": "5s", "recall": 0.9},
        "{recall: 0.9, wait: »5s}",
        "`quality.wait` cannot be combined with `quality.recall`: a recall target chooses the wait; got both",
    ),
    ({"memory": "20 dogs"}, "{memory: »20 dogs}", f"{SIZE}; got '20 dogs'"),
    (
        {"memory": "0MB"},
        "{memory: »0MB}",
        "`quality.memory` must be at least 1 and at most 1,000,000,000,000,000 bytes or rows; got '0MB'",
    ),
    ({"prefer": "best"}, "{prefer: »best}", "`quality.prefer` must be one of subset, sample; got 'best'"),
    ({"model": "key"}, "{model: »key}", "`quality.model` must be a mapping such as {by: key}; got 'key'"),
    (
        {"model": {"by": "luck"}},
        "{model: {by: »luck}}",
        "`quality.model.by` must be one of auto, key, age, none; got 'luck'",
    ),
    (
        {"model": {"granularity": "0s"}},
        "{model: {granularity: »0s}}",
        "`quality.model.granularity` must be longer than 0; got '0s'",
    ),
    ({"model": {"bye": "key"}}, "{model: {»bye: key}}", "`bye` is not a key of `quality.model`; did you mean `by`?"),
    (
        {"weight": "0"},
        "{weight: »0}",
        "`quality.weight` must be a number of at least 0.000001 and at most 1,000,000; got '0'",
    ),
    ({"cpu": "half"}, "{cpu: »half}", f"{SHARE}; got 'half'"),
    ({"cpu": "0%"}, "{cpu: »0%}", "`quality.cpu` must be above 0 and at most 100,000 cores; got '0%'"),
    ({"deadline": "0s"}, "{deadline: »0s}", "`quality.deadline` must be longer than 0; got '0s'"),
    (
        {"cpu": "50%", "memory": "1MB"},
        "{cpu: »50%, memory: 1MB}",
        "`quality.cpu` cannot be combined with `quality.memory`; got '50%' and '1MB'",
    ),
    (
        {"deadline": "2s", "wait": "1s"},
        "{deadline: »2s, wait: 1s}",
        "`quality.deadline` cannot be combined with `quality.wait`; got '2s' and '1s'",
    ),
    ({"recal": 0.9}, "{»recal: 0.9}", "`recal` is not a key of `quality`; did you mean `recall`?"),
    ({"foo": 1}, "{»foo: 1}", f"`foo` is not a key of `quality`; expected one of {KNOWN}"),
    ({"over": "1m"}, "{»over: 1m}", "`over` is not a key of `quality`; use `period`"),
    ({"every": "1s"}, "{»every: 1s}", "`every` is not a key of `quality`; use `adapt_every`"),
    ({"grain": "1ms"}, "{»grain: 1ms}", "`grain` is not a key of `quality`; use `step`"),
]


@pytest.mark.parametrize(("options", "yaml", "message"), ERRORS, ids=[yaml for _, yaml, _ in ERRORS])
def test_error_has_the_same_message_and_a_position_in_a_rule_file(
    tmp_path: Path, options: dict[str, Any], yaml: str, message: str
) -> None:
    with pytest.raises(RuleError, match="quality") as raised:
        rule(**options)
    assert message_of(raised) == message
    column = len("        quality: ") + yaml.index("»") + 1
    checked = check(tmp_path, rule=f"quality: {yaml.replace('»', '')}")
    assert errors(checked) == [(RULE_LINE, column, message)]


@pytest.mark.parametrize("value", [10**5000, -(10**5000), "9" * 5000], ids=["integer", "negative", "text"])
@pytest.mark.parametrize("name", [*RULE_KEYS, "foo"])
def test_error_is_short_when_a_value_has_thousands_of_digits(name: str, value: Any) -> None:
    for quality in (value, {"recall": 0.9, name: value}, {name: [value]}, {"model": {name: value}}, {value: 1}):
        with pytest.raises(RuleError, match="quality") as raised:
            parse_quality(quality)
        assert all(len(one.sentence) < 250 for one in raised.value.diagnostics)


@pytest.mark.parametrize(
    ("options", "yaml", "message"), [error for error in ERRORS if error[0].keys() <= set(RUN_KEYS)]
)
def test_error_has_the_same_message_when_the_block_belongs_to_the_rule_file(
    tmp_path: Path, options: dict[str, Any], yaml: str, message: str
) -> None:
    with pytest.raises(RuleError, match="quality") as raised:
        local.explain({"air": SAMPLE_ROWS, "wall": SAMPLE_ROWS}, rule(), quality=options)
    assert message_of(raised) == message
    column = len("quality: ") + yaml.index("»") + 1
    checked = check(tmp_path, top=f"quality: {yaml.replace('»', '')}")
    assert errors(checked) == [(TOP_LINE, column, message)]


@pytest.mark.parametrize("name", [name for name in RULE_KEYS if name not in RUN_KEYS])
def test_option_of_a_rule_is_rejected_when_the_block_belongs_to_the_rule_file(tmp_path: Path, name: str) -> None:
    message = f"`quality.{name}` is an option of a rule; move it to the `quality` of a rule"
    checked = check(tmp_path, top=f"quality: {{{name}: x}}")
    assert errors(checked) == [(TOP_LINE, len("quality: {") + 1, message)]
    with pytest.raises(RuleError, match="^" + re.escape(message)):
        parse_quality({name: "x"}, RUN_KEYS)


def test_unknown_option_of_a_rule_file_has_a_hint(tmp_path: Path) -> None:
    checked = check(tmp_path, top="quality: {memry: 5MB, foo: 1}")
    assert errors(checked) == [
        (1, 11, "`memry` is not a key of `quality`; did you mean `memory`?"),
        (1, 23, "`foo` is not a key of `quality`; expected one of memory, cpu, deadline"),
    ]


MOVED = ("wait", "memory", "cpu", "deadline", "prefer", "model", "weight")


@pytest.mark.parametrize("name", MOVED)
def test_error_names_the_new_key_when_an_option_is_outside_the_block_of_a_rule(tmp_path: Path, name: str) -> None:
    checked = check(tmp_path, rule=f"{name}: 5")
    assert errors(checked) == [(RULE_LINE, 9, f"`{name}` is not a key of a rule; use `quality.{name}`")]
    options: dict[str, Any] = {name: 5}
    with pytest.raises(RuleError, match=rf'^rule "A": `{name}` is not a parameter of Rule; use `quality.{name}`$'):
        Rule("A", "air > 3", **options)


@pytest.mark.parametrize("name", RUN_KEYS)
def test_error_names_the_new_key_when_an_option_is_outside_the_block_of_a_rule_file(tmp_path: Path, name: str) -> None:
    checked = check(tmp_path, top=f"{name}: 5")
    assert errors(checked) == [(TOP_LINE, 1, f"`{name}` is not a key of a rule file; use `quality.{name}`")]


@pytest.mark.parametrize(
    ("yaml", "columns"),
    [
        ("{recall: much, period: 1m}", [27]),
        ("{recall: much, period: 0s, adapt_every: 5x}", [27, 41, 58]),
        ("{period: 0s}", [18, 27]),
        ("{recal: 0.9, foo: 1, period: 0s}", [19, 31, 47]),
        ("{wait: 5s, period: 0s}", [25, 37]),
        ("{memory: x, cpu: y, deadline: z, weight: w, prefer: v, model: {by: u, a: 1}}", [27, 35, 48, 59, 70, 85, 88]),
        ("0.9", [18]),
        ("[wait]", [18]),
        ("", [17]),
    ],
)
def test_all_errors_of_a_block_are_reported_once(tmp_path: Path, yaml: str, columns: list[int]) -> None:
    checked = check(tmp_path, rule=f"quality: {yaml}")
    assert [(line, column) for line, column, _ in errors(checked)] == [(RULE_LINE, column) for column in columns]


@pytest.mark.parametrize(
    ("value", "kind"), [("[1]", "a list"), ("{a: 1}", "a mapping"), ("", "nothing"), ("~", "nothing")]
)
@pytest.mark.parametrize("name", RULE_KEYS)
def test_value_is_rejected_when_it_is_not_text(tmp_path: Path, name: str, value: str, kind: str) -> None:
    block = {"recall": "0.9"} if name in ("period", "adapt_every", "step", "in_order", "strategy") else {}
    text = ", ".join(f"{key}: {one}" for key, one in (block | {name: value}).items())
    found = errors(check(tmp_path, rule=f"quality: {{{text}}}"))
    if name == "model" and kind == "a mapping":
        assert [message for _, _, message in found] == [
            "`a` is not a key of `quality.model`; expected one of by, granularity"
        ]
    else:
        assert len(found) == 1
        assert found[0][2].startswith(f"`quality.{name}` must ")
        assert found[0][2].endswith(f"got {kind}")


def test_arrays_are_rejected_as_values() -> None:
    for name in ("wait", "strategy", "recall", "memory", "cpu", "deadline", "weight", "prefer", "model"):
        with pytest.raises(RuleError, match=rf"`quality\.{name}` must be"):
            rule(**({"recall": 0.9} if name == "strategy" else {}), **{name: np.arange(2)})


def test_block_is_rejected_when_it_is_not_a_mapping() -> None:
    block: Any = 0.99
    with pytest.raises(RuleError, match=r"`quality` must be a mapping such as {memory: 200MB}; got 0.99$"):
        Rule("A", "air > 3", quality=block)


def test_memory_budget_is_rejected_when_rows_wait() -> None:
    columns = {"air": ["ts", "m", "value"], "wall": ["ts", "m", "value"]}
    for options, name, wait in [
        ({"memory": "1MB", "wait": "5s"}, "wait", "rows wait 5s"),
        ({"memory": "1MB", "recall": 0.9, "in_order": True}, "recall", "rows wait as long as a recall of 0.9"),
    ]:
        message = f"`quality.memory` cannot be combined with `quality.{name}`, because buffered rows are not shed"
        with pytest.raises(RuleError, match=re.escape(f"{message}; got 1MB, and {wait}")):
            make_plan(rule(**options), columns)


JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.lists(st.integers(), max_size=2),
    st.sampled_from(["5s", "max", "0.9", "200MB", "50%", "sample", "true", "eqsel", timedelta(seconds=1)]),
    st.dictionaries(st.sampled_from(["by", "granularity", "x"]), st.sampled_from(["key", "1s", 5]), max_size=2),
)  # fmt: skip


@given(st.dictionaries(st.sampled_from([*RULE_KEYS, "over", "x"]), JUNK, max_size=4))
def test_any_block_is_parsed_or_rejected_with_the_path_of_an_option(options: dict[str, Any]) -> None:
    try:
        parsed = parse_quality(options)
    except RuleError as error:
        path, sentence = error.diagnostics[0].path, error.diagnostics[0].sentence
    else:
        path, sentence = ("quality",), "`"
        assert parse_quality(options) == parsed
    assert path[0] == "quality"
    assert sentence.startswith("`")


TEXTS = ["", "x", "5s", "max", "0.9", "200MB", "50%", "sample", "true", "eqsel", "{by: key}", "{by: x, y: z}", "[]"]


@given(st.dictionaries(st.sampled_from([*RULE_KEYS, "over", "x"]), st.sampled_from(TEXTS), max_size=4))
def test_any_block_of_a_file_is_parsed_or_has_errors_inside_it(
    tmp_path_factory: pytest.TempPathFactory, options: dict[str, str]
) -> None:
    block = ", ".join(f"{name}: {text}" for name, text in options.items())
    checked = check(tmp_path_factory.getbasetemp(), rule=f"quality: {{{block}}}")
    for line, column, message in errors(checked):
        assert line == RULE_LINE
        assert len("        quality: ") < column <= len(f"        quality: {{{block}}}")
        assert message.startswith("`")


@pytest.mark.parametrize(("old", "new"), [("over", "period"), ("every", "adapt_every"), ("grain", "step")])
def test_run_quality_error_names_the_new_rule_option_when_an_old_key_is_used(old: str, new: str) -> None:
    message = f"`{old}` is not a key of `quality`; use `{new}` in the `quality` of a rule"
    with pytest.raises(RuleError, match=re.escape(message)):
        parse_quality({old: "1m"}, RUN_KEYS)
