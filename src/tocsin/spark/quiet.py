"""Bounded sessions: a Spark session for one bounded piece of work, and the rows that its jobs have processed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tocsin.errors import TocsinError
from tocsin.run_directory import RunDir
from tocsin.spark.row_counter import EVALUATED, FOLDED, PROPERTY, sum_counters
from tocsin.spark.session import partitions_of, run_session

# The driver of a local master does all the work: room for sorting blobs, with the Python workers well below 8 GB.
_LOCAL = {"spark.driver.memory": "2g"}

# What a bounded run may end with, and that can be said in a sentence.
FAILURES = (TocsinError, PySparkException, Py4JError)


@contextmanager
def bounded_session(run: RunDir, *, master: str, conf: Mapping[str, str], kafka: bool) -> Iterator[SparkSession]:
    """Start a session, and stop it in the end; the one that a process has already is taken up and left alone."""
    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    settings = {**(_LOCAL if master.startswith("local") else {}), **conf}
    partitions = partitions_of(master, conf)
    with run_session(run, master=master, conf=settings, partitions=partitions, kafka=kafka) as session:
        yield session


class RowProgress(NamedTuple):
    """Rows that the jobs of a measured context have read, folded for the shuffle, and evaluated."""

    read: int
    folded: int
    evaluated: int


@contextmanager
def measure_rows(session: SparkSession) -> Iterator[Callable[[], RowProgress]]:
    """Measure the jobs that this thread starts, and yield a function that returns their progress."""
    context = session.sparkContext
    with TemporaryDirectory(prefix="tocsin-rows-", ignore_cleanup_errors=True) as folder:
        context.setLocalProperty(PROPERTY, folder)
        try:
            yield _RowMeter(session, Path(folder)).progress
        finally:
            # A JVM that is gone has no properties.
            with suppress(Py4JError, OSError):
                context.setLocalProperty(PROPERTY, "")


class _RowMeter:
    """Reads the counters of tasks, and the rows that Spark itself counts at sources.

    Spark updates its counts when a task ends and every ten seconds; the counters of the fold are newer, but only jobs
    with a fold have them.
    """

    def __init__(self, session: SparkSession, folder: Path) -> None:
        self._context, self._folder = session.sparkContext, folder
        self._last = RowProgress(0, 0, 0)
        self._before = self._read_by_stage()

    def progress(self) -> RowProgress:
        """Return the progress now, or the last known progress if Spark does not answer."""
        try:
            read = sum(rows for stage, rows in self._read_by_stage().items() if stage not in self._before)
        except (Py4JError, OSError):
            return self._last
        folded, evaluated = (sum_counters(self._folder, kind) for kind in (FOLDED, EVALUATED))
        self._last = RowProgress(max(read, folded), folded, evaluated)
        return self._last

    def _read_by_stage(self) -> dict[int, int]:
        gateway = self._context._gateway
        assert gateway is not None
        nothing = gateway.new_array(gateway.jvm.double, 0), gateway.jvm.java.util.ArrayList()
        stages = self._context._jsc.sc().statusStore().stageList(None, False, False, *nothing)
        found = (stages.apply(at) for at in range(stages.size()))
        return {stage.stageId(): stage.inputRecords() for stage in found}
