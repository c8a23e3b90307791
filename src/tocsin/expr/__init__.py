"""Conditions: parse a condition, compile it for the kernels, and evaluate it on arrays.

`parse_condition` returns the syntax tree of a text. `compile_expression` returns a program, which `run_program`
evaluates for one row inside a kernel. `evaluate_columns` evaluates a condition for all rows of some columns, with the
same results. `hoist_subexpressions` separates the parts that read one stream, so that they are computed once per row.
"""

from tocsin.expr.column_evaluation import evaluate_columns, evaluate_number
from tocsin.expr.compiler import Program, compile_expression, hoist_subexpressions
from tocsin.expr.parser import parse_condition, parse_number
from tocsin.expr.stack_machine import run_program
from tocsin.expr.syntax_tree import (
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
    find_variables,
    is_condition,
    walk_nodes,
)

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
    "compile_expression",
    "evaluate_columns",
    "evaluate_number",
    "find_variables",
    "hoist_subexpressions",
    "is_condition",
    "parse_condition",
    "parse_number",
    "run_program",
    "walk_nodes",
]
