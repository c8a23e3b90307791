"""Warnings about rules that are right and may not be meant so, and rules whose alerts could not be told apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from rules.files import GOOD, check, marked, said
from tocsin.delivery import make_sink
from tocsin.plan import plan_rules
from tocsin.rules.load import check_rule_file

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = [path for path in sorted((ROOT / "examples").glob("*.yaml")) if "\ngroups:" in path.read_text("utf-8")]
FILE = """\
streams:
  air: {source: {csv: {path: x}}, keys: [machine], no_data: {for: 10m}}
  surface: {source: {csv: {path: y}}, keys: [machine]}
groups:
  - name: cold
    rules:
      - {alert: »Wet, expr: air - surface > 0, within: 10s, on: [machine]}
"""
FLAPS = (
    "`keep_firing_for` should be set for a join: each row joins with other rows, so the alert flaps near its "
    "threshold; got no `for`, `keep_firing_for` or `recovery`"
)


def _warned(folder: Path, text: str) -> list[str]:
    checked = check(folder, text)
    assert checked.errors == ()
    return [str(warning).removeprefix(f"{folder / 'rules.yaml'}:") for warning in checked.warnings]


def test_a_rule_that_joins_and_ends_with_every_false_row_gives_one_warning_at_its_name(tmp_path: Path) -> None:
    text, place = marked(FILE)
    assert _warned(tmp_path, text) == [f'{place}: warning: group "cold": rule "Wet": {FLAPS}']


@pytest.mark.parametrize(
    "setting", ["keep_firing_for: 1m", "for: 5s", "recovery: -1", "emit: all", "for: 0s, keep_firing_for: 1us"]
)
def test_one_that_waits_goes_on_or_has_no_lives_gives_none(tmp_path: Path, setting: str) -> None:
    assert _warned(tmp_path, FILE.replace("»", "").replace("on: [machine]}", f"on: [machine], {setting}}}")) == []


def test_a_rule_of_one_stream_is_not_warned_of(tmp_path: Path) -> None:
    text = FILE.replace("»", "").replace("surface: {", "surface: {no_data: {for: 1m}, ")
    assert _warned(tmp_path, text.replace("air - surface > 0", "air > 0")) == []


@pytest.mark.parametrize("kind", ["keep_firing_for: 1m", "emit: all"])
def test_a_recall_that_no_wait_is_needed_for_gives_a_warning(tmp_path: Path, kind: str) -> None:
    text, place = marked(_pauses(kind, "quality: {recall: »0.99}"))
    assert _warned(tmp_path, text) == [
        f'{place}: warning: group "cold": rule "Wet": `quality.recall` has no effect (no wait: without `for`, rows are '
        "joined on arrival and the recall is 1 (configured: 0.99); set `quality.in_order: true` to wait for order)"
    ]


@pytest.mark.parametrize("setting", ["quality: {recall: 0.99, in_order: true}", "quality: {recall: 0.99}, for: 5s"])
def test_one_that_rows_wait_for_gives_none(tmp_path: Path, setting: str) -> None:
    assert _warned(tmp_path, _pauses("keep_firing_for: 1m", setting)) == []


JOINED, ALONE = "air - surface > 0, within: 10s, keep_firing_for: 1m", "air > 0"
MATCHES = "air - surface > 0, within: 10s, emit: all"
SAID = "because the rule has no `quality.memory`"
OWN = "because the rule shares no memory: it has a `quality.memory`"


@pytest.mark.parametrize(
    ("file", "expr", "settings", "said"),
    [
        ("", JOINED, {"model": "{by: key}", "weight": "2"}, {"model": SAID, "weight": SAID}),
        ("", MATCHES, {"prefer": "sample"}, {"prefer": SAID}),
        ("quality: {memory: 5MB}\n", ALONE, {"weight": "2"}, {"weight": SAID}),
        ("quality: {memory: 5MB}\n", MATCHES, {"cpu": "50%", "prefer": "sample"}, {"prefer": SAID}),
        ("quality: {memory: 5MB}\n", JOINED, {"model": "{by: key}", "prefer": "subset", "weight": "2"}, {}),
        ("", JOINED, {"memory": "5MB", "model": "{by: key}", "prefer": "subset"}, {}),
        ("quality: {memory: 5MB}\n", JOINED, {"memory": "1MB", "weight": "2"}, {"weight": OWN}),
    ],
)
def test_what_says_how_memory_is_used_gives_a_warning_where_none_is_limited(
    file: str, expr: str, settings: dict[str, str], said: dict[str, str], tmp_path: Path
) -> None:
    given = f", quality: {{{', '.join(f'{name}: {value}' for name, value in settings.items())}}}"
    found = _warned(tmp_path, file + FILE.replace("»", "").replace("air - surface > 0, within: 10s", expr + given))
    told = [text for text in found if "has no effect" in text]
    expected = {f"quality.{name}": reason for name, reason in said.items()}
    assert {text.split("`")[1]: text.partition("has no effect, ")[2] for text in told} == expected


def test_a_rule_with_a_mistake_is_not_warned_of_too(tmp_path: Path) -> None:
    checked = check(tmp_path, FILE.replace("»", "").replace("on: [machine]}", "on: [machine], allowed_lateness: x}"))
    assert (len(checked.errors), checked.warnings) == (1, ())


def _pauses(*settings: str) -> str:
    """The file with more settings of its rule."""
    return FILE.replace("»", "").replace("on: [machine]}", f"{', '.join(['on: [machine]', *settings])}}}")


def test_pauses_that_no_data_takes_for_normal_and_for_does_not_give_a_warning(tmp_path: Path) -> None:
    text, place = marked(_pauses("for: »11s"))
    assert _warned(tmp_path, text) == [
        f'{place}: warning: group "cold": rule "Wet": `stale` should be set: after a pause of more '
        "than 10s, the default here, `for` starts again, but `no_data` of 'air' allows pauses of up to 10m"
    ]


@pytest.mark.parametrize(
    ("rule", "no_data"),
    [
        (_pauses("for: 10s"), "10m"),  # two rows that are 10s apart are enough
        (_pauses("for: 11s", "stale: 10s"), "10m"),  # it was thought of
        (_pauses("for: 11s"), "10s"),  # a longer pause raises NoData
    ],
)
def test_pauses_that_are_told_or_were_thought_of_give_none(tmp_path: Path, rule: str, no_data: str) -> None:
    assert _warned(tmp_path, rule.replace("no_data: {for: 10m}", f"no_data: {{for: {no_data}}}")) == []


def test_without_no_data_nothing_is_known_of_pauses(tmp_path: Path) -> None:
    assert _warned(tmp_path, _pauses("for: 1h").replace(", no_data: {for: 10m}", "")) == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_our_own_examples_give_no_warning(path: Path) -> None:
    checked = check_rule_file(path, plan_rules, {}, make_sink)
    assert (checked.errors, checked.warnings) == ((), ())


BELIEVED = "`shapes` of 'air' is stated but not proved: alarms are lost if it is false"


def _shaped(expr: str, shapes: str, *settings: str) -> str:
    """The file with a rule of this condition and these shapes."""
    text = _pauses("for: 1s", f"shapes: {{{shapes}}}", *settings).replace("air - surface > 0", expr)
    return text.replace("no_data: {for: 10m}", "values: {heat: {domain: [0, 9]}}")


def test_a_shape_that_is_believed_gives_a_warning_where_it_is_stated(tmp_path: Path) -> None:
    text, place = marked(_shaped("ln(air) - surface > 0", "air: »increasing"))
    assert _warned(tmp_path, text) == [f'{place}: warning: group "cold": rule "Wet": {BELIEVED}']


@pytest.mark.parametrize(
    ("expr", "shapes", "settings"),
    [
        ("air - surface > 0", "air: increasing", ()),  # it is proved
        ("ln(air) - surface > 0", "air: unreduced", ()),
        ("ln(air) - surface > 0", "air: increasing", ("emit: all",)),  # nothing is left out
        ("ln(air) > 0", "air: increasing", ()),  # `for` counts every row
    ],
)
def test_a_shape_that_is_proved_or_leaves_nothing_out_gives_none(
    tmp_path: Path, expr: str, shapes: str, settings: tuple[str, ...]
) -> None:
    assert _warned(tmp_path, _shaped(expr, shapes, *settings)) == _warned(tmp_path, _shaped(expr, "", *settings))


TWICE = "`alert` and `labels` together must be unique among rules with the same `on`; "


def test_a_rule_with_the_name_and_labels_of_a_no_data_is_a_mistake(tmp_path: Path) -> None:
    rule = "- alert: »NoData\n        labels: {team: hvac, severity: warning, stream: air}\n        expr: air > 1\n"
    text, place = marked(GOOD.replace("- alert: Site", f"{rule}        on: [machine, site]\n      - alert: Site"))
    where = f'{place}: group "cold-store": rule "NoData": '
    both = text.replace("labels: {severity: warning}", "labels: {severity: warning, team: hvac}")
    assert said(tmp_path, both) == [f"{where}{TWICE}`no_data` of stream 'air' has the same"]
    assert said(tmp_path, text) == []
    assert said(tmp_path, both.replace("on: [machine, site]", "on: [machine]")) == []


def test_rules_of_two_groups_that_could_not_be_told_apart_are_a_mistake(tmp_path: Path) -> None:
    again = (
        "  - name: other\n    labels: {team: hvac}\n    rules:\n      - {alert: »Site, expr: air > 9, on: site}\nsinks:"
    )
    text, place = marked(GOOD.replace("sinks:", again))
    assert said(tmp_path, text) == [
        f'{place}: group "other": rule "Site": {TWICE}rule 2 of group "cold-store" has the same'
    ]
    assert said(tmp_path, text.replace("air > 9, on: site", "air > 9, on: machine")) == []


NO_KEY = (
    "`on` should be set to key columns of the streams (machine): without it, rows of all keys are evaluated together "
    "and share one alert; write `on: []` if that is intended"
)


@pytest.mark.parametrize(("on", "messages"), [("", [NO_KEY]), (", on: []", []), (", on: [machine]", [])])
def test_rule_over_keyed_streams_gives_a_warning_when_it_has_no_on(
    on: str, messages: list[str], tmp_path: Path
) -> None:
    text, place = marked(FILE.replace(", on: [machine]}\n", f", keep_firing_for: 1m{on}}}\n"))
    assert _warned(tmp_path, text) == [f'{place}: warning: group "cold": rule "Wet": {message}' for message in messages]


def test_durations_of_alerts_give_a_warning_when_the_rule_emits_all(tmp_path: Path) -> None:
    text = FILE.replace("»", "").replace("on: [machine]}\n", "on: [machine], emit: all, for: 1m, stale: 1m}\n")
    assert [warning.partition('"Wet": ')[2] for warning in _warned(tmp_path, text)] == [
        f"`{name}` has no effect with `emit: all`, because a match has no end" for name in ("for", "stale")
    ]


def test_memory_budget_causes_no_error_when_a_stream_has_an_error(tmp_path: Path) -> None:
    text = FILE.replace("»", "").replace("path: y}}, keys", "path: y}}, wrong: 1, keys")
    text = text.replace("on: [machine]}\n", "on: [machine], keep_firing_for: 1m, quality: {memory: 100MB}}\n")
    (mistake,) = check(tmp_path, text).errors
    assert "`wrong`" in mistake.sentence
