"""Report results of tests: as text in the format of promtool, and as JSON objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tocsin.errors import printable
from tocsin.formatting import format_count, format_labels
from tocsin.rules.durations import duration_text
from tocsin.rules.template import plain
from tocsin.testing.compare import Difference
from tocsin.testing.model import Expected
from tocsin.testing.replay import Alert
from tocsin.testing.series_notation import write_samples
from tocsin.testing.test_runner import CaseResult, Result


def lines(results: Sequence[Result], *, is_debugging: bool = False) -> Iterator[str]:
    """Yield the result lines of a file without control characters."""
    failed = [(result, case) for result in results for case in result.cases if not case.ok]
    if is_debugging:
        for result in results:
            yield from (printable(line) for line in _story(result))
    count = sum(len(result.cases) for result in results)
    if not failed:
        yield f"  SUCCESS: {format_count(len(results), 'test')}, {format_count(count, 'case')}"
        return
    yield f"  FAILED: {len(failed)} of {format_count(count, 'case')}"
    for result, case in failed:
        yield from (printable(line) for line in _failure(result, case))


def _failure(result: Result, found: CaseResult) -> Iterator[str]:
    case = found.case
    name, time = result.scenario.name, duration_text(case.eval_time_us)
    yield f"    name: {name}, alertname: {case.alertname}, time: {time} (line {case.line})"
    if found.error:
        yield f"        could not run: {found.error}"
    for difference in found.differences:
        yield from _difference(difference, found.alerts)


def _difference(difference: Difference, alerts: Sequence[Alert]) -> Iterator[str]:
    labels = format_labels(difference.labels)
    if difference.kind == "missing":
        yield f"        exp: {labels} {difference.state}"
        yield "        got: nothing" + (f"; {difference.reason}" if difference.reason else "")
    elif difference.kind == "unexpected":
        alert = next(one for one in alerts if one.labels == difference.labels and one.state == difference.state)
        yield "        exp: nothing"
        yield f"        got: {_shown(alert)}"
    else:
        yield f"        {labels} {difference.state}"
        for what, expected, got in difference.details:
            yield f"          {what}"
            yield f"            exp: {'nothing' if expected is None else expected}"
            yield f"            got: {'nothing' if got is None else got}"


def _shown(alert: Alert) -> str:
    """Return an alert as one line."""
    values = ", ".join(
        f"{stream}.{column} {plain(value)}" for stream, have in alert.witness.items() for column, value in have.items()
    )
    span = f"since {duration_text(alert.starts_at_us)}"
    if alert.ends_at_us is not None:
        span = f"from {duration_text(alert.starts_at_us)} to {duration_text(alert.ends_at_us)}"
    late = ", late" if alert.is_late else ""
    # A no-data alert has no witness, so its margin has no meaning.
    why = f", margin {plain(alert.margin)} ({values})" if values else ""
    return f"{format_labels(alert.labels)} {alert.state} {span}{late}, value {plain(alert.value)}{why}"


def _story(result: Result) -> Iterator[str]:
    """Yield the series of a test and its alert events."""
    yield f"    DEBUG: {result.scenario.name} (line {result.scenario.line})"
    for series in result.scenario.series:
        yield f"        {series}: {write_samples(series.samples)}"
    for time, alert in result.story:
        yield f"        {duration_text(time)}: {alert.name} {_shown(alert)}"
    for case in result.cases:
        case_text = f"at {duration_text(case.case.eval_time_us)}: {case.case.alertname}"
        yield from (f"        {case_text} {_shown(alert)}" for alert in case.alerts)
        if not case.alerts:
            yield f"        {case_text} {case.error or 'nothing'}"


def to_json(result: Result, *, is_debugging: bool = False) -> dict[str, Any]:
    """Return the result of a test as a JSON object."""
    result_object: dict[str, Any] = {"name": result.scenario.name, "line": result.scenario.line, "ok": result.ok}
    result_object["cases"] = [_case(case) for case in result.cases]
    if is_debugging:
        result_object["alerts"] = [{"time": duration_text(time), **_alert(alert)} for time, alert in result.story]
    return result_object


def _case(found: CaseResult) -> dict[str, Any]:
    return {
        "eval_time": duration_text(found.case.eval_time_us),
        "alertname": found.case.alertname,
        "line": found.case.line,
        "ok": found.ok,
        "error": found.error or None,
        "expected": [_expected(one) for one in found.case.expected],
        "got": [_alert(alert) for alert in found.alerts],
        "differences": [_difference_object(one) for one in found.differences],
    }


def _expected(one: Expected) -> dict[str, Any]:
    starts = None if one.starts_at_us is None else duration_text(one.starts_at_us)
    given: dict[str, Any] = {"state": one.state, "value": one.value, "margin": one.margin, "starts_at": starts}
    given["witness"] = dict(one.witness) or None
    always = {"labels": dict(one.labels), "annotations": dict(one.annotations)}
    return always | {name: value for name, value in given.items() if value is not None}


def _alert(alert: Alert) -> dict[str, Any]:
    return {
        "alertname": alert.name,
        "state": alert.state,
        "labels": dict(alert.labels),
        "annotations": dict(alert.annotations),
        "starts_at": duration_text(alert.starts_at_us),
        "ends_at": None if alert.ends_at_us is None else duration_text(alert.ends_at_us),
        "value": alert.value,
        "margin": alert.margin,
        "witness": {stream: dict(values) for stream, values in alert.witness.items()},
        "late": alert.is_late,
    }


def _difference_object(one: Difference) -> dict[str, Any]:
    details: list[Mapping[str, Any]] = [
        {"what": what, "expected": expected, "got": got} for what, expected, got in one.details
    ]
    return {
        "kind": one.kind,
        "labels": dict(one.labels),
        "state": one.state,
        "details": details,
        "reason": one.reason or None,
    }
