"""Waiting as a rule states it: how long rows wait so that they are taken in order, or the recall that asks for it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tocsin.errors import RuleError
from tocsin.rules.durations import Duration, duration_text, microseconds
from tocsin.rules.nearest import nearest

NONE, FIXED, MAX, RECALL = "none", "fixed", "max", "recall"
WORDS = (NONE, MAX)
# The defaults of the paper: P, L, and g. L is longer where P has too many of them.
OVER_US, EVERY_US, GRAIN_US = 60_000_000, 1_000_000, 10_000
# What `quality` may say.
PARTS = ("recall", "over", "every", "grain", "in_order", "strategy")
# How the wait is found: by the delays of rows that gave results, or by the model of Ji et al. with either estimate.
OBSERVED = "Observed"
STRATEGIES = (OBSERVED, "EqSel", "NonEqSel")
# For a recall, rows wait at most so many grains.
GRAINS = 8192
# So many grains are 224 years: sums with times stay far from the ends of int64.
GRAIN_MOST_US = 864_000_000_000
# The last results are kept by `every`, for as long as `over`, in each bucket: 16 bytes each, so 58 kB.
EVERIES = 3_600


@dataclass(frozen=True)
class Waiting:
    """How long rows wait: not at all, for `wait_us`, for the largest delay so far, or as long as `recall` needs.

    The recall is measured over `over_us` of event time and chosen anew every `every_us`, in steps of `grain_us`.
    `in_order`: only what comes in order counts for it, whether or not that is needed to raise every alarm.
    """

    kind: str = NONE
    wait_us: int = 0
    recall: float = 1.0
    over_us: int = OVER_US
    every_us: int = EVERY_US
    grain_us: int = GRAIN_US
    in_order: bool = False
    strategy: str = OBSERVED

    def __str__(self) -> str:
        """Say it in words."""
        if self.kind == FIXED:
            return duration_text(self.wait_us)
        if self.kind == MAX:
            return "as long as the largest delay so far, at most `outage`"
        if self.kind == RECALL:
            most = duration_text(GRAINS * self.grain_us)
            return f"as long as a recall of {self.recall:g} over {duration_text(self.over_us)} needs, at most {most}"
        return "not at all"


def unknown_parts(quality: Mapping[str, Any]) -> dict[str, str]:
    """What `quality` has and may not have, each with the sentence that says so."""
    unknown = [str(name) for name in quality if name not in PARTS]
    hints = {name: nearest(name, PARTS) or f"; known are {', '.join(PARTS)}" for name in unknown}
    return {name: f"`{name[:60]}` is not a key of `quality`{hint}" for name, hint in hints.items()}


def read_waiting(wait: Duration | None, quality: Mapping[str, Any] | None) -> Waiting:
    """Read what a rule says; a mistake is a RuleError that begins with the name of its field."""
    if wait is not None and quality is not None:
        message = "`wait` must not stand beside `quality`: the one is chosen by the other; got both"
        raise RuleError(message)
    if quality is not None:
        return _quality(quality)
    word = wait if isinstance(wait, str) else ""
    if wait is None or word == NONE:
        return Waiting()
    if word == MAX:
        return Waiting(MAX)
    return Waiting(FIXED, _duration(wait, "wait", f", or one of {', '.join(WORDS)}"))


def _duration(value: Duration, name: str, more: str = "") -> int:
    try:
        return microseconds(value, f"`{name}`")
    except RuleError as error:
        said, _, got = str(error).partition(";")
        if not more or "a duration" not in said:
            raise
        message = f"{said}{more};{got}"
        raise RuleError(message) from None


def _quality(given: Mapping[str, Any]) -> Waiting:
    recall = _recall(given.get("recall"))
    numbers = _numbers(given)
    _check_sizes(numbers)
    if numbers["every_us"] > numbers["over_us"]:
        message = (
            "`quality.every` must not be longer than `quality.over`; got "
            f"{duration_text(numbers['every_us'])} and {duration_text(numbers['over_us'])}"
        )
        raise RuleError(message)
    strategy = given.get("strategy", OBSERVED)
    if not isinstance(strategy, str) or strategy not in STRATEGIES:
        message = f"`quality.strategy` must be one of {', '.join(STRATEGIES)}; got {strategy!r}"
        raise RuleError(message + nearest(str(strategy), STRATEGIES))
    in_order = _truth(given.get("in_order", False))
    return Waiting(RECALL, recall=recall, in_order=in_order, strategy=strategy, **numbers)


def _numbers(given: Mapping[str, Any]) -> dict[str, int]:
    """Read P, L and g."""
    over_us = _positive(given, "over", OVER_US)
    every_us = _positive(given, "every", max(EVERY_US, -(-over_us // EVERIES)))
    return {"over_us": over_us, "every_us": every_us, "grain_us": _positive(given, "grain", GRAIN_US)}


def _positive(given: Mapping[str, Any], name: str, default: int) -> int:
    if name not in given:
        return default
    value = _duration(given[name], f"quality.{name}")
    if not value:
        message = f"`quality.{name}` must be longer than 0; got {given[name]!r}"
        raise RuleError(message)
    return value


def _check_sizes(numbers: Mapping[str, int]) -> None:
    """Refuse what would need more state, or longer waits, than can be."""
    if numbers["over_us"] > EVERIES * numbers["every_us"]:
        message = (
            f"`quality.over` must not be longer than {EVERIES:,} times `quality.every`; got "
            f"{duration_text(numbers['over_us'])} and {duration_text(numbers['every_us'])}"
        )
        raise RuleError(message)
    if numbers["grain_us"] > GRAIN_MOST_US:
        most, got = duration_text(GRAIN_MOST_US), duration_text(numbers["grain_us"])
        message = f"`quality.grain` must not be longer than {most}; got {got}"
        raise RuleError(message)


def _recall(value: object) -> float:
    number = _number(value) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number <= 1:
        got = "nothing" if value is None else repr(value)
        message = f"`quality.recall` must be a number above 0 and at most 1, as 0.99; got {got}"
        raise RuleError(message)
    return float(number)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _truth(value: object) -> bool:
    words = {"true": True, "false": False}
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value in words:
        return words[value]
    message = f"`quality.in_order` must be true or false; got {value!r}"
    raise RuleError(message)
