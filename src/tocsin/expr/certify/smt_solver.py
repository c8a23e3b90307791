"""SMT solver: decide the shape of an algebraic expression over the real numbers with Z3.

Algorithm: state that a counterexample exists. If the solver finds the statement unsatisfiable, the shape is proved.
Otherwise its solution is a candidate for a counterexample. Every variable becomes a new symbol, so that names of
streams cannot collide with names inside the solver.

Guarantee: a proof is as reliable as the result `unsat` of the solver, for exact arithmetic.

Complexity: limited by the step counter of the solver.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from tocsin.expr.certify.domain_boxes import Domains, clip_domain
from tocsin.expr.certify.interval_functions import decimal_value
from tocsin.expr.syntax_tree import (
    Binary,
    Bool,
    Call,
    Compare,
    Key,
    Node,
    Number,
    Unary,
    Variable,
    child_nodes,
    is_independent_of,
    literal_value,
    walk_nodes,
)

_FUNCTIONS = ("abs", "min", "max", "where", "sqrt", "floor", "ceil", "pow")
_MAX_POWER = 8
# Limit of the step counter of the solver; some tenths of a second. Unlike a time limit, it is reproducible.
_MAX_STEPS = 100_000


@dataclass(frozen=True)
class SolverAnswer:
    """The result of the solver: a proof, a candidate for a counterexample (`xs` is not empty), or neither.

    Attributes
    ----------
    xs
        Increasing values of the variable.
    at
        The values of the other variables.
    """

    proved: bool
    xs: tuple[float, ...] = ()
    at: Mapping[Key, float] = field(default_factory=dict)


def is_available() -> bool:
    """Return whether Z3 is installed."""
    try:
        import z3  # noqa: F401
    except ImportError:
        return False
    return True


def is_supported(tree: Node) -> bool:
    """Return whether the solver supports all operations of a tree."""
    return all(_is_node_supported(node) for node in walk_nodes(tree))


def _is_node_supported(node: Node) -> bool:
    if isinstance(node, Call) and node.name not in _FUNCTIONS:
        return False
    if getattr(node, "op", getattr(node, "name", "")) not in ("**", "pow"):
        return True
    # The solver supports powers with a small literal exponent.
    _, exponent = child_nodes(node)
    index = literal_value(exponent)
    return index is not None and (index.is_integer() or abs(index) == 0.5) and abs(index) <= _MAX_POWER


def prove_shape(tree: Node, along: Key, domains: Domains, shape: str, *, decimals: bool = False) -> SolverAnswer:
    """Try to prove that an expression is `increasing`, `decreasing` or `quasiconvex` along a variable.

    With `decimals`, the value of a literal is the decimal that the user wrote, not its double.
    """
    import z3

    encoder = _Encoder(z3, along, domains, decimals=decimals)
    count = 3 if shape == "quasiconvex" else 2
    xs = [encoder.new_symbol(domains[along]) for _ in range(count)]
    values = [encoder.encode_number(tree, x) for x in xs]
    for one, other in itertools.pairwise(xs):
        encoder.facts.append(one < other)
    if shape == "quasiconvex":
        encoder.facts += [values[1] > values[0], values[1] > values[2]]
    else:
        encoder.facts.append(values[0] > values[1] if shape == "increasing" else values[0] < values[1])
    solver = z3.Solver(ctx=encoder.context)
    solver.set("rlimit", _MAX_STEPS)
    solver.add(*encoder.facts)
    found = solver.check()
    if found == z3.unsat:
        return SolverAnswer(True)
    if found != z3.sat:
        return SolverAnswer(False)
    model = solver.model()
    at = {key: _model_value(model, symbol) for key, symbol in encoder.symbols.items()}
    return SolverAnswer(False, tuple(_model_value(model, x) for x in xs), at)


def _model_value(model: Any, symbol: Any) -> float:
    value = model.eval(symbol, model_completion=True)
    if hasattr(value, "approx"):
        value = value.approx(20)
    return float(Fraction(value.numerator_as_long(), value.denominator_as_long()))


class _Encoder:
    """A translator of trees to terms of the solver. `facts` bound the symbols and define roots and quotients."""

    def __init__(self, z3: Any, along: Key, domains: Domains, *, decimals: bool) -> None:
        self._literal_fraction = decimal_value if decimals else Fraction
        self.z3, self.context = z3, z3.Context()
        self._along, self._domains = along, domains
        self.facts: list[Any] = []
        self.symbols: dict[Key, Any] = {}
        # Terms of nodes that do not depend on the variable.
        self._independent_terms: dict[Node, Any] = {}
        # Conditions under which the current branch of `where` is chosen.
        self._guards: list[Any] = []

    def add_facts(self, *facts: Any) -> None:
        """Add facts. Inside a branch of `where`, they apply only if the branch is chosen."""
        guard = self.z3.And(*self._guards) if self._guards else None
        self.facts += [fact if guard is None else self.z3.Implies(guard, fact) for fact in facts]

    def new_symbol(self, domain: tuple[float, float] | None = None) -> Any:
        """Return a new symbol, restricted to a domain."""
        symbol = self.z3.FreshReal(ctx=self.context)
        if domain is not None:
            low, high = clip_domain(domain)
            self.facts += [symbol >= self._encode_literal(low), symbol <= self._encode_literal(high)]
        return symbol

    def encode_number(self, node: Node, x: Any) -> Any:
        """Return the term of a number. Terms that do not depend on the variable are reused."""
        if not self._guards and is_independent_of(node, self._along):
            if node not in self._independent_terms:
                self._independent_terms[node] = self._encode_number(node, x)
            return self._independent_terms[node]
        return self._encode_number(node, x)

    def _encode_literal(self, exact: Fraction | float) -> Any:
        exact = Fraction(exact)
        return self.z3.RealVal(f"{exact.numerator}/{exact.denominator}", ctx=self.context)

    def _encode_number(self, node: Node, x: Any) -> Any:
        if isinstance(node, Number):
            return self._encode_literal(self._literal_fraction(node.value))
        if isinstance(node, Variable):
            if node.key == self._along:
                return x
            if node.key not in self.symbols:
                self.symbols[node.key] = self.new_symbol(self._domains[node.key])
            return self.symbols[node.key]
        if isinstance(node, Unary):
            return -self.encode_number(node.operand, x)
        if isinstance(node, Binary):
            return self._encode_binary(node.op, node.left, node.right, x)
        assert isinstance(node, Call)
        if node.name == "pow":
            return self._encode_binary("**", node.args[0], node.args[1], x)
        if node.name == "where":
            test = self._encode_condition(node.args[0], x)
            chosen = self._encode_branch(test, node.args[1], x)
            other = self._encode_branch(self.z3.Not(test), node.args[2], x)
            return self.z3.If(test, chosen, other)
        return self._encode_function(node.name, [self.encode_number(arg, x) for arg in node.args])

    def _encode_branch(self, guard: Any, node: Node, x: Any) -> Any:
        self._guards.append(guard)
        value = self.encode_number(node, x)
        self._guards.pop()
        return value

    def _encode_function(self, name: str, values: list[Any]) -> Any:
        first = values[0]
        if name == "abs":
            return self.z3.If(first >= 0, first, -first)
        if name == "sqrt":
            root = self.new_symbol()
            self.add_facts(root >= 0, root * root == first)
            return root
        if name == "floor":
            return self.z3.ToReal(self.z3.ToInt(first))
        if name == "ceil":
            return -self.z3.ToReal(self.z3.ToInt(-first))
        for value in values[1:]:
            first = self.z3.If(first <= value if name == "min" else first >= value, first, value)
        return first

    def _encode_binary(self, op: str, left: Node, right: Node, x: Any) -> Any:
        a = self.encode_number(left, x)
        if op == "**":
            return self._encode_power(a, literal_value(right))
        b = self.encode_number(right, x)
        if op == "+":
            return a + b
        if op == "-":
            return a - b
        return a * b if op == "*" else self._encode_quotient(a, b)

    def _encode_quotient(self, a: Any, b: Any) -> Any:
        quotient = self.new_symbol()
        self.add_facts(b != 0, quotient * b == a)
        return quotient

    def _encode_power(self, base: Any, index: float | None) -> Any:
        assert index is not None
        if abs(index) == 0.5:
            result = self._encode_function("sqrt", [base])
        else:
            result = self._encode_literal(1.0)
            for _ in range(int(abs(index))):
                result = result * base
        return self._encode_quotient(self._encode_literal(1.0), result) if index < 0 else result

    def _encode_condition(self, node: Node, x: Any) -> Any:
        if isinstance(node, Bool):
            parts = [self._encode_condition(arg, x) for arg in node.args]
            return self.z3.And(*parts) if node.op == "and" else self.z3.Or(*parts)
        assert isinstance(node, Compare)
        a, b = self.encode_number(node.left, x), self.encode_number(node.right, x)
        return {">": a > b, ">=": a >= b, "<": a < b, "<=": a <= b}[node.op]
