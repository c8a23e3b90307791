"""Certification: prove how a condition changes with each of its variables, or find a counterexample.

`certify` (certify_condition.py) certifies a condition or a number. For each variable, `certify_variable` runs these
steps, the cheapest first, and stops at the first verdict:

1. domain_boxes.py proves with intervals that every operation is defined and finite on the whole domain.
2. composition_rules.py derives the shape from the tree.
3. counterexample_search.py samples the expression; exact_arithmetic.py confirms a counterexample.
4. simplify.py removes outer layers that do not change the shape, so that less is left to prove.
5. branch_and_bound.py proves the shape with enclosures of slopes (jets.py) on boxes of the domain.
6. smt_solver.py proves the shape of an algebraic expression.

rounding_error.py bounds the effect of floating point on a proof. unreachable_values.py uses the proofs to find values
that cannot raise an alarm.
"""

from tocsin.expr.certify.certificate import PROVED, VERDICTS, Certificate, Verdict
from tocsin.expr.certify.certify_condition import build_margin, certify, parse_expression

__all__ = ["Certificate", "PROVED", "VERDICTS", "Verdict", "build_margin", "certify", "parse_expression"]
