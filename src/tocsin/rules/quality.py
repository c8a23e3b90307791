"""Quality block: the options of `quality:` in a rule, a rule file or a Python call, parsed into one frozen object.

`parse_quality` accepts Python values and the text of a rule file. The path of a diagnostic names the option, such as
`("quality", "model", "by")`.

The options of a wait are the parameters of Ji et al.: `period` is P, `adapt_every` is L, and `step` is g.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tocsin.errors import NAME, Diagnostic, Diagnostics, RuleError, value_text
from tocsin.formatting import format_duration
from tocsin.rules.durations import duration_text, microseconds
from tocsin.rules.suggestions import RENAMED, nearest, nearest_or_all

# Options of a rule, and options of a rule file, `alerts` and `run_local`.
RULE_KEYS = (
    "recall",
    "period",
    "adapt_every",
    "step",
    "in_order",
    "strategy",
    "wait",
    "memory",
    "prefer",
    "model",
    "weight",
    "cpu",
    "deadline",
)
RUN_KEYS = ("memory", "cpu", "deadline")
EXAMPLE = "{memory: 200MB}"

# Kinds of `ReorderWait`. The first two and `max` are values of `quality.wait`.
NONE, FIXED, MAX, RECALL = "none", "fixed", "max", "recall"
WAIT_WORDS = (NONE, MAX)
# Options that configure how the wait follows `quality.recall`.
_RECALL_KEYS = ("period", "adapt_every", "step", "in_order", "strategy")
# Defaults of the paper. `adapt_every` is longer if `period` would contain too many intervals.
PERIOD_US, ADAPT_EVERY_US, STEP_US = 60_000_000, 1_000_000, 10_000
# How the wait is chosen: by the delays of rows with results, or by the model of Ji et al. with either estimate.
OBSERVED, EQSEL, NONEQSEL = "observed", "eqsel", "noneqsel"
STRATEGIES = (OBSERVED, EQSEL, NONEQSEL)
# Maximum wait for a recall, in steps.
MAX_STEPS = 8192
# 8192 of the longest steps are 224 years: sums with event times fit into 64 bits.
MAX_STEP_US = 864_000_000_000
# Each bucket keeps 16 bytes per interval of a period: at most 58 kB.
MAX_INTERVALS = 3_600

BYTES, ROWS = "bytes", "rows"
_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_SIZE = re.compile(r"([0-9]{1,16}(?:\.[0-9]{1,9})?) ?([a-zA-Z]*)", re.ASCII)
# More than a machine has. Sums of a few sizes fit into 64 bits.
_MAX_SIZE = 10**15

SUBSET, SAMPLE = "subset", "sample"
PREFER_WORDS = (SUBSET, SAMPLE)

# `by: none` ranks rows by arrival.
AUTO, KEY, AGE = "auto", "key", "age"
MODEL_WORDS = (AUTO, KEY, AGE, NONE)
_MODEL_KEYS = ("by", "granularity")

# Weights outside this range would make shares of memory meaningless.
_MIN_WEIGHT, _MAX_WEIGHT = 0.000001, 1_000_000

_CORES = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?(%|cores?)", re.ASCII)
# More than a cluster has.
_MAX_CORES = 100_000.0


@dataclass(frozen=True)
class ReorderWait:
    """Delay of rows before they are processed in event-time order.

    Attributes
    ----------
    kind
        `none`, `fixed` (`wait_us`), `max` (the largest delay so far) or `recall` (the shortest wait for `recall`).
    wait_us
        Fixed wait.
    recall
        Target share of the results that are found in order.
    period_us
        Length of event time for the measurement of the recall.
    adapt_every_us
        Event time between two changes of the wait.
    step_us
        Granularity of the wait.
    in_order
        Whether results out of order count as lost even if every alarm is raised without a wait.
    strategy
        How the wait is chosen for a recall.
    """

    kind: str = NONE
    wait_us: int = 0
    recall: float = 1.0
    period_us: int = PERIOD_US
    adapt_every_us: int = ADAPT_EVERY_US
    step_us: int = STEP_US
    in_order: bool = False
    strategy: str = OBSERVED

    def __str__(self) -> str:
        """Return the wait as `tocsin explain` shows it."""
        if self.kind == FIXED:
            return duration_text(self.wait_us)
        if self.kind == MAX:
            return "as long as the largest delay so far, at most `allowed_lateness`"
        if self.kind == RECALL:
            longest, period = format_duration(MAX_STEPS * self.step_us), duration_text(self.period_us)
            return f"as long as a recall of {self.recall:g} over {period} needs, at most {longest}"
        return "0s"


NO_WAIT = ReorderWait()


@dataclass(frozen=True)
class Memory:
    """Size of state.

    Attributes
    ----------
    amount
        Number of bytes or rows.
    unit
        `bytes` or `rows`.
    """

    amount: int
    unit: str = BYTES

    def __str__(self) -> str:
        """Return the size as a rule file states it."""
        return f"{self.amount:,} rows" if self.unit == ROWS else size_text(self.amount)


@dataclass(frozen=True)
class UtilityModel:
    """Model that ranks rows if the memory budget is exceeded.

    Attributes
    ----------
    by
        `auto` (the model that fits the data), `key`, `age`, or `none` (the newest rows stay).
    granularity_us
        Length of an age class. 0 means a twentieth of the window.
    """

    by: str = AUTO
    granularity_us: int = 0

    def __str__(self) -> str:
        """Return the settings that differ from the defaults."""
        ranking = {AUTO: "", KEY: "rows are ranked by key", AGE: "rows are ranked by age", NONE: "rows are not ranked"}
        classes = f"age classes of {duration_text(self.granularity_us)}" if self.granularity_us else ""
        settings = ", ".join(text for text in (ranking[self.by], classes) if text)
        return f"{settings} (`quality.model`)" if settings else ""


@dataclass(frozen=True)
class Cpu:
    """CPU budget.

    Attributes
    ----------
    cores
        Number of cores. None means one core.
    deadline_us
        Event time after a row within which the row can be processed.
    """

    cores: float | None = None
    deadline_us: int | None = None

    def __str__(self) -> str:
        """Return the budget as `tocsin explain` shows it."""
        parts = [] if self.cores is None else [f"{100 * self.cores:g}% of a core"]
        parts += [] if self.deadline_us is None else [f"deadline {duration_text(self.deadline_us)}"]
        return ", ".join(parts)


@dataclass(frozen=True)
class Quality:
    """Parsed quality block of a rule or a run.

    Attributes
    ----------
    wait
        Delay of rows (`wait`, `recall`, `period`, `adapt_every`, `step`, `in_order`, `strategy`).
    memory
        Memory budget. The joins of a run share its budget.
    prefer
        Results that are kept if the memory budget is exceeded: `subset` or `sample`.
    model
        Model that ranks rows if the memory budget is exceeded.
    weight
        Share of the recall among joins with a common memory budget.
    cpu
        CPU budget (`cpu`, `deadline`). The joins of a run share its budget.
    """

    wait: ReorderWait = NO_WAIT
    memory: Memory | None = None
    prefer: str = SUBSET
    model: UtilityModel | None = None
    weight: float = 1.0
    cpu: Cpu | None = None


NO_QUALITY = Quality()


def parse_quality(given: object, known: Sequence[str] = RULE_KEYS) -> Quality:
    """Return the options of a quality block. Raise a RuleError with all its errors.

    An option with the value None is ignored.

    >>> parse_quality({"memory": "5MB", "weight": 2}).memory
    Memory(amount=5000000, unit='bytes')
    """
    diagnostics = Diagnostics()
    quality = read_quality(given, diagnostics, known)
    if diagnostics:
        raise RuleError(*diagnostics)
    return quality


def read_quality(given: object, diagnostics: Diagnostics, known: Sequence[str] = RULE_KEYS) -> Quality:
    """Return the options of a quality block, with the default of each option that has an error."""
    if given is None:
        return NO_QUALITY
    if not isinstance(given, Mapping):
        message = f"`quality` must be a mapping such as {EXAMPLE}"
        diagnostics.add("wrong-type", ["quality"], message, value_text(given))
        return NO_QUALITY
    return _Block({name: value for name, value in given.items() if value is not None}, diagnostics).read(known)


class _Block:
    """Options of a quality block, and the collector of its errors."""

    def __init__(self, given: Mapping[Any, Any], diagnostics: Diagnostics) -> None:
        self._given, self._diagnostics = given, diagnostics

    def read(self, known: Sequence[str]) -> Quality:
        """Return all options; report unknown ones."""
        unknown = [name for name in self._given if name not in known]
        for name in unknown:
            self._report_unknown(name, known)
        self._given = {name: value for name, value in self._given.items() if name in known}
        wait = self._read_wait(may_miss_recall=bool(unknown))
        quality = Quality(
            wait=wait,
            memory=self._read_memory(),
            prefer=self._word(("prefer",), PREFER_WORDS, SUBSET),
            model=self._read_model(),
            weight=self._read_weight(),
            cpu=self._read_cpu(),
        )
        if quality.cpu is not None and (quality.cpu.cores is None) == ("cpu" not in self._given):
            self._check_cpu(quality)
        return quality

    def _add(self, code: str, path: Sequence[object], message: str, value: object, hint: str = "") -> None:
        self._diagnostics.add(code, ("quality", *path), message, value_text(value), hint)

    def _report_unknown(self, name: object, known: Sequence[str]) -> None:
        text, path = _plain_text(name), ("quality", name, NAME)
        if name in RULE_KEYS:
            message = f"`quality.{name}` is an option of a rule; move it to the `quality` of a rule"
            self._diagnostics.add("unknown-key", path, message)
            return
        hint = nearest_or_all(text, known)
        if RENAMED.get(text) in RULE_KEYS and RENAMED[text] not in known:
            hint = f"use `{RENAMED[text]}` in the `quality` of a rule"
        self._diagnostics.add("unknown-key", path, f"`{text[:60]}` is not a key of `quality`", hint=hint)

    def _read_wait(self, *, may_miss_recall: bool) -> ReorderWait:
        needing = [name for name in ("recall", *_RECALL_KEYS) if name in self._given]
        if "wait" in self._given and needing:
            message = f"`quality.wait` cannot be combined with `quality.{needing[0]}`: a recall target chooses the wait"
            self._diagnostics.add("not-combinable", ["quality", "wait"], message, "both")
        elif needing and "recall" not in self._given and not may_miss_recall:
            message = f"`quality.{needing[0]}` needs `quality.recall`, such as 0.99; it is missing"
            self._diagnostics.add("needs-option", ["quality", "recall"], message)
        if needing:
            return self._read_recall()
        wait = self._given.get("wait", NONE)
        if isinstance(wait, str) and wait in WAIT_WORDS:
            return ReorderWait(wait)
        fixed_us = self._duration(("wait",), others=WAIT_WORDS)
        return NO_WAIT if fixed_us is None else ReorderWait(FIXED, fixed_us)

    def _read_recall(self) -> ReorderWait:
        recall = _number(self._given.get("recall", 1.0))
        if not 0 < recall <= 1:
            message = "`quality.recall` must be a number above 0 and at most 1, such as 0.99"
            self._add("out-of-range", ["recall"], message, self._given["recall"])
            recall = 1.0
        period_us = self._positive(("period",), PERIOD_US)
        every_us = step_us = None
        if period_us is not None:
            every_us = self._positive(("adapt_every",), max(ADAPT_EVERY_US, -(-period_us // MAX_INTERVALS)))
            if every_us is not None:
                self._check_lengths(period_us, every_us)
        else:
            self._positive(("adapt_every",), ADAPT_EVERY_US)
        step_us = self._positive(("step",), STEP_US)
        if step_us is not None and step_us > MAX_STEP_US:
            message = f"`quality.step` must not be longer than {duration_text(MAX_STEP_US)}"
            self._diagnostics.add("out-of-range", ["quality", "step"], message, duration_text(step_us))
            step_us = None
        return ReorderWait(
            RECALL,
            0,
            recall,
            period_us or PERIOD_US,
            every_us or ADAPT_EVERY_US,
            step_us or STEP_US,
            self._boolean("in_order"),
            self._word(("strategy",), STRATEGIES, OBSERVED),
        )

    def _check_lengths(self, period_us: int, every_us: int) -> None:
        """Reject intervals that would need too much state."""
        period = f"`quality.period` ({duration_text(period_us)})"
        every = f"`quality.adapt_every` ({duration_text(every_us)})"
        # One of the two options is in the block, because the defaults are valid together.
        longer = "adapt_every" if "adapt_every" in self._given else "period"
        if every_us > period_us:
            message = f"{every} must not be longer than {period}"
            self._diagnostics.add("out-of-range", ["quality", longer], message)
        if period_us > MAX_INTERVALS * every_us:
            message = f"{period} must not be longer than {MAX_INTERVALS:,} times {every}"
            self._diagnostics.add("out-of-range", ["quality", longer], message)

    def _read_memory(self) -> Memory | None:
        if "memory" not in self._given:
            return None
        with self._diagnostics.at():
            return parse_memory(self._given["memory"])
        return None

    def _read_cpu(self) -> Cpu | None:
        if "cpu" not in self._given and "deadline" not in self._given:
            return None
        cores = None
        if "cpu" in self._given:
            cores = self._read_cores(self._given["cpu"])
        return Cpu(cores, self._positive(("deadline",), 0) or None)

    def _read_cores(self, given: object) -> float | None:
        found = _CORES.fullmatch(given) if isinstance(given, str) else None
        if found is None:
            message = "`quality.cpu` must be a share of a core such as 50%, or a number of cores such as 2 cores"
            self._add("invalid-cpu", ["cpu"], message, given, _cpu_hint(given))
            return None
        cores = float(found[1]) / (100 if found[2] == "%" else 1)
        if not 0 < cores <= _MAX_CORES:
            self._add(
                "out-of-range", ["cpu"], f"`quality.cpu` must be above 0 and at most {_MAX_CORES:,.0f} cores", given
            )
            return None
        return cores

    def _check_cpu(self, quality: Quality) -> None:
        """Reject a CPU budget together with a memory budget or a wait."""
        name = "cpu" if "cpu" in self._given else "deadline"
        others = ["memory"] if quality.memory is not None else []
        others += ["recall" if quality.wait.kind == RECALL else "wait"] if quality.wait.kind != NONE else []
        for other in others:
            message = f"`quality.{name}` cannot be combined with `quality.{other}`"
            found = f"{value_text(self._given[name])} and {value_text(self._given.get(other))}"
            self._diagnostics.add("not-combinable", ["quality", name], message, found)

    def _read_model(self) -> UtilityModel | None:
        if "model" not in self._given:
            return None
        given = self._given["model"]
        if not isinstance(given, Mapping):
            self._add("wrong-type", ["model"], "`quality.model` must be a mapping such as {by: key}", given)
            return None
        for name in given:
            if name not in _MODEL_KEYS:
                key = _plain_text(name)
                path, message = ("quality", "model", name, NAME), f"`{key[:60]}` is not a key of `quality.model`"
                self._diagnostics.add("unknown-key", path, message, hint=nearest_or_all(key, _MODEL_KEYS))
        return UtilityModel(
            self._word(("model", "by"), MODEL_WORDS, AUTO), self._positive(("model", "granularity"), 0) or 0
        )

    def _read_weight(self) -> float:
        if "weight" not in self._given:
            return 1.0
        weight = _number(self._given["weight"])
        if _MIN_WEIGHT <= weight <= _MAX_WEIGHT:
            return weight
        limits = f"at least {_MIN_WEIGHT:f} and at most {_MAX_WEIGHT:,}"
        self._add("out-of-range", ["weight"], f"`quality.weight` must be a number of {limits}", self._given["weight"])
        return 1.0

    def _value(self, path: Sequence[str]) -> Any:
        value: Any = self._given
        for name in path:
            value = value.get(name)
        return value

    def _word(self, path: Sequence[str], words: Sequence[str], default: str) -> str:
        value = self._value(path)
        if value is None:
            return default
        if isinstance(value, str) and value in words:
            return value
        message = f"`{'.'.join(('quality', *path))}` must be one of {', '.join(words)}"
        self._add("unknown-word", path, message, value, nearest(_plain_text(value).lower(), words))
        return default

    def _boolean(self, name: str) -> bool:
        value = self._given.get(name, False)
        if isinstance(value, bool):
            return value
        if value not in ("true", "false"):
            self._add("unknown-word", [name], f"`quality.{name}` must be true or false", value)
        return bool(value == "true")

    def _positive(self, path: Sequence[str], default: int) -> int | None:
        """Return a duration above 0 in microseconds, or None if it has an error."""
        value = self._value(path)
        if value is None:
            return default
        length_us = self._duration(path)
        if length_us == 0:
            self._add("out-of-range", path, f"`{'.'.join(('quality', *path))}` must be longer than 0", value)
        return length_us or None

    def _duration(self, path: Sequence[str], others: Sequence[str] = ()) -> int | None:
        with self._diagnostics.at("quality", *path):
            return microseconds(self._value(path), f"`{'.'.join(('quality', *path))}`", others=others)
        return None


def size_text(size: float) -> str:
    """Return a number of bytes with a unit.

    >>> size_text(12_500_000), size_text(999)
    ('12.5MB', '999B')
    """
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "KB")):
        if size >= unit:
            return f"{size / unit:.4g}{name}"
    return f"{size:.0f}B"


def parse_memory(given: object) -> Memory:
    """Parse a size: an integer number of bytes, `200MB`, `1.5GiB`, or `10000 rows`.

    >>> parse_memory("64KiB"), parse_memory("500 rows")
    (Memory(amount=65536, unit='bytes'), Memory(amount=500, unit='rows'))
    """
    is_size = isinstance(given, str | int) and not isinstance(given, bool)
    text = _plain_text(given).replace(",", "")
    found = _SIZE.fullmatch(text) if is_size else None
    unit = found[2].lower() if found else ""
    if found is None or not (unit in _UNITS or unit == ROWS) or (unit == ROWS and "." in found[1]):
        message = "`quality.memory` must be a size such as 200MB, 64KiB or 10000 rows"
        hint = f"did you mean `{found[1]}{unit.upper()}B`?" if found and f"{unit}b" in _UNITS else ""
        raise RuleError(Diagnostic("invalid-size", ("quality", "memory"), message, value_text(given), hint))
    amount = math.floor(float(found[1]) * _UNITS.get(unit, 1))
    if not 1 <= amount <= _MAX_SIZE:
        message = f"`quality.memory` must be at least 1 and at most {_MAX_SIZE:,} bytes or rows"
        raise RuleError(Diagnostic("out-of-range", ("quality", "memory"), message, value_text(given)))
    return Memory(amount, ROWS if unit == ROWS else BYTES)


def _plain_text(value: object) -> str:
    return value if isinstance(value, str) else value_text(value)


def _cpu_hint(given: object) -> str:
    """Return a hint for a number without a unit, which is a share or a number of cores."""
    number = _number(given)
    if not 0 < number <= _MAX_CORES:
        return ""
    return f"did you mean `{100 * number:g}%` or `{number:g} core{'s' * (number != 1)}`?"


def _number(given: object) -> float:
    """Return a number, or NaN if it cannot be read. In a rule file, a number is text."""
    if isinstance(given, str):
        try:
            return float(given)
        except ValueError:
            return math.nan
    if isinstance(given, bool) or not isinstance(given, int | float):
        return math.nan
    try:
        return float(given)
    except OverflowError:
        return math.inf
