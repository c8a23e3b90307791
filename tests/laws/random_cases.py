"""Random cases against brute force: `python -m tests.laws.random_cases --cases 100000 --processes 2 --json FILE`.

Each case draws a plan with its rows, batch boundaries and state round trips, as the tests of the laws do. It runs the
plan in batches and in one call, and compares both runs and the oracles of `tests/naive`. Half of the cases have no wait
and no budget, because the oracles state all of their alerts. The other families take turns. A case whose alerts the
oracles do not state in full is checked for true combinations and equal answers, and counts as `checked` only.

Cases belong to chunks. The seed and the number of a chunk determine its cases, so a run can be stopped: `--json` keeps
the chunks that are done, and the next run with the same file continues. A difference is shrunk by Hypothesis, and the
minimal case is printed and stored.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as with_seed

from benchmarks.conditions import conditions
from tests.laws.drawn_plans import FAMILIES, Drawn, drawn_plans
from tests.laws.test_laws import answer, check_results, run_in_batches, run_once, steps_for_few_rows

CHUNK = 250
OTHERS = tuple(family for family in FAMILIES if family != "direct")
_SETTINGS = settings(
    max_examples=CHUNK, database=None, deadline=None, derandomize=False, phases=[Phase.generate, Phase.shrink],
    print_blob=False, report_multiple_bugs=False, suppress_health_check=list(HealthCheck),
)  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.laws.random_cases", description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000, help=f"in chunks of {CHUNK}")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--families", default="", help="families of plans, separated by commas (default: all)")
    parser.add_argument("--seconds", type=float, help="start no chunk after this time; the next run continues")
    parser.add_argument("--json", type=Path, help="keep the chunks that are done in this file, and continue from it")
    options = parser.parse_args(argv)
    families = tuple(filter(None, options.families.split(",")))
    if not set(families) <= set(FAMILIES):
        parser.error(f"--families must name families of {', '.join(FAMILIES)}; got {options.families}")
    head = {"seed": options.seed, "chunk": CHUNK, "families": list(families)}
    done = _read(options.json, head) if options.json and options.json.exists() else {}
    results = conditions() | head | {"summary": summary(done), "chunks": done}
    wanted = [number for number in range(-(-options.cases // CHUNK)) if str(number) not in done]
    begin = time.monotonic()
    context = get_context("spawn")
    with ProcessPoolExecutor(options.processes, mp_context=context) as pool:
        run = partial(run_chunk, options.seed, families, options.seconds and time.time() + options.seconds)
        for future in as_completed([pool.submit(run, number) for number in wanted]):
            found = future.result()
            if found is None:
                continue
            done[str(found["number"])] = found
            for text in found["differences"]:
                print(text, file=sys.stderr, flush=True)
            results |= {"wall_s": round(time.monotonic() - begin, 1), "summary": summary(done)}
            if options.json:
                options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({name: value for name, value in results.items() if name != "chunks"}, indent=1))
    return 1 if any(found["differences"] for found in done.values()) else 0


def _read(file: Path, head: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the chunks that an earlier run of the same cases has done."""
    stored = json.loads(file.read_text("utf-8"))
    if {name: stored.get(name) for name in head} != head:
        sys.exit(f"{file}: the file has the chunks of other cases ({stored.get('seed')}); name a new file")
    chunks: dict[str, dict[str, Any]] = stored.get("chunks", {})
    return chunks


def run_chunk(seed: int, families: tuple[str, ...], until: float | None, number: int) -> dict[str, Any] | None:
    """Check the cases of a chunk, or return None after the time `until`."""
    if until is not None and time.time() > until:
        return None
    cycle = families or tuple(each for other in OTHERS for each in ("direct", other))
    family, count = cycle[number % len(cycle)], Counter[str]()
    begin, differences = time.process_time(), list[str]()
    try:
        _SETTINGS(with_seed(seed * 1_000_003 + number)(given(drawn_plans(family))(_checker(family, count))))()
    except Exception as error:  # The minimal case is in the notes of the error.
        notes = "\n".join(getattr(error, "__notes__", ()))
        place = "".join(traceback.format_tb(error.__traceback__)[-3:])
        differences.append(f"chunk {number}, {family}: {type(error).__name__}: {error}\n{place}{notes}")
    cpu_s = round(time.process_time() - begin, 2)
    return {"number": number, "family": family, "cpu_s": cpu_s, "counts": dict(count), "differences": differences}


def _checker(family: str, count: Counter[str]) -> Callable[[Drawn], None]:
    """Return a test of one case that counts what it has checked."""

    def check(drawn: Drawn) -> None:
        count["checked"] += 1
        with steps_for_few_rows():
            once, batched = run_once(drawn), run_in_batches(drawn)
        whole = once.result
        lost = sum(counts.get("shed", 0) + counts.get("unprocessed", 0) for counts in whole.counts.values())
        assert answer(batched) == answer(once)
        is_exact = check_results(drawn, whole, lost=lost)
        alerts = len(whole.alert_rows())
        count["equal to the oracle"] += is_exact
        count["equal to the oracle, with alerts"] += is_exact and alerts > 0
        count["alerts"] += alerts
        count["rows"] += sum(len(table["ts"]) for table in drawn.streams.values())
        count.update(f"with {label}" for label in drawn.labels)
        count[f"with {len(drawn.case.streams)} streams"] += 1

    return check


def summary(done: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the counts of all chunks, and of each family."""
    families: dict[str, Counter[str]] = {}
    for found in done.values():
        families.setdefault(found["family"], Counter()).update(found["counts"])
    every = sum(families.values(), Counter[str]())
    cpu_s = sum(found["cpu_s"] for found in done.values())
    return {
        "differences": sum(len(found["differences"]) for found in done.values()),
        **dict(sorted(every.items())),
        "cpu_ms_per_case": round(1000 * cpu_s / max(every["checked"], 1), 1),
        "families": {
            name: {what: count[what] for what in ("checked", "equal to the oracle", "equal to the oracle, with alerts")}
            for name, count in sorted(families.items())
        },
    }


if __name__ == "__main__":
    sys.exit(main())
