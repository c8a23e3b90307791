"""Random expressions, domains and points that are difficult for certification. The caller passes the generator."""

from __future__ import annotations

import math
from random import Random

from expr.expression_trees import Tree

Domain = tuple[float, float]
Domains = dict[str, Domain]

NAMES = ("x", "y", "z", "w")
NUMBERS = (0.0, 1.0, 2.0, 0.5, 3.0, 10.0, 0.1, 1e-3, 100.0, 1e-9, 1e6)
EXPONENTS = (2.0, 3.0, 0.5, 1.5, 4.0, 1.0, 0.0, 7.0, -1.0, -2.0, -0.5, -3.0)
FUNCTIONS = ("abs", "ceil", "cos", "exp", "floor", "ln", "sin", "sqrt", "tanh", "log10")
DOMAINS: tuple[Domain, ...] = (
    *((0.0, 1.0), (-1.0, 1.0), (0.5, 10.0), (-5.0, 5.0), (1.0, 100.0), (0.0, 10.0), (-40.0, 60.0), (2.0, 2.5)),
    *((-math.inf, math.inf), (0.0, math.inf), (-3.0, 0.0), (1e-9, 1.0), (-1e4, 1e4), (0.1, 0.3), (1e15, 1e15 + 8)),
    *((-1e-300, 1e-300), (1.0, 1.0), (3.0, 1e300), (-2.0, -1.0), (0.0, 709.0)),
)


def draw_number(random: Random, depth: int, names: tuple[str, ...] = NAMES) -> Tree:
    """Return a random expression that is a number."""
    if depth == 0 or random.random() < 0.12:
        return ("var", random.choice(names), None) if random.random() < 0.72 else ("num", draw_literal(random))
    kind = random.random()
    if kind < 0.5:
        return random.choice("+-*/+-*"), draw_number(random, depth - 1, names), draw_number(random, depth - 1, names)
    if kind < 0.58:
        return _draw_power(random, depth, names)
    if kind < 0.61:
        return "neg", draw_number(random, depth - 1, names)
    if kind < 0.78:
        return "call", random.choice(FUNCTIONS), draw_number(random, depth - 1, names)
    if kind < 0.88:
        parts = [draw_number(random, depth - 1, names) for _ in range(random.choice((2, 2, 3)))]
        return "call", random.choice(("min", "max")), *parts
    branches = draw_number(random, depth - 1, names), draw_number(random, depth - 1, names)
    return "call", "where", draw_condition(random, depth, names), *branches


def draw_condition(random: Random, depth: int, names: tuple[str, ...] = NAMES) -> Tree:
    """Return a random condition, sometimes with `and` and `or`."""
    if depth > 1 and random.random() < 0.3:
        return (
            random.choice(("and", "or")),
            draw_condition(random, depth - 1, names),
            draw_condition(random, depth - 1, names),
        )
    op = random.choice((">", ">=", "<", "<="))
    return op, draw_number(random, depth - 1, names), draw_number(random, depth - 1, names)


def _draw_power(random: Random, depth: int, names: tuple[str, ...]) -> Tree:
    base = draw_number(random, depth - 1, names)
    if random.random() < 0.2:
        return "**", base, draw_number(random, depth - 1, names)
    index = random.choice(EXPONENTS)
    exponent: Tree = ("num", index) if index >= 0 else ("neg", ("num", -index))
    return ("**", base, exponent) if random.random() < 0.7 else ("call", "pow", base, exponent)


def draw_literal(random: Random) -> float:
    """Return a random literal."""
    return random.choice(NUMBERS) if random.random() < 0.8 else round(random.uniform(0, 5), random.choice((1, 3, 16)))


def draw_domains(random: Random, names: tuple[str, ...] = NAMES) -> Domains:
    """Return a random domain for each name."""
    return {name: random.choice(DOMAINS) for name in names}


def clip_ends(domain: Domain) -> Domain:
    """Return the ends of a domain, with ±1e50 instead of infinite ends."""
    low, high = domain
    return -1e50 if low == -math.inf else low, 1e50 if high == math.inf else high


def draw_points(random: Random, domain: Domain, literals: list[float], count: int) -> list[float]:
    """Return numbers of a domain: its ends, literals, adjacent doubles, integers and random numbers."""
    low, high = clip_ends(domain)
    near = {low, high, 0.0, *literals, *(-number for number in literals)}
    near |= {math.nextafter(number, side) for number in near for side in (-math.inf, math.inf)}
    found = [number for number in near if low <= number <= high]
    if len(found) > count:
        found = [low, high, *random.sample(found, count)]
    for _ in range(count):
        far = random.random() < 0.3
        share = random.random() ** (8 if far else 1)
        number = low * (1 - share) + high * share if random.random() < 0.5 else high * (1 - share) + low * share
        if random.random() < 0.3:
            number = random.uniform(max(low, -20.0), min(high, 20.0)) if low < 20 and high > -20 else number
        if random.random() < 0.15:
            number = float(round(number)) if abs(number) < 1e15 else number
        found += [n for n in (number, math.nextafter(number, math.inf)) if low <= n <= high]
    return sorted(set(found))


def find_literals(tree: Tree) -> list[float]:
    """Return the literals of a tree."""
    if tree[0] == "num":
        return [tree[1]]
    return [number for part in tree[1:] if isinstance(part, tuple) for number in find_literals(part)]


def find_names(tree: Tree) -> set[str]:
    """Return the names of the streams in a tree."""
    if tree[0] == "var":
        return {tree[1]}
    return set().union(*(find_names(part) for part in tree[1:] if isinstance(part, tuple)), set())
