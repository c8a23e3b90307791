"""Play the example from beginning to end: the yardstick in this process, the rule on Spark, and the comparison."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from tocsin.demo.check import in_order, joined_lives
from tocsin.demo.plant import RULE, Factory, rule_file_text
from tocsin.demo.show import Progress, clock, print_alerts, print_check, print_state
from tocsin.local import run_local
from tocsin.plan import plan_rules
from tocsin.rules.load import load_rule_file

RUN = "run"


def main(factory: Factory | None = None, folder: Path | None = None) -> None:
    """Run the example from beginning to end; exit with status 1 if an alarm was missed.

    Readings, rule file and run directory (`RUN`) are written into a folder, which is made and removed if none is named.
    """
    factory = factory or Factory()
    progress = Progress(factory)
    silent = [clock(factory.start_us + us) for us in factory.silent_us]
    print(
        f"Condensation on {factory.machines} machines: an alert if the dew point is above the temperature of a surface."
    )
    print("The dew point is computed from humidity and air temperature; rows at most 5 minutes apart are joined.")
    print(f"The humidity stream is silent from {silent[0]} to {silent[1]}, then sends all delayed rows at once.\n")
    streams = factory.streams()
    # The yardstick. It also compiles the kernels, which Spark's workers then find in the cache.
    without = joined_lives(run_local(in_order(streams), RULE))
    progress.say(
        f"{len(without)} alerts from the same rows without the outage, computed in this process; kernels are compiled"
    )
    made = tempfile.TemporaryDirectory(prefix="tocsin-demo-") if folder is None else nullcontext(str(folder))
    with made as name:
        rows = _run_on_spark(factory, streams, Path(name), progress)
    lives = joined_lives(rows)
    print_alerts(lives)
    kept_promise = print_check(streams, lives, without)
    progress.say("done")
    if not kept_promise:
        sys.exit(1)


def _run_on_spark(
    factory: Factory, streams: Mapping[str, Mapping[str, Any]], folder: Path, progress: Progress
) -> list[dict[str, Any]]:
    """Write the readings as files, run the rule over them, and show what was remembered during the silence."""
    # Imported here because pyspark is not needed to read this module.
    from tocsin.spark.demo import run_file, write_batch

    for name, columns in streams.items():
        batch = factory.batch_of(columns["arrived"])
        for number in range(factory.batches):
            write_batch(folder / name, number, {column: values[batch == number] for column, values in columns.items()})
    (folder / "rules.yaml").write_text(rule_file_text())
    file = load_rule_file(folder / "rules.yaml", partial(plan_rules, bounded=False), {})
    progress.say(f"{sum(len(columns['ts']) for columns in streams.values()):,} rows written as Parquet; starting Spark")
    last = factory.back_in - 1
    rows, sizes = run_file(
        file,
        folder / RUN,
        progress.on_batch,
        lambda version: progress.say(
            f"Spark {version} is up; the first micro-batch starts workers and loads or compiles kernels"
        ),
        last,
    )
    print_state(factory, streams, progress, sizes, last)
    return rows
