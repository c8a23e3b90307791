"""The run directory: all that a run leaves on disk, written beside the query and read by whoever wants to look.

    RUN/manifest.json       what runs: rule file, plan, streams, buckets, start times, changes
    RUN/alerts/             the alert log: a file per micro-batch that had alerts
    RUN/checksums.jsonl     size, CRC-32 and number of alerts of each alert file
    RUN/dead/               the rows that could not be used: a file per micro-batch that had any
    RUN/late/               the rows that came too late to be used, or to be used in order: likewise
    RUN/progress.jsonl      a line per micro-batch: counts, alerts, times, state, lag
    RUN/checkpoint/         where the query goes on after a restart
    RUN/delivery/           how far each sink has come
    RUN/spool/              messages of MQTT streams, until the checkpoint has passed them
    RUN/ticks/              a file per start, which sets a query in motion whose input is silent, and waits that buckets
                            agreed on; a file that was read is gone
    RUN/lock, RUN/spark.log one run at a time; what the JVM says
    RUN/skipped.log         Spark's messages about damaged source files

Nothing here knows of Spark: a dashboard reads a run without a JVM.
"""

from tocsin.rundir.consistency import RepairPlan, format_refusal, plan_repair, read_facts
from tocsin.rundir.dead import DeadWriter, read_dead
from tocsin.rundir.folder import RunDir
from tocsin.rundir.manifest import Manifest, read_manifest, refusals
from tocsin.rundir.progress import Progress, ProgressLog, Tally, last_progress, read_progress
from tocsin.rundir.repair import apply_repair

__all__ = [
    "DeadWriter",
    "Manifest",
    "Progress",
    "ProgressLog",
    "RepairPlan",
    "RunDir",
    "Tally",
    "apply_repair",
    "format_refusal",
    "last_progress",
    "plan_repair",
    "read_dead",
    "read_facts",
    "read_manifest",
    "read_progress",
    "refusals",
]
