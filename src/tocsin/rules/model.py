"""A rule as the user states it: a condition over streams, who joins whom, and how an alert lives.

What one rule says about itself is checked here; what it says about streams and columns is checked when it is planned.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NoReturn

from tocsin.errors import RuleError
from tocsin.rules.durations import Duration, microseconds
from tocsin.rules.field_error import FieldError, written
from tocsin.rules.labels import check_annotations, check_label, check_label_name
from tocsin.rules.limits import Limits
from tocsin.rules.quality import SAMPLE, Quality, parse_quality
from tocsin.rules.renamed import reject_renamed_parameters, renamed_hint

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
        - `order`: treatment of results out of order: `any` marks them as late, `strict` drops and counts them.
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
        """Check what can be checked without knowing the streams."""
        if not isinstance(self.alert, str) or not self.alert.strip():
            sentence = f"`alert` must be a name; got {self.alert!r}"
            raise FieldError(sentence, ["alert"])
        if not isinstance(self.expr, str):
            _refuse(self, f"`expr` must be text; got {type(self.expr).__name__}", "expr")
        if isinstance(self.on, str):
            object.__setattr__(self, "on", (self.on,))
        for check in (_check_kinds, _check_words, _check_durations, _check_domains):
            check(self)
        # Files say it in a word.
        object.__setattr__(self, "shapes", {name: None if s == UNREDUCED else s for name, s in self.shapes.items()})
        _check_labels(self)
        check_annotations(self.annotations, [*self.on, *self.labels], self.location)
        for check in (_check_recovery, _check_limits, _check_tolerance):
            check(self)
        _check_quality(self)

    @property
    def location(self) -> str:
        """Name of the rule in messages."""
        return f'rule "{self.alert}"'

    @cached_property
    def quality_options(self) -> Quality:
        """Parsed quality block."""
        return parse_quality(self.quality)


def _refuse(rule: Rule, sentence: str, *path: object) -> NoReturn:
    raise FieldError(sentence, path, location=rule.location) from None


def _check_kinds(rule: Rule) -> None:
    for name in ("shapes", "domains", "labels", "annotations", "limits", "tolerance"):
        if not isinstance(getattr(rule, name), Mapping):
            _refuse(rule, f"`{name}` must map names to settings; got {getattr(rule, name)!r}", name)
    if not isinstance(rule.on, Sequence):
        _refuse(rule, f"`on` must list key columns; got {rule.on!r}", "on")


def _check_words(rule: Rule) -> None:
    words: list[tuple[tuple[str, ...], object, tuple[str, ...]]] = [
        (("emit",), rule.emit, EMITS),
        (("closed",), rule.closed, CLOSED),
    ]
    shapes = [(name, shape) for name, shape in rule.shapes.items() if shape is not None]
    words += [(("shapes", name), shape, (*SHAPES, UNREDUCED)) for name, shape in shapes]
    for path, word, known in words:
        if word not in known:
            hint = renamed_hint(word, known)
            _refuse(rule, f"`{written(path)}` must be one of {', '.join(known)}; got {word!r}{hint}", *path)


def _check_durations(rule: Rule) -> None:
    for name in ("for_", "keep_firing_for", "stale", "allowed_lateness", "idle_timeout", "hop"):
        value = getattr(rule, name)
        if value is not None:
            _duration(rule, value, name.rstrip("_"))
    if rule.hop is not None and microseconds(rule.hop, "`hop`") == 0:
        _refuse(rule, f"`hop` must be longer than 0; got {rule.hop!r}", "hop")
    if isinstance(rule.within, Mapping):
        if rule.hop is not None:
            _refuse(rule, "`hop` needs one `within`, the length of its windows; got bounds per pair", "hop")
        for pair, bounds in rule.within.items():
            _check_pair(rule, pair, bounds)
    elif rule.within is not None:
        _duration(rule, rule.within, "within")
    elif rule.hop is not None:
        _refuse(rule, "`hop` needs `within`, the length of its windows; `within` is not set", "hop")


def _check_pair(rule: Rule, pair: object, bounds: object) -> None:
    path = ("within", pair)
    if not (isinstance(pair, tuple) and len(pair) == 2 and pair[0] != pair[1]):
        _refuse(rule, f"`{written(path)}` must name two different streams", *path)
    if not (isinstance(bounds, tuple | list) and len(bounds) == 2):
        _refuse(rule, f"`{written(path)}` must be (lower, upper); got {bounds!r}", *path)
    lower, upper = (_duration(rule, bound, *path, signed=True) for bound in bounds)
    if lower > upper:
        _refuse(rule, f"`{written(path)}` must have lower <= upper; got {bounds!r}", *path)


def _duration(rule: Rule, value: Duration, *path: object, signed: bool = False) -> int:
    try:
        return microseconds(value, f"`{written(path)}`", signed=signed)
    except RuleError as error:
        _refuse(rule, str(error), *path)


def _check_domains(rule: Rule) -> None:
    for name, domain in rule.domains.items():
        pair = isinstance(domain, tuple | list) and len(domain) == 2
        if not (pair and all(isinstance(end, int | float) for end in domain) and domain[0] < domain[1]):
            sentence = f"`domains[{name!r}]` must be (low, high) with low < high; got {domain!r}"
            _refuse(rule, sentence, "domains", name)


def _check_labels(rule: Rule) -> None:
    for name in rule.on:
        check_label_name(name, rule.location, "on", name)
    for name, value in rule.labels.items():
        check_label(name, value, rule.location)
        if name in rule.on:
            sentence = f"`labels` must not repeat key columns; both have {name!r}"
            _refuse(rule, sentence, "labels", name, "name")


def _check_recovery(rule: Rule) -> None:
    number = isinstance(rule.recovery, int | float) and not isinstance(rule.recovery, bool)
    if rule.recovery is None:
        return
    if not number or not math.isfinite(rule.recovery):
        _refuse(rule, f"`recovery` must be a finite number; got {rule.recovery!r}", "recovery")
    if rule.emit == "all":
        _refuse(rule, "`recovery` needs `emit: witness`, because a match has no end; got `emit: all`", "recovery")


def _check_limits(rule: Rule) -> None:
    for name, table in rule.limits.items():
        if not isinstance(table, Limits):
            _refuse(rule, f"`limits[{name!r}]` must be a table of limits; got {table!r}", "limits", name)
        missing = [key for key in table.on if key not in rule.on]
        if missing:
            sentence = f"`on` must have the key columns of the limits {name!r} ({', '.join(table.on)})"
            _refuse(rule, f"{sentence}; add {missing[0]!r}", "limits", name)


def _check_tolerance(rule: Rule) -> None:
    for name, value in rule.tolerance.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 <= value < math.inf:
            sentence = f"`tolerance[{name!r}]` must be a number of at least 0; got {value!r}"
            _refuse(rule, sentence, "tolerance", name)


def _check_quality(rule: Rule) -> None:
    """Reject a quality block with an error, and options that need `emit: all`."""
    try:
        quality = rule.quality_options
    except FieldError as error:
        _refuse(rule, error.sentence, *error.path)
    if rule.emit == "all":
        return
    if quality.prefer == SAMPLE:
        sentence = "`quality.prefer: sample` needs `emit: all`, because a sample carries no information about a maximum"
        _refuse(rule, f"{sentence}; got `emit: {rule.emit}`", "quality", "prefer")
    if quality.cpu is not None:
        name = "deadline" if quality.cpu.cores is None else "cpu"
        sentence = f"`quality.{name}` needs `emit: all`, because a CPU budget can omit results"
        _refuse(rule, f"{sentence}; got `emit: {rule.emit}`", "quality", name)
