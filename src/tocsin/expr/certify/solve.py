"""Ask a solver: conditions made of arithmetic, roots, comparisons and steps are decided over the real numbers by Z3.

Idea: state that a counterexample exists. No solution is a proof; a solution is tried in exact arithmetic. Every symbol
is fresh, so no name of a user can meet one of the solver's.
Guarantee: as good as the solver's `unsat`, in exact arithmetic. Cost: bounded in the solver's own steps.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from tocsin.expr.certify.boxes import ends
from tocsin.expr.certify.functions import written
from tocsin.expr.nodes import (
    Binary,
    Bool,
    Call,
    Compare,
    Key,
    Node,
    Number,
    Unary,
    Variable,
    is_free,
    literal,
    walk,
)

Domains = Mapping[Key, tuple[float, float]]

_FUNCTIONS = ("abs", "min", "max", "where", "sqrt", "floor", "ceil", "pow")
_LARGEST_POWER = 8
# The solver's own count of steps: unlike a time, it gives the same answer on every machine. Some tenths of a second.
_MOST_STEPS = 100_000


@dataclass(frozen=True)
class Answer:
    """`proved`, or a candidate for a counterexample, or neither."""

    proved: bool
    xs: tuple[float, ...] = ()
    at: Mapping[Key, float] = field(default_factory=dict)


def available() -> bool:
    """Tell whether Z3 is installed."""
    try:
        import z3  # noqa: F401
    except ImportError:
        return False
    return True


def is_algebraic(tree: Node) -> bool:
    """Tell whether the solver knows every operation."""
    return all(_is_known(node) for node in walk(tree))


def _is_known(node: Node) -> bool:
    if isinstance(node, Call) and node.name not in _FUNCTIONS:
        return False
    power = isinstance(node, Binary) and node.op == "**"
    exponent = node.right if power and isinstance(node, Binary) else None
    if isinstance(node, Call) and node.name == "pow":
        exponent = node.args[1]
    if exponent is None:
        return True
    index = literal(exponent)
    return index is not None and (index.is_integer() or abs(index) == 0.5) and abs(index) <= _LARGEST_POWER


def prove(tree: Node, along: Key, domains: Domains, shape: str, *, decimals: bool = False) -> Answer:
    """Prove that an expression is `increasing`, `decreasing` or `quasiconvex` along a variable.

    With `decimals`, literals are the decimals that were written, not the doubles that they are read as.
    """
    import z3

    encoder = _Encoder(z3, along, domains, decimals=decimals)
    count = 3 if shape == "quasiconvex" else 2
    xs = [encoder.fresh(domains[along]) for _ in range(count)]
    values = [encoder.number(tree, x) for x in xs]
    for one, other in itertools.pairwise(xs):
        encoder.facts.append(one < other)
    if shape == "quasiconvex":
        encoder.facts += [values[1] > values[0], values[1] > values[2]]
    else:
        encoder.facts.append(values[0] > values[1] if shape == "increasing" else values[0] < values[1])
    solver = z3.Solver(ctx=encoder.context)
    solver.set("rlimit", _MOST_STEPS)
    solver.add(*encoder.facts)
    found = solver.check()
    if found == z3.unsat:
        return Answer(True)
    if found != z3.sat:
        return Answer(False)
    model = solver.model()
    at = {key: _float(model, symbol) for key, symbol in encoder.symbols.items()}
    return Answer(False, tuple(_float(model, x) for x in xs), at)


def _float(model: Any, symbol: Any) -> float:
    value = model.eval(symbol, model_completion=True)
    if hasattr(value, "approx"):
        value = value.approx(20)
    return float(Fraction(value.numerator_as_long(), value.denominator_as_long()))


class _Encoder:
    """Write a tree in the solver's terms; `facts` bound every symbol and define roots and quotients."""

    def __init__(self, z3: Any, along: Key, domains: Domains, *, decimals: bool) -> None:
        self._read = written if decimals else Fraction
        self.z3, self.context = z3, z3.Context()
        self._along, self._domains = along, domains
        self.facts: list[Any] = []
        self.symbols: dict[Key, Any] = {}
        self._free: dict[Node, Any] = {}
        self._guards: list[Any] = []

    def state(self, *facts: Any) -> None:
        """State facts; those about a branch of `where` hold only where it is taken."""
        guard = self.z3.And(*self._guards) if self._guards else None
        self.facts += [fact if guard is None else self.z3.Implies(guard, fact) for fact in facts]

    def fresh(self, domain: tuple[float, float] | None = None) -> Any:
        """A new symbol inside a domain."""
        symbol = self.z3.FreshReal(ctx=self.context)
        if domain is not None:
            low, high = ends(domain)
            self.facts += [symbol >= self._literal(low), symbol <= self._literal(high)]
        return symbol

    def number(self, node: Node, x: Any) -> Any:
        """A number; what does not contain the variable is written once."""
        if not self._guards and is_free(node, self._along):
            if node not in self._free:
                self._free[node] = self._number(node, x)
            return self._free[node]
        return self._number(node, x)

    def _literal(self, exact: Fraction | float) -> Any:
        exact = Fraction(exact)
        return self.z3.RealVal(f"{exact.numerator}/{exact.denominator}", ctx=self.context)

    def _number(self, node: Node, x: Any) -> Any:
        if isinstance(node, Number):
            return self._literal(self._read(node.value))
        if isinstance(node, Variable):
            if node.key == self._along:
                return x
            if node.key not in self.symbols:
                self.symbols[node.key] = self.fresh(self._domains[node.key])
            return self.symbols[node.key]
        if isinstance(node, Unary):
            return -self.number(node.operand, x)
        if isinstance(node, Binary):
            return self._binary(node.op, node.left, node.right, x)
        assert isinstance(node, Call)
        if node.name == "pow":
            return self._binary("**", node.args[0], node.args[1], x)
        if node.name == "where":
            test = self._truth(node.args[0], x)
            return self.z3.If(
                test, self._guarded(test, node.args[1], x), self._guarded(self.z3.Not(test), node.args[2], x)
            )
        return self._function(node.name, [self.number(arg, x) for arg in node.args])

    def _guarded(self, guard: Any, node: Node, x: Any) -> Any:
        self._guards.append(guard)
        value = self.number(node, x)
        self._guards.pop()
        return value

    def _function(self, name: str, values: list[Any]) -> Any:
        first = values[0]
        if name == "abs":
            return self.z3.If(first >= 0, first, -first)
        if name == "sqrt":
            root = self.fresh()
            self.state(root >= 0, root * root == first)
            return root
        if name == "floor":
            return self.z3.ToReal(self.z3.ToInt(first))
        if name == "ceil":
            return -self.z3.ToReal(self.z3.ToInt(-first))
        for value in values[1:]:
            first = self.z3.If(first <= value if name == "min" else first >= value, first, value)
        return first

    def _binary(self, op: str, left: Node, right: Node, x: Any) -> Any:
        a = self.number(left, x)
        if op == "**":
            return self._power(a, literal(right))
        b = self.number(right, x)
        if op == "+":
            return a + b
        if op == "-":
            return a - b
        return a * b if op == "*" else self._quotient(a, b)

    def _quotient(self, a: Any, b: Any) -> Any:
        quotient = self.fresh()
        self.state(b != 0, quotient * b == a)
        return quotient

    def _power(self, base: Any, index: float | None) -> Any:
        assert index is not None
        if abs(index) == 0.5:
            result = self._function("sqrt", [base])
        else:
            result = self._literal(1.0)
            for _ in range(int(abs(index))):
                result = result * base
        return self._quotient(self._literal(1.0), result) if index < 0 else result

    def _truth(self, node: Node, x: Any) -> Any:
        if isinstance(node, Bool):
            parts = [self._truth(arg, x) for arg in node.args]
            return self.z3.And(*parts) if node.op == "and" else self.z3.Or(*parts)
        assert isinstance(node, Compare)
        a, b = self.number(node.left, x), self.number(node.right, x)
        return {">": a > b, ">=": a >= b, "<": a < b, "<=": a <= b}[node.op]
