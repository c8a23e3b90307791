"""What a condition means: text -> tree -> program for the loops of kernels, or results on columns of NumPy.

`parse_condition` reads the text, `compile_condition` makes the program that `run_program` evaluates, `hoist` splits off
what depends on one row alone, and `evaluate_columns` evaluates whole columns. All of them give the same results.
"""

from tocsin.expr.columns import evaluate_columns, evaluate_number
from tocsin.expr.machine import run_program
from tocsin.expr.nodes import (
    FUNCTIONS,
    Binary,
    Bool,
    Call,
    Compare,
    Condition,
    Key,
    Node,
    Number,
    Unary,
    Variable,
    is_condition,
    variables,
    walk,
)
from tocsin.expr.parse import parse_condition, parse_number
from tocsin.expr.program import Program, compile_condition, compile_number, hoist

__all__ = [
    "Binary",
    "Bool",
    "Call",
    "Compare",
    "Condition",
    "FUNCTIONS",
    "Key",
    "Node",
    "Number",
    "Program",
    "Unary",
    "Variable",
    "compile_condition",
    "compile_number",
    "evaluate_columns",
    "evaluate_number",
    "hoist",
    "is_condition",
    "parse_condition",
    "parse_number",
    "run_program",
    "variables",
    "walk",
]
