"""Adversarial expressions: functions that are difficult to certify, with verdicts that are easy to prove on paper.

A line contains the expression and, for each variable, name, domain and label as in `realistic_functions.py`. The label
`?` means undecided. If there are two labels, both verdicts are correct.
"""

from __future__ import annotations

import math

import pytest

from tocsin.expr.certify import PROVED, certify

_WORDS = {"=": "constant", "+": "increasing", "-": "decreasing", "v": "quasiconvex", "!": "refuted", "?": "undecided"}

# A narrow peak in a large domain: every proof of a shape is wrong.
SPIKES = """
max(0, 1 - 1e3*abs(x - 0.3337)) | x:0:1:!
max(0, 1 - 1e6*abs(x - 0.3337)) | x:0:1:!
max(0, 1 - 1e9*abs(x - 0.3337)) | x:0:1:!
max(0, 1 - 1e12*abs(x - 0.3337)) | x:0:1:!?
x + max(0, 1 - 1e6*abs(x - 0.3337)) | x:0:1:!
exp(0 - ((x - 0.3337)*1e6)**2) | x:0:1:!
exp(0 - ((x - y)*1e6)**2) | x:0:1:!? y:0:1:!?
max(0, 1 - 1e6*abs(x - y)) | x:0:1:!? y:0:1:!?
x - 2*max(0, 1 - 1e6*abs(x - 0.5)) | x:0:1:!
x*x + max(0, 1e-9 - abs(x - 1/3)) | x:-1:1:!?
1/(1 + ((x - 1/3)*1e8)**2) | x:0:1:!?
min(1e6*abs(x - 0.3337), 1) | x:0:1:v
min(abs(x), abs(x - 1e-6)) | x:-1:1:!
"""

# Flat parts do not change a shape. A decrease, a flat part and an increase are quasiconvex.
PLATEAUS = """
max(min(x, 0), 0 - 1) | x:-5:5:+
min(max(0 - x, 0), 3) + max(x - 2, 0) | x:-5:5:v
max(1 - abs(x), 0) | x:-5:5:!
max(abs(x) - 1, 0) - max(abs(x) - 3, 0) | x:-5:5:v
max(abs(x) - 1, 0) - 2*max(abs(x) - 3, 0) | x:-5:5:!
floor(x/1000) | x:1:999:=
floor(x)*floor(x) | x:-3:3:v
floor(x) - x | x:0:1:v
floor(x) - x | x:0:2:!
ceil(x) + floor(0 - x) | x:-5:5:=?
floor(x) + floor(0 - x) | x:-5:5:!
x - floor(x) | x:0:0.999:+
"""

# A divisor, logarithm or root that is undefined somewhere in the domain prevents a proof.
POLES = """
1/x | x:0:1:?
1/x | x:-1:1:?
1/x | x:1e-300:1:-
1/x | x:-1:-1e-300:-
1/x | x:5e-324:1:?
x/x | x:-1:1:?
ln(x) | x:0:1:?
ln(x) | x:1e-308:1:+
sqrt(x) | x:0:1:+
sqrt(x) | x:-1e-300:1:?
sqrt(1 - h/100) | h:0:100:-
sqrt(1 - h/100) | h:0:100.1:?
ln(1 - h/100) | h:0:100:?
1/(x - y) | x:0:1:- y:2:3:+
1/(x - y) | x:0:2:? y:2:3:?
exp(x) | x:0:709:+
exp(x) | x:0:710:?
x*x | x:-1e200:1e200:?
x**-2 | x:0.1:3:- 
x**-2 | x:-3:-0.1:+
x**-1 | x:-3:-0.1:-
where(x > 0, 1/x, 0) | x:-1:1:?
where(x >= 1, 1/x, 2) | x:0:5:-
where(x >= 1, ln(x), 0) | x:-5:5:+
where(x > 0, sqrt(x), 0) | x:-5:5:+?
where(ln(x) > 0, 1, 0) | x:-1:5:?
"""

# Jumps: the directions of the jumps and of the pieces between them decide.
JUMPS = """
where(x > 3, 1, 0) | x:0:5:+
where(x > 3, 0, 1) | x:0:5:-
where(x > 3, x - 10, x) | x:0:5:!
where(x > 3, x + 10, 0 - x) | x:0:5:v
where(x > 3, where(x > 4, 0, 1), 0) | x:0:5:!
where(x > 3, where(x > 4, 0, 1), 2) | x:0:5:-
where(x > 3 and x < 4, 1, 0) | x:0:5:!
where(x < 3 or x > 4, 1, 0) | x:0:5:v
where(x >= 5, 0 - 1, x) | x:0:5:!
where(x > 5, 0 - 1, x) | x:0:5:+
where(x <= 0, 1, x) | x:0:5:v
where(y > 0, x, 0 - x) | x:0:5:v y:-1:1:+
where(x > y, 1, 0) | x:0:5:+ y:0:5:-
where(x > y, x, y) | x:0:5:+ y:0:5:+
where(x > y, y, x) | x:0:5:+ y:0:5:+
where(x*x > 4, 1, 0) | x:-5:5:v
where(x*x < 4, 1, 0) | x:-5:5:!
where(sin(x) > 0, 1, 0) | x:0:20:!
where(x > 2.5, floor(x), ceil(x)) | x:0:5:!
where(x > 0, x, x/2) | x:-1:1:+
where(x > 0, 0 - x, x) | x:-1:1:!
abs(x) - 2*abs(x - 1) | x:-5:5:!
abs(x - 1) - abs(x - 2) | x:-5:5:+
2*abs(x - 1) - abs(x - 2) | x:-5:5:v
abs(x - 1) + abs(x - 2) - 2*abs(x - 1.5) | x:-5:5:!
"""

# The verdict of a variable must not depend on where another variable makes a part undefined, or on common parts.
PARTS = """
(where(ln(y) > 0 - 1000, 5, 7) - 6)*x | x:-1:1:v y:-1:10:?
(y**z + 1)*x | x:-1:1:v y:-2:2:? z:1:3:?
(y**1025 + 0.5)*x | x:-1:1:v y:-1:1:?
ln(y)*x | x:-1:1:- y:-1:1:?
x + sqrt(y) | x:-1:1:+ y:-1:1:?
x*(y*y - y + 1) | x:-1:1:+ y:-1:1:!
x*(y - y*y*y) | x:0:1:+ y:0:1:!
(y - y)*x + x | x:0:1:+ y:0:1:=
x*y - y*x | x:-1:1:= y:-1:1:=
(x + y)*(x - y) | x:0:5:+ y:0:5:-
(x + y)**2 - (x - y)**2 | x:0:5:+ y:0:5:+
x/(x + y) + y/(x + y) | x:1:5:= y:1:5:=
min(x, y) + max(x, y) - x | x:0:5:= y:0:5:+
abs(x - 2) + abs(y - 3) - abs(x - 2) | x:0:5:= y:0:5:v
min(x - 2, 8 - x, y) | x:0:10:! y:0:10:+
min(abs(x - 2), y) + min(abs(x - 8), y) | x:0:10:! y:0:10:+
max(abs(x - 2), abs(x - 8)) | x:0:10:v
min(x - 1, y - 2, z - 3) | x:0:9:+ y:0:9:+ z:0:9:+
"""

# All kinds of powers, waves over many turns, functions that become flat.
FUNCTIONS = """
x**2 | x:-3:3:v
x**3 | x:-3:3:+
x**0 | x:-3:3:=
x**1 | x:-3:3:+
x**0.5 | x:0:3:+
x**0.5 | x:-1:3:?
x**1.5 | x:0:3:+
x**-0.5 | x:0.1:3:-
x**-3 | x:-3:-1:-
x**-2 | x:-3:-1:+
x**5 - x**3 | x:-1:1:!
x**y | x:0.5:3:v y:-1:2:v
x**y | x:1:3:v y:-1:2:+
x**y | x:0.1:0.9:v y:-1:2:-
x**y | x:0.1:3:+ y:0.5:2:v
x**x | x:0.1:2:v
2**x | x:-10:10:+
0.5**x | x:-10:10:-
y**x | x:0:3:v y:0.5:2:+
sin(x) | x:0:100:!
sin(x) | x:-1.5:1.5:+
cos(x) | x:0:3.1:-
cos(x) | x:3.2:6.2:+
cos(x) | x:1:6:v
sin(x) + 2*x | x:-1000:1000:+
x + sin(x) | x:-10:10:+?
sin(1e6*x) | x:0:1:!
tanh(x) | x:-400:400:+
tanh(x) - x | x:-5:5:-?
log10(x) | x:1e-5:1e5:+
log10(x) - ln(x) | x:0.1:10:-
abs(log10(x)) | x:0.1:10:v
exp(x) - x | x:-5:5:v
exp(0 - x*x) | x:-5:5:!
x*exp(x) | x:-5:5:v
x*ln(x) | x:0.01:5:v
"""

# Infinite ends count as 1e50. There, doubles lose small terms, but exact arithmetic does not.
HUGE = """
x + y | x:-inf:inf:+ y:-inf:inf:+
x*y | x:-inf:inf:v y:-inf:inf:v
(x - y)**2 | x:-inf:inf:v y:-inf:inf:v
x*x*x | x:-inf:inf:+
x - x*x | x:0:inf:!
abs(x - 1e30) - abs(x + 1e30) | x:-inf:inf:-
max(0, 1 - abs(x - 12345)) | x:-inf:inf:!
x | x:-1.7e308:1.7e308:+
x*1e308 | x:-1:1:+
x*x | x:1e60:inf:+
x - 1e16 | x:1e16:10000000000000008:+
(x - 1e15)*(x - 1000000000000004) | x:1e15:1000000000000008:v
x + 1e-320 | x:0:1e-310:+
x*1e-200*1e-200 | x:0:1:+
sqrt(x*x) | x:-3:3:v
(x + 1e16) - 1e16 | x:-3:3:+
x/3*3 - x | x:1:5:=
(1 + x) - 1 | x:0:1e-10:+
"""


def _cases(text: str) -> list[tuple[str, str]]:
    return [tuple(part.strip() for part in line.split(" | ")) for line in text.strip().splitlines()]  # type: ignore[misc]


ALL = [case for text in (SPIKES, PLATEAUS, POLES, JUMPS, PARTS, FUNCTIONS, HUGE) for case in _cases(text)]


@pytest.mark.parametrize(("expr", "columns"), ALL)
def test_certify_returns_verdict_that_is_proved_on_paper(expr: str, columns: str) -> None:
    fields = [column.split(":") for column in columns.split()]
    found = certify(expr, {name: (float(low), float(high)) for name, low, high, _ in fields})
    for name, _, _, signs in fields:
        allowed = {_WORDS[sign] for sign in signs}
        assert found[name].verdict in allowed, f"{name}: {found[name]}"


# At a margin of 0, a condition is true or false depending on its comparisons.
@pytest.mark.parametrize(
    ("condition", "domain", "allowed"),
    [
        # True at 0, false at 2; the margin is 0 at both.
        ("min(0, 1 - x) >= 0 or min(0, x - 1) > 0", (0, 2), {"decreasing", "quasiconvex", "undecided"}),
        ("min(0, 1 - x) > 0 or min(0, x - 1) >= 0", (0, 2), {"increasing", "quasiconvex", "undecided"}),
        # The margin is 0 everywhere; the condition is true only in the middle.
        ("min(0, 1 - abs(x)) >= 0 or 0*x > 0", (-2, 2), {"undecided", "refuted"}),
        ("min(0, 1 - abs(x)) > 0 or 0*x >= 0", (-2, 2), {"constant"}),
        ("x > 3 and x >= 2", (0, 5), {"increasing"}),
        ("x > 3 or x <= 2", (0, 5), {"quasiconvex"}),
        ("x > 2 and x <= 3", (0, 5), {"refuted"}),
        ("x >= 3 or x < 3", (0, 5), {"quasiconvex"}),
    ],
)
def test_certify_considers_truth_when_margin_is_zero(
    condition: str, domain: tuple[float, float], allowed: set[str]
) -> None:
    assert certify(condition, {"x": domain})["x"].verdict in allowed


def test_certify_proves_nothing_when_one_side_of_or_may_be_undefined() -> None:
    found = certify("ln(y) + 1000 > 0 or 1 - x*x > 0", {"x": (-1, 1), "y": (-1, 10)})
    assert found["x"].verdict not in PROVED


def test_certify_proves_tiers_within_rounding_when_they_meet_in_decimals_only() -> None:
    found = certify("where(k <= 100, 0.2*k, 20 + 0.01*(k - 100))", {"k": (0, 1000)})["k"]
    assert found.verdict == "increasing"
    assert 0 < found.rounding < 1e-12


def test_verdict_is_constant_when_domain_has_one_value() -> None:
    assert certify("sin(x)*cos(x)", {"x": (2, 2)})["x"].verdict == "constant"


def test_certify_splits_narrow_domain_when_it_is_far_from_zero() -> None:
    found = certify("abs(x - 10000000000000002) + x*x*0", {"x": (1e16, 1e16 + 4)})["x"]
    assert found.verdict == "quasiconvex"
    assert certify("sin(x)*cos(x)", {"x": (1e16, 1e16 + 2)})["x"].verdict in ("undecided", "refuted", "quasiconvex")


def test_rounding_is_positive_when_exponent_is_one() -> None:
    assert certify("x**1", {"x": (0, 1)})["x"].rounding > 0
    assert certify("x**2", {"x": (0, 1)})["x"].rounding == 0


def test_certify_accepts_domain_beyond_1e50() -> None:
    assert certify("x*x", {"x": (1e60, math.inf)})["x"].verdict in PROVED
