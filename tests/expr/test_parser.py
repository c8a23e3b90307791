"""Parser: trees of valid texts, and errors with their positions."""

from __future__ import annotations

import ast
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from call_counts import count_calls
from expr.expression_trees import EXACT, ROUNDED, build, conditions, numbers
from tocsin.errors import ExprError
from tocsin.expr import Binary, Bool, Compare, Number, Unary, Variable, find_variables, parse_condition, parse_number

_PYTHON = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**", ast.Gt: ">", ast.GtE: ">=", ast.Lt: "<",
    ast.LtE: "<=", ast.And: "and", ast.Or: "or",
}  # fmt: skip


def from_python(node: Any) -> tuple[Any, ...]:
    """Convert a tree of the `ast` module to nested tuples."""
    if isinstance(node, ast.Name):
        return ("var", node.id, None)
    if isinstance(node, ast.UnaryOp):
        return ("neg", from_python(node.operand))
    if isinstance(node, ast.BinOp):
        return (_PYTHON[type(node.op)], from_python(node.left), from_python(node.right))
    if isinstance(node, ast.BoolOp):
        return (_PYTHON[type(node.op)], *map(from_python, node.values))
    return (_PYTHON[type(node.ops[0])], from_python(node.left), from_python(node.comparators[0]))


_operands = st.sampled_from(["a", "b", "-a", "--b", "(a - b)", "-(a ** b)", "a ** -b"])
_sums = st.builds(
    lambda first, rest: first + "".join(f" {op} {operand}" for op, operand in rest),
    _operands,
    st.lists(st.tuples(st.sampled_from(["+", "-", "*", "/", "**"]), _operands), max_size=6),
)
_tests = st.builds(lambda a, op, b: f"{a} {op} {b}", _sums, st.sampled_from([">", ">=", "<", "<="]), _sums)


@given(st.lists(_tests, min_size=1, max_size=4), st.lists(st.sampled_from([" and ", " or "]), min_size=3, max_size=3))
def test_parser_groups_operators_as_python_does(tests: list[str], words: list[str]) -> None:
    text = "".join(f"{test}{word}" for test, word in zip(tests, [*words[: len(tests) - 1], ""], strict=False))
    assert parse_condition(text) == build(from_python(ast.parse(text, mode="eval").body))


@given(conditions((*EXACT, *ROUNDED), "+-*/") | conditions(arithmetic=("**", "-")))
def test_condition_tree_is_equal_after_formatting_and_parsing(tree: Any) -> None:
    assert parse_condition(str(build(tree))) == build(tree)


@given(numbers())
def test_number_tree_is_equal_after_formatting_and_parsing(tree: Any) -> None:
    assert parse_number(str(build(tree))) == build(tree)


def try_parse(text: str) -> tuple[Any, ExprError | None]:
    try:
        return parse_condition(text), None
    except ExprError as error:
        return None, error


@given(st.text(max_size=40) | st.text("ab.( )<>=+-*/10e,_andor", max_size=40))
def test_parser_returns_a_tree_or_raises_expr_error_for_any_text(text: str) -> None:
    node, error = try_parse(text)
    assert node is None or parse_condition(str(node)) == node
    assert error is None or 0 <= error.start <= error.stop <= len(text)


def test_node_positions_match_the_text_and_do_not_affect_equality() -> None:
    node = parse_condition("  (air.temp + 1) * 2 > 3")
    assert isinstance(node, Compare)
    assert isinstance(node.left, Binary)
    assert (node.start, node.stop) == (2, 24)
    assert (node.left.left.start, node.left.left.stop) == (2, 16)
    assert node == parse_condition("(air.temp+1)*2>3")
    assert hash(node) == hash(parse_condition("(air.temp+1)*2>3"))


def test_find_variables_returns_order_of_first_appearance() -> None:
    node = parse_condition("b.y + a > b.x and a.x < b.y")
    assert [variable.key for variable in find_variables(node)] == [("b", "y"), ("a", None), ("b", "x"), ("a", "x")]


@pytest.mark.parametrize("text", ["1", "1.5", "1e-3", ".5", "1.", "2.5E+3", "007"])
def test_parser_accepts_literal(text: str) -> None:
    assert parse_number(text) == Number(float(text))


def test_parser_accepts_column_named_like_a_function() -> None:
    assert parse_number("-a.min") == Unary(Variable("a", "min"))


def test_parser_keeps_nested_junction_when_parentheses_group_it() -> None:
    assert len(parse_condition("a > 1 and b > 1 and c > 1").args) == 3  # type: ignore[union-attr]
    nested = parse_condition("(a > 1 and b > 1) and c > 1")
    assert isinstance(nested, Bool)
    assert len(nested.args) == 2


REJECTED = [
    ("", "expected a number, a stream, a function or `(`; got the end", ""),
    ("a > ", "got the end", ""),
    ("a + 1", "a condition needs a comparison", "a + 1"),
    ("a < b < c", "comparisons are not chained; write `... < b and b < ...`", "<"),
    ("(a < b) < c", "comparisons are not chained", "<"),
    ("a < (b < c)", "expected a number; got a condition", "(b < c)"),
    ("(a < b) + 1 > 2", "expected a number; got a condition", "(a < b)"),
    ("a and b > 1", "`and` expected a comparison", "a"),
    ("a > 1 or 2", "`or` expected a comparison", "2"),
    ("a == b", "`==` is not supported; use `>=` and `<=`", "=="),
    ("a != b", "`!=` is not supported", "!="),
    ("a = b", "`=` is not supported", "="),
    ("a <> b", "`<>` is not supported", "<>"),
    ("a => b", "write `>=`", "=>"),
    ("a =< b", "write `<=`", "=<"),
    ("not a > b", "`not` is not an operator; reverse the comparison", "not"),
    ("a > 1 AND b > 1", "`AND` is not an operator; write `and`", "AND"),
    ("a > 1 && b > 1", "write `and`", "&&"),
    ("a > 1 | b > 1", "write `or`", "|"),
    ("a ^ 2 > 1", "write `**` for powers", "^"),
    ("a // 2 > 1", "write `floor", "//"),
    ("a % 2 > 1", "floor(a / b)", "%"),
    ("a > 'x'", "starts a text; a condition can only use numbers", "'"),
    ('a > "x"', "starts a text", '"'),
    ("lambda > 1", "`lambda` is a reserved word", "lambda"),
    ("True > 0", "`True` is a reserved word", "True"),
    ("a.b.c > 1", "expected `stream` or `stream.column`; got 2 dots", "a.b.c"),
    ("a. > 1", "expected a column name after the dot", "a."),
    ("a.1 > 1", "expected a column name after the dot", "a."),
    ("a .b > 1", "is not supported in conditions", "."),
    ("__class__ > 1", "must not begin with two underscores", "__class__"),
    ("a.__class__ > 1", "must not begin with two underscores", "a.__class__"),
    ("a[0] > 1", "`[` is not supported in conditions", "["),
    ("log(a) > 1", "`log` is not a function; did you mean `ln`", "log"),
    ("Sqrt(a) > 1", "did you mean `sqrt`", "Sqrt"),
    ("getpid(a) > 1", "is not a function; the functions are abs, ceil", "getpid"),
    ("a.min(b) > 1", "`a.min` is not a function", "a.min"),
    ("min > 1", "`min` is a function and cannot name a stream; expected `min(...)`", "min"),
    ("sqrt.x > 1", "`sqrt` is a function and cannot name a stream", "sqrt.x"),
    ("min(a) > 1", "`min` takes 2 or more arguments; got 1", "min(a)"),
    ("ln() > 1", "`ln` takes 1 arguments; got 0", "ln()"),
    ("pow(a, b, c) > 1", "`pow` takes 2 arguments; got 3", "pow(a, b, c)"),
    ("where(a, b, c) > 1", "`where` expected a comparison", "a"),
    ("min(a > 1, b) > 1", "expected a number; got a condition", "a > 1"),
    ("min(a,) > 1", "got `)`", ")"),
    ("(a > 1", "expected `)` for this `(`; got the end", "("),
    ("a > 1)", "expected an operator or the end; got `)`", ")"),
    ("a b > 1", "expected an operator or the end; got `b`", "b"),
    ("(a b) > 1", "expected an operator or `)`; got `b`", "b"),
    ("+a > 1", "got `+`", "+"),
    ("1e999 > a", "`1e999` is too large for a number", "1e999"),
    ("1e > a", "expected an operator after the number; got `e`", "1e"),
    ("0x10 > a", "expected an operator after the number", "0x"),
    ("1_000 > a", "expected an operator after the number", "1_"),
    ("1.2.3 > a", "expected an operator after the number", "1.2."),
    ("a > \uff11", r"U+FF11 (FULLWIDTH DIGIT ONE) is not supported in conditions; use plain ASCII", "\uff11"),
    ("\u0430 > 1", "U+0430 (CYRILLIC SMALL LETTER A)", "\u0430"),
    ("a\u0301 > 1", "U+0301 (COMBINING ACUTE ACCENT)", "\u0301"),
    ("a \u2265 1", "U+2265 (GREATER-THAN OR EQUAL TO)", "\u2265"),
    ("a > 1\x00", "U+0000 (a control character)", "\x00"),
    ("a\u200b > 1", "U+200B (ZERO WIDTH SPACE)", "\u200b"),
    ("a\xa0> 1", "U+00A0 (NO-BREAK SPACE)", "\xa0"),
    ("a > 1 \ud800", "U+D800 (a control character)", "\ud800"),
]


@pytest.mark.parametrize(("text", "message", "place"), REJECTED)
def test_parser_reports_reason_and_position_when_text_is_invalid(text: str, message: str, place: str) -> None:
    with pytest.raises(ExprError, match="\n") if text else pytest.raises(ExprError, match="end") as caught:
        parse_condition(text)
    assert message in str(caught.value)
    assert text[caught.value.start : caught.value.stop] == place
    assert not text or "^" * max(1, len(place)) in str(caught.value)


HOSTILE = [
    ("(" * 5_000 + "a" + ")" * 4_999, "nested at most 100 deep"),
    ("(" * 10_000, "nested at most 100 deep"),
    ("(" * 10_000 + "a" + ")" * 10_000, "at most 10000 characters; got 20001"),
    ("a" * 1_000_000, "at most 10000 characters; got 1000000"),
    ("-" * 9_000 + "a > 1", "nested at most 100 deep"),
    ("**".join("a" * 3_000) + " > 1", "nested at most 100 deep"),
    ("abs(" * 2_000 + "a", "nested at most 100 deep"),
    ("where(a>1,1," * 800 + "a", "nested at most 100 deep"),
    ("9" * 9_990 + " > a", "a number must have at most 100 characters; got 9990"),
    ("a" * 9_990 + " > 1", "a name must have at most 100 characters; got 9990"),
    ("a" + ".a" * 4_000 + " > 1", "a name must have at most 100 characters"),
    ("+".join("a" * 4_900) + " > 1", "at most 200 deep; group its parts with parentheses"),
    ("<".join("a" * 4_900), "comparisons are not chained"),
    ("f" * 90 + "(" * 9_000, "is not a function"),
    ("a > " + "\u200b" * 9_000, r"U\+200B"),
    ("\n" * 9_999, "got the end"),
]


@pytest.mark.parametrize(("text", "message"), HOSTILE, ids=range(len(HOSTILE)))
def test_parser_work_is_linear_in_text_length_when_text_is_hostile(text: str, message: str) -> None:
    with pytest.raises(ExprError, match=message) as caught:
        parse_condition(text)
    assert len(str(caught.value)) < 1_000

    def parse_ignoring_errors() -> None:
        with suppress(ExprError):
            parse_condition(text)

    assert count_calls(parse_ignoring_errors) < 50 * min(len(text), 10_000)


def test_parser_accepts_large_valid_text() -> None:
    groups = " + ".join(f"({' + '.join('a' * 100)})" for _ in range(20))
    assert len(find_variables(parse_condition(f"{groups} > 1"))) == 1
    alternatives = parse_condition(" or ".join(["a>1"] * 1_400))
    assert parse_condition(str(alternatives).replace(" > ", ">")) == alternatives


def test_parser_raises_type_error_when_input_is_not_text() -> None:
    with pytest.raises(TypeError, match="must be a str; got int"):
        parse_condition(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Number(-1.0), "finite and have no minus sign"),
        (lambda: Number(float("nan")), "finite and have no minus sign"),
        (lambda: Binary("%", Number(1.0), Number(1.0)), "'%' is not one of"),
        (lambda: Compare("==", Number(1.0), Number(1.0)), "'==' is not one of"),
        (lambda: Bool("and", ()), "two or more conditions"),
        (lambda: build(("call", "ln")), "`ln` got 0 arguments; it takes 1"),
        (lambda: build(("call", "log")), "'log' is not one of"),
    ],
)
def test_node_raises_value_error_when_no_text_has_this_tree(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_parse_number_raises_error_when_text_is_a_condition() -> None:
    with pytest.raises(ExprError, match="expected a number; got a condition"):
        parse_number("a > 1")
