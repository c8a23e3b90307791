"""Quality block: the options of `quality:` in a rule, a rule file or a Python call, parsed into one frozen object.

`parse_quality` accepts Python values and the text of a rule file. It raises a `FieldError` whose path names the option,
such as `("quality", "model", "by")`. The loader reports the error at the position of this option.

The options of a wait are the parameters of Ji et al.: `period` is P, `adapt_every` is L, and `step` is g.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from tocsin.errors import RuleError, value_text
from tocsin.formatting import format_duration
from tocsin.rules.durations import duration_text, microseconds
from tocsin.rules.field_error import FieldError
from tocsin.rules.nearest import nearest
from tocsin.rules.renamed import RENAMED, renamed_hint

# Options of a rule, and options of a rule file, `alerts` and `run_local`.
RULE_KEYS = (
    "recall",
    "period",
    "adapt_every",
    "step",
    "in_order",
    "strategy",
    "wait",
    "order",
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
# How the wait is chosen: from the delays of results, from the recall reached, or by the model of Ji et al. with either
# estimate.
OBSERVED, MEASURED, EQSEL, NONEQSEL = "observed", "measured", "eqsel", "noneqsel"
STRATEGIES = (OBSERVED, MEASURED, EQSEL, NONEQSEL)
# Treatment of results out of order: marked as late, or dropped and counted.
ANY, STRICT = "any", "strict"
ORDER_WORDS = (ANY, STRICT)
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
    order
        Treatment of results out of order: `any` (they are marked as late) or `strict` (they are dropped).
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
    order: str = ANY
    memory: Memory | None = None
    prefer: str = SUBSET
    model: UtilityModel | None = None
    weight: float = 1.0
    cpu: Cpu | None = None


NO_QUALITY = Quality()


def parse_quality(given: object, known: Sequence[str] = RULE_KEYS) -> Quality:
    """Return the options of a quality block. Raise a FieldError for the first error.

    An option with the value None is ignored.

    >>> parse_quality({"memory": "5MB", "weight": 2}).memory
    Memory(amount=5000000, unit='bytes')
    """
    if given is None:
        return NO_QUALITY
    if not isinstance(given, Mapping):
        _reject(f"`quality` must be a mapping such as {EXAMPLE}; got {value_text(given)}")
    for name in given:
        if name not in known:
            _reject(_unknown_key(_plain_text(name), known), name, "name")
    given = {name: value for name, value in given.items() if value is not None}
    _check_recall(given)
    cpu = _parse_cpu(given)
    wait, memory = _parse_wait(given), parse_memory(given["memory"]) if "memory" in given else None
    if cpu is not None:
        _check_cpu(given, wait)
    return Quality(
        wait=wait,
        order=_parse_word(given, "order", ORDER_WORDS, ANY),
        memory=memory,
        prefer=_parse_word(given, "prefer", PREFER_WORDS, SUBSET),
        model=_parse_model(given["model"]) if "model" in given else None,
        weight=_parse_weight(given["weight"]) if "weight" in given else 1.0,
        cpu=cpu,
    )


def remove_option(block: dict[str, Any], path: Sequence[object]) -> None:
    """Remove the option that an error names from a block, so that the other options can be checked.

    The path begins below `quality`. An option that needs a recall gets one: the error can be a wrong or misspelt
    `recall`.
    """
    name = path[0]
    inner = block.get(str(name))
    if len(path) > 1 and isinstance(inner, dict) and path[1] in inner:
        del inner[path[1]]
    else:
        block.pop(str(name), None)
    if "wait" not in block and any(key in block for key in _RECALL_KEYS):
        block.setdefault("recall", 1.0)


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
    found = _SIZE.fullmatch(_plain_text(given).replace(",", "")) if is_size else None
    unit = found[2].lower() if found else ""
    if found is None or not (unit in _UNITS or unit == ROWS) or (unit == ROWS and "." in found[1]):
        _reject(
            f"`quality.memory` must be a size such as 200MB, 64KiB or 10000 rows; got {value_text(given)}", "memory"
        )
    amount = math.floor(float(found[1]) * _UNITS.get(unit, 1))
    if not 1 <= amount <= _MAX_SIZE:
        limits = f"at least 1 and at most {_MAX_SIZE:,} bytes or rows"
        _reject(f"`quality.memory` must be {limits}; got {value_text(given)}", "memory")
    return Memory(amount, ROWS if unit == ROWS else BYTES)


def _reject(sentence: str, *path: object) -> NoReturn:
    raise FieldError(sentence, ("quality", *path)) from None


def _plain_text(value: object) -> str:
    return value if isinstance(value, str) else value_text(value)


def _unknown_key(name: str, known: Sequence[str]) -> str:
    if name in RULE_KEYS:
        return f"`quality.{name}` is an option of a rule; move it to the `quality` of a rule"
    if RENAMED.get(name) in RULE_KEYS and RENAMED[name] not in known:
        return f"`{name}` is not a key of `quality`; use `{RENAMED[name]}` in the `quality` of a rule"
    hint = renamed_hint(name, known) or nearest(name, known) or f"; expected one of {', '.join(known)}"
    return f"`{name[:60]}` is not a key of `quality`{hint}"


def _check_recall(given: Mapping[str, Any]) -> None:
    """Reject options that need another option, or exclude it."""
    needing = [name for name in ("recall", *_RECALL_KEYS) if name in given]
    if "wait" in given and needing:
        message = f"`quality.wait` cannot be combined with `quality.{needing[0]}`: a recall target chooses the wait"
        _reject(f"{message}; got both", "wait")
    if needing and "recall" not in given:
        _reject(f"`quality.{needing[0]}` needs `quality.recall`, such as 0.99; it is missing", "recall")


def _parse_wait(given: Mapping[str, Any]) -> ReorderWait:
    if "recall" in given:
        return _parse_recall_wait(given)
    wait = given.get("wait", NONE)
    if isinstance(wait, str) and wait in WAIT_WORDS:
        return ReorderWait(wait)
    return ReorderWait(FIXED, _parse_duration(wait, "wait", others=WAIT_WORDS))


def _parse_recall_wait(given: Mapping[str, Any]) -> ReorderWait:
    recall = _parse_number(given["recall"])
    if not 0 < recall <= 1:
        sentence = "`quality.recall` must be a number above 0 and at most 1, such as 0.99"
        _reject(f"{sentence}; got {value_text(given['recall'])}", "recall")
    period_us = _positive(given, "period", PERIOD_US)
    every_us = _positive(given, "adapt_every", max(ADAPT_EVERY_US, -(-period_us // MAX_INTERVALS)))
    step_us = _positive(given, "step", STEP_US)
    _check_lengths(given, period_us, every_us, step_us)
    strategy = _parse_word(given, "strategy", STRATEGIES, OBSERVED)
    in_order = _parse_boolean(given.get("in_order", False))
    return ReorderWait(RECALL, 0, recall, period_us, every_us, step_us, in_order, strategy)


def _check_lengths(given: Mapping[str, Any], period_us: int, every_us: int, step_us: int) -> None:
    """Reject intervals that would need too much state, and steps that could overflow times."""
    period, every = (
        f"`quality.period` ({duration_text(period_us)})",
        f"`quality.adapt_every` ({duration_text(every_us)})",
    )
    # One of the two options is in the block, because the defaults are valid together.
    longer = "adapt_every" if "adapt_every" in given else "period"
    if every_us > period_us:
        _reject(f"{every} must not be longer than {period}", longer)
    if period_us > MAX_INTERVALS * every_us:
        _reject(f"{period} must not be longer than {MAX_INTERVALS:,} times {every}", longer)
    if step_us > MAX_STEP_US:
        longest = duration_text(MAX_STEP_US)
        _reject(f"`quality.step` must not be longer than {longest}; got {duration_text(step_us)}", "step")


def _parse_cpu(given: Mapping[str, Any]) -> Cpu | None:
    if "cpu" not in given and "deadline" not in given:
        return None
    cores = _parse_cores(given["cpu"]) if "cpu" in given else None
    return Cpu(cores, _positive(given, "deadline", 0) or None)


def _parse_cores(given: object) -> float:
    found = _CORES.fullmatch(given) if isinstance(given, str) else None
    if found is None:
        sentence = "`quality.cpu` must be a share of a core such as 50%, or a number of cores such as 2 cores"
        _reject(f"{sentence}; got {value_text(given)}", "cpu")
    cores = float(found[1]) / (100 if found[2] == "%" else 1)
    if not 0 < cores <= _MAX_CORES:
        _reject(f"`quality.cpu` must be above 0 and at most {_MAX_CORES:,.0f} cores; got {value_text(given)}", "cpu")
    return cores


def _check_cpu(given: Mapping[str, Any], wait: ReorderWait) -> None:
    """Reject a CPU budget together with a memory budget or a wait."""
    name = "cpu" if "cpu" in given else "deadline"
    others = ["memory"] if "memory" in given else []
    others += ["recall" if wait.kind == RECALL else "wait"] if wait.kind != NONE else []
    others += ["order"] if given.get("order") == STRICT else []
    for other in others:
        sentence = f"`quality.{name}` cannot be combined with `quality.{other}`"
        _reject(f"{sentence}; got {value_text(given[name])} and {value_text(given[other])}", name)


def _parse_model(given: object) -> UtilityModel:
    if not isinstance(given, Mapping):
        _reject(f"`quality.model` must be a mapping such as {{by: key}}; got {value_text(given)}", "model")
    for name in given:
        if name not in _MODEL_KEYS:
            key = _plain_text(name)
            hint = nearest(key, _MODEL_KEYS) or f"; expected one of {', '.join(_MODEL_KEYS)}"
            _reject(f"`{key[:60]}` is not a key of `quality.model`{hint}", "model", name, "name")
    by = _parse_word(given, "by", MODEL_WORDS, AUTO, "model")
    return UtilityModel(by, _positive(given, "granularity", 0, "model"))


def _parse_weight(given: object) -> float:
    weight = _parse_number(given)
    if not _MIN_WEIGHT <= weight <= _MAX_WEIGHT:
        limits = f"at least {_MIN_WEIGHT:f} and at most {_MAX_WEIGHT:,}"
        _reject(f"`quality.weight` must be a number of {limits}; got {value_text(given)}", "weight")
    return weight


def _parse_word(given: Mapping[str, Any], name: str, words: Sequence[str], default: str, *within: str) -> str:
    value = given.get(name, default)
    if not isinstance(value, str) or value not in words:
        field = ".".join(("quality", *within, name))
        sentence = f"`{field}` must be one of {', '.join(words)}; got {value_text(value)}"
        _reject(sentence + nearest(_plain_text(value).lower(), words), *within, name)
    return value


def _parse_number(given: object) -> float:
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


def _parse_boolean(given: object) -> bool:
    words = {"true": True, "false": False}
    if isinstance(given, bool):
        return given
    if isinstance(given, str) and given in words:
        return words[given]
    _reject(f"`quality.in_order` must be true or false; got {value_text(given)}", "in_order")


def _positive(given: Mapping[str, Any], name: str, default: int, *within: str) -> int:
    """Return a duration above 0 in microseconds."""
    if name not in given:
        return default
    value = _parse_duration(given[name], *within, name)
    if not value:
        field = ".".join(("quality", *within, name))
        _reject(f"`{field}` must be longer than 0; got {value_text(given[name])}", *within, name)
    return value


def _parse_duration(given: Any, *path: str, others: Sequence[str] = ()) -> int:
    try:
        return microseconds(given, f"`{'.'.join(('quality', *path))}`", others=others)
    except RuleError as error:
        _reject(str(error), *path)
