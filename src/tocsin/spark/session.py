"""A session for a run: local by default, quiet, with what the rule file's sources need."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tocsin.errors import RunError
from tocsin.jvm import jvm_options
from tocsin.run_directory import RunDir
from tocsin.run_directory.layout import CONTROL
from tocsin.spark.failure import blotted, secrets_of, sentence_of, text_of
from tocsin.spark.sources.data_sources import NAMED_SOURCES
from tocsin.spark.stateful import LOCAL_DISK_CONF, LOCAL_MASTER_CONF, SETTINGS
from tocsin.spark.unreadable import LINE_PATTERN, SCAN_LOGGER

MASTER = "local[*]"
PARTITIONS = "spark.sql.shuffle.partitions"
_PACKAGES, _JARS = "spark.jars.packages", "spark.jars"
_JAVA_OPTIONS, _DEFAULT_JAVA_OPTIONS = "spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions"
_CONNECTOR = "spark-sql-kafka-0-10"
# For a cluster, whose cores are not known before it answers.
_CLUSTER_PARTITIONS = 8
_LOG_BYTES = 10 << 20
# Spark deletes the last file of a source again after each micro-batch, and warns that it is not there.
_DELETE_LOGGER = "org.apache.spark.sql.execution.streaming.runtime.FileStreamSource$SourceFileRemover"
_LOG = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss}} %p %c{{1}}: %m%n%ex
appender.skipped.type = File
appender.skipped.name = skipped
appender.skipped.fileName = {skipped}
appender.skipped.layout.type = PatternLayout
appender.skipped.layout.alwaysWriteExceptions = false
appender.skipped.layout.pattern = {line_pattern}
logger.scan.name = {scan_logger}
logger.scan.level = warn
logger.scan.appenderRef.skipped.ref = skipped
logger.delete.name = {delete_logger}
logger.delete.level = warn
logger.delete.filter.again.type = RegexFilter
logger.delete.filter.again.regex = Failed to remove .*/{control}/.* / skip removing file.*
logger.delete.filter.again.onMatch = DENY
logger.delete.filter.again.onMismatch = NEUTRAL
"""


def partitions_of(master: str, conf: Mapping[str, str]) -> int:
    """How many tasks a micro-batch is cut into: what the user says, else as many as there are cores.

    >>> partitions_of("local[3]", {}), partitions_of("local", {}), partitions_of("spark://host:7077", {})
    (3, 1, 8)
    """
    if PARTITIONS in conf:
        if not conf[PARTITIONS].isdecimal() or int(conf[PARTITIONS]) < 1:
            message = f"`--conf {PARTITIONS}` must be an integer from 1; got {conf[PARTITIONS]!r}"
            raise RunError(message)
        return int(conf[PARTITIONS])
    found = re.fullmatch(r"local(?:\[(\*|\d+)(?:,.*)?\])?", master)
    if not found:
        return _CLUSTER_PARTITIONS
    if found[1] == "*":
        return _cores()
    return max(1, int(found[1] or 1))


def _cores() -> int:
    """The cores that this process may use, where the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def run_session(
    run: RunDir, *, master: str, conf: Mapping[str, str], partitions: int, kafka: bool, is_bounded: bool = True
) -> Iterator[SparkSession]:
    """Start Spark for a run, and stop it in the end; the JVM writes its log to `RUN/spark.log`.

    `is_bounded` states that the run ends with its input.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Py4J would print the stack of every error that we report in a sentence, some of them under no name.
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    logging.getLogger().addFilter(_is_not_of_py4j)
    run.log_settings.write_text(_log_settings(run), "ascii")
    run.skipped.unlink(missing_ok=True)
    limit_log(run.spark_log)
    builder = SparkSession.builder.appName("tocsin-run")
    chosen = settings(run, master=master, conf=conf, partitions=partitions, kafka=kafka, is_bounded=is_bounded)
    for name, value in chosen.items():
        builder = builder.config(name, value)
    begun = run.spark_log.stat().st_size if run.spark_log.exists() else 0
    try:
        with stderr_to(run.spark_log), _own_interrupt():
            session = builder.getOrCreate()
    except Exception as error:
        raise RunError(blotted(_start_failure(run.spark_log, begun, error), secrets_of(conf=conf))) from error
    # It would print a stack when the JVM goes, which is told in a sentence.
    session.sparkContext._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]
    try:
        yield session
    except Exception as error:
        if sentence := _end_of_jvm(session, run.spark_log, begun, error):
            raise RunError(sentence) from error
        raise
    finally:
        with suppress(Py4JError, OSError):
            session.stop()


def _log_settings(run: RunDir) -> str:
    """Return the settings of Log4j. A file of properties takes ASCII, with escapes for all other characters."""
    path = json.dumps(str(run.skipped.absolute()))[1:-1]
    return _LOG.format(
        skipped=path, line_pattern=LINE_PATTERN, scan_logger=SCAN_LOGGER, delete_logger=_DELETE_LOGGER, control=CONTROL
    )


def limit_log(log: Path) -> None:
    """Move the content of a log to `<log>.1` if it has more than 10 MB.

    The JVM and its workers keep the file open and append to it, so it is copied and emptied, not renamed.
    """
    if log.exists() and log.stat().st_size > _LOG_BYTES:
        shutil.copyfile(log, log.with_name(f"{log.name}.1"))
        os.truncate(log, 0)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


@contextmanager
def _own_interrupt() -> Iterator[None]:
    """Keep what Ctrl-C does in this process: Spark's handler would cancel the micro-batch and raise wherever we are."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def settings(
    run: RunDir, *, master: str, conf: Mapping[str, str], partitions: int, kafka: bool, is_bounded: bool = True
) -> dict[str, str]:
    """Return the Spark settings. User settings win, except settings that the state depends on."""
    ours = {
        "spark.master": master,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(run.folder.absolute() / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Spark would record the place in the code of each operation on columns, which delays the first micro-batch.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        **checkpoint_settings(str(run.checkpoint), conf),
        **NAMED_SOURCES,
    }
    given = conf.get(_JAVA_OPTIONS, "")
    java = [f"-Dlog4j2.configurationFile={run.log_settings.absolute().as_uri()}"]
    if master.startswith("local"):
        ours |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", **LOCAL_MASTER_CONF}
        java += jvm_options(f"{conf.get(_DEFAULT_JAVA_OPTIONS, '')} {given}", is_bounded=is_bounded)
    java += [given] if given else []
    packages = _with_connector(conf) if kafka else {}
    return {**ours, **conf, **packages, _JAVA_OPTIONS: " ".join(java), **SETTINGS, PARTITIONS: str(partitions)}


def has_local_files(conf: Iterable[str]) -> bool:
    """Return whether Spark reads a path without a scheme from the disks of this machine; `conf` names its settings."""
    return "HADOOP_CONF_DIR" not in os.environ and not any("fs.default" in name for name in conf)


def checkpoint_settings(location: str, conf: Mapping[str, str]) -> dict[str, str]:
    """Return the file manager for checkpoints at `location`: that of local disks, or no setting for other places."""
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):", location)
    is_local = scheme[1] == "file" if scheme else has_local_files(conf)
    return LOCAL_DISK_CONF if is_local else {}


def _with_connector(conf: Mapping[str, str]) -> dict[str, str]:
    """Ask for Spark's Kafka connector, in Spark's own version, unless the user brings one."""
    if any(_CONNECTOR in conf.get(name, "") for name in (_PACKAGES, _JARS)):
        return {}
    package = f"org.apache.spark:{_CONNECTOR}_2.13:{pyspark.__version__}"
    return {_PACKAGES: ",".join(filter(None, [conf.get(_PACKAGES), package]))}


@contextmanager
def stderr_to(path: Path) -> Iterator[None]:
    """Send what a starting JVM says about itself to a file; a process keeps the standard error it was born with."""
    sys.stderr.flush()
    saved = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def _end_of_jvm(session: SparkSession, log: Path, begun: int, error: Exception) -> str:
    """Say that the JVM is gone, or has no memory left, where that is why something failed; its log knows more."""
    try:
        session.sparkContext._jsc.sc().isStopped()
        said, gone = text_of(error), False
    except (Py4JError, OSError):
        said, gone = _said_since(log, begun), True
    if "java.lang.OutOfMemoryError" in said:
        return (
            "the JVM of Spark ran out of memory; set more, for example `--conf spark.driver.memory=4g`, or use smaller "
            f"micro-batches (`max_files_per_batch`, `maxOffsetsPerTrigger`) (details: {log})"
        )
    return f"the JVM of Spark ended during the run (details: {log})" if gone else ""


def _said_since(log: Path, begun: int) -> str:
    with log.open("rb") as file:
        file.seek(begun if begun <= log.stat().st_size else 0)
        return file.read().decode("utf-8", "replace")


def _start_failure(log: Path, begun: int, error: Exception) -> str:
    """Say why Spark did not start; where the JVM itself gave up, its last words are in the log."""
    if not isinstance(error, PySparkException) or error.getCondition() != "JAVA_GATEWAY_EXITED":
        return f"Spark did not start; {sentence_of(error)}"
    said = _said_since(log, begun).splitlines()
    telling = [line.strip() for line in said if re.search(r"JAVA_HOME|[Ee]xception|Error:|unresolved|not found", line)]
    last = (telling or [line.strip() for line in said if line.strip()] or ["its log is empty"])[-1]
    return f"Spark did not start; it needs Java 17 or newer; {last[:300]} (details: {log})"
