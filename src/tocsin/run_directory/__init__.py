"""Run directory: all files of a run, written beside the query and readable without Spark.

RUN/manifest.json       what runs: rule file, plan, streams, buckets, start times, changes
RUN/alerts/             alert log: a file per micro-batch with alert events
RUN/checksums.jsonl     size, CRC-32 and number of alert events of each file of the alert log
RUN/dead/               dead-letter files: invalid rows, a file per micro-batch with invalid rows
RUN/late/               dropped late rows, and rows processed out of order: a file per micro-batch with any
RUN/progress.jsonl      a line per micro-batch: counts, alert events, times, state size, lag
RUN/checkpoint/         Spark's checkpoint; the query resumes there
RUN/delivery/           cursor of each sink
RUN/spool/              messages of MQTT streams, until the checkpoint covers them
RUN/control/            files of control rows: one per start, which starts micro-batches while the input is silent,
                        and one per decision that the buckets must apply; Spark deletes a file that was read
RUN/lock                lock file that prevents two runs in one directory
RUN/spark.log           log of the JVM
RUN/skipped.log         Spark's messages about damaged source files
"""

from tocsin.run_directory.consistency import RepairPlan, format_repair_needed, plan_repair, read_facts
from tocsin.run_directory.dead_letters import DeadLetterWriter, read_dead
from tocsin.run_directory.layout import RunDir
from tocsin.run_directory.manifest import Manifest, find_incompatibilities, read_manifest
from tocsin.run_directory.progress import Progress, ProgressLog, Tally, last_progress, read_progress
from tocsin.run_directory.repair import apply_repair

__all__ = [
    "DeadLetterWriter",
    "Manifest",
    "Progress",
    "ProgressLog",
    "RepairPlan",
    "RunDir",
    "Tally",
    "apply_repair",
    "find_incompatibilities",
    "format_repair_needed",
    "last_progress",
    "plan_repair",
    "read_dead",
    "read_facts",
    "read_manifest",
    "read_progress",
]
