"""A rule as the user states it: a condition over streams, who joins whom, and how an alert lives.

What one rule says about itself is checked here; what it says about streams and columns is checked when it is planned.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tocsin.errors import RuleError
from tocsin.rules.durations import Duration, microseconds

SHAPES = ("increasing", "decreasing", "quasiconvex")
CLOSED = ("both", "neither", "left", "right")
EMITS = ("witness", "all")

Bounds = Mapping[tuple[str, str], tuple[Duration, Duration]]

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


@dataclass(frozen=True)
class Rule:
    """Raise `alert` while `expr` holds for rows of several streams that belong together.

    Parameters
    ----------
    alert
        Name of the alert.
    expr
        The condition, such as `ln(humidity/100) + 18.678*air/(257.14+air) - surface > 0`.
    within
        Largest distance in event time between any two rows of a combination, or bounds per pair:
        `{("r", "s"): ("-5s", "10s")}` means -5 s <= t_s - t_r <= 10 s.
    on
        Key columns that must be equal.
    shapes
        What `expr` does as one variable grows while the others stand: `increasing`, `decreasing` or `quasiconvex`
        (falls, then rises). Rows of such a stream that cannot decide an alarm are left out of the state.
    domains
        (low, high) of a variable, on which its shape holds; a value outside is kept and counted, and excuses no other
        row.
    for_, keep_firing_for, stale
        The life of an alert as in Prometheus, in event time; `stale` is the silence that ends it (default: the span of
        the rule).
    outage
        How far a row may lie behind the newest of its key and still find every partner.
    idle
        How far a stream may lie behind before alerts stop waiting for it (default: the span of the rule).
    labels
        Labels of the alert besides the key columns.
    emit
        `witness`: alerts, each with the best combination. `all`: every true combination; nothing is left out.
    closed
        Which ends of the bounds belong to them: `both`, `neither`, `left`, `right`.
    hop
        Join inside hopping windows [k*hop, k*hop + within] instead of sliding ones.
    """

    alert: str
    expr: str
    within: Duration | Bounds | None = None
    on: Sequence[str] = ()
    shapes: Mapping[str, str | None] = field(default_factory=dict)
    domains: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    for_: Duration = 0
    keep_firing_for: Duration = 0
    stale: Duration | None = None
    outage: Duration = "1h"
    idle: Duration | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    emit: str = "witness"
    closed: str = "both"
    hop: Duration | None = None

    def __post_init__(self) -> None:
        """Check what can be checked without knowing the streams."""
        if not isinstance(self.alert, str) or not self.alert.strip():
            message = f"`alert` must be a name; got {self.alert!r}"
            raise RuleError(message)
        if not isinstance(self.expr, str):
            message = f"{self.place}: `expr` must be text; got {type(self.expr).__name__}"
            raise RuleError(message)
        if isinstance(self.on, str):
            object.__setattr__(self, "on", (self.on,))
        _check_kinds(self)
        _check_words(self)
        _check_durations(self)
        _check_domains(self)
        _check_labels(self)

    @property
    def place(self) -> str:
        """How messages name this rule."""
        return f'rule "{self.alert}"'


def _check_kinds(rule: Rule) -> None:
    for name in ("shapes", "domains", "labels"):
        if not isinstance(getattr(rule, name), Mapping):
            message = f"{rule.place}: `{name}` must map names to settings; got {getattr(rule, name)!r}"
            raise RuleError(message)
    if not isinstance(rule.on, Sequence):
        message = f"{rule.place}: `on` must list key columns; got {rule.on!r}"
        raise RuleError(message)


def _check_words(rule: Rule) -> None:
    words = [("emit", rule.emit, EMITS), ("closed", rule.closed, CLOSED)]
    words += [(f"shapes[{name!r}]", shape, SHAPES) for name, shape in rule.shapes.items() if shape is not None]
    for name, word, known in words:
        if word not in known:
            message = f"{rule.place}: `{name}` must be one of {', '.join(known)}; got {word!r}"
            raise RuleError(message)


def _check_durations(rule: Rule) -> None:
    for name in ("for_", "keep_firing_for", "stale", "outage", "idle", "hop"):
        value = getattr(rule, name)
        if value is not None:
            microseconds(value, f"{rule.place}: `{name.rstrip('_')}`")
    if rule.hop is not None and microseconds(rule.hop, "`hop`") == 0:
        message = f"{rule.place}: `hop` must be longer than 0; got {rule.hop!r}"
        raise RuleError(message)
    if isinstance(rule.within, Mapping):
        if rule.hop is not None:
            message = f"{rule.place}: `hop` needs one `within`, the length of its windows; got bounds per pair"
            raise RuleError(message)
        for pair, bounds in rule.within.items():
            _check_pair(rule, pair, bounds)
    elif rule.within is not None:
        microseconds(rule.within, f"{rule.place}: `within`")


def _check_pair(rule: Rule, pair: object, bounds: object) -> None:
    place = f"{rule.place}: `within[{pair!r}]`"
    if not (isinstance(pair, tuple) and len(pair) == 2 and pair[0] != pair[1]):
        message = f"{place} must name two different streams"
        raise RuleError(message)
    if not (isinstance(bounds, tuple | list) and len(bounds) == 2):
        message = f"{place} must be (lower, upper); got {bounds!r}"
        raise RuleError(message)
    lower, upper = (microseconds(bound, place, signed=True) for bound in bounds)
    if lower > upper:
        message = f"{place} must have lower <= upper; got {bounds!r}"
        raise RuleError(message)


def _check_domains(rule: Rule) -> None:
    for name, domain in rule.domains.items():
        pair = isinstance(domain, tuple | list) and len(domain) == 2
        if not (pair and all(isinstance(end, int | float) for end in domain) and domain[0] < domain[1]):
            message = f"{rule.place}: `domains[{name!r}]` must be (low, high) with low < high; got {domain!r}"
            raise RuleError(message)


def _check_labels(rule: Rule) -> None:
    for name in [*rule.labels, *rule.on]:
        if not isinstance(name, str) or not _LABEL.fullmatch(name):
            message = f"{rule.place}: label and key names must look like `team_1`; got {name!r}"
            raise RuleError(message)
    both = sorted(set(rule.labels) & set(rule.on))
    if both:
        message = f"{rule.place}: `labels` must not repeat key columns; both have {both[0]!r}"
        raise RuleError(message)
