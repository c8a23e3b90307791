"""Certification of one variable: try the proof methods, the cheapest first, until one decides."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tocsin.expr.certify import exact_arithmetic, smt_solver
from tocsin.expr.certify.branch_and_bound import SearchOutcome, prove_monotone, prove_quasiconvex
from tocsin.expr.certify.certificate import HELP_OPEN, HELP_TOO_LARGE, Verdict, suggest_for_peak, suggest_for_undefined
from tocsin.expr.certify.composition_rules import DEC, INC, QCVX, Shape, ShapeAnalyzer
from tocsin.expr.certify.counterexample_search import SamplingResult, sample_expression
from tocsin.expr.certify.domain_boxes import DomainCover, Domains, build_box, cover_domain
from tocsin.expr.certify.interval_functions import decimal_value
from tocsin.expr.certify.jets import BoxBatch, JetEvaluator
from tocsin.expr.certify.rounding_error import bound_rounding_error
from tocsin.expr.certify.simplify import find_common_part, replace_part, strip_layers
from tocsin.expr.stack_machine import LARGEST
from tocsin.expr.syntax_tree import (
    Call,
    Key,
    Node,
    Number,
    Variable,
    child_nodes,
    find_variables,
    format_variable,
    is_independent_of,
    replace_children,
    walk_nodes,
)

# Evaluations of nodes on boxes in the searches before and after the solver. They are counts, not times, so that all
# machines return the same verdict.
_SHORT_SEARCH, _LONG_SEARCH = 15_000, 300_000
# Steps of a proof search, the cheapest first. None is the SMT solver.
_STEPS = (_SHORT_SEARCH, None, _LONG_SEARCH)
# Larger trees are not searched: their evaluation is slow and only few boxes would fit the limits above.
_MAX_SEARCHED_NODES = 500
# Stream name of the variables that replace parts of the tree.
_PARAMETER = ""
_OPPOSITE = {"increasing": "decreasing", "decreasing": "increasing"}


@dataclass(frozen=True)
class _ProofGoal:
    """A tree and a variable, along which a shape should be proved.

    Attributes
    ----------
    boxes
        Boxes that cover the domains. The tree is certainly defined on each box.
    is_reversed
        Whether the variable of this goal decreases while the variable of its origin increases.
    origin
        The goal that this goal simplifies: a proof for this goal is a proof for its origin. A counterexample is not.
    """

    tree: Node
    along: Key
    domains: Domains
    boxes: BoxBatch
    is_reversed: bool = False
    origin: _ProofGoal | None = None

    @property
    def is_simplified(self) -> bool:
        """Whether the goal simplifies another goal."""
        return self.origin is not None

    @property
    def size(self) -> int:
        """Number of nodes of the tree."""
        return sum(1 for _ in walk_nodes(self.tree))

    @property
    def is_solvable(self) -> bool:
        """Whether the SMT solver is installed and supports the tree."""
        return smt_solver.is_available() and smt_solver.is_supported(self.tree)


def certify_variable(tree: Node, along: Key, domains: Domains, *, undefined_propagates: bool = True) -> Verdict:
    """Return the verdict of one variable of a number. `domains` contains all variables of the tree.

    `undefined_propagates` is true if an undefined part makes the whole condition undefined. A condition with `or` can
    be true although one side is undefined.
    """
    if along not in {variable.key for variable in find_variables(tree)}:
        return Verdict("constant", "absence from the expression")
    if domains[along][0] == domains[along][1]:
        return Verdict("constant", "a domain with one value")
    goals, undefined = _build_goals(tree, along, domains, undefined_propagates=undefined_propagates)
    if not goals:
        assert undefined is not None
        return _undefined_verdict(undefined)
    shape = ShapeAnalyzer(along, goals[0].boxes).find_shape(goals[0].tree)
    if shape & (INC | DEC):
        word = "constant" if (INC | DEC) in shape else "increasing" if INC in shape else "decreasing"
        return _proved_verdict(goals[0], word, _composition_proof(goals[0]))
    samples = sample_expression(tree, along, domains, 2 * bound_rounding_error(goals[0].tree, goals[0].boxes))
    if samples.xs is not None:
        return _refuted_verdict(tree, along, domains, samples)
    return _search_proof([*_simplify_goal(goals[0]), *goals], samples, composed_shape=shape)


def _search_proof(goals: list[_ProofGoal], samples: SamplingResult, *, composed_shape: Shape) -> Verdict:
    """Try to prove the direction that the samples suggest, then quasiconvexity."""
    whole = next(goal for goal in goals if not goal.is_simplified)
    goals = [goal for goal in goals if goal.size <= _MAX_SEARCHED_NODES]
    is_quasiconvex = QCVX in composed_shape
    if not (samples.rises and samples.falls):
        words = ["decreasing"] if samples.falls else ["increasing"] if samples.rises else ["increasing", "decreasing"]
        # If quasiconvexity is proved already, spend less on a stronger shape.
        proofs = [(word, _prove_direction(goals, word, short=is_quasiconvex)) for word in words]
        verdicts = [_proved_verdict(proof[0], word, proof[1]) for word, proof in proofs if proof is not None]
        if len(verdicts) == 2:
            return replace(max(verdicts, key=lambda verdict: verdict.rounding), verdict="constant")
        if verdicts:
            return verdicts[0]
    if is_quasiconvex:
        return _proved_verdict(whole, "quasiconvex", _composition_proof(whole))
    if not goals:
        reason = (
            f"no counterexample found; the expression has {whole.size:,} operations, "
            f"but the proof search is limited to {_MAX_SEARCHED_NODES}"
        )
        return Verdict("undecided", reason, help=HELP_TOO_LARGE)
    return _decide_quasiconvexity(goals)


def _prove_direction(goals: list[_ProofGoal], word: str, *, short: bool) -> tuple[_ProofGoal, str] | None:
    """Return a goal with a proof that its origin has the direction `word`; None if nothing is proved.

    If `short`, omit the last and longest step.
    """
    open_goals = list(goals)
    for limit in _STEPS[:2] if short else _STEPS:
        for goal in list(open_goals):
            own_word = _OPPOSITE[word] if goal.is_reversed else word
            if limit is None:
                if goal.is_solvable and smt_solver.prove_shape(goal.tree, goal.along, goal.domains, own_word).proved:
                    return goal, "SMT solver"
                continue
            sign = 1 if own_word == "increasing" else -1
            outcome = prove_monotone(goal.tree, goal.along, goal.boxes, sign, limit // goal.size)
            if outcome.proved:
                return goal, f"interval slopes on {outcome.boxes:,} box{'es' * (outcome.boxes > 1)}"
            if outcome.refuted:
                open_goals.remove(goal)
    return None


def _decide_quasiconvexity(goals: list[_ProofGoal]) -> Verdict:
    """Prove that an expression decreases, then increases, or find a counterexample with slopes or the solver."""
    for limit in _STEPS:
        for goal in goals:
            verdict = _solve_quasiconvexity(goal) if limit is None else _search_quasiconvexity(goal, limit // goal.size)
            if verdict.verdict != "undecided":
                return verdict
    return next((found for goal in goals if (found := _prove_with_decimals(goal))), verdict)


def _search_quasiconvexity(goal: _ProofGoal, max_boxes: int) -> Verdict:
    outcome = prove_quasiconvex(goal.tree, goal.along, goal.boxes, max_boxes)
    if outcome.proved:
        return _proved_verdict(goal, "quasiconvex", f"interval slopes and curvature on {outcome.boxes:,} segments")
    uses_parameters = any(key[0] == _PARAMETER for key in goal.domains)
    if outcome.refuted and not goal.is_simplified and not uses_parameters:
        # The box contains an increase before a decrease, so sample it for a counterexample.
        samples = sample_expression(goal.tree, goal.along, outcome.where, seed=1)
        if samples.xs is not None:
            return _refuted_verdict(goal.tree, goal.along, goal.domains, samples)
    return _open_verdict(outcome)


def _solve_quasiconvexity(goal: _ProofGoal) -> Verdict:
    if not goal.is_solvable:
        return Verdict("undecided")
    answer = smt_solver.prove_shape(goal.tree, goal.along, goal.domains, "quasiconvex")
    if answer.proved:
        return _proved_verdict(goal, "quasiconvex", "SMT solver")
    if answer.xs and not goal.is_simplified and (refuted := _confirm_counterexample(goal, answer.xs, answer.at)):
        return refuted
    return Verdict("undecided")


def _prove_with_decimals(goal: _ProofGoal) -> Verdict | None:
    """Try a proof with the decimals that the user wrote. Tiers of a tariff may meet in decimals, but not in doubles."""
    inexact = any(
        isinstance(node, Number) and decimal_value(node.value) != node.value for node in walk_nodes(goal.tree)
    )
    if goal.is_simplified or not inexact or not goal.is_solvable:
        return None
    if cover_domain(goal.tree, build_box(goal.domains), decimals=True).undefined_part is not None:
        return None
    for word in ("increasing", "decreasing", "quasiconvex"):
        if smt_solver.prove_shape(goal.tree, goal.along, goal.domains, word, decimals=True).proved:
            bound = 2 * bound_rounding_error(goal.tree, goal.boxes, decimals=True)
            return _rounded_verdict(word, "SMT solver with decimal literals", bound)
    return None


def _simplify_goal(goal: _ProofGoal) -> list[_ProofGoal]:
    """Return goals that are easier to prove: without outer layers, and with a variable for a common monotone part."""
    analyzer = ShapeAnalyzer(goal.along, goal.boxes)
    found = []
    rest = strip_layers(goal.tree, goal.along, lambda part: analyzer.find_range(part).sign)
    if rest != goal.tree:
        found.append(replace(goal, tree=rest, origin=goal))
    part = find_common_part(rest, goal.along)
    if part is not None and (shape := analyzer.find_shape(part)) & (INC | DEC):
        variable, values = Variable(_PARAMETER, "part"), analyzer.find_range(part)
        tree = replace_part(rest, part, variable)
        domains = {v.key: goal.domains.get(v.key, (values.lo, values.hi)) for v in find_variables(tree)}
        cover = cover_domain(tree, build_box(domains))
        if cover.undefined_part is None:
            found.append(_ProofGoal(tree, variable.key, domains, cover.boxes, INC not in shape, goal))
    return found[::-1]


def _confirm_counterexample(goal: _ProofGoal, xs: tuple[float, ...], at: Mapping[Key, float]) -> Verdict | None:
    """Return a refutation if exact arithmetic confirms a candidate; None if it does not."""
    if any(key[0] == _PARAMETER for key in at) or len(xs) != 3 or not exact_arithmetic.is_available():
        return None
    values = [(goal.along, x) for x in xs] + list(at.items())
    if not all(goal.domains[key][0] <= value <= goal.domains[key][1] for key, value in values):
        return None
    triple = (xs[0], xs[1], xs[2])
    if not exact_arithmetic.is_peak(goal.tree, goal.along, triple, at):
        return None
    return _refuted_verdict(goal.tree, goal.along, goal.domains, SamplingResult(triple, dict(at), True, True))


def _build_goals(
    tree: Node, along: Key, domains: Domains, *, undefined_propagates: bool
) -> tuple[list[_ProofGoal], DomainCover | None]:
    """Return the goals that are certainly defined: the tree with parameters for independent parts, and the tree itself.

    Also return the cover of a tree that may be undefined.
    """
    parts: dict[Node, Variable] = {}
    parametrized = _replace_independent_parts(tree, along, parts) if undefined_propagates else tree
    goals: list[_ProofGoal] = []
    undefined = None
    for candidate in [parametrized, tree] if parts else [tree]:
        keys = [v.key for v in find_variables(candidate)]
        ranges = {v.key: compute_range(part, domains) for part, v in parts.items() if v.key in keys}
        own_domains = {key: domains[key] if key in domains else ranges[key] for key in keys}
        cover = cover_domain(candidate, build_box(own_domains))
        if cover.undefined_part is None:
            goals.append(_ProofGoal(candidate, along, own_domains, cover.boxes))
        else:
            undefined = cover
    return goals, undefined


def _replace_independent_parts(node: Node, along: Key, parts: dict[Node, Variable]) -> Node:
    """Replace the largest parts without the variable by parameters.

    If one of these parts is undefined, the whole tree is undefined for all values of the variable. So the proof for
    this variable can assume that the parts are defined. This does not apply to a test of `where`, or to the branches
    of `where` if its test depends on the variable: they stay unchanged.
    """
    if isinstance(node, Number | Variable):
        return node
    if is_independent_of(node, along):
        if not find_variables(node):
            return node
        return parts.setdefault(node, Variable(_PARAMETER, str(len(parts))))
    if isinstance(node, Call) and node.name == "where":
        if not is_independent_of(node.args[0], along):
            return node
        branches = (_replace_independent_parts(branch, along, parts) for branch in node.args[1:])
        return replace_children(node, (node.args[0], *branches))
    return replace_children(node, tuple(_replace_independent_parts(part, along, parts) for part in child_nodes(node)))


def compute_range(part: Node, domains: Domains) -> tuple[float, float]:
    """Return bounds of the values of a part, where it is defined."""
    boxes = cover_domain(part, build_box({v.key: domains[v.key] for v in find_variables(part)}), max_boxes=256).boxes
    value = JetEvaluator().evaluate(part, boxes).value
    return max(float(value.lo.min()), -LARGEST), min(float(value.hi.max()), LARGEST)


def is_defined(part: Node, domains: Domains) -> bool:
    """Return whether a part is certainly defined and finite on its whole domain."""
    cover = cover_domain(part, build_box({v.key: domains[v.key] for v in find_variables(part)}))
    return cover.undefined_part is None


def _proved_verdict(goal: _ProofGoal, word: str, proof: str) -> Verdict:
    """Return a proved verdict with its rounding error. The error is 0 if the composition rules hold for doubles."""
    goal = goal.origin or goal
    shape_of_doubles = ShapeAnalyzer(goal.along, goal.boxes, doubles=True).find_shape(goal.tree)
    needed = {"increasing": INC, "decreasing": DEC, "constant": INC | DEC, "quasiconvex": QCVX}[word]
    if needed in shape_of_doubles:
        return Verdict(word, f"{proof}; exact in floating point")
    return _rounded_verdict(word, proof, 2 * bound_rounding_error(goal.tree, goal.boxes))


def _rounded_verdict(word: str, proof: str, bound: float) -> Verdict:
    """Return a verdict that is proved for exact arithmetic, with a bound of the error in double precision."""
    error = f"rounding error at most {bound:.1g}" if math.isfinite(bound) else "rounding error not bounded"
    return Verdict(word, f"{proof}; {error}", rounding=bound)


def _refuted_verdict(tree: Node, along: Key, domains: Domains, samples: SamplingResult) -> Verdict:
    assert samples.xs is not None
    at = {format_variable(key): value for key, value in samples.at.items()}
    others = ", ".join(f"{name} = {value:.6g}" for name, value in at.items())
    x1, x2, x3 = samples.xs
    proof = f"higher at {x2:.6g} than at {x1:.6g} and {x3:.6g}" + (f", for {others}" if others else "")
    help_ = suggest_for_peak(tree, along, domains, samples)
    return Verdict("refuted", proof, {"x": list(samples.xs), "at": at}, help=help_)


def _undefined_verdict(cover: DomainCover) -> Verdict:
    assert cover.undefined_part is not None
    where = _format_box(cover.where)
    reason = f"`{cover.undefined_part}` may be undefined or infinite" + (f" for {where}" if where else "")
    return Verdict("undecided", reason, help=suggest_for_undefined(cover.undefined_part))


def _open_verdict(outcome: SearchOutcome) -> Verdict:
    reason = f"no proof and no counterexample after {outcome.boxes:,} boxes; undecided for {_format_box(outcome.where)}"
    return Verdict("undecided", reason, help=HELP_OPEN)


def _format_box(box: Domains) -> str:
    own = {key: ends for key, ends in box.items() if key[0] != _PARAMETER}
    return ", ".join(f"{format_variable(key)} in [{low:.6g}, {high:.6g}]" for key, (low, high) in own.items())


def _composition_proof(goal: _ProofGoal) -> str:
    """Return the text of a proof by composition: the operations on the path from the root to the variable."""
    operations: list[str] = []
    node = goal.tree
    while dependent := [part for part in child_nodes(node) if not is_independent_of(part, goal.along)]:
        operations.append(_operation_of(node))
        if len(dependent) > 1:
            operations += [_operation_of(part) for part in dependent if child_nodes(part)]
            break
        node = dependent[0]
    return f"composition of {', '.join(dict.fromkeys(operations))}" if operations else "identity"


def _operation_of(node: Node) -> str:
    return str(getattr(node, "op", getattr(node, "name", "-")))
