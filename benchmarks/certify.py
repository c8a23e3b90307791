"""Certification benchmark: share of correct verdicts and time for each variable, compared with a check on a grid."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.papers.p000.pseudo_certification import pseudo_certify
from tests.expr.certify.realistic_functions import CASES, Case
from tocsin.expr.certify import build_margin, certify, parse_expression

GRIDS = (11, 1001)
TARGETS = {"decided_exactly": ">= 0.97", "max_ms": "< 1000", "median_ms": "< 50"}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks certify", description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--quick", action="store_true", help="measure a few functions only")
    options = parser.parse_args(argv)
    cases = CASES[::12] if options.quick else CASES
    results = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "load_before": os.getloadavg()[0],
        "functions": len(cases),
        "certify": measure_certify(cases),
        "targets": TARGETS,
        "grids": {str(points): check_on_grid(cases, points) for points in GRIDS},
    }
    text = json.dumps(results, indent=1)
    print(text)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")
    return 0


def measure_certify(cases: Sequence[Case]) -> dict[str, Any]:
    """Certify each variable separately and measure the times."""
    # The first call loads modules, so it is not measured.
    certify("x**3 + sin(x)*y - y", {"x": (-1, 1), "y": (0, 1)})
    times, exact, wrong, open_ = [], 0, [], []
    for case in cases:
        for name, label in case.labels.items():
            start = time.perf_counter()
            verdict = certify(case.expr, case.domains, only=[name])[name].verdict
            times.append(1000 * (time.perf_counter() - start))
            exact += verdict == label
            if verdict == "undecided":
                open_.append(f"{name}: {case.expr}")
            elif contradicts(verdict, label):
                wrong.append(f"{name}: {case.expr}: {verdict}, not {label}")
    return {
        "variables": len(times),
        "decided_exactly": round(exact / len(times), 4),
        "wrong": wrong,
        "undecided": open_,
        "median_ms": round(statistics.median(times), 2),
        "p90_ms": round(statistics.quantiles(times, n=10)[-1], 2),
        "max_ms": round(max(times), 1),
        "over_1_s": sum(t > 1000 for t in times),
    }


def check_on_grid(cases: Sequence[Case], points: int) -> dict[str, Any]:
    """Count the errors of a check on a grid: certified functions with a peak, and refuted functions without a peak."""
    certified_peaks, refuted_shapes, peaks, shapes = [], [], 0, 0
    for case in cases:
        tree = build_margin(parse_expression(case.expr))
        domains = {(name, None): ends for name, ends in case.domains.items()}
        for name, label in case.labels.items():
            seen = pseudo_certify(tree, (name, None), domains, points)
            peaks, shapes = peaks + (label == "refuted"), shapes + (label != "refuted")
            if label == "refuted" and seen != "refuted":
                certified_peaks.append(f"{name}: {case.expr}")
            if label != "refuted" and contradicts(seen, label):
                refuted_shapes.append(f"{name}: {case.expr}: {seen}, not {label}")
    return {
        "with_a_peak": peaks,
        "certified_wrongly": len(certified_peaks),
        "certified_wrongly_are": certified_peaks,
        "without": shapes,
        "contradicted_wrongly": len(refuted_shapes),
        "contradicted_wrongly_are": refuted_shapes,
    }


def contradicts(verdict: str, label: str) -> bool:
    """Return whether a verdict contradicts a label. A weaker correct verdict does not contradict it."""
    implied = {"constant": {"constant", "increasing", "decreasing", "quasiconvex"}, "refuted": {"refuted"}}
    allowed = implied.get(label, {label, "quasiconvex"})
    return verdict not in allowed
