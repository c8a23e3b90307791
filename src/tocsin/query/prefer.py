"""Expressions of a query as the text of `tocsin.expr`: preferences, and what must hold of a pair.

`name.Estimate.Count(s1.item)` becomes `count(s1.item)`, and so does `name.Estimate.Count()` of a summary of that
column; columns, numbers, arithmetic and functions stay. All else is refused, so nothing of the query's text reaches a
compiler.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Sequence

from sqlglot import exp

from tocsin.errors import ExprError
from tocsin.expr import FUNCTIONS, parse_condition
from tocsin.query.model import KEY, ONE, ROW, TIME
from tocsin.query.names import Named, literal_number
from tocsin.query.read import Script

ESTIMATES = ("COUNT",)
_BINARY: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/"}
# As sqlglot names what we call otherwise.
_CALLS: dict[type[exp.Expr], str] = {exp.Greatest: "max", exp.Least: "min", exp.Pow: "pow"}
_OURS = (KEY, TIME, ONE, ROW)
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# Gives the text of a column, and that of an estimate by the summary of this name; None: of the column that it is of.
OfColumn = Callable[[exp.Column], str]
OfEstimate = Callable[[exp.Expr, exp.Column | None], str]


def expression_text(script: Script, node: exp.Expr, column: OfColumn, estimate: OfEstimate | None) -> str:
    """Write a tree as the text of an expression; every operation has its parentheses."""

    def text(part: exp.Expr) -> str:
        if isinstance(part, exp.Paren):
            return text(part.this)
        if isinstance(part, exp.Neg):
            return f"(-{text(part.this)})"
        if isinstance(part, exp.Literal) and not part.is_string:
            return _number(script, part)
        if isinstance(part, exp.Column) and not isinstance(part.this, exp.Star):
            return column(part)
        for kind, sign in _BINARY.items():
            if type(part) is kind:
                return f"({text(part.this)} {sign} {text(part.expression)})"
        if isinstance(part, exp.Dot):
            return _estimate(script, part, estimate)
        return _call(script, part, text)

    try:
        return text(node)
    except RecursionError:
        script.refuse("the expression is nested too deeply; use fewer operators", node)


def condition_text(script: Script, conditions: Sequence[str], node: exp.Expr) -> str:
    """Join comparisons to the text of one condition; what is too long or too deep is refused."""
    text = " and ".join(conditions)
    try:
        parse_condition(text)
    except ExprError as error:
        script.refuse(f"invalid condition: {error.message}", node)
    return text


def _number(script: Script, node: exp.Literal) -> str:
    number = float(literal_number(node))
    if not 0 <= number < float("inf"):
        script.refuse(f"a number must be finite; got {node.this}", node)
    return repr(number).replace("e+", "e")


def _call(script: Script, node: exp.Expr, text: Callable[[exp.Expr], str]) -> str:
    # As sqlglot reads `log10(x)`; `log(x)` is the natural one.
    if isinstance(node, exp.Log) and literal_number(node.this) == 10:
        return f"log10({text(node.expression)})"
    name = _CALLS.get(type(node)) or (node.name if isinstance(node, exp.Anonymous) else node.key)
    name = name.lower()
    arguments = [one for value in node.args.values() for one in (value if isinstance(value, list) else [value])]
    parts = [one for one in arguments if isinstance(one, exp.Expr)]
    known = isinstance(node, exp.Func) and name in FUNCTIONS and name != "where"
    least, most = FUNCTIONS[name] if known else (0, None)
    if not known or not least <= len(parts) <= (most or len(parts)):
        functions = ", ".join(sorted({*FUNCTIONS} - {"where", "pow"} | {"power", "greatest", "least"} - {"max", "min"}))
        script.refuse(
            "an expression may contain numbers, columns, + - * /, estimates such as "
            "`name.Estimate.Count(stream.column)` and "
            f"functions ({functions})",
            node,
        )
    return f"{name}({', '.join(text(part) for part in parts)})"


def _estimate(script: Script, node: exp.Dot, estimate: OfEstimate | None) -> str:
    call, owner = node.expression, node.this
    shape = isinstance(owner, exp.Dot) and isinstance(owner.expression, exp.Identifier)
    shape = shape and not isinstance(owner.this, exp.Dot)
    is_count = isinstance(call, exp.Anonymous | exp.Count) and _call_name(call) in ESTIMATES
    if estimate is None or not shape or owner.expression.name.upper() != "ESTIMATE" or not is_count:
        script.refuse("an estimate must be written `name.Estimate.Count(stream.column)` and used in a preference", node)
    arguments = [one for one in call.expressions or [call.this] if isinstance(one, exp.Expr)]
    if not arguments:
        return estimate(owner.this, None)
    if len(arguments) != 1 or not isinstance(arguments[0], exp.Column):
        script.refuse("`Count` of a summary takes one column, or no argument for the column of the summary", node)
    return estimate(owner.this, arguments[0])


def _call_name(call: exp.Expr) -> str:
    return (call.name if isinstance(call, exp.Anonymous) else call.key).upper()


def plain_alias(script: Script, alias: str, node: exp.Expr) -> str:
    """A stream as expressions name it."""
    _check_plain(script, alias, node)
    if keyword.iskeyword(alias) or alias in FUNCTIONS:
        script.refuse(f"`{alias}` is a reserved word or a function; use another alias for this stream", node)
    return alias


def plain(named: Named, node: exp.Column) -> tuple[int, str, str]:
    """A column of numbers: its stream, its name, and how expressions name it; odd names are refused."""
    (number, name), script = named.number(node), named.script
    _check_plain(script, name, node)
    alike = [one for one in named.streams.columns[named.names[number]] if one.lower() == name.lower()]
    if len(alike) > 1:
        script.refuse(f"names in an expression must differ in more than upper and lower case; got {alike}", node)
    if name.lower() in _OURS:
        script.refuse(f"the names {', '.join(_OURS)} are reserved; rename the column first", node)
    return number, name, f"{plain_alias(script, named.aliases[number], node)}.{name}"


def _check_plain(script: Script, name: str, node: exp.Expr) -> None:
    if not _PLAIN.fullmatch(name) or name.startswith("__"):
        script.refuse(f"a name in an expression must consist of letters, digits and `_`; got `{name}`", node)
