"""Look for a counterexample: three values of a variable with the middle one strictly highest, the others standing.

Idea: evaluate on grids along the variable, for corners, centre and random values of the others; the smallest values to
the left and to the right of each point give the best triple of a slice. Doubles lie by their rounding, so a triple
counts only if exact arithmetic confirms it (exact.py).
Guarantee: what is returned is a counterexample; nothing returned proves nothing. Cost: some 20,000 evaluations.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from tocsin.expr.certify import exact
from tocsin.expr.certify.boxes import cuts_of, ends, rungs
from tocsin.expr.certify.interval import Float
from tocsin.expr.columns import number_on_arrays
from tocsin.expr.nodes import Key, Node, variables

Domains = Mapping[Key, tuple[float, float]]

_SLICES, _POINTS, _POINTS_ALONE = 130, 160, 8000
_CORNERS = 5
_TRIED = 4


class Sample(NamedTuple):
    """What sampling saw: a confirmed counterexample, if any; whether the expression seemed to rise, and to fall."""

    xs: tuple[float, float, float] | None
    at: dict[Key, float]
    rises: bool
    falls: bool


def sample(tree: Node, along: Key, domains: Domains, noise: float = 0.0, seed: int = 0) -> Sample:
    """Sample an expression along a variable; changes of no more than `noise` are not seen."""
    random = np.random.default_rng(seed)
    others = [variable.key for variable in variables(tree) if variable.key != along]
    cuts = cuts_of(tree)
    slices = _slices(others, domains, cuts, random)
    xs = _points(domains[along], cuts, _POINTS if others else _POINTS_ALONE, random)
    columns = {key: np.repeat(slices[:, i], len(xs)) for i, key in enumerate(others)}
    columns[along] = np.tile(xs, len(slices))
    values = number_on_arrays(tree, columns).reshape(len(slices), len(xs))
    with np.errstate(all="ignore"):
        (rises, falls), best = _ways(values, noise), _best(values)
    for row, triple in best:
        at = dict(zip(others, (float(value) for value in slices[row]), strict=True))
        chosen = (float(xs[triple[0]]), float(xs[triple[1]]), float(xs[triple[2]]))
        if exact.available() and exact.is_peak(tree, along, chosen, at):
            return Sample(chosen, at, rises, falls)
    return Sample(None, {}, rises, falls)


def _spread(domain: tuple[float, float], share: Float) -> Float:
    """Numbers of a domain at shares of its length, closer together near 0 where it reaches far."""
    low, high = ends(domain)
    return rungs(np.array(low), np.array(high), share)


def _slices(others: list[Key], domains: Domains, cuts: list[float], random: np.random.Generator) -> Float:
    if not others:
        return np.zeros((1, 0))
    rows = [
        [ends(domains[key])[bit] for key, bit in zip(others, bits, strict=True)] for bits in _corner_bits(len(others))
    ]
    centre = [_spread(domains[key], np.array([0.5]))[0] for key in others]
    drawn = np.column_stack([_drawn(domains[key], cuts, random) for key in others])
    return np.vstack([rows, [centre], drawn])


def _corner_bits(count: int) -> list[tuple[int, ...]]:
    if count <= _CORNERS:
        return list(itertools.product((0, 1), repeat=count))
    return [(0,) * count, (1,) * count]


def _drawn(domain: tuple[float, float], cuts: list[float], random: np.random.Generator) -> Float:
    """Random numbers of a domain: anywhere, on its whole range of sizes, and at literals."""
    low, high = ends(domain)
    inside = [cut for cut in cuts if low <= cut <= high]
    drawn = _spread((low, high), random.random(_SLICES))
    part = random.random(_SLICES)
    even = np.clip(low * (1 - part) + high * part, low, high)
    drawn = np.where(random.random(_SLICES) < 0.5, drawn, even)
    if inside:
        drawn = np.where(random.random(_SLICES) < 0.1, random.choice(inside, _SLICES), drawn)
    return drawn


def _points(domain: tuple[float, float], cuts: list[float], count: int, random: np.random.Generator) -> Float:
    low, high = ends(domain)
    near = np.array(cuts)
    between = np.sort(near)[:-1] / 2 + np.sort(near)[1:] / 2
    near = np.concatenate([near, np.nextafter(near, -np.inf), np.nextafter(near, np.inf), between])
    even = _spread(domain, np.linspace(0.0, 1.0, count // 2))
    drawn = _spread(domain, random.random(count // 2))
    found = np.unique(np.concatenate([even, drawn, near]))
    return found[(found >= low) & (found <= high)]


def _ways(values: Float, noise: float) -> tuple[bool, bool]:
    """Whether a slice rises, and whether one falls, by more than rounding may."""
    least = np.maximum(noise, 1e-9 * np.nanmax(np.abs(values), axis=1, keepdims=True, initial=0.0))
    change = np.diff(values, axis=1)
    return bool((change > least).any()), bool((change < -least).any())


def _best(values: Float) -> list[tuple[int, tuple[int, int, int]]]:
    """The best triple of each slice, best slices first."""
    filled = np.where(np.isfinite(values), values, np.inf)
    left = np.minimum.accumulate(filled, axis=1)
    right = np.minimum.accumulate(filled[:, ::-1], axis=1)[:, ::-1]
    if values.shape[1] < 3:
        return []
    scale = np.nanmax(np.abs(np.where(np.isfinite(values), values, 0.0)), axis=1, initial=1e-300)
    gain = (np.where(np.isfinite(values), values, -np.inf)[:, 1:-1] - np.maximum(left[:, :-2], right[:, 2:])) / scale[
        :, None
    ]
    top = np.argmax(gain, axis=1)
    best = gain[np.arange(len(gain)), top]
    found = []
    for row in np.argsort(-best)[:_TRIED]:
        if best[row] > 0:
            middle = int(top[row]) + 1
            low = int(np.argmin(filled[row, :middle]))
            # As far away as the first one is: a literal next to the top may be too close to tell.
            high = filled.shape[1] - 1 - int(np.argmin(filled[row, :middle:-1]))
            found.append((int(row), (low, middle, high)))
    return found
