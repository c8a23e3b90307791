"""Semantics of rule tests: times, delays, `for`, `keep_firing_for`, staleness, states, labels and numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.testing.files import check, one_test, run
from tocsin.testing.test_runner import CaseResult

M1 = 'air{machine="m1"}'
S1 = 'surface{machine="m1"}'
WARM = "exp_labels: {machine: m1, team: hvac}"


def cases(folder: Path, series: dict[str, str], text: str, **options: str) -> list[CaseResult]:
    return list(run(folder, one_test(series, text, **options))[0].cases)


def passes(folder: Path, series: dict[str, str], text: str, **options: str) -> bool:
    return all(case.ok for case in cases(folder, series, text, **options))


def kinds(folder: Path, series: dict[str, str], text: str, **options: str) -> list[list[str]]:
    return [[one.kind for one in case.differences] for case in cases(folder, series, text, **options)]


def firing(folder: Path, alert: str, series: dict[str, str], times: str) -> str:
    """Return the state of an alert at some times: `+` firing, `p` pending, `m` match, `-` none."""
    text = "\n".join(f"{{eval_time: {time}, alertname: {alert}}}" for time in times.split())
    marks = {"firing": "+", "pending": "p", "match": "m"}
    found = cases(folder, series, text)
    return " ".join("".join(marks[alert.state] for alert in case.alerts) or "-" for case in found)


def test_alert_fires_while_its_condition_is_true(tmp_path: Path) -> None:
    assert firing(tmp_path, "Warm", {M1: "20 20 21 22 20"}, "0 1m 119s 2m 3m 210s 4m 5m") == "- - - + + + - -"


def test_pending_alert_fires_after_for(tmp_path: Path) -> None:
    assert firing(tmp_path, "WarmFor", {M1: "20 21x5"}, "0 1m 2m 2m59s 3m 4m") == "- p p p + +"
    assert firing(tmp_path, "WarmFor", {M1: "20 21 20 21x2"}, "1m 2m 3m 4m 5m") == "p - p p +"


def test_alert_fires_for_keep_firing_for_after_its_condition_ended(tmp_path: Path) -> None:
    # False at 2m, so the alert fires until 5m and is resolved afterwards.
    assert firing(tmp_path, "WarmKept", {M1: "21 21 20x8"}, "1m 2m 4m 5m 6m") == "+ + + + -"
    assert firing(tmp_path, "Warm", {M1: "21 21 20x8"}, "1m 2m 4m 5m 6m") == "+ - - - -"


def test_alert_ends_after_stale_without_rows(tmp_path: Path) -> None:
    assert firing(tmp_path, "Warm", {M1: "21 21 _x5"}, "1m 2m 150s 151s 1h") == "+ + + - -"
    # No row since 1m: stale at 2m30s, firing until 5m30s.
    assert firing(tmp_path, "WarmKept", {M1: "21 21"}, "2m 3m 5m30s 5m31s") == "+ + + -"
    assert firing(tmp_path, "WarmFor", {M1: "21 21"}, "1m 150s 151s") == "p p -"


def test_key_becomes_stale_while_other_keys_have_rows(tmp_path: Path) -> None:
    series = {M1: "21 21", 'air{machine="m2"}': "21x9"}
    assert firing(tmp_path, "Warm", series, "9m") == "+"
    assert passes(
        tmp_path, series, "{eval_time: 9m, alertname: Warm, exp_alerts: [exp_labels: {machine: m2, team: hvac}]}"
    )


def test_delayed_sample_is_unknown_before_it_arrives(tmp_path: Path) -> None:
    series = {M1: "20 20 21 21 20; 0s x2 30s"}
    assert firing(tmp_path, "Warm", series, "2m 2m29s 2m30s 3m 4m") == "- - + + -"
    assert passes(
        tmp_path, series, f"{{eval_time: 2m30s, alertname: Warm, exp_alerts: [{{{WARM}, exp_starts_at: 2m}}]}}"
    )


def test_alert_is_delayed_until_a_delayed_partner_arrives(tmp_path: Path) -> None:
    late = {M1: "20 21 21 21", S1: "18x3; 0s 40s x3"}
    assert firing(tmp_path, "Apart", {M1: "20 21 21 21", S1: "18x3"}, "0 1m 2m 3m") == "- + + +"
    assert firing(tmp_path, "Apart", late, "0 1m 1m39s 1m40s 2m 3m 3m40s") == "- - - + + + +"
    assert passes(tmp_path, late, """
{eval_time: 1m40s, alertname: Apart, exp_alerts: [{exp_labels: {machine: m1, team: hvac, severity: critical},
 exp_annotations: {summary: "m1: 3", cause: "18"}, exp_starts_at: 1m}]}""".replace("\n ", " "))  # fmt: skip


def test_out_of_order_sample_raises_a_late_alert(tmp_path: Path) -> None:
    # The 25 of 1m arrives when the rule has evaluated 3m, where 20 is false. The idle timeout is 10s.
    series = {M1: "20 25 20 20 20; 0s 125s", S1: "18x3"}
    found = cases(tmp_path, series, "{eval_time: 3m5s, alertname: Apart}")[0]
    assert [(one.state, one.starts_at_us, one.is_late) for one in found.alerts] == [("firing", 60_000_000, True)]
    assert firing(tmp_path, "Apart", series, "1m 2m 3m 3m5s 3m14s 3m15s") == "- - - + + -"
    # A rule of one stream without `within` does not wait: its late alert ended at 2m30s.
    assert firing(tmp_path, "Warm", {M1: "20 25 20 20 20; 0s 125s"}, "1m 2m 3m 3m5s") == "- - - -"


def test_one_alert_is_known_when_two_have_equal_labels(tmp_path: Path) -> None:
    # The alert in order fires since 3m. The late 25 of 1m starts a late alert.
    series = {M1: "20 25 20 21 21; 0s 125s", S1: "18x4"}
    found = cases(tmp_path, series, "{eval_time: 3m5s, alertname: Apart}")[0]
    assert [(one.starts_at_us, one.is_late) for one in found.alerts] == [(180_000_000, False)]


def test_alert_is_delayed_when_a_rule_of_one_stream_omits_rows(tmp_path: Path) -> None:
    series = {M1: "20 20 21x6"}
    assert firing(tmp_path, "Reduced", series, "2m 3m 4m 5m") == "- - + +"
    assert passes(
        tmp_path, series, f"{{eval_time: 4m, alertname: Reduced, exp_alerts: [{{{WARM}, exp_starts_at: 2m}}]}}"
    )


def test_omitted_rows_change_no_alert_of_joined_streams(tmp_path: Path) -> None:
    series = {M1: "20 21 20 20 23 25 20; 0s x3 90s", S1: "18x7"}
    times = "0 1m 2m 3m 4m 4m30s 5m 6m 7m"
    assert firing(tmp_path, "Slow", series, times) == firing(tmp_path, "Apart", series, times) == "- + - - + + + - -"


def test_start_timestamp_sets_time_zero(tmp_path: Path) -> None:
    text = one_test({M1: "20 21"}, f"{{eval_time: 1m, alertname: Warm, exp_alerts: [{{{WARM}, exp_starts_at: 1m}}]}}")
    for start in ("1609459200", "2021-01-01T00:00:00Z", "2021-01-01T01:00:00+01:00", "-5.5", "0"):
        result = run(tmp_path, text.replace("    interval: 1m", f"    interval: 1m\n    start_timestamp: {start}"))[0]
        assert result.ok
        assert result.scenario.start_us == {"-5.5": -5_500_000, "0": 0}.get(start, 1_609_459_200_000_000)


def test_interval_defaults_to_the_evaluation_interval(tmp_path: Path) -> None:
    text = one_test(
        {M1: "20 21"}, f"{{eval_time: 10s, alertname: Warm, exp_alerts: [{WARM}]}}", evaluation_interval="10s"
    )
    assert run(tmp_path, text.replace("    interval: 1m\n", ""))[0].ok
    assert not run(tmp_path, text)[0].ok


def test_pending_alert_is_compared_only_when_the_case_expects_it(tmp_path: Path) -> None:
    series = {M1: "21x5"}
    case = f"{{eval_time: TIME, alertname: WarmFor, exp_alerts: [{{{WARM}, exp_state: STATE}}]}}"

    def expected(time: str, state: str) -> list[list[str]]:
        return kinds(tmp_path, series, case.replace("TIME", time).replace("STATE", state))

    assert kinds(tmp_path, series, "{eval_time: 1m, alertname: WarmFor}") == [[]]
    assert (expected("1m", "pending"), expected("2m", "firing")) == ([[]], [[]])
    assert (expected("1m", "firing"), expected("2m", "pending")) == ([["missing"]], [["missing", "unexpected"]])


def test_labels_must_all_be_equal_except_alertname(tmp_path: Path) -> None:
    def compared(labels: str) -> list[str]:
        return kinds(tmp_path, {M1: "21"}, f"{{eval_time: 0, alertname: Warm, exp_alerts: [exp_labels: {labels}]}}")[0]

    assert compared("{machine: m1, team: hvac}") == []
    assert compared("{machine: m1, team: hvac, alertname: Warm}") == []
    assert compared("{machine: m1}") == ["missing", "unexpected"]
    assert compared("{machine: m2, team: hvac}") == ["missing", "unexpected"]


def test_rendered_annotations_must_all_be_equal(tmp_path: Path) -> None:
    labels = "exp_labels: {machine: m1, team: hvac, severity: critical}"

    def compared(annotations: str) -> list[tuple[str, str | None, str | None]]:
        text = f"{{eval_time: 1m, alertname: Apart, exp_alerts: [{{{labels}{annotations}}}]}}"
        found = cases(tmp_path, {M1: "20 21", S1: "18x1"}, text)[0]
        return [detail for one in found.differences for detail in one.details]

    assert compared(', exp_annotations: {summary: "m1: 3", cause: 18}') == []
    assert compared(', exp_annotations: {summary: "m1: 4", cause: 18}') == [
        ("annotation summary", '"m1: 4"', '"m1: 3"')
    ]
    assert compared(', exp_annotations: {summary: "m1: 3"}') == [("annotation cause", None, '"18"')]
    assert compared("") == [("annotation summary", None, '"m1: 3"'), ("annotation cause", None, '"18"')]


def test_numbers_are_compared_when_the_case_has_them(tmp_path: Path) -> None:
    labels = "exp_labels: {machine: m1, team: hvac, severity: critical}"

    def compared(more: str, **options: str) -> list[tuple[str, str | None, str | None]]:
        alert = f"{{{labels}, exp_annotations: {{summary: 'm1: 2.1', cause: '18.2'}}, {more}}}"
        text = f"{{eval_time: 1m, alertname: Apart, exp_alerts: [{alert}]}}"
        found = cases(tmp_path, {M1: "20 20.3", S1: "18.2x1"}, text, **options)[0]
        return [detail for one in found.differences for detail in one.details if "annotation" not in detail[0]]

    assert compared("exp_starts_at: 1m, exp_witness: {air: 20.3, surface: 18.2}") == []
    assert compared("exp_witness: {surface: 18.3}") == [("witness surface", "18.3", "18.2")]
    assert compared("exp_starts_at: 61s") == [("starts at", "1m1s", "1m")]
    # 20.3 - 18.2 is not 2.1 in binary.
    assert compared("exp_value: 2.1") == [("value", "2.1", repr(20.3 - 18.2))]
    assert compared("exp_margin: 0.1") == [("margin", "0.1", repr(20.3 - 18.2 - 2))]
    assert compared("exp_value: 2.1, exp_margin: 0.1", fuzzy_compare="true") == []
    assert compared("exp_value: 2.10001", fuzzy_compare="true") == [("value", "2.10001", repr(20.3 - 18.2))]


def test_value_and_witness_are_from_the_last_alert_event(tmp_path: Path) -> None:
    events = [("1m", "pending", 21), ("2m", "firing", 25), ("4m", "firing", 25)]
    text = "\n".join(
        f"{{eval_time: {time}, alertname: WarmFor, exp_alerts: [{{{WARM}, exp_state: {state}, exp_value: {value}}}]}}"
        for time, state, value in events
    )
    assert passes(tmp_path, {M1: "21 25 24 30 30"}, text)


def test_known_alerts_are_all_matches_when_the_rule_emits_all(tmp_path: Path) -> None:
    series = {M1: "20 21 22", S1: "18x2"}
    assert firing(tmp_path, "Matches", series, "0 1m 2m 1h") == "- m mm mm"
    both = f"exp_alerts: [{{{WARM}, exp_value: 4}}, {{{WARM}, exp_value: 3, exp_state: match}}]"
    assert passes(tmp_path, series, f"{{eval_time: 2m, alertname: Matches, {both}}}")
    assert kinds(tmp_path, series, f"{{eval_time: 2m, alertname: Matches, exp_alerts: [{WARM}]}}") == [["unexpected"]]


def test_rules_of_one_name_are_tested_together(tmp_path: Path) -> None:
    series = {M1: "20 21 23"}
    both = [f"exp_labels: {{machine: m1, team: hvac, severity: {word}}}" for word in ("warning", "critical")]
    assert passes(
        tmp_path,
        series,
        f"""
{{eval_time: 1m, alertname: Two, exp_alerts: [{both[0]}]}}
{{eval_time: 2m, alertname: Two, exp_alerts: [{both[1]}, {both[0]}]}}""",
    )
    assert kinds(tmp_path, series, f"{{eval_time: 2m, alertname: Two, exp_alerts: [{both[0]}]}}") == [["unexpected"]]


def test_series_of_one_stream_and_key_form_rows(tmp_path: Path) -> None:
    hum = 'air.hum{machine="m1"}'
    assert firing(tmp_path, "Both", {M1: "21 21 21", hum: "3 2 1"}, "0 1m 2m") == "- + +"
    # A row with a missing value is invalid, so the alert becomes stale.
    assert firing(tmp_path, "Both", {M1: "21 21 21 21", hum: "1 _ NaN 1"}, "0 1m 90s 91s 2m 3m") == "+ + + - - +"
    assert firing(tmp_path, "Damp", {hum: "20 21"}, "0 1m") == "- +"


def test_alert_has_only_the_keys_of_its_rule(tmp_path: Path) -> None:
    series = {
        'door{machine="m1", site="n"}': "0 1",
        'door{machine="m2", site="n"}': "0 1",
        'door{machine="m2", site="s"}': "0",
    }
    expected = "[exp_labels: {site: n, team: hvac}]"
    assert passes(tmp_path, series, f"{{eval_time: 1m, alertname: Door, exp_alerts: {expected}}}")


def test_stream_without_series_has_no_rows(tmp_path: Path) -> None:
    assert firing(tmp_path, "Apart", {M1: "30x5"}, "1m 5m") == "- -"


def test_several_rule_files_are_tested_together(tmp_path: Path) -> None:
    text = one_test({M1: "21"}, f"{{eval_time: 0, alertname: Warm, exp_alerts: [{WARM}, exp_labels: {{machine: m1}}]}}")
    other = "streams: {air: {source: {csv: {path: x}}, keys: machine}}\n"
    other += "groups: [{name: g, rules: [{alert: Warm, expr: air > 0, on: machine}]}]\n"
    (tmp_path / "rules-2.yaml").write_text(other)
    assert run(tmp_path, text.replace("[rules.yaml]", "[rules*.yaml, rules.yaml]"))[0].ok


def test_limits_of_the_key_are_used(tmp_path: Path) -> None:
    assert firing(tmp_path, "Limited", {M1: "20 21"}, "0 1m") == "- +"


def test_alert_fires_until_its_recovery(tmp_path: Path) -> None:
    assert firing(tmp_path, "Recovers", {M1: "19 21 19 18 19"}, "0 1m 2m 3m 4m") == "- + + - -"


def test_case_fails_when_the_engine_raises_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tocsin.errors import RunError
    from tocsin.testing.replay import Replay

    def fail(*_: object) -> None:
        message = "no"
        raise RunError(message)

    monkeypatch.setattr(Replay, "advance_to", fail)
    found = cases(tmp_path, {M1: "21"}, "{eval_time: 0, alertname: Warm}")[0]
    assert (found.ok, found.error) == (False, "the engine rejects the test: no")


def test_secrets_of_rule_files_do_not_need_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    assert check(tmp_path, one_test({M1: "21"}, "{eval_time: 0, alertname: Damp}".replace("Damp", "Warm"))).suite


def test_debugging_records_alert_events_by_arrival_time(tmp_path: Path) -> None:
    text = one_test({M1: "20 21 20 21; 0s 30s"}, "{eval_time: 90s, alertname: Warm}")
    plain, debugged = run(tmp_path, text)[0], run(tmp_path, text, is_debugging=True)[0]
    assert debugged.cases == plain.cases
    story = [(time // 1_000_000, alert.state) for time, alert in debugged.story]
    assert story == [(90, "firing"), (120, "resolved"), (180, "firing")]
