"""Summaries of streams, from their definitions: loops over values, whole numbers of any size, nothing clever."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from statistics import median

WORD = 1 << 64


def mixed(value):
    """The mixing step of splitmix64, which is one to one."""
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB % WORD
    return value ^ (value >> 31)


def sketch_place(value, numbers, width):
    """Place and sign of a value in a row: the highest bits of (a x low half + b x high half + c) mod 2^64."""
    a, b, c = (number % WORD for number in numbers)
    value = mixed(value % WORD)
    bits = (a * (value % 2**32) + b * (value // 2**32) + c) % WORD
    return (bits * width * 2 // WORD) % width, -1 if bits >= WORD // 2 else 1


def sketch(values, numbers, width):
    """The table of a count sketch."""
    table = [[0] * width for _ in numbers]
    for value in values:
        for row, own in zip(table, numbers, strict=True):
            place, sign = sketch_place(value, own, width)
            row[place] += sign
    return table


def sketch_estimate(table, value, numbers):
    """The median over rows of what stands at the place of a value."""
    found = []
    for row, own in zip(table, numbers, strict=True):
        place, sign = sketch_place(value, own, len(row))
        found.append(sign * row[place])
    return median(found)


def bin_counts(values, low, high, bins):
    """How many values lie below `low`, in each of the bins, and from `high` on; by exact arithmetic."""
    counts = Counter()
    step = (Fraction(high) - Fraction(low)) / bins
    for value in values:
        at = (Fraction(value) - Fraction(low)) // step
        counts[max(-1, min(bins, at))] += 1
    return [counts[at] for at in range(-1, bins + 1)]


def in_range(values, low, high):
    """How many values lie in a closed range."""
    return sum(low <= value <= high for value in values)
