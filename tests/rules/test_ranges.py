"""Rules with `ranges` in a rule file: read, and every mistake told at its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tocsin.plan import plan_file, plan_rules
from tocsin.rules.load import Checked, check_rule_file

GOOD = """\
streams:
  orders:
    source: {json: {path: orders}}
    keys: symbol
    values: {low: {}, high: {}, threshold: {}}
  trades:
    source: {json: {path: trades}}
    keys: symbol
    values: {price: {}, volume: {}, index: {}}
groups:
  - name: desk
    labels: {team: desk}
    rules:
      - alert: SharesSold
        ranges: trades.price
        weight: trades.volume
        requests: orders
        on: symbol
        within: 1h
        rearm: 10m
        shards: 4
        labels: {severity: info}
        annotations: {summary: "{{ $labels.query }} of {{ $labels.symbol }}: {{ $value }}"}
      - alert: High
        expr: trades.price > 100
        on: symbol
"""


def check(tmp_path: Path, text: str) -> Checked:
    (tmp_path / "rules.yaml").write_text(text)
    return check_rule_file(tmp_path / "rules.yaml", plan_rules, {})


def test_a_rule_with_ranges_is_read_beside_others(tmp_path: Path) -> None:
    checked = check(tmp_path, GOOD)
    assert [str(mistake) for mistake in (*checked.errors, *checked.warnings)] == []
    assert checked.file is not None
    (rule,) = checked.file.ranges
    assert (rule.alert, tuple(rule.values), rule.requests, rule.weight) == (
        "SharesSold",
        ("trades.price",),
        "orders",
        "trades.volume",
    )
    assert (rule.within_us, rule.rearm_us, rule.shards) == (3_600_000_000, 600_000_000, 4)
    assert dict(rule.labels) == {"team": "desk", "severity": "info"}
    assert [rule.alert for rule in checked.file.rules] == ["High"]
    assert [stream.is_requests for stream in checked.file.streams.values()] == [True, False]
    plan = plan_file(checked.file)
    assert (len(plan.watches), len(plan.ranges)) == (1, 1)
    assert "SharesSold" in str(plan)


MISTAKES = [
    ("ranges: trades.price", "ranges: trades.cost", 15, "stream `trades` must have the value column 'cost'"),
    ("ranges: trades.price", "ranges: sales.price", 15, "`sales` must be one of the streams orders, trades"),
    ("ranges: trades.price", "ranges: trades", 15, "`trades` must name its column"),
    ("ranges: trades.price", 'ranges: ""', 15, "`ranges` must list one or more columns; got ['']"),
    ("ranges: trades.price", "ranges: []", 15, "`ranges` must list one or more columns; got []"),
    ("requests: orders", "requests: order", 17, "`order` must be one of the streams orders, trades; did you mean"),
    ("requests: orders", "requests: trades", 17, "`requests` must differ from the stream whose rows are counted"),
    ("        requests: orders\n", "", 14, "`requests` must be given"),
    ("low: {}, ", "", 17, "stream `orders` must have the columns 'low'; its columns are symbol, high, threshold"),
    ("weight: trades.volume", "weight: orders.low", 16, "`weight` must be a column of `trades`"),
    (
        "weight: trades.volume",
        "weight: trades.vol",
        16,
        "stream `trades` must have the value column 'vol'; its value columns are price",
    ),
    (
        "weight: trades.volume",
        "weight: trades.volum",
        16,
        "its value columns are price, volume, index; did you mean `volume`?",
    ),
    (
        "weight: trades.volume",
        "weight: orders.volume",
        16,
        "`weight` must be a column of `trades` like `ranges`; got `orders.volume`",
    ),
    ("weight: trades.volume", "weight: trade.volume", 16, "got `trade.volume`; did you mean `trades`?"),
    (
        "ranges: trades.price",
        "ranges: trades.prize",
        15,
        "its value columns are price, volume, index; did you mean `price`?",
    ),
    (
        "on: symbol\n        within",
        "on: [symbol, market]\n        within",
        18,
        "`on` must name key columns of both streams",
    ),
    ("within: 1h", "within: 0s", 19, "`within` must be"),
    ("within: 1h", "within: soon", 19, "`within` must be"),
    ("rearm: 10m", "rearm: -1m", 20, "`rearm` must"),
    ("ranges: trades.price", "ranges: [trades.price, orders.low]", 15, "`ranges` must be columns of one stream"),
    ("shards: 4", "shards: 0", 21, "`shards` must be an integer from 1"),
    ("shards: 4", "shrads: 4", 21, "`shrads` is not a key of a rule with `ranges`; did you mean `shards`?"),
    ("severity: info", "query: x", 22, "`labels` must not contain key columns or `query`; got 'query'"),
    ("$labels.query", "$labels.nobody", 23, "must name labels of the alert; got `$labels.nobody`"),
    ("alert: High", "alert: SharesSold", None, None),
]


@pytest.mark.parametrize(("before", "after", "line", "sentence"), MISTAKES)
def test_a_mistake_is_told_where_it_stands(
    tmp_path: Path, before: str, after: str, line: int | None, sentence: str | None
) -> None:
    assert before in GOOD
    checked = check(tmp_path, GOOD.replace(before, after, 1))
    if line is None:  # Other labels, so both may have the name.
        assert checked.file is not None
        return
    (mistake,) = checked.errors
    assert sentence is not None
    assert sentence in mistake.sentence
    assert mistake.line == line


def test_a_misspelt_key_is_told_as_that_of_a_rule_with_ranges(tmp_path: Path) -> None:
    told = [mistake.sentence for mistake in check(tmp_path, GOOD.replace("ranges: trades", "range: trades")).errors]
    assert any("`range` is not a key of a rule with `ranges`; did you mean `ranges`?" in text for text in told)
    assert not any("expr" in text for text in told)


def test_several_mistakes_are_told_at_once(tmp_path: Path) -> None:
    text = (
        GOOD.replace("within: 1h", "within: soon").replace("shards: 4", "shards: 0").replace("rearm: 10m", "rearm: x")
    )
    assert len(check(tmp_path, text).errors) == 3


def test_all_columns_and_streams_that_are_not_there_are_told_at_once_each_at_its_place(tmp_path: Path) -> None:
    text = GOOD.replace("ranges: trades.price", "ranges: [trades.index, trades.prize]")
    text = text.replace("weight: trades.volume", "weight: trades.vol").replace("requests: orders", "requests: order")
    found = check(tmp_path, text.replace("within: 1h", "within: soon")).errors
    assert [(mistake.line, mistake.sentence.split(";")[0]) for mistake in found] == [
        (15, "stream `trades` must have the value column 'prize'"),
        (16, "stream `trades` must have the value column 'vol'"),
        (17, "`order` must be one of the streams orders, trades"),
        (19, "`within` must be a duration such as '10s', '1h30m' or '500ms'"),
    ]
    assert found[0].column == text.splitlines()[14].index("trades.prize") + 1


def test_what_reads_a_stream_with_a_mistake_of_its_own_is_not_doubted(tmp_path: Path) -> None:
    text = GOOD.replace("values: {price: {}", "vales: {price: {}").replace("requests: orders", "requests: order")
    told = [mistake.sentence.split(";")[0] for mistake in check(tmp_path, text).errors]
    assert told == [
        "`vales` is not a key of a stream",
        "`order` must be one of the streams orders, trades",
    ]


def test_a_stream_that_is_not_there_is_told_once_for_values_and_weight(tmp_path: Path) -> None:
    (mistake,) = check(
        tmp_path, GOOD.replace("ranges: trades", "ranges: sales").replace("weight: trades", "weight: sales")
    ).errors
    assert (mistake.line, mistake.sentence.split(";")[0]) == (15, "`sales` must be one of the streams orders, trades")


def test_each_key_column_that_a_stream_lacks_is_told(tmp_path: Path) -> None:
    found = check(tmp_path, GOOD.replace("on: symbol\n        within", "on: [site, market]\n        within")).errors
    assert [mistake.sentence.rpartition(" ")[2] for mistake in found if "`on`" in mistake.sentence] == [
        "'site'",
        "'market'",
    ]


def test_two_rules_that_could_not_be_told_apart_are_refused(tmp_path: Path) -> None:
    same = GOOD.replace("alert: High", "alert: SharesSold\n        labels: {severity: info}")
    (mistake,) = check(tmp_path, same).errors
    assert "`alert` and `labels` together must be unique" in mistake.sentence
