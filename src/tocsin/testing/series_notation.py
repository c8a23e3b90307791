"""Series notation of promtool: `1+2x3` expands to `1 3 5 7`, and `_` is a missing sample. Also delays of samples.

Each function returns numbers, or raises a NotationError with the position in the text. A text that would expand to too
many samples is rejected before it is expanded.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from tocsin.errors import Diagnostic, RuleError
from tocsin.rules.durations import microseconds
from tocsin.rules.template import plain
from tocsin.runtime.contract import Float, Int

MOST_SAMPLES = 100_000

_NUMBER = r"(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,4})?|[iI][nN][fF]|[nN][aA][nN])"
_SAMPLE = re.compile(rf"(?P<first>[-+]?{_NUMBER})(?:(?P<step>[-+]{_NUMBER})(?=x))?(?:x(?P<more>[0-9]+))?")
_GAP = re.compile(r"_(?:x(?P<times>0*[1-9][0-9]*))?|stale")
_WORD = re.compile(r"\S+")
_DELAY = re.compile(r"([^\sx]\S*?)(?:\s*x(0*[1-9][0-9]*))?(?=\s|$)")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:\.([A-Za-z_][A-Za-z0-9_]*))?")
_LABEL = re.compile(r"""\s*([A-Za-z_][A-Za-z0-9_]*)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`)\s*""")
_CLOSED = re.compile(r"\s*\}")
_SPACE = re.compile(r"\s*")
_ESCAPES = {"n": "\n", "t": "\t"}

_SAMPLES_WANTED = "`values` must be samples such as `1`, `1+2x3`, `1x4`, `_` or `_x5`"


class NotationError(RuleError):
    """Invalid notation; `offset` is the position in the text."""

    def __init__(self, message: str, offset: int) -> None:
        self.offset = offset
        super().__init__(Diagnostic("invalid-notation", (), message))


def _fail(message: str, offset: int) -> NoReturn:
    raise NotationError(message, offset) from None


@dataclass(frozen=True)
class Samples:
    """The samples of a series, one per interval; `there` is False for missing samples."""

    values: Float
    there: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.values)


def read_samples(text: str) -> Samples:
    """Return the expanded values of a series.

    >>> read_samples("1+2x3 _x2 5x1").values.tolist()
    [1.0, 3.0, 5.0, 7.0, nan, nan, 5.0, 5.0]
    """
    items, count = list[tuple[float, float, int, bool]](), 0
    for word in _WORD.finditer(text):
        items.append(_item(word))
        count += items[-1][2]
        if count > MOST_SAMPLES:
            message = f"`values` must have at most {MOST_SAMPLES:,} samples; `{word[0][:40]}` would exceed it"
            _fail(message, word.start())
    if not count:
        _fail(f"{_SAMPLES_WANTED}; got nothing", 0)
    first, step, number, there = (np.array(column) for column in zip(*items, strict=True))
    begin = np.repeat(np.cumsum(number) - number, number)
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.repeat(first, number) + np.repeat(step, number) * (np.arange(count) - begin)
    return Samples(values, np.repeat(there, number))


def _item(word: re.Match[str]) -> tuple[float, float, int, bool]:
    """Parse one word: return its first value, its step, its number of samples, and whether the samples exist."""
    if gap := _GAP.fullmatch(word[0]):
        return math.nan, 0.0, _times(gap["times"] or "1"), False
    if word[0].startswith("{{"):
        _fail(f"`values` must be numbers, because streams have no histograms; got `{word[0][:40]}`", word.start())
    sample = _SAMPLE.match(word[0])
    if not sample or sample.end() < len(word[0]):
        known = sample or _GAP.match(word[0])
        at = known.end() if known else 0
        after = f" after `{word[0][:at][:40]}`" if at else ""
        _fail(f"{_SAMPLES_WANTED}; got `{word[0][at : at + 40]}`{after}", word.start() + at)
    # `a+bxn` has n + 1 samples: the notation counts steps, not samples.
    return float(sample["first"]), float(sample["step"] or 0), 1 + _times(sample["more"] or "0"), True


def _times(digits: str) -> int:
    """Parse a count. Counts beyond the limit are clipped, so that no huge integer is created."""
    return int(digits) if len(digits) < 12 else MOST_SAMPLES + 1


def write_samples(samples: Samples) -> str:
    """Return samples in a short notation, which expands to the same samples.

    >>> write_samples(read_samples("1 3 5 7 _ _ 5 5 8"))
    '1+2x3 _x2 5x1 8'
    """
    words, at = [], 0
    while at < len(samples):
        length, step = _run(samples, at)
        if not samples.there[at]:
            words.append("_" if length == 1 else f"_x{length}")
        elif length == 1:
            words.append(plain(float(samples.values[at])))
        else:
            sign = f"{'-' if step < 0 else '+'}{plain(abs(step))}" if step else ""
            words.append(f"{plain(float(samples.values[at]))}{sign}x{length - 1}")
        at += length
    return " ".join(words)


def _run(samples: Samples, at: int) -> tuple[int, float]:
    """Return the number of samples from `at` on that one word can represent, and their step."""
    step, length, checked = 0.0, 1, 2
    if samples.there[at : at + 2].all() and at + 1 < len(samples):
        with np.errstate(over="ignore", invalid="ignore"):
            step = float(samples.values[at + 1] - samples.values[at])
    # The checked range doubles, so that the cost is linear with and without long runs.
    while length < checked and at + length < len(samples):
        there, values = samples.there[at : at + checked], samples.values[at : at + checked]
        with np.errstate(over="ignore", invalid="ignore"):
            fits = there & (values == values[0] + step * np.arange(len(values))) if there[0] else ~there
        length = len(fits) if fits.all() else max(1, int(np.argmin(fits)))
        checked = 2 * checked if length == checked else length
    long = length > 2 or step == 0 or not samples.there[at]
    return (length, step) if long else (1, 0.0)


def read_delays(text: str, count: int) -> Int:
    """Return the delay of each sample: `5s` for all samples, or `0s x3 30s` for the first four samples only.

    >>> (read_delays("0s x3 30s", 6) // 1_000_000).tolist()
    [0, 0, 0, 30, 0, 0]
    """
    # Reading one item more than allowed is enough to detect an excess.
    delays, at, found = np.zeros(count, np.int64), 0, list(itertools.islice(_delay_items(text), count + 1))
    if len(found) == 1 and found[0][1] is None:
        delays[:] = found[0][0]
        return delays
    for delay, times, offset in found:
        number = 1 if times is None else _times(times)
        if at + number > count:
            _fail(f"`delay` must have at most as many items as `values` has samples ({count:,})", offset)
        delays[at : at + number] = delay
        at += number
    return delays


def _delay_items(text: str) -> Iterator[tuple[int, str | None, int]]:
    """Yield each duration, its repeat count and its position."""
    place = _skip_space(text, 0)
    if place == len(text):
        _fail("`delay` must be one duration for all samples, or a list such as `0s x5 30s 0s x4`; got nothing", 0)
    while place < len(text):
        item = _DELAY.match(text, place)
        word = item[1] if item else text[place : place + 60].split(maxsplit=1)[0]
        try:
            yield microseconds(word[:60], "`delay`"), item and item[2], place
        except RuleError as error:
            _fail(error.diagnostics[0].sentence, place)
        place = _skip_space(text, item.end() if item else len(text))


def _skip_space(text: str, place: int) -> int:
    space = _SPACE.match(text, place)
    assert space is not None
    return space.end()


def read_series(text: str) -> tuple[str, str | None, dict[str, str]]:
    """Parse the name of a series: return its stream, its column or None, and its labels.

    >>> read_series('air.temp{machine="m1"}')
    ('air', 'temp', {'machine': 'm1'})
    """
    name = _NAME.match(text)
    wanted = '`series` must look like `air{machine="m1"}` or `air.temp{machine="m1"}`'
    if not name:
        _fail(f"{wanted}; got `{text[:40]}`", 0)
    labels, place = dict[str, str](), name.end()
    if text[place : place + 1] == "{":
        place = _labels(text, place + 1, labels, wanted)
    if text[place:].strip():
        _fail(f"{wanted}; got `{text[place : place + 40]}` after `{text[:place][-40:]}`", place)
    return name[1], name[2], labels


def _labels(text: str, place: int, labels: dict[str, str], wanted: str) -> int:
    """Parse labels up to the closing brace; return the position after it."""
    while not (end := _CLOSED.match(text, place)):
        label = _LABEL.match(text, place)
        if not label or text[label.end() : label.end() + 1] not in {",", "}"}:
            at = label.end() if label else _skip_space(text, place)
            shown = f"`{text[at : at + 40]}`" if text[at:] else "the end of the text"
            _fail(f"{wanted}; got {shown} among the labels", at)
        if label[1] in labels:
            _fail(f"`series` must have each label once; got `{label[1]}` twice", label.start(1))
        labels[label[1]] = _unquoted(label[2])
        place = label.end() + (text[label.end()] == ",")
    return end.end()


def _unquoted(word: str) -> str:
    if word[0] == "`":
        return word[1:-1]
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), word[1:-1], flags=re.DOTALL)
