"""Decide one variable: definedness first, then rules, samples, boxes and the solver, cheapest first."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tocsin.expr.certify import advice, exact, solve
from tocsin.expr.certify.boxes import Cover, cover, whole
from tocsin.expr.certify.certificate import Verdict
from tocsin.expr.certify.functions import written
from tocsin.expr.certify.jets import Box, Evaluator
from tocsin.expr.certify.refute import Sample, sample
from tocsin.expr.certify.rounding import rounding_bound
from tocsin.expr.certify.search import Outcome, prove_monotone, prove_quasiconvex
from tocsin.expr.certify.shapes import DEC, INC, QCVX, Rules, Shape
from tocsin.expr.certify.strip import common_part, replaced, stripped
from tocsin.expr.machine import LARGEST
from tocsin.expr.nodes import Call, Key, Node, Number, Variable, children, is_free, variables, walk, with_children

Domains = Mapping[Key, tuple[float, float]]

# Evaluations of nodes on boxes before the solver is asked, and after: counts, so that every machine says the same.
_FEW, _MANY = 15_000, 300_000
# Operations of a tree that is searched: in a larger one few boxes are tried, and each of them is slow.
_MOST_NODES = 500
_PARAMETER = ""
_TURNED = {"increasing": "decreasing", "decreasing": "increasing"}


@dataclass(frozen=True)
class _Question:
    """A tree in which the variable stands, on domains, with boxes on which it is surely defined."""

    tree: Node
    along: Key
    domains: Domains
    boxes: Box
    # Whether the variable of the question falls where that of its origin rises.
    turned: bool = False
    # The question of which this one is a part: what is proved here holds there.
    origin: _Question | None = None

    @property
    def is_part(self) -> bool:
        """Tell whether a refutation would say nothing of the whole."""
        return self.origin is not None

    @property
    def size(self) -> int:
        """The number of nodes."""
        return sum(1 for _ in walk(self.tree))


def decide(tree: Node, along: Key, domains: Domains, *, apart: bool = True) -> Verdict:
    """Give the verdict of one variable; `domains` has every variable of the tree.

    `apart` says that a part which is not defined makes the whole so: the largest of margins, for `or`, does not.
    """
    if along not in {variable.key for variable in variables(tree)}:
        return Verdict("constant", "does not occur")
    if domains[along][0] == domains[along][1]:
        return Verdict("constant", "has one value")
    questions, blamed = _questions(tree, along, domains, apart=apart)
    if not questions:
        assert blamed is not None
        return _undefined(blamed)
    shape = Rules(along, questions[0].boxes).shape(questions[0].tree)
    if shape & (INC | DEC):
        return _proved(questions[0], _word(shape), f"composition of {_path(questions[0])}")
    seen = sample(tree, along, domains, 2 * rounding_bound(questions[0].tree, questions[0].boxes))
    if seen.xs is not None:
        return _refuted(tree, along, domains, seen)
    return _search([*_smaller(questions[0]), *questions], seen, valley=QCVX in shape)


def _search(questions: list[_Question], seen: Sample, *, valley: bool) -> Verdict:
    """Prove the direction that samples suggest; else that it falls, then rises."""
    shown = next(question for question in questions if not question.is_part)
    questions = [question for question in questions if question.size <= _MOST_NODES]
    if not (seen.rises and seen.falls):
        ways = ["decreasing"] if seen.falls else ["increasing"] if seen.rises else ["increasing", "decreasing"]
        found = [_proved(proof[0], way, proof[1]) for way in ways if (proof := _monotone(questions, way, quick=valley))]
        if len(found) == 2:
            return replace(max(found, key=lambda verdict: verdict.rounding), verdict="constant")
        if found:
            return found[0]
    if valley:
        return _proved(shown, "quasiconvex", f"composition of {_path(shown)}")
    if not questions:
        reason = (
            f"no counterexample found; its {shown.size:,} operations are more than the {_MOST_NODES} that are searched"
        )
        return Verdict("undecided", reason, help=advice.TOO_LARGE)
    return _quasiconvex(questions)


def _monotone(questions: list[_Question], way: str, *, quick: bool) -> tuple[_Question, str] | None:
    """The question of which a direction was proved, and how; None: it was not."""
    rest = list(questions)
    for most in (_FEW, 0) if quick else (_FEW, 0, _MANY):
        for question in list(rest):
            word = _TURNED[way] if question.turned else way
            if not most and _solvable(question):
                if solve.prove(question.tree, question.along, question.domains, word).proved:
                    return question, "no counterexample exists (solver)"
            if most:
                sign = 1 if word == "increasing" else -1
                found = prove_monotone(question.tree, question.along, question.boxes, sign, most // question.size)
                if found.proved:
                    return question, f"slopes on {found.boxes:,} box{'es' * (found.boxes > 1)}"
                if found.refuted:
                    rest.remove(question)
    return None


def _quasiconvex(questions: list[_Question]) -> Verdict:
    """Prove that it falls, then rises; or find a peak where slopes or the solver see one."""
    for most in (_FEW, 0, _MANY):
        for question in questions:
            verdict = _by_slopes(question, most // question.size) if most else _by_solver(question)
            if verdict.verdict != "undecided":
                return verdict
    return next((found for question in questions if (found := _by_decimals(question))), verdict)


def _by_decimals(question: _Question) -> Verdict | None:
    """Ask the solver about the formula as it was written: tiers that meet in decimals often do not in doubles."""
    inexact = any(isinstance(node, Number) and written(node.value) != node.value for node in walk(question.tree))
    if question.is_part or not inexact or not _solvable(question):
        return None
    if cover(question.tree, whole(question.domains), decimals=True).blamed is not None:
        return None
    for word in ("increasing", "decreasing", "quasiconvex"):
        if solve.prove(question.tree, question.along, question.domains, word, decimals=True).proved:
            bound = 2 * rounding_bound(question.tree, question.boxes, decimals=True)
            return _rounded(word, "no counterexample exists (solver, decimals)", bound)
    return None


def _by_slopes(question: _Question, most: int) -> Verdict:
    found = prove_quasiconvex(question.tree, question.along, question.boxes, most)
    if found.proved:
        return _proved(question, "quasiconvex", f"slopes and curvature on {found.boxes:,} segments")
    if found.refuted and not question.is_part and (refuted := _peak_inside(question, found)):
        return refuted
    return _open(found)


def _by_solver(question: _Question) -> Verdict:
    if not _solvable(question):
        return Verdict("undecided")
    answer = solve.prove(question.tree, question.along, question.domains, "quasiconvex")
    if answer.proved:
        return _proved(question, "quasiconvex", "no counterexample exists (solver)")
    if answer.xs and not question.is_part and (refuted := _confirmed(question, answer.xs, answer.at)):
        return refuted
    return Verdict("undecided")


def _smaller(question: _Question) -> list[_Question]:
    """What is left to prove without outer layers, and with a part that holds the variable in its place."""
    rules = Rules(question.along, question.boxes)
    tree, along, turned, found = question.tree, question.along, False, []
    rest = stripped(tree, along, lambda part: rules.range(part).sign)
    if rest != tree:
        found.append(replace(question, tree=rest, origin=question))
    part = common_part(rest, along)
    if part is not None and (shape := rules.shape(part)) & (INC | DEC):
        turned = INC not in shape
        variable, ends = Variable(_PARAMETER, "part"), rules.range(part)
        tree = replaced(rest, part, variable)
        domains = {v.key: question.domains.get(v.key, (ends.lo, ends.hi)) for v in variables(tree)}
        covered = cover(tree, whole(domains))
        if covered.blamed is None:
            found.append(_Question(tree, variable.key, domains, covered.boxes, turned, question))
    return found[::-1]


def _confirmed(question: _Question, xs: tuple[float, ...], at: Mapping[Key, float]) -> Verdict | None:
    """A candidate of the solver or of boxes as a refutation, if exact arithmetic confirms it."""
    if any(key[0] == _PARAMETER for key in at) or len(xs) != 3 or not exact.available():
        return None
    low, high = question.domains[question.along]
    if not all(low <= x <= high for x in xs) or not all(_inside(at[key], question.domains[key]) for key in at):
        return None
    triple = (xs[0], xs[1], xs[2])
    if not exact.is_peak(question.tree, question.along, triple, at):
        return None
    return _refuted(question.tree, question.along, question.domains, Sample(triple, dict(at), True, True))


def _inside(value: float, domain: tuple[float, float]) -> bool:
    return domain[0] <= value <= domain[1]


def _peak_inside(question: _Question, found: Outcome) -> Verdict | None:
    """Boxes saw a rise before a fall inside `where`: look closely there."""
    if any(key[0] == _PARAMETER for key in question.domains):
        return None
    seen = sample(question.tree, question.along, found.where, seed=1)
    return None if seen.xs is None else _refuted(question.tree, question.along, question.domains, seen)


def _questions(tree: Node, along: Key, domains: Domains, *, apart: bool) -> tuple[list[_Question], Cover | None]:
    """The tree with parameters for what is free of the variable, and as it is: those that are surely defined."""
    parts: dict[Node, Variable] = {}
    smaller = _parametrised(tree, along, parts) if apart else tree
    found: list[_Question] = []
    blamed = None
    for candidate in [smaller, tree] if parts else [tree]:
        mine = [v.key for v in variables(candidate)]
        ranges = {variable.key: range_of(part, domains) for part, variable in parts.items() if variable.key in mine}
        chosen = {key: domains[key] if key in domains else ranges[key] for key in mine}
        covered = cover(candidate, whole(chosen))
        if covered.blamed is None:
            found.append(_Question(candidate, along, chosen, covered.boxes))
        else:
            blamed = covered
    return found, blamed


def _parametrised(node: Node, along: Key, parts: dict[Node, Variable]) -> Node:
    """Replace the largest parts that are free of the variable, but no test and nothing under one that depends on it.

    A part that is not defined makes the whole undefined whatever the variable is, so its definedness is no question
    of this variable; of a test, or under one that depends on the variable, it is.
    """
    if isinstance(node, Number | Variable):
        return node
    if is_free(node, along):
        if not variables(node):
            return node
        return parts.setdefault(node, Variable(_PARAMETER, str(len(parts))))
    if isinstance(node, Call) and node.name == "where":
        if not is_free(node.args[0], along):
            return node
        branches = (_parametrised(branch, along, parts) for branch in node.args[1:])
        return with_children(node, (node.args[0], *branches))
    return with_children(node, tuple(_parametrised(part, along, parts) for part in children(node)))


def range_of(part: Node, domains: Domains) -> tuple[float, float]:
    """The doubles that a part can be, where it is defined."""
    boxes = cover(part, whole({v.key: domains[v.key] for v in variables(part)}), most=256).boxes
    value = Evaluator().run(part, boxes).value
    return max(float(value.lo.min()), -LARGEST), min(float(value.hi.max()), LARGEST)


def is_defined(part: Node, domains: Domains) -> bool:
    """Tell whether a part is surely defined and finite on its whole domain."""
    return cover(part, whole({v.key: domains[v.key] for v in variables(part)})).blamed is None


def _proved(question: _Question, word: str, proof: str) -> Verdict:
    """A proof, with what rounding can do to it: nothing, where the rules hold for doubles too."""
    question = question.origin or question
    doubles = Rules(question.along, question.boxes, doubles=True).shape(question.tree)
    need = {"increasing": INC, "decreasing": DEC, "constant": INC | DEC, "quasiconvex": QCVX}[word]
    if need in doubles:
        return Verdict(word, f"{proof}; to the last bit")
    return _rounded(word, proof, 2 * rounding_bound(question.tree, question.boxes))


def _rounded(word: str, proof: str, bound: float) -> Verdict:
    """A proof in exact arithmetic, with how far doubles may depart from it."""
    said = f"within {bound:.1g} of rounding" if math.isfinite(bound) else "rounding is not bounded"
    return Verdict(word, f"{proof}; {said}", rounding=bound)


def _word(shape: Shape) -> str:
    return "constant" if (INC | DEC) in shape else "increasing" if INC in shape else "decreasing"


def _refuted(tree: Node, along: Key, domains: Domains, seen: Sample) -> Verdict:
    assert seen.xs is not None
    at = {name_of(key): value for key, value in seen.at.items()}
    there = "".join(f", {name} = {value:.6g}" for name, value in at.items())
    x1, x2, x3 = seen.xs
    proof = f"higher at {x2:.6g} than at {x1:.6g} and {x3:.6g}{there}"
    help_ = advice.of_peak(tree, along, domains, seen)
    return Verdict("refuted", proof, {"x": list(seen.xs), "at": at}, help=help_)


def _undefined(found: Cover) -> Verdict:
    where = ", ".join(f"{name_of(key)} in {_span(ends)}" for key, ends in found.where.items() if key[0] != _PARAMETER)
    proof = f"`{found.blamed}` is not proved defined and finite" + (f" for {where}" if where else "")
    assert found.blamed is not None
    return Verdict("undecided", proof, help=advice.of_undefined(found.blamed))


def _open(found: Outcome) -> Verdict:
    where = ", ".join(f"{name_of(key)} in {_span(ends)}" for key, ends in found.where.items() if key[0] != _PARAMETER)
    proof = f"neither a proof nor a counterexample after {found.boxes:,} boxes; open is {where}"
    return Verdict("undecided", proof, help=advice.OPEN)


def _span(ends: tuple[float, float]) -> str:
    return f"[{ends[0]:.6g}, {ends[1]:.6g}]"


def name_of(key: Key) -> str:
    """How a condition writes a variable."""
    return ".".join(part for part in key if part is not None)


def _solvable(question: _Question) -> bool:
    return solve.available() and solve.is_algebraic(question.tree)


def _path(question: _Question) -> str:
    """The operations from the top down to the variable."""
    found: list[str] = []
    node, along = question.tree, question.along
    while True:
        parts = [part for part in children(node) if not is_free(part, along)]
        if not parts:
            return ", ".join(dict.fromkeys(found)) or "the variable itself"
        found.append(_operation(node))
        if len(parts) > 1:
            rest = [_operation(part) for part in parts if children(part)]
            return ", ".join(dict.fromkeys([*found, *rest]))
        node = parts[0]


def _operation(node: Node) -> str:
    return str(getattr(node, "op", getattr(node, "name", "-")))
