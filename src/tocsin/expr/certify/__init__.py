"""Certify: prove what an expression does along each variable, or show that it does not.

`certify` is the door. Per variable: definedness and finiteness by intervals (boxes.py), rules of composition
(shapes.py), a search for counterexamples that exact arithmetic confirms (refute.py, exact.py), branch and bound on
slopes (jets.py, search.py) and a solver for algebraic expressions (solve.py), both on what is left when outer layers
are taken off (strip.py). What rounding may do to a proof is bounded (rounding.py); where there
is none, it is said what would help (advice.py).
"""

from tocsin.expr.certify.certificate import PROVED, VERDICTS, Certificate, Verdict
from tocsin.expr.certify.condition import certify, margin_of, read
from tocsin.expr.certify.decide import decide

__all__ = ["Certificate", "PROVED", "VERDICTS", "Verdict", "certify", "decide", "margin_of", "read"]
