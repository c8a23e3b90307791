"""Prove: which rows of a stream may be left out of a rule, by what they are compared, and how that is known.

A stream that a condition reads through one column is compared by that column if the condition is proved monotone or
quasiconvex in it. Else by the number that alone contains what is read of the stream (`ln(h / 100)`, a distance), if
the condition is proved so in that; else by several such numbers at once, if it is monotone in each (dominance). Else
it is kept whole, and the reason is told. A shape that the user states is believed unless it is refuted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise

from tocsin.errors import Diagnostics
from tocsin.expr.certify import Verdict, build_margin, certify, exact_arithmetic
from tocsin.expr.certify.certify_variable import compute_range, is_defined
from tocsin.expr.certify.domain_boxes import UNBOUNDED, clip_domain
from tocsin.expr.certify.unreachable_values import bound_slope
from tocsin.expr.compiler import hoist_subexpressions
from tocsin.expr.syntax_tree import (
    Compare,
    Condition,
    Key,
    Node,
    Unary,
    Variable,
    child_nodes,
    find_variables,
    format_variable,
    literal_value,
    replace_children,
    walk_nodes,
)
from tocsin.plan.steps import Limit
from tocsin.rules.model import Rule

Domain = tuple[float, float]

_FREE: Domain = (-math.inf, math.inf)
_LEAST = UNBOUNDED * 1e-300


@dataclass(frozen=True)
class Reading:
    """How the rows of one stream are compared: by which numbers (none: kept whole), on which sides, and why."""

    by: tuple[Node, ...] = ()
    above: bool = False
    below: bool = False
    why: Mapping[str, Verdict] = field(default_factory=dict)
    domains: Mapping[str, Domain] = field(default_factory=dict)
    tolerance: float = 0.0


def prove_readings(
    rule: Rule,
    condition: Condition,
    read: Mapping[Key, str],
    limits: Sequence[Limit],
    reducible: Sequence[str],
    diagnostics: Diagnostics,
) -> dict[str, Reading]:
    """Find out, for each stream of a rule, how its rows may be compared; none of those that cannot be reduced."""
    question = _Question(rule, named_by_column(condition, read), domains_of(rule, read, limits), read, diagnostics)
    readings = {}
    for stream in dict.fromkeys(stream for stream, _ in read):
        found = question.reading(stream) if stream in reducible else Reading()
        stated = {column: question.domains[stream, column] for key, column in read.items() if key[0] == stream}
        mine = [format_variable(key) for key in read if key[0] == stream]
        # What is believed holds wherever the user says; what is proved, on the domain that it was proved on.
        known = any(name in rule.domains for name in mine) or (
            found.by and not any(name in rule.shapes for name in mine)
        )
        # Only a reading with a false shape has neither numbers nor a reason.
        if (found.by or found.why or stream not in reducible) and any(name in rule.tolerance for name in mine):
            found = question.tolerant(found, stream)
        readings[stream] = replace(found, domains=stated if known else {})
    return readings


@dataclass(frozen=True)
class _Question:
    rule: Rule
    tree: Node
    domains: Mapping[Key, Domain]
    read: Mapping[Key, str]
    diagnostics: Diagnostics

    def reading(self, stream: str) -> Reading:
        """How the rows of one stream may be compared."""
        columns = [key for key in self.domains if key[0] == stream]
        stated = [shape for name, shape in self.rule.shapes.items() if name.partition(".")[0] == stream]
        if None in stated:
            return Reading(why={stream: Verdict("undecided", "the rule sets it to `unreduced`")})
        if len(columns) == 1:
            if stated and stated[0] is not None:
                return self._stated(columns[0], stated[0])
            verdict = shape_of(self.tree, columns[0], self.domains)
            if _is_usable(verdict):
                return _reading({Variable(*columns[0]): verdict})
        for own, column in self.read.items():
            # Of one of several columns a shape says too little to leave rows out, and must be true all the same.
            shape = self.rule.shapes.get(format_variable(own)) if own[0] == stream else None
            if shape is not None:
                self._stated((stream, column), shape)
        return self._by_parts(stream, columns)

    def _by_parts(self, stream: str, columns: Sequence[Key]) -> Reading:
        """Compare by the largest numbers that read this stream alone."""
        residual, parts = hoist_subexpressions(self.tree)
        if not _undefined_is_false(self.tree) and not all(is_defined(part, self.domains) for part in parts.values()):
            residual, parts = self.tree, {}
        inner = {key: compute_range(part, self.domains) for key, part in parts.items()}
        domains = {v.key: inner.get(v.key) or self.domains[v.key] for v in find_variables(residual)}
        mine = [key for key in domains if key[0] == stream]
        # Rows whose number lies further out are not compared, so nothing need be proved of them.
        # If all numbers lie further out, no row is compared: the stream is kept whole.
        domains |= {key: (max(domains[key][0], -UNBOUNDED), min(domains[key][1], UNBOUNDED)) for key in mine}
        if all(domains[key][0] <= domains[key][1] for key in mine) and (len(mine) == 1 or len(columns) > 1):
            why: dict[Node, Verdict] = {}
            for key in mine:
                verdict = shape_of(residual, key, domains)
                # One number without a proof decides: the proofs of the others cost time and change nothing.
                if not (_is_usable(verdict) and (len(mine) == 1 or _is_monotone(verdict))):
                    break
                why[parts.get(key, Variable(*key))] = verdict
            else:
                return _reading(why)
        # What the user can act on are the columns themselves.
        verdicts = {format_variable(key): verdict_of(self.tree, key, self.domains) for key in columns}
        if all(verdict.proved for verdict in verdicts.values()):
            reason = "nothing is proved for the combined columns of the stream"
            if any(verdict.verdict == "quasiconvex" for verdict in verdicts.values()):
                reason = "it falls and then rises in one of several columns of the stream"
            if not all(map(_is_usable, verdicts.values())):
                reason = "rounding is not bounded"
            verdicts = {
                name: Verdict("undecided", f"{verdict.verdict}, but {reason}") for name, verdict in verdicts.items()
            }
        return Reading(why=verdicts)

    def tolerant(self, reading: Reading, stream: str) -> Reading:
        """Let values close to each other stand for each other, and say what that costs."""
        keys = [key for key in self.domains if key[0] == stream]
        wide = max(wide for name, wide in self.rule.tolerance.items() if name.partition(".")[0] == stream)
        path = ["tolerance", next(name for name in self.rule.tolerance if name.partition(".")[0] == stream)]
        if reading.by != (Variable(*keys[0]),):
            what = "compared by another number" if reading.by else "unreduced"
            message = f"`tolerance` needs a stream that is compared by one column; `{stream}` is {what}"
            self.diagnostics.add("invalid-tolerance", path, message)
            return reading
        cost = wide * bound_slope(build_margin(self.tree), keys[0], self.domains)
        if not math.isfinite(cost):
            message = f"`tolerance` of `{stream}` needs domains that bound its cost"
            self.diagnostics.add("invalid-tolerance", path, message)
            return reading
        said = f"; a tolerance of {wide:g} costs at most {cost:.3g} of the margin"
        why = {name: replace(verdict, proof=verdict.proof + said) for name, verdict in reading.why.items()}
        # Steps so small are more than doubles can count, and tell nothing apart.
        return replace(reading, tolerance=float(wide) if wide > _LEAST else 0.0, why=why)

    def _stated(self, key: Key, shape: str) -> Reading:
        """Believe a stated shape unless it is refuted: by a proof of the contrary, or a point of declared domains."""
        verdict = verdict_of(self.tree, key, self.domains)
        refuted = verdict if self._refutes(verdict, shape) else None
        if verdict.verdict == "undecided":
            refuted = self._refuted_on_a_piece(key, shape)
        if refuted is not None:
            found = refuted.proof if refuted.verdict == "refuted" else f"{refuted.verdict}, {refuted.proof}"
            name = format_variable(key)
            message = f"`shapes` must be true for `expr`; `expr` is not {shape} in `{name}`: {found}"
            written = next(own for own in self.rule.shapes if own in (name, format_variable((key[0], None))))
            self.diagnostics.add("false-shape", ["shapes", written], message)
            return Reading()
        fits = verdict.verdict in ("constant", shape) or (shape == "quasiconvex" and verdict.proved)
        known = verdict if fits else Verdict("undecided", f"stated {shape}, not proved")
        return Reading((Variable(*key),), shape != "decreasing", shape != "increasing", {format_variable(key): known})

    def _refutes(self, verdict: Verdict, shape: str) -> bool:
        if verdict.verdict == "refuted":
            return all(format_variable(key) in self.rule.domains for key in self.read)
        return {verdict.verdict, shape} == {"increasing", "decreasing"}

    def _refuted_on_a_piece(self, key: Key, shape: str) -> Verdict | None:
        """What refutes a shape on a piece of the declared domain, such as one on which a logarithm is defined.

        What has a shape on its domain has it on every piece. What never falls need not rise, so that is looked at too.
        """
        if not any(
            (own[0], column) == key and format_variable(own) in self.rule.domains for own, column in self.read.items()
        ):
            return None
        low, high = self.domains[key]
        for piece in pairwise(low + (high - low) * i / 4 for i in range(5)):
            domains = {**self.domains, key: piece}
            found = verdict_of(self.tree, key, domains)
            if self._refutes(found, shape) and (found.verdict == "refuted" or _moves(self.tree, key, domains)):
                return replace(
                    found, proof=f"{found.proof}, for {format_variable(key)} from {piece[0]:g} to {piece[1]:g}"
                )
        return None


def _reading(why: Mapping[Node, Verdict]) -> Reading:
    """Compare by these numbers: one by its shape, several each turned so that the condition rises with it."""
    proofs = {str(node): verdict for node, verdict in why.items()}
    if len(why) == 1:
        ((node, verdict),) = why.items()
        below = verdict.verdict in ("decreasing", "quasiconvex")
        return Reading((node,), verdict.verdict != "decreasing", below, proofs)
    return Reading(
        tuple(Unary(node) if verdict.verdict == "decreasing" else node for node, verdict in why.items()),
        above=True,
        why=proofs,
    )


def _undefined_is_false(tree: Node) -> bool:
    """Tell whether an undefined part makes the condition false whatever the rest is: `or` and `where` look past it."""
    return not any(getattr(node, "op", "") == "or" or getattr(node, "name", "") == "where" for node in walk_nodes(tree))


def _is_usable(verdict: Verdict) -> bool:
    """Tell whether rows may be left out by a proof: it is one, and rounding bends it only so far."""
    return verdict.proved and math.isfinite(verdict.rounding)


def _is_monotone(verdict: Verdict) -> bool:
    return verdict.verdict in ("constant", "increasing", "decreasing")


def _moves(tree: Node, key: Key, domains: Mapping[Key, Domain]) -> bool:
    """Tell whether the margin surely differs at the ends of a variable's domain, with the others in their middle."""
    if not exact_arithmetic.is_available():
        return False
    middle = {key: low / 2 + high / 2 for key, (low, high) in domains.items()}
    low, high = (exact_arithmetic.evaluate_exactly(build_margin(tree), {**middle, key: end}) for end in domains[key])
    return None not in (low, high) and bool(low < high or high < low)


def verdict_of(tree: Node, key: Key, domains: Mapping[Key, Domain]) -> Verdict:
    """Certify one variable of a condition, in words that a user can act on."""
    found = shape_of(tree, key, domains)
    if found.proved:
        return found
    # What is said of a counterexample, or of a place, names the variables.
    named = tuple((format_variable(variable.key), domains[variable.key]) for variable in find_variables(tree))
    return _certified_by_name(without_threshold(tree), format_variable(key), named)


def shape_of(tree: Node, key: Key, domains: Mapping[Key, Domain]) -> Verdict:
    """Certify one variable of a condition; rules of one kind differ in names and thresholds, and are proved once."""
    keys = [variable.key for variable in find_variables(tree)]
    plain = {k: Variable(f"v{i}") for i, k in enumerate(keys)}
    ordered = tuple(domains[k] for k in keys)
    return _certified(_renamed(without_threshold(tree), plain), keys.index(key), ordered)


@lru_cache(maxsize=4096)
def _certified(tree: Node, number: int, domains: tuple[Domain, ...]) -> Verdict:
    name = f"v{number}"
    return certify(tree, {f"v{i}": domain for i, domain in enumerate(domains)}, only=[name])[name]


@lru_cache(maxsize=4096)
def _certified_by_name(tree: Node, name: str, domains: tuple[tuple[str, Domain], ...]) -> Verdict:
    return certify(tree, dict(domains), only=[name])[name]


def _renamed(node: Node, names: Mapping[Key, Variable]) -> Node:
    if isinstance(node, Variable):
        return names[node.key]
    return replace_children(node, tuple(_renamed(part, names) for part in child_nodes(node)))


def without_threshold(node: Node) -> Node:
    """A comparison with a literal as the number that is compared: a constant changes no shape."""
    if not isinstance(node, Compare):
        return node
    for side, other, way in ((node.left, node.right, (">", ">=")), (node.right, node.left, ("<", "<="))):
        if literal_value(other) is not None:
            return side if node.op in way else Unary(side)
    return node


def named_by_column(node: Node, read: Mapping[Key, str]) -> Node:
    """Name every variable by its stream and the column that it reads."""
    if isinstance(node, Variable):
        return Variable(node.stream, read[node.key]) if node.key in read else node
    return replace_children(node, tuple(named_by_column(part, read) for part in child_nodes(node)))


def domains_of(rule: Rule, read: Mapping[Key, str], limits: Sequence[Limit]) -> dict[Key, Domain]:
    """The domains of what a rule reads, by stream and column; limits lie between the least and the largest number.

    A column that is read under two names has what both allow.
    """
    domains: dict[Key, Domain] = {}
    for key, column in read.items():
        low, high = domains.get((key[0], column), _FREE)
        own = _declared(rule, key)
        domains[key[0], column] = max(low, own[0]), min(high, own[1])
    return domains | {limit.variable: _spread(limit) for limit in limits}


def _declared(rule: Rule, key: Key) -> Domain:
    low, high = rule.domains.get(format_variable(key), _FREE)
    return clip_domain((float(low), float(high)))


def _spread(limit: Limit) -> Domain:
    numbers = [number for number in limit.numbers.values() if math.isfinite(number)]
    return (min(numbers), max(numbers)) if numbers else (0.0, 0.0)
