"""The plan of a rule file: its rules, and the streams that it watches for silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from rule_files import load_file
from tocsin import PlanError
from tocsin.plan.file import plan_file
from tocsin.rules.rulefile import RuleFile

TEXT = """\
streams:
  air: {source: {csv: {path: air}}, keys: [machine], no_data: {for: 3m}}
  wall: {source: {csv: {path: wall}}, keys: [machine, site], no_data: {for: 1h, labels: {team: x}}}
groups:
  - {name: rooms, rules: [{alert: Warm, expr: air > 2, on: machine}]}
"""


@pytest.fixture
def file(tmp_path: Path) -> RuleFile:
    (tmp_path / "rules.yaml").write_text(TEXT, encoding="utf-8")
    return load_file(str(tmp_path / "rules.yaml"))


def test_a_silence_of_a_file_shares_the_watch_of_rules_with_its_keys(file: RuleFile) -> None:
    first, second = plan_file(file).watches
    assert (first.on, [rule.alert for rule in first.rules]) == (("machine",), ["Warm"])
    assert [str(silence) for silence in first.silences] == ["air: a key without rows for 3m"]
    assert (second.on, second.streams, second.rules, second.stores) == (("machine", "site"), ("wall",), (), ())
    assert second.silences[0].labels == (("stream", "wall"), ("team", "x"))
    assert (first.counted, second.counted) == ((("air", "air"),), (("wall", "wall"),))


def test_some_of_the_rules_are_planned_alone(file: RuleFile) -> None:
    (watch,) = plan_file(file, file.rules).watches
    assert watch.silences == ()
    (watch,) = plan_file(file, file.no_data[1:]).watches
    assert watch.on == ("machine", "site")
    with pytest.raises(PlanError, match=r"`groups` must have at least one rule; got no rule$"):
        plan_file(file, [])
