"""The check by a grid that proofs are compared with: look at neighbouring points, and trust what is seen.

Idea: evaluate on a grid of all variables and compare the differences of neighbours along one of them. Guarantee: none;
a peak between two points is not seen, and rounding looks like one. No plan uses it: it is the baseline of a benchmark.
Cost: `points` times `others` to the power of the number of the other variables.

Source: Cai et al., PVLDB 14(6), 2021, section 5, which calls it pseudo-certification.
"""

from __future__ import annotations

import numpy as np

from tocsin.expr.certify.boxes import ends
from tocsin.expr.certify.refute import Domains
from tocsin.expr.columns import number_on_arrays
from tocsin.expr.nodes import Key, Node, variables

_OTHERS = 11


def pseudo_certify(tree: Node, along: Key, domains: Domains, points: int) -> str:
    """Say what an expression seems to do along a variable: a word of `VERDICTS`, never `undecided`."""
    names = [variable.key for variable in variables(tree) if variable.key != along]
    axes = [np.linspace(*ends(domains[key]), points if key == along else _OTHERS) for key in [*names, along]]
    grid = np.meshgrid(*axes, indexing="ij")
    columns = {key: axis.ravel() for key, axis in zip([*names, along], grid, strict=True)}
    change = np.diff(number_on_arrays(tree, columns).reshape(-1, points), axis=1)
    rises, falls = change > 0, change < 0
    if not (rises.any() and falls.any()):
        return "increasing" if rises.any() else "decreasing" if falls.any() else "constant"
    rose = np.logical_or.accumulate(rises, axis=1)
    return "refuted" if bool((rose & falls).any()) else "quasiconvex"
