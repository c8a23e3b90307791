"""Compile the kernels of all kinds of rules into the cache, so that tests and runs only load them.

Each process runs drawn plans of some families (`tests/laws/drawn_plans.py`). Kernels that are cached are loaded.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.driver import parts_of
from tests.laws.drawn_plans import FAMILIES, Drawn, drawn_plans
from tocsin.runtime.session import Session

# Plans of a family. More plans add few kernels.
PLANS = 12


def compile_family(family: str) -> float:
    """Run drawn plans of a family and return the CPU time in seconds."""

    @settings(
        max_examples=PLANS,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(drawn_plans(family))
    def run(drawn: Drawn) -> None:
        session = Session(drawn.plan)
        session.control(drawn.control)
        for part in parts_of(drawn.plan, drawn.streams, drawn.cuts, "arrival"):
            session.push(part)
        session.end()
        session.changed_pages()

    begin = time.process_time()
    run()
    return time.process_time() - begin


def main() -> None:
    """Compile the families in parallel and print the duration of each."""
    begin = time.monotonic()
    with ProcessPoolExecutor() as pool:
        for family, seconds in zip(FAMILIES, pool.map(compile_family, FAMILIES), strict=True):
            print(f"kernels: {family}: {seconds:.0f} s of CPU time", flush=True)
    print(f"kernels: compiled or loaded in {time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()
