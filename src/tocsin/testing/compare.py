"""Compare expected and actual alerts: find missing, unexpected and different alerts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tocsin.rules.durations import duration_text
from tocsin.rules.template import plain
from tocsin.testing.model import Expected
from tocsin.testing.replay import Alert

TOLERANCE = 1e-9

# Name of the property, expected value, actual value. A value is None if it is absent.
Detail = tuple[str, str | None, str | None]


@dataclass(frozen=True)
class Difference:
    """A difference between expected and actual alerts; `kind` is missing, unexpected or different."""

    kind: str
    labels: Mapping[str, str]
    state: str
    details: tuple[Detail, ...] = ()
    reason: str = ""


def compare(expected: Sequence[Expected], alerts: Sequence[Alert], *, fuzzy: bool) -> list[Difference]:
    """Return all differences. Unexpected pending alerts are ignored."""
    rest = list(alerts)
    unmet = [one for one in expected if not _remove_match(one, rest, fuzzy=fuzzy)]
    differences = []
    for one in unmet:
        same = [alert for alert in rest if _has_expected_state(one, alert) and alert.labels == one.labels]
        if same:
            rest.remove(same[0])
            details = tuple(_details(one, same[0], fuzzy=fuzzy))
            differences.append(Difference("different", one.labels, same[0].state, details))
        else:
            differences.append(Difference("missing", one.labels, one.state or "firing"))
    unexpected = [alert for alert in rest if alert.state != "pending"]
    return differences + [Difference("unexpected", alert.labels, alert.state) for alert in unexpected]


def _remove_match(expected: Expected, rest: list[Alert], *, fuzzy: bool) -> bool:
    """Remove an alert that equals the expected one from `rest`; return False without one."""
    for alert in rest:
        if _has_expected_state(expected, alert) and alert.labels == expected.labels:
            if not any(_details(expected, alert, fuzzy=fuzzy)):
                rest.remove(alert)
                return True
    return False


def _has_expected_state(expected: Expected, alert: Alert) -> bool:
    """Return whether an alert has the expected state. Without an expected state, any state but pending matches."""
    return alert.state == expected.state if expected.state else alert.state != "pending"


def _details(expected: Expected, alert: Alert, *, fuzzy: bool) -> Iterator[Detail]:
    names = dict.fromkeys([*expected.annotations, *alert.annotations])
    for name in names:
        wanted, got = expected.annotations.get(name), alert.annotations.get(name)
        if wanted != got:
            yield f"annotation {name}", _quoted(wanted), _quoted(got)
    numbers: dict[str, tuple[float | None, float | None]] = {
        "value": (expected.value, alert.value),
        "margin": (expected.margin, alert.margin),
    }
    numbers |= {f"witness {name}": (number, witness_value(alert, name)) for name, number in expected.witness.items()}
    for name, (number, have) in numbers.items():
        if number is not None and not _equal(number, have, fuzzy=fuzzy):
            yield name, plain(number), None if have is None else plain(have)
    if expected.starts_at_us is not None and expected.starts_at_us != alert.starts_at_us:
        yield "starts at", duration_text(expected.starts_at_us), duration_text(alert.starts_at_us)


def _quoted(text: str | None) -> str | None:
    return None if text is None else f'"{text}"'


def _equal(wanted: float, got: float | None, *, fuzzy: bool) -> bool:
    if got is None:
        return False
    return math.isclose(wanted, got, rel_tol=TOLERANCE, abs_tol=TOLERANCE) if fuzzy else wanted == got


def witness_value(alert: Alert, name: str) -> float | None:
    """Return the value of a variable in the witness of an alert, or None without one."""
    stream, _, column = name.partition(".")
    values = alert.witness.get(stream, {})
    only = "value" if "value" in values or len(values) != 1 else next(iter(values))
    return values.get(column or only)
