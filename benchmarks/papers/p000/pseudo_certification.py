"""Pseudo-certification: a check of a shape on grid points, the baseline of the benchmark `certify`.

Algorithm: evaluate the expression on a grid of all variables and compare neighbours along one variable.
Guarantees: none. A peak between two points stays unseen, and rounding can look like a peak.
Complexity: `points` times 11 to the power of the number of the other variables.
References: Cai et al., PVLDB 14(6), 2021, section 5.
"""

from __future__ import annotations

import numpy as np

from tocsin.expr.certify.domain_boxes import Domains, clip_domain
from tocsin.expr.column_evaluation import evaluate_number_with_numpy
from tocsin.expr.syntax_tree import Key, Node, find_variables

_OTHERS = 11


def pseudo_certify(tree: Node, along: Key, domains: Domains, points: int) -> str:
    """Return the apparent shape of an expression along a variable: a word of `VERDICTS`, never `undecided`."""
    names = [variable.key for variable in find_variables(tree) if variable.key != along]
    axes = [np.linspace(*clip_domain(domains[key]), points if key == along else _OTHERS) for key in [*names, along]]
    grid = np.meshgrid(*axes, indexing="ij")
    columns = {key: axis.ravel() for key, axis in zip([*names, along], grid, strict=True)}
    change = np.diff(evaluate_number_with_numpy(tree, columns).reshape(-1, points), axis=1)
    rises, falls = change > 0, change < 0
    if not (rises.any() and falls.any()):
        return "increasing" if rises.any() else "decreasing" if falls.any() else "constant"
    rose = np.logical_or.accumulate(rises, axis=1)
    return "refuted" if bool((rose & falls).any()) else "quasiconvex"
