"""A rule as the user states it: a condition over streams, who joins whom, and how an alert lives.

What one rule says about itself is checked here; what it says about streams and columns is checked when it is planned.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from tocsin.errors import RuleError
from tocsin.rules.cpu import Cpu, read_cpu
from tocsin.rules.durations import Duration, microseconds
from tocsin.rules.field_error import FieldError, written
from tocsin.rules.labels import check_annotations, check_label, check_label_name
from tocsin.rules.limits import Limits
from tocsin.rules.memory import PARTS, PREFERS, SAMPLE, SUBSET, read_memory, read_model
from tocsin.rules.waiting import NONE, Waiting, read_waiting, unknown_parts

SHAPES = ("increasing", "decreasing", "quasiconvex")
WHOLE = "whole"
CLOSED = ("both", "neither", "left", "right")
EMITS = ("witness", "all")

Bounds = Mapping[tuple[str, str], tuple[Duration, Duration]]

# Beyond these, what memory is divided by has no meaning any more.
_LEAST_WEIGHT, _MOST_WEIGHT = 0.000001, 1_000_000


@dataclass(frozen=True)
class Rule:
    """Raise `alert` while `expr` holds for rows of several streams that belong together.

    A duration is text such as `10s` or `1h30m`, a `datetime.timedelta`, or 0. Other numbers are rejected.

    Parameters
    ----------
    alert
        Name of the alert.
    expr
        The condition, such as `ln(humidity/100) + 18.678*air/(257.14+air) - surface > 0`.
    within
        Largest distance in event time between any two rows of a combination, or bounds per pair:
        `{("r", "s"): ("-5s", "10s")}` means -5 s <= t_s - t_r <= 10 s. Of a rule of one stream it is the interval: with
        a shape and without `for`, `expr` is called only on rows that some window of this length cannot do without.
    on
        Key columns that must be equal.
    shapes
        What `expr` does as one variable grows while the others stand: `increasing`, `decreasing` or `quasiconvex`
        (falls, then rises), where that cannot be proved; it is believed unless it is refuted. `whole`, or None: nothing
        is left out of that stream.
    domains
        (low, high) of a variable, on which its shape holds; a value outside is kept and counted, and excuses no other
        row.
    for_, keep_firing_for, stale
        The life of an alert as in Prometheus, in event time; `stale` is the silence that ends it (default: the span of
        the rule; of one stream `within`, and twice that where rows are left out before `expr` is called).
    outage
        How far a row may lie behind the newest of its key and still find every partner: 1 h, unless it is said; with
        `cpu`, `deadline` or `prefer` sample the span of the rule; with `cpu` or `deadline` of one stream the deadline.
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
    annotations
        Texts for people, with templates such as `{{ $labels.machine }}: {{ $value | printf "%.1f" }}`.
    recovery
        A threshold apart from the firing one: the alert is resolved only when the left side of `expr`, a single
        comparison with a number or a limit, is past this too.
    tolerance
        Per variable, how far apart two values may be and still stand for each other: fewer rows are remembered, and an
        alarm whose margin is smaller than what that costs, which `explain` shows, may be missed.
    limits
        Tables of numbers that differ per key, by the name that `expr` reads them by. A key that a table does not have
        has no limit: what needs it is undefined, and so never true.
    wait
        How long rows wait so that they are taken in order: a duration, `max` (the largest delay so far) or `none`.
    quality
        `{"recall": 0.99, "over": "1m"}`: rows wait as long as that needs, and no longer; with `"in_order": True`
        for results in order even where none is lost out of order.
    memory
        How much state its join may keep, over all buckets: `200MB`, or `10000 rows`; never more. What does not fit is
        shed by a model of the streams. Without it, the rule shares what the run may keep, if that is limited.
    model
        By what rows are judged when memory is short, where that is not to be found out: `{"by": "key"}`, `age` or
        `none` (the newest rows stay; of a sample, all rows have the same chance); `{"granularity": "10s"}` says how
        finely ages are told apart.
    prefer
        What to keep when memory is short: `subset`, the rows that give most results, or `sample`, a random sample of
        all results, each with its chance (with `emit` all, of two streams).
    cpu
        How much processor time it may use, over all buckets: `50%` of one core, or `2 cores` (with `emit` all, of one
        or two streams). When that is short, rows, or pairs of them, that promise most results are looked at first.
    deadline
        How long after a row, in time of the streams, it, or its pairs, may still be looked at; what is left then is
        counted as unprocessed. Of one stream a minute, unless it is said.
    weight
        Of joins that share memory, one with the weight 2 is to find twice the share of its results that one with the
        weight 1 finds, where not all can be found.
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
    outage: Duration | None = None
    idle: Duration | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    emit: str = "witness"
    closed: str = "both"
    hop: Duration | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    recovery: float | None = None
    limits: Mapping[str, Limits] = field(default_factory=dict)
    tolerance: Mapping[str, float] = field(default_factory=dict)
    wait: Duration | None = None
    quality: Mapping[str, Any] | None = None
    memory: str | int | None = None
    prefer: str = SUBSET
    weight: float = 1.0
    model: Mapping[str, Any] | None = None
    cpu: str | None = None
    deadline: Duration | None = None

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
        object.__setattr__(self, "shapes", {name: None if s == WHOLE else s for name, s in self.shapes.items()})
        _check_labels(self)
        check_annotations(self.annotations, [*self.on, *self.labels], self.place)
        for check in (_check_recovery, _check_limits, _check_tolerance):
            check(self)
        _check_waiting(self)
        _check_memory(self)
        _check_cpu(self)

    @property
    def place(self) -> str:
        """How messages name this rule."""
        return f'rule "{self.alert}"'

    @property
    def waiting(self) -> Waiting:
        """How long rows are to wait."""
        return read_waiting(self.wait, self.quality)

    @property
    def spending(self) -> Cpu | None:
        """How much processor time its join may use, if it says so."""
        return read_cpu(self.cpu, self.deadline)


def _refuse(rule: Rule, sentence: str, *path: object) -> NoReturn:
    raise FieldError(sentence, path, place=rule.place) from None


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
        (("prefer",), rule.prefer, PREFERS),
    ]
    shapes = [(name, shape) for name, shape in rule.shapes.items() if shape is not None]
    words += [(("shapes", name), shape, (*SHAPES, WHOLE)) for name, shape in shapes]
    for path, word, known in words:
        if word not in known:
            _refuse(rule, f"`{written(path)}` must be one of {', '.join(known)}; got {word!r}", *path)


def _check_durations(rule: Rule) -> None:
    for name in ("for_", "keep_firing_for", "stale", "outage", "idle", "hop", "deadline"):
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
        _refuse(rule, "`hop` needs `within`, the length of its windows; got none", "hop")


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
        check_label_name(name, rule.place, "on", name)
    for name, value in rule.labels.items():
        check_label(name, value, rule.place)
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
        _refuse(rule, "`recovery` needs alerts that live on; got `emit` all, which has none", "recovery")


def _check_limits(rule: Rule) -> None:
    for name, table in rule.limits.items():
        if not isinstance(table, Limits):
            _refuse(rule, f"`limits[{name!r}]` must be a table of limits; got {table!r}", "limits", name)
        missing = [key for key in table.on if key not in rule.on]
        if missing:
            sentence = f"`on` must have the key columns of the limits {name!r} ({', '.join(table.on)})"
            _refuse(rule, f"{sentence}; {missing[0]!r} is not in it", "limits", name)


def _check_tolerance(rule: Rule) -> None:
    for name, value in rule.tolerance.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 <= value < math.inf:
            sentence = f"`tolerance[{name!r}]` must be a number, not negative; got {value!r}"
            _refuse(rule, sentence, "tolerance", name)


def _check_waiting(rule: Rule) -> None:
    if rule.quality is not None and not isinstance(rule.quality, Mapping):
        _refuse(
            rule, f"`quality` must be a mapping such as {{recall: 0.99, over: 1m}}; got {rule.quality!r}", "quality"
        )
    for part, sentence in unknown_parts(rule.quality or {}).items():
        _refuse(rule, sentence, "quality", part, "name")
    try:
        read_waiting(rule.wait, rule.quality)
    except RuleError as error:
        name, _, part = str(error).split("`")[1].partition(".")
        _refuse(rule, str(error), name, *([part] if part in (rule.quality or {}) else []))


def _check_memory(rule: Rule) -> None:
    number = isinstance(rule.weight, int | float) and not isinstance(rule.weight, bool)
    if not number or not _LEAST_WEIGHT <= rule.weight <= _MOST_WEIGHT:
        ends = f"at least {_LEAST_WEIGHT:f} and at most {_MOST_WEIGHT:,}"
        message = f"`weight` must be a number of {ends}; got {rule.weight!r:.40}"
        _refuse(rule, message, "weight")
    if rule.prefer == SAMPLE and rule.emit != "all":
        _refuse(rule, f"`prefer` sample needs `emit` all: a sample is of every result; got {rule.emit!r}", "prefer")
    if rule.memory is not None:
        try:
            read_memory(rule.memory)
        except RuleError as error:
            _refuse(rule, str(error), "memory")
    try:
        read_model(rule.model)
    except RuleError as error:
        part = str(error).split("`")[1].partition(".")[2]
        inner = [part] if isinstance(rule.model, Mapping) and part in rule.model else []
        _refuse(rule, str(error), "model", *inner, *(["name"] if inner and part not in PARTS else []))


def _check_cpu(rule: Rule) -> None:
    names = [name for name in ("cpu", "deadline") if getattr(rule, name) is not None]
    if not names:
        return
    try:
        read_cpu(rule.cpu, rule.deadline)
    except RuleError as error:
        _refuse(rule, str(error), str(error).split("`")[1])
    if rule.emit != "all":
        _refuse(rule, f"`{names[0]}` needs `emit` all: a part of all results is found; got {rule.emit!r}", names[0])
    if rule.memory is not None:
        _refuse(rule, f"`{names[0]}` must not stand beside `memory`; got {rule.memory!r}", names[0])
    if rule.waiting.kind != NONE:
        sentence = f"`{names[0]}` must not stand beside a wait: rows are joined as they come; got {rule.waiting}"
        _refuse(rule, sentence, names[0])
