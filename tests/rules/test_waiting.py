"""What rules say of waiting is read once, in Python and in files, and mistakes are told with their place."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tocsin import Rule, RuleError
from tocsin.plan import make_plan
from tocsin.rules.load import load_rule_file
from tocsin.rules.waiting import FIXED, MAX, NONE, RECALL, Waiting

FILE = """
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
        {line}
"""


def rule(**given: Any) -> Rule:
    return Rule("A", "air - wall > 3", within="10s", on="m", **given)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, Waiting(NONE)),
        ({"wait": "none"}, Waiting(NONE)),
        ({"wait": "5s"}, Waiting(FIXED, 5_000_000)),
        ({"wait": timedelta(microseconds=5)}, Waiting(FIXED, 5)),
        ({"wait": "max"}, Waiting(MAX)),
        ({"quality": {"recall": 0.99}}, Waiting(RECALL, recall=0.99)),
        (
            {"quality": {"recall": 1, "over": "2m", "every": "5s", "grain": "100ms", "in_order": True}},
            Waiting(RECALL, 0, 1.0, 120_000_000, 5_000_000, 100_000, in_order=True),
        ),
        # 3,600 intervals, rounded up to whole microseconds.
        ({"quality": {"recall": 0.9, "over": "1h"}}, Waiting(RECALL, 0, 0.9, 3_600_000_000, 1_000_000)),
        ({"quality": {"recall": 0.9, "over": "1d"}}, Waiting(RECALL, 0, 0.9, 86_400_000_000, 24_000_000)),
        ({"quality": {"recall": 0.9, "over": "7200000001us"}}, Waiting(RECALL, 0, 0.9, 7_200_000_001, 2_000_001)),
    ],
)
def test_a_rule_says_how_long_rows_wait(given: dict[str, Any], expected: Waiting) -> None:
    assert rule(**given).waiting == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("wait: 5s", Waiting(FIXED, 5_000_000)),
        ("wait: max", Waiting(MAX)),
        ("quality: {recall: 0.99, over: 1m}", Waiting(RECALL, recall=0.99)),
        ("quality: {recall: 0.9, in_order: true}", Waiting(RECALL, recall=0.9, in_order=True)),
    ],
)
def test_a_file_says_the_same(tmp_path: Path, line: str, expected: Waiting) -> None:
    (tmp_path / "rules.yaml").write_text(FILE.format(line=line))
    assert [one.waiting for one in load_rule_file(tmp_path / "rules.yaml", make_plan, {}).rules] == [expected]


MISTAKES = [
    ({"wait": "5x"}, "wait: 5x", "`wait` must be a duration", "or one of none, max"),
    ({"wait": "-5s"}, "wait: -5s", "`wait` must not be negative", "-5s"),
    ({"quality": {"recall": 0}}, "quality: {recall: 0}", "`quality.recall` must be a number above 0", "0"),
    ({"quality": {"recall": 1.5}}, "quality: {recall: 1.5}", "`quality.recall` must be", "1.5"),
    ({"quality": {"over": "1m"}}, "quality: {over: 1m}", "`quality.recall` must be", "got nothing"),
    ({"quality": {"recall": 0.9, "over": "0s"}}, "quality: {recall: 0.9, over: 0s}", "`quality.over` must", "0s"),
    (
        {"quality": {"recall": 0.9, "every": "2m"}},
        "quality: {recall: 0.9, every: 2m}",
        "`quality.every` must not be longer than `quality.over`",
        "2m and 1m",
    ),
    (
        {"quality": {"recall": 0.9, "every": "1us"}},
        "quality: {recall: 0.9, every: 1us}",
        "`quality.over` must not be longer than 3,600 times `quality.every`",
        "1m and 1us",
    ),
    (
        {"quality": {"recall": 0.9, "over": "1d", "every": "1s"}},
        "quality: {recall: 0.9, over: 1d, every: 1s}",
        "`quality.over` must not be longer than 3,600 times `quality.every`",
        "1d and 1s",
    ),
    (
        {"quality": {"recall": 0.9, "grain": "20d"}},
        "quality: {recall: 0.9, grain: 20d}",
        "`quality.grain` must not be longer than",
        "got 2w6d",
    ),
    (
        {"quality": {"recal": 0.9}},
        "quality: {recal: 0.9}",
        "`recal` is not a key of `quality`; did you mean `recall`?",
        "recall",
    ),
    (
        {"quality": {"recall": 0.9, "foo": 1}},
        "quality: {recall: 0.9, foo: 1}",
        "`foo` is not a key of `quality`; known are recall, over, every, grain, in_order, strategy",
        "foo",
    ),
    ({"quality": 0.99}, "quality: 0.99", "`quality` must be a mapping such as {recall: 0.99, over: 1m}; got", "0.99"),
    (
        {"quality": {"recall": 0.9, "in_order": "yes"}},
        "quality: {recall: 0.9, in_order: yes}",
        "`quality.in_order` must be true or false",
        "yes",
    ),
    (
        {"wait": "5s", "quality": {"recall": 0.9}},
        "quality: {recall: 0.9}\n        wait: 5s",
        "`wait` must not stand beside `quality`",
        "got both",
    ),
]


@pytest.mark.parametrize(("given", "line", "said", "found"), MISTAKES)
def test_mistakes_are_told(tmp_path: Path, given: dict[str, Any], line: str, said: str, found: str) -> None:
    with pytest.raises(RuleError, match=re.escape(said)) as told:
        rule(**given)
    assert found in str(told.value)
    path = tmp_path / "rules.yaml"
    path.write_text(FILE.format(line=line))
    with pytest.raises(RuleError, match=re.escape(said)) as told:
        load_rule_file(path, make_plan, {})
    assert f"{path}:12:" in str(told.value) or f"{path}:13:" in str(told.value)


@pytest.mark.parametrize(
    ("line", "places"),
    [
        ("quality: {recall: 1.5}", ["12:27"]),
        ("quality: {recall: much, over: 1m}", ["12:27"]),
        ("quality: {recall: much, over: 0s, every: 5x}", ["12:27", "12:39", "12:50"]),
        ("quality: {over: 0s}", ["12:18"]),
        ("quality: 0.9", ["12:18"]),
        ("quality: {recal: 0.9, foo: 1, over: 0s}", ["12:19", "12:31", "12:45"]),
    ],
)
def test_each_mistake_of_quality_is_told_once_in_a_file(tmp_path: Path, line: str, places: list[str]) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(FILE.format(line=line))
    with pytest.raises(RuleError, match="quality") as told:
        load_rule_file(path, make_plan, {})
    assert re.findall(rf"{re.escape(str(path))}:(\d+:\d+): ", str(told.value)) == places


def test_what_is_no_text_is_refused_and_nothing_but_a_duration_may_be_a_word() -> None:
    for given in ({"wait": np.arange(2)}, {"quality": {"recall": 0.9, "strategy": np.arange(2)}}):
        with pytest.raises(RuleError, match=r"`(wait|quality.strategy)` must be"):
            rule(**given)
    with pytest.raises(RuleError, match=r"`wait` must not be negative; got '-5s'$"):
        rule(wait="-5s")


def test_ahead_is_one_day_unless_a_stream_sets_it(tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(FILE.format(line="wait: 5s").replace("keys: [m]}", "keys: [m], ahead: 5m}", 1))
    streams = load_rule_file(path, make_plan, {}).streams
    assert [stream.ahead_us for stream in streams.values()] == [300_000_000, 86_400_000_000]
