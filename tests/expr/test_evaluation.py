"""Evaluation: the stack machine and NumPy return the results of the oracle."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from expr.expression_trees import EXACT, ROUNDED, VARIABLES, build, conditions, numbers, rows, same, values
from naive.expr import judge, number
from tocsin import jit
from tocsin.expr import (
    compile_expression,
    evaluate_columns,
    evaluate_number,
    find_variables,
    hoist_subexpressions,
    parse_condition,
    parse_number,
    run_program,
)

LARGEST = 1.7976931348623157e308
tables = st.lists(rows, min_size=1, max_size=5)


def columns_of(table: list[dict[Any, float]]) -> dict[Any, np.ndarray]:
    return {key: np.array([row[key] for row in table]) for key in VARIABLES}


def run(text: str, **given_values: float) -> tuple[float, bool, float]:
    node = parse_condition(text)
    program = compile_expression(node, [(name, None) for name in given_values])
    x = np.array(list(given_values.values()), np.float64)
    return run_program(program.ops, program.args, program.consts, program.scratch(), x)


@given(conditions(), rows)
def test_stack_machine_equals_oracle_for_conditions(tree: Any, row: dict[Any, float]) -> None:
    program = compile_expression(build(tree), VARIABLES)
    x = np.array([row[key] for key in VARIABLES])
    margin, truth, value = run_program(program.ops, program.args, program.consts, program.scratch(), x)
    expected = judge(tree, row)
    assert truth == expected[1]
    assert same(margin, expected[0])
    assert same(value, expected[2])


@given(numbers(), rows)
def test_stack_machine_equals_oracle_for_numbers(tree: Any, row: dict[Any, float]) -> None:
    program = compile_expression(build(tree), VARIABLES)
    x = np.array([row[key] for key in VARIABLES])
    _, _, value = run_program(program.ops, program.args, program.consts, program.scratch(), x)
    expected = number(tree, row)
    assert same(value, math.nan if expected is None else expected)


@pytest.mark.parametrize("compiled", [True, False])
@given(tree=conditions(), table=tables)
def test_evaluate_columns_equals_oracle(compiled: bool, tree: Any, table: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jit, "enabled", lambda: compiled)
        margin, truth, value = evaluate_columns(build(tree), columns_of(table))
    assert (margin.dtype, truth.dtype, value.dtype) == (np.float64, np.bool_, np.float64)
    for index, row in enumerate(table):
        expected = judge(tree, row)
        assert truth[index] == expected[1]
        assert same(margin[index], expected[0])
        assert same(value[index], expected[2])


@pytest.mark.parametrize("compiled", [True, False])
@given(name=st.sampled_from(ROUNDED), tree=numbers(), table=tables)
def test_evaluate_number_is_within_4_ulp_of_oracle_for_library_functions(
    compiled: bool, name: str, tree: Any, table: Any
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jit, "enabled", lambda: compiled)
        found = evaluate_number(build(("call", name, tree)), columns_of(table))
    for index, row in enumerate(table):
        expected = number(("call", name, tree), row)
        assert same(found[index], math.nan if expected is None else expected, ulps=4)


@pytest.mark.parametrize("compiled", [True, False])
@given(base=values, exponent=values)
@example(base=0.0, exponent=0.0)
@example(base=0.0, exponent=-1.0)
@example(base=-8.0, exponent=1 / 3)
@example(base=-2.0, exponent=1023.0)
@example(base=math.nan, exponent=0.0)
@example(base=1.0, exponent=math.nan)
def test_evaluate_number_is_within_4_ulp_of_oracle_for_powers(compiled: bool, base: float, exponent: float) -> None:
    row = {("a", None): base, ("b", "x"): exponent}
    columns = {key: np.array([value]) for key, value in row.items()}
    expected = number(("**", ("var", "a", None), ("var", "b", "x")), row)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jit, "enabled", lambda: compiled)
        found = [evaluate_number(parse_number(text), columns)[0] for text in ("a ** b.x", "pow(a, b.x)")]
    assert all(same(value, math.nan if expected is None else expected, ulps=4) for value in found)


@given(conditions((*EXACT, *ROUNDED), "+-*/"), tables)
def test_hoisting_returns_identical_bits(tree: Any, table: Any) -> None:
    node, columns = build(tree), columns_of(table)
    residual, parts = hoist_subexpressions(node)
    hoisted = {key: evaluate_number(part, columns) for key, part in parts.items()}
    whole, split = evaluate_columns(node, columns), evaluate_columns(residual, {**columns, **hoisted})
    for one, other in zip(whole, split, strict=True):
        # The bits of NaN do not matter.
        assert np.where(np.isnan(one), np.nan, one).tobytes() == np.where(np.isnan(other), np.nan, other).tobytes()


def test_hoisting_selects_largest_parts_of_one_stream() -> None:
    residual, parts = hoist_subexpressions(parse_condition("ln(h/100) + 18.678*air.t/(257.14 + air.t) - s > 2*3"))
    assert str(residual) == "h.#0 + air.#0 - s > 2 * 3"
    assert {key: str(part) for key, part in parts.items()} == {
        ("h", "#0"): "ln(h / 100)",
        ("air", "#0"): "18.678 * air.t / (257.14 + air.t)",
    }


def test_hoisting_creates_one_variable_when_a_part_is_repeated() -> None:
    residual, parts = hoist_subexpressions(parse_condition("(a.x + 1) * b > 0 and (a.x + 1) / b < -a.y"))
    assert str(residual) == "a.#0 * b > 0 and a.#0 / b < a.#1"
    assert list(parts) == [("a", "#0"), ("a", "#1")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 / exp(a) > 0", (-math.inf, False, math.nan)),
        ("min(1 / (a - a), 5) > 0", (-math.inf, False, math.nan)),
        ("where(a > 0, 1, 1 / 0) > 0", (1.0, True, 1.0)),
        ("where(1 / 0 > 0, 1, 2) > 0", (2.0, True, 2.0)),
        ("where(a < 0 or a > 0 and a > 1, 3, 4) >= 3", (0.0, True, 3.0)),
        ("a >= 1000", (0.0, True, 1000.0)),
        ("a > 1000", (0.0, False, 1000.0)),
        ("-0 * a >= 0", (0.0, True, 0.0)),
        ("a >= 1000 and a > 999", (0.0, True, 0.0)),
        ("a > 1000 and a >= 1000", (0.0, False, 0.0)),
        ("a > 1e9 or 1 / 0 < 1 or a <= 2000", (1000.0, True, 1000.0)),
        ("a / 1e-300 * 1e5 - a > -1.7e308", (LARGEST, True, 1e308 - 1000.0)),
        ("-1.7e308 >= a * 1e305", (-LARGEST, False, -1.7e308)),
        ("0 ** 0 > 0", (1.0, True, 1.0)),
        ("ceil(-a / 2000) >= 0", (0.0, True, 0.0)),
    ],
)
def test_program_returns_results_defined_by_the_semantics(text: str, expected: tuple[float, bool, float]) -> None:
    margin, truth, value = run(text, a=1000.0)
    assert truth is expected[1]
    assert same(margin, expected[0])
    assert same(value, expected[2], ulps=4)
    assert math.copysign(1.0, margin) == (1.0 if margin == 0 else math.copysign(1.0, expected[0]))


def test_exp_is_finite_up_to_its_limit() -> None:
    assert math.isfinite(run("exp(a) > 0", a=709.782712893384)[2])
    assert math.isnan(run("exp(a) > 0", a=math.nextafter(709.782712893384, 710))[2])
    with pytest.raises(OverflowError, match="range"):
        math.exp(math.nextafter(709.782712893384, 710))


@pytest.mark.parametrize(
    "text",
    [
        "(a > 1 and (b > 1 or (a > 2 and (b > 2 or a > 3)))) or b > 4",
        "a + (a + (a + (a + (a + (a + b))))) > 1",
        "where(a > 1, where(b > 1, a + (b + a), b), where(a > 0 and b > 0, a, a + b)) > min(a, b, a * (b + a))",
    ],
)
def test_program_does_not_write_beyond_its_stack_size(text: str) -> None:
    node = parse_condition(text)
    program = compile_expression(node, [variable.key for variable in find_variables(node)])
    guarded = np.full(program.stack + 4, -7.0)
    result = run_program(program.ops, program.args, program.consts, guarded, np.array([3.0, 2.0]))
    assert guarded[program.stack :].tolist() == [-7.0] * 4
    x = np.array([3.0, 2.0])
    assert result == run_program(program.ops, program.args, program.consts, program.scratch(), x)


def test_evaluate_columns_supports_deep_tree() -> None:
    node = parse_condition("+".join(["a"] * 190) + " > 0")
    margin, truth, _ = evaluate_columns(node, {("a", None): np.ones(2)})
    assert margin.tolist() == [190.0, 190.0]
    assert truth.all()


def test_program_returns_same_result_after_pickling() -> None:
    program = compile_expression(parse_condition("a.x * 2 > b"), [("a", "x"), ("b", None)])
    again = pickle.loads(pickle.dumps(program))
    assert again.slots == program.slots
    assert run_program(again.ops, again.args, again.consts, again.scratch(), np.array([3.0, 5.0])) == (1.0, True, 6.0)


def test_evaluate_columns_returns_result_per_row_when_condition_has_no_variables() -> None:
    margin, truth, value = evaluate_columns(parse_condition("2 > 1"), {("a", None): np.zeros(3)})
    assert (margin.tolist(), truth.tolist(), value.tolist()) == ([1.0] * 3, [True] * 3, [2.0] * 3)


def test_evaluate_columns_returns_empty_arrays_when_there_are_no_rows() -> None:
    assert [len(part) for part in evaluate_columns(parse_condition("a > 1"), {("a", None): np.zeros(0)})] == [0, 0, 0]


def test_evaluate_columns_does_not_write_input() -> None:
    column = np.array([1.0, math.inf])
    column.flags.writeable = False
    assert evaluate_columns(parse_condition("a > 0"), {("a", None): column})[0].tolist() == [1.0, -math.inf]


def test_error_names_variable_when_slot_or_column_is_missing() -> None:
    with pytest.raises(ValueError, match=r"`b\.x` has no slot"):
        compile_expression(parse_condition("b.x > 1"), [("b", None)])
    with pytest.raises(ValueError, match=r"`b\.x` has no column"):
        evaluate_columns(parse_condition("b.x > 1"), {("b", None): np.zeros(1)})
    with pytest.raises(ValueError, match="equal length; got lengths"):
        evaluate_columns(parse_condition("b > 1"), {("b", None): np.zeros(1), ("c", None): np.zeros(2)})
