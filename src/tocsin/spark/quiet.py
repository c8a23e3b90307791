"""A session for one bounded piece of work, and how far it has come."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tocsin.errors import TocsinError
from tocsin.rundir import RunDir
from tocsin.spark.session import partitions_of, run_session

_EVERY_SECONDS = 0.5
# The driver of a local master does all the work: room for sorting blobs, with the Python workers well below 8 GB.
_LOCAL = {"spark.driver.memory": "2g"}

# What a bounded run may end with, and that can be said in a sentence.
FAILURES = (TocsinError, PySparkException, Py4JError)

# Tasks done, tasks in all, of the stages that run now.
Told = Callable[[int, int], None]


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


@contextmanager
def telling(session: SparkSession, told: Told | None) -> Iterator[None]:
    """Tell twice a second how many tasks of the running stages are done."""
    if told is None:
        yield
        return
    done = threading.Event()
    teller = threading.Thread(target=_tell, args=(session, told, done), daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()


def _tell(session: SparkSession, told: Told, done: threading.Event) -> None:
    tracker = session.sparkContext.statusTracker()
    while not done.wait(_EVERY_SECONDS):
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        known = [stage for stage in stages if stage is not None]
        if known:
            told(sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known))
