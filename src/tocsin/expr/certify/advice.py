"""Advise: what a user could change where nothing is proved. Clauses, which stand behind a semicolon or a colon."""

from __future__ import annotations

from collections.abc import Mapping

from tocsin.expr.certify.boxes import ends
from tocsin.expr.certify.refute import Sample, sample
from tocsin.expr.nodes import Binary, Call, Key, Node, Variable, variables

Domains = Mapping[Key, tuple[float, float]]

OPEN = "declare narrower domains, or write the terms that read it in a simpler form"
TOO_LARGE = "split the condition into several rules"

_KEPT = {"ln": "above 0", "log10": "above 0", "sqrt": "at 0 or above"}


def of_undefined(blamed: Node) -> str:
    """Say what helps where a part is not proved defined and finite."""
    if isinstance(blamed, Binary) and blamed.op == "/" and variables(blamed.right):
        # The names are those of the condition where it is as simple as the form that is shown.
        top, below = (str(side) if isinstance(side, Variable) else "" for side in (blamed.left, blamed.right))
        top, below = (top, below) if top and below else ("a", "b")
        form = f"`{top} > limit * {below}` for `{top} / {below} > limit`, where `{below}` is never negative"
        kept = "" if isinstance(blamed.right, Variable) else f"that keeps `{blamed.right}` "
        return f"declare {_domains(blamed.right)} {kept}away from 0, or multiply out: {form}"
    if isinstance(blamed, Call) and blamed.name in _KEPT and variables(blamed):
        return f"declare {_domains(blamed)} that keeps `{blamed.args[0]}` {_KEPT[blamed.name]}"
    return f"declare {_domains(blamed)} on which it is defined and finite"


def _domains(node: Node) -> str:
    names = [f"`{name}`" for name in dict.fromkeys(map(str, variables(node)))]
    return f"a domain of {' and of '.join(names)}" if names else "domains"


def of_peak(tree: Node, along: Key, domains: Domains, seen: Sample) -> str:
    """Say what helps where a peak was seen: a narrower domain, unless the peak moves with the other variables."""
    if _moves(tree, along, domains, seen):
        return "no narrower domain helps: it is true in a band whose place depends on the other variables"
    return f"declare a narrower domain of `{Variable(*along)}`, one that ends before it falls again"


def _moves(tree: Node, along: Key, domains: Domains, seen: Sample) -> bool:
    """Tell whether both halves of the domain have peaks, while one has none with the others as they were seen."""
    low, high = ends(domains[along])
    halves = [(low, low / 2 + high / 2), (low / 2 + high / 2, high)]
    there = {key: (value, value) for key, value in seen.at.items()}
    return (
        bool(there)
        and all(sample(tree, along, {**domains, along: half}).xs for half in halves)
        and not all(sample(tree, along, {**domains, **there, along: half}).xs for half in halves)
    )
