"""Compare the alerts that a test expects with those that there are: what is missing, unexpected or different."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tocsin.rules.durations import duration_text
from tocsin.rules.template import plain
from tocsin.testing.model import Expected
from tocsin.testing.replay import Alert

TOLERANCE = 1e-9

# What differs, what was expected, what there is; None: nothing.
Detail = tuple[str, str | None, str | None]


@dataclass(frozen=True)
class Difference:
    """One thing that is not as expected; `kind` is missing, unexpected or different."""

    kind: str
    labels: Mapping[str, str]
    state: str
    details: tuple[Detail, ...] = ()
    reason: str = ""


def compare(expected: Sequence[Expected], alerts: Sequence[Alert], *, fuzzy: bool) -> list[Difference]:
    """Give all differences; alerts that are pending are there only for those who expect them."""
    rest = list(alerts)
    unmet = [one for one in expected if not _take(one, rest, fuzzy=fuzzy)]
    differences = []
    for one in unmet:
        same = [alert for alert in rest if _is_meant(one, alert) and alert.labels == one.labels]
        if same:
            rest.remove(same[0])
            details = tuple(_details(one, same[0], fuzzy=fuzzy))
            differences.append(Difference("different", one.labels, same[0].state, details))
        else:
            differences.append(Difference("missing", one.labels, one.state or "firing"))
    told = [alert for alert in rest if alert.state != "pending"]
    return differences + [Difference("unexpected", alert.labels, alert.state) for alert in told]


def _take(expected: Expected, rest: list[Alert], *, fuzzy: bool) -> bool:
    """Take the alert that is just as expected out of the rest, if there is one."""
    for alert in rest:
        if _is_meant(expected, alert) and alert.labels == expected.labels:
            if not any(_details(expected, alert, fuzzy=fuzzy)):
                rest.remove(alert)
                return True
    return False


def _is_meant(expected: Expected, alert: Alert) -> bool:
    """Whether an alert has the state that is expected; without one, it is not only pending."""
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
    """The value of a variable in the witness of an alert; None if it has none."""
    stream, _, column = name.partition(".")
    values = alert.witness.get(stream, {})
    only = "value" if "value" in values or len(values) != 1 else next(iter(values))
    return values.get(column or only)
