"""Rule: a condition over streams, the time bounds of its join, and the life of its alert.

The checks of this module need the rule only. The planner checks streams and columns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tocsin.errors import NAME, Diagnostics, value_text
from tocsin.rules.durations import Duration, microseconds
from tocsin.rules.labels import check_annotations, check_label, check_label_name
from tocsin.rules.limits import Limits
from tocsin.rules.quality import SAMPLE, Quality, read_quality
from tocsin.rules.suggestions import format_path, nearest, reject_renamed_parameters, renamed_hint

SHAPES = ("increasing", "decreasing", "quasiconvex")
UNREDUCED = "unreduced"
CLOSED = ("both", "neither", "left", "right")
EMITS = ("witness", "all")

Bounds = Mapping[tuple[str, str], tuple[Duration, Duration]]


@reject_renamed_parameters
@dataclass(frozen=True)
class Rule:
    """Rule: raise `alert` while `expr` is true for a combination of rows of its streams.

    A duration is text such as `10s` or `1h30m`, a `datetime.timedelta`, or 0. Other numbers are rejected.

    Parameters
    ----------
    alert
        Name of the alert.
    expr
        The condition, such as `ln(humidity/100) + 18.678*air/(257.14+air) - surface > 0`.
    within
        Largest distance in event time between any two rows of a combination, or bounds per pair:
        `{("r", "s"): ("-5s", "10s")}` means -5 s <= t_s - t_r <= 10 s. For a rule of one stream it is the interval of
        the reduction: without `for`, `expr` is evaluated only on the extremes of windows of this length.
    on
        Key columns that must be equal.
    shapes
        Shape of `expr` in a variable, if it cannot be proved: `increasing`, `decreasing` or `quasiconvex` (decreases,
        then increases). It is accepted unless it is refuted. `unreduced` or None: no row of the stream is omitted.
    domains
        Range (low, high) of a variable, on which its shape is proved. A value outside is retained and counted, and
        covers no other row.
    for_, keep_firing_for, stale
        Durations of an alert as in Prometheus, in event time. `stale` is the time without evaluations that ends it
        (default: the span of the rule; for one stream `within`, or twice `within` if the rule is reduced).
    allowed_lateness
        Age of a row, compared with the newest row of its key, up to which it is joined with all partners. Default: 1 h;
        with `cpu`, `deadline` or `prefer` sample the span of the rule; with `cpu` or `deadline` of one stream the
        deadline.
    idle_timeout
        Age of the newest row of a stream at which alerts do not wait for it (default: the span of the rule).
    labels
        Labels of the alert besides the key columns.
    emit
        `witness`: alerts, each with the best combination. `all`: every true combination; no row is omitted.
    closed
        Ends that belong to the bounds: `both`, `neither`, `left` or `right`.
    hop
        Join inside hopping windows [k*hop, k*hop + within] instead of sliding ones.
    annotations
        Texts with templates such as `{{ $labels.machine }}: {{ $value | printf "%.1f" }}`.
    recovery
        Second threshold: the alert is resolved only when the left side of `expr` is beyond it too. `expr` must be one
        comparison with a number or a limit.
    tolerance
        Step in which the values of a variable are compared: fewer rows are retained. An alarm with a margin below the
        cost that `explain` shows can be missed.
    limits
        Tables with numbers per key, by the name that `expr` uses. A condition is never true for a key that a table does
        not have.
    quality
        Options of the answer, such as `{"recall": 0.99, "period": "1m"}`, `{"wait": "5s"}`, `{"memory": "200MB"}` or
        `{"cpu": "50%"}`. Without options, every alarm is found and no row waits.

        - `recall`: target share of the results that are found in order. Rows wait as long as this needs. `period` is
          the event time over which the recall is measured, `adapt_every` the event time between two changes of the
          wait, `step` its granularity, `strategy` how it is chosen. With `in_order`, results out of order count as lost
          even if every alarm is raised without a wait.
        - `wait`: how long rows wait for older rows: a duration, `max` (the largest delay so far) or `none`.
        - `memory`: maximum state of the join over all buckets: `200MB`, or `10000 rows`. Further rows are shed. Without
          it, the rule shares the memory budget of the run, if there is one.
        - `prefer`: results that are kept if the memory budget is exceeded: `subset`, as many as possible, or `sample`,
          a random sample of all results with their probabilities (with `emit` all and two streams).
        - `model`: ranking of rows if the memory budget is exceeded: `{"by": "key"}`, `age`, `none` (the newest rows
          stay; in a sample, all rows have the same probability) or `auto`. `{"granularity": "10s"}` is the length of an
          age class.
        - `weight`: among joins with a common memory budget, a join with weight 2 finds twice the share of its results
          that a join with weight 1 finds, if not all results can be found.
        - `cpu`: CPU budget over all buckets: `50%` of a core, or `2 cores` (with `emit` all and one or two streams). If
          it is exceeded, the rows or pairs with the highest priority are processed first.
        - `deadline`: event time after a row within which the row or its pairs can be processed. Later, they
          count as unprocessed. The default for one stream is a minute.
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
    allowed_lateness: Duration | None = None
    idle_timeout: Duration | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    emit: str = "witness"
    closed: str = "both"
    hop: Duration | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    recovery: float | None = None
    limits: Mapping[str, Limits] = field(default_factory=dict)
    tolerance: Mapping[str, float] = field(default_factory=dict)
    quality: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        """Check what can be checked without the streams."""
        diagnostics = Diagnostics()
        self.check(diagnostics)
        diagnostics.raise_errors(self.location)
        # In a file, None is a word.
        object.__setattr__(self, "shapes", {name: None if s == UNREDUCED else s for name, s in self.shapes.items()})

    def check(self, diagnostics: Diagnostics) -> None:
        """Add all errors that can be found without the streams."""
        if not isinstance(self.alert, str) or not self.alert.strip():
            diagnostics.add("wrong-type", ["alert"], "`alert` must be a name", value_text(self.alert))
        if not isinstance(self.expr, str):
            diagnostics.add("wrong-type", ["expr"], "`expr` must be text", type(self.expr).__name__)
        if isinstance(self.on, str):
            object.__setattr__(self, "on", (self.on,))
        for check in (_check_words, _check_durations, _check_domains, _check_labels, _check_recovery, _check_tolerance):
            check(self, diagnostics)
        _check_limits(self, diagnostics)
        _check_quality(self, diagnostics)

    def with_fields(self, **values: Any) -> Rule:
        """Return a copy with other values of some fields, without a check."""
        rule = copy(self)
        rule.__dict__.pop("quality_options", None)
        rule.__dict__.update(values)
        return rule

    @property
    def location(self) -> str:
        """Name of the rule in messages."""
        return f'rule "{self.alert}"'

    @cached_property
    def quality_options(self) -> Quality:
        """Parsed quality block, with the default of each option that has an error."""
        return read_quality(self.quality, Diagnostics())


def _mapping(rule: Rule, name: str, diagnostics: Diagnostics) -> Mapping[Any, Any]:
    """Return a field that must be a mapping; report it and return an empty one if it is not."""
    value = getattr(rule, name)
    if isinstance(value, Mapping):
        return value
    diagnostics.add("wrong-type", [name], f"`{name}` must map names to settings", value_text(value))
    return {}


def _check_words(rule: Rule, diagnostics: Diagnostics) -> None:
    words: list[tuple[tuple[str, ...], object, tuple[str, ...]]] = [
        (("emit",), rule.emit, EMITS),
        (("closed",), rule.closed, CLOSED),
    ]
    shapes = [(name, shape) for name, shape in _mapping(rule, "shapes", diagnostics).items() if shape is not None]
    words += [(("shapes", name), shape, (*SHAPES, UNREDUCED)) for name, shape in shapes]
    for path, word, known in words:
        if word not in known:
            message = f"`{format_path(path)}` must be one of {', '.join(known)}"
            hint = renamed_hint(word, known) or (nearest(word, known) if isinstance(word, str) else "")
            diagnostics.add("unknown-word", path, message, value_text(word), hint)


def _check_durations(rule: Rule, diagnostics: Diagnostics) -> None:
    for name in ("for_", "keep_firing_for", "stale", "allowed_lateness", "idle_timeout", "hop"):
        value = getattr(rule, name)
        if value is not None:
            length = _duration(diagnostics, value, name.rstrip("_"))
            if name == "hop" and length == 0:
                diagnostics.add("out-of-range", ["hop"], "`hop` must be longer than 0", value_text(value))
    if isinstance(rule.within, Mapping):
        if rule.hop is not None:
            message = "`hop` needs one `within`, the length of its windows"
            diagnostics.add("not-combinable", ["hop"], message, "bounds per pair")
        for pair, bounds in rule.within.items():
            _check_pair(diagnostics, pair, bounds)
    elif rule.within is not None:
        _duration(diagnostics, rule.within, "within")
    elif rule.hop is not None:
        message = "`hop` needs `within`, the length of its windows; `within` is not set"
        diagnostics.add("needs-option", ["hop"], message)


def _check_pair(diagnostics: Diagnostics, pair: object, bounds: object) -> None:
    path = ("within", pair)
    name = f"`{format_path(path)}`"
    if not (isinstance(pair, tuple) and len(pair) == 2 and pair[0] != pair[1]):
        diagnostics.add("invalid-bounds", path, f"{name} must name two different streams")
        return
    if not (isinstance(bounds, tuple | list) and len(bounds) == 2):
        diagnostics.add("invalid-bounds", path, f"{name} must be (lower, upper)", value_text(bounds))
        return
    lower, upper = (_duration(diagnostics, bound, *path, signed=True) for bound in bounds)
    if lower is not None and upper is not None and lower > upper:
        diagnostics.add("invalid-bounds", path, f"{name} must have lower <= upper", value_text(bounds))


def _duration(diagnostics: Diagnostics, value: Any, *path: object, signed: bool = False) -> int | None:
    with diagnostics.at(*path):
        return microseconds(value, f"`{format_path(path)}`", signed=signed)
    return None


def _check_domains(rule: Rule, diagnostics: Diagnostics) -> None:
    for name, domain in _mapping(rule, "domains", diagnostics).items():
        pair = isinstance(domain, tuple | list) and len(domain) == 2
        if not (pair and all(isinstance(end, int | float) for end in domain) and domain[0] < domain[1]):
            message = f"`domains[{name!r}]` must be (low, high) with low < high"
            diagnostics.add("invalid-domain", ["domains", name], message, value_text(domain))


def _check_labels(rule: Rule, diagnostics: Diagnostics) -> None:
    keys = rule.on if isinstance(rule.on, Sequence) else ()
    if not isinstance(rule.on, Sequence):
        diagnostics.add("wrong-type", ["on"], "`on` must list key columns", value_text(rule.on))
    labels = _mapping(rule, "labels", diagnostics)
    for name in keys:
        check_label_name(diagnostics, name, "on", name)
    for name, value in labels.items():
        check_label(diagnostics, name, value)
        if name in keys:
            message = f"`labels` must not repeat key columns; both have {name!r}"
            diagnostics.add("duplicate-name", ["labels", name, NAME], message)
    check_annotations(diagnostics, _mapping(rule, "annotations", diagnostics), [*keys, *labels])


def _check_recovery(rule: Rule, diagnostics: Diagnostics) -> None:
    if rule.recovery is None:
        return
    number = isinstance(rule.recovery, int | float) and not isinstance(rule.recovery, bool)
    if not number or not math.isfinite(rule.recovery):
        diagnostics.add("invalid-number", ["recovery"], "`recovery` must be a finite number", value_text(rule.recovery))
    elif rule.emit == "all":
        message = "`recovery` needs `emit: witness`, because a match has no end"
        diagnostics.add("not-combinable", ["recovery"], message, "`emit: all`")


def _check_limits(rule: Rule, diagnostics: Diagnostics) -> None:
    for name, table in _mapping(rule, "limits", diagnostics).items():
        if not isinstance(table, Limits):
            message = f"`limits[{name!r}]` must be a table of limits"
            diagnostics.add("wrong-type", ["limits", name], message, value_text(table))
            continue
        missing = [key for key in table.on if key not in rule.on]
        if missing:
            message = f"`on` must have the key columns of the limits {name!r} ({', '.join(table.on)})"
            diagnostics.add("missing-key-column", ["limits", name], message, hint=f"add {missing[0]!r}")


def _check_tolerance(rule: Rule, diagnostics: Diagnostics) -> None:
    for name, value in _mapping(rule, "tolerance", diagnostics).items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 <= value < math.inf:
            message = f"`tolerance[{name!r}]` must be a number of at least 0"
            diagnostics.add("out-of-range", ["tolerance", name], message, value_text(value))


def _check_quality(rule: Rule, diagnostics: Diagnostics) -> None:
    """Reject a quality block with an error, and options that need `emit: all`."""
    quality = read_quality(rule.quality, diagnostics)
    if rule.emit != "witness":
        return
    if quality.prefer == SAMPLE:
        message = "`quality.prefer: sample` needs `emit: all`, because a sample carries no information about a maximum"
        diagnostics.add("needs-emit-all", ["quality", "prefer"], message, "`emit: witness`")
    if quality.cpu is not None:
        name = "deadline" if quality.cpu.cores is None else "cpu"
        message = f"`quality.{name}` needs `emit: all`, because a CPU budget can omit results"
        diagnostics.add("needs-emit-all", ["quality", name], message, "`emit: witness`")
