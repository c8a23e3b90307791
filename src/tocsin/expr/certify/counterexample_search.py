"""Counterexample search: sample an expression for three values of a variable whose middle one is strictly highest.

Algorithm: a slice fixes all other variables, at corners, the centre or random points of their domains. The search
evaluates a grid along the variable in each slice. For each grid point, the smallest values on its left and on its right
form the best triple. Doubles contain rounding errors, so a triple is accepted only if exact arithmetic confirms it
(exact_arithmetic.py).

Guarantee: a returned triple is a counterexample. A search without a result proves nothing.

Complexity: about 20,000 evaluations.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from tocsin.expr.certify import exact_arithmetic
from tocsin.expr.certify.domain_boxes import Domain, Domains, clip_domain, find_split_points, interpolate
from tocsin.expr.certify.interval_arithmetic import Float
from tocsin.expr.column_evaluation import evaluate_number_with_numpy
from tocsin.expr.syntax_tree import Key, Node, find_variables

# Random slices, grid points of each slice, and grid points if there are no other variables.
_SLICES, _POINTS_PER_SLICE, _POINTS_SINGLE = 130, 160, 8000
# With more other variables than this, only two corners become slices.
_MAX_CORNER_VARIABLES = 5
# Triples that are checked with exact arithmetic.
_MAX_CANDIDATES = 4


class SamplingResult(NamedTuple):
    """The result of sampling.

    Attributes
    ----------
    xs
        Values of the variable of a confirmed counterexample; None if the search found nothing.
    at
        Values of the other variables of the counterexample.
    rises, falls
        Whether the expression increases, and decreases, between some grid points.
    """

    xs: tuple[float, float, float] | None
    at: dict[Key, float]
    rises: bool
    falls: bool


def sample_expression(tree: Node, along: Key, domains: Domains, noise: float = 0.0, seed: int = 0) -> SamplingResult:
    """Sample an expression along a variable. Changes up to `noise` do not count as increase or decrease."""
    random = np.random.default_rng(seed)
    others = [variable.key for variable in find_variables(tree) if variable.key != along]
    split_points = find_split_points(tree)
    slices = _choose_slices(others, domains, split_points, random)
    xs = _choose_points(domains[along], split_points, _POINTS_PER_SLICE if others else _POINTS_SINGLE, random)
    columns = {key: np.repeat(slices[:, i], len(xs)) for i, key in enumerate(others)}
    columns[along] = np.tile(xs, len(slices))
    values = evaluate_number_with_numpy(tree, columns).reshape(len(slices), len(xs))
    with np.errstate(all="ignore"):
        (rises, falls), best = _find_directions(values, noise), _find_peaks(values)
    for row, triple in best:
        at = dict(zip(others, (float(value) for value in slices[row]), strict=True))
        chosen = (float(xs[triple[0]]), float(xs[triple[1]]), float(xs[triple[2]]))
        if exact_arithmetic.is_available() and exact_arithmetic.is_peak(tree, along, chosen, at):
            return SamplingResult(chosen, at, rises, falls)
    return SamplingResult(None, {}, rises, falls)


def _interpolate_domain(domain: Domain, share: Float) -> Float:
    """Return the numbers at some fractions of a domain, closer to each other near 0 if the domain is large."""
    low, high = clip_domain(domain)
    return interpolate(np.array(low), np.array(high), share)


def _choose_slices(
    others: list[Key], domains: Domains, split_points: list[float], random: np.random.Generator
) -> Float:
    """Return the values of the other variables, one row for each slice."""
    if not others:
        return np.zeros((1, 0))
    rows = [
        [clip_domain(domains[key])[bit] for key, bit in zip(others, bits, strict=True)]
        for bits in _choose_corners(len(others))
    ]
    centre = [_interpolate_domain(domains[key], np.array([0.5]))[0] for key in others]
    drawn = np.column_stack([_draw_values(domains[key], split_points, random) for key in others])
    return np.vstack([rows, [centre], drawn])


def _choose_corners(count: int) -> list[tuple[int, ...]]:
    """Return corners of a domain as tuples of 0 (low end) and 1 (high end)."""
    if count <= _MAX_CORNER_VARIABLES:
        return list(itertools.product((0, 1), repeat=count))
    return [(0,) * count, (1,) * count]


def _draw_values(domain: Domain, split_points: list[float], random: np.random.Generator) -> Float:
    """Draw numbers of a domain: uniformly, from all orders of magnitude, and from the literals."""
    low, high = clip_domain(domain)
    inside = [split_point for split_point in split_points if low <= split_point <= high]
    drawn = _interpolate_domain((low, high), random.random(_SLICES))
    part = random.random(_SLICES)
    even = np.clip(low * (1 - part) + high * part, low, high)
    drawn = np.where(random.random(_SLICES) < 0.5, drawn, even)
    if inside:
        drawn = np.where(random.random(_SLICES) < 0.1, random.choice(inside, _SLICES), drawn)
    return drawn


def _choose_points(domain: Domain, split_points: list[float], count: int, random: np.random.Generator) -> Float:
    """Return the grid points of all slices: evenly spaced, random, and close to the split points."""
    low, high = clip_domain(domain)
    near = np.array(split_points)
    between = np.sort(near)[:-1] / 2 + np.sort(near)[1:] / 2
    near = np.concatenate([near, np.nextafter(near, -np.inf), np.nextafter(near, np.inf), between])
    even = _interpolate_domain(domain, np.linspace(0.0, 1.0, count // 2))
    drawn = _interpolate_domain(domain, random.random(count // 2))
    found = np.unique(np.concatenate([even, drawn, near]))
    return found[(found >= low) & (found <= high)]


def _find_directions(values: Float, noise: float) -> tuple[bool, bool]:
    """Return whether some slice increases, and whether some slice decreases, by more than the rounding error."""
    threshold = np.maximum(noise, 1e-9 * np.nanmax(np.abs(values), axis=1, keepdims=True, initial=0.0))
    change = np.diff(values, axis=1)
    return bool((change > threshold).any()), bool((change < -threshold).any())


def _find_peaks(values: Float) -> list[tuple[int, tuple[int, int, int]]]:
    """Return the slices with the highest peaks and the best triple of each, the highest peak first."""
    filled = np.where(np.isfinite(values), values, np.inf)
    # The smallest value up to each point, and from each point on.
    left = np.minimum.accumulate(filled, axis=1)
    right = np.minimum.accumulate(filled[:, ::-1], axis=1)[:, ::-1]
    if values.shape[1] < 3:
        return []
    scale = np.nanmax(np.abs(np.where(np.isfinite(values), values, 0.0)), axis=1, initial=1e-300)
    middle_values = np.where(np.isfinite(values), values, -np.inf)[:, 1:-1]
    gain = (middle_values - np.maximum(left[:, :-2], right[:, 2:])) / scale[:, None]
    top = np.argmax(gain, axis=1)
    best = gain[np.arange(len(gain)), top]
    found = []
    for row in np.argsort(-best)[:_MAX_CANDIDATES]:
        if best[row] > 0:
            middle = int(top[row]) + 1
            low = int(np.argmin(filled[row, :middle]))
            # Take the last minimum on the right. A minimum directly after the middle may be too close to confirm.
            high = filled.shape[1] - 1 - int(np.argmin(filled[row, :middle:-1]))
            found.append((int(row), (low, middle, high)))
    return found
