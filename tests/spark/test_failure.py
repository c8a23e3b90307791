"""What fails in a run is told in one sentence, without secrets; what a session is started with."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from urllib.parse import quote

import pytest

pytest.importorskip("pyspark", reason="needs pyspark: install tocsin[spark]")

import py4j.java_gateway
import pyspark

from rules.files import GOOD, check
from spark.child import PATIENCE_S, kill, start, tail, wait_until
from tocsin.errors import RunError
from tocsin.run_directory import RunDir
from tocsin.spark.failure import secrets_of, sentence_of
from tocsin.spark.session import (
    _end_of_jvm,
    _is_not_of_py4j,
    _said_since,
    limit_log,
    partitions_of,
    run_session,
    settings,
)

FACTORY = Path(__file__).resolve().parents[2] / "examples" / "factory.yaml"

# As PySpark 4.2 gave them, shortened.
OPERATOR = """\
[STREAM_FAILED] Query [id = 5b, runId = c1] terminated with exception: Job aborted due to stage failure: Task 0 in stage
8.0 failed 1 times, most recent failure: Lost task 0.0 in stage 8.0: org.apache.spark.api.python.PythonException:
Traceback (most recent call last):
  File "/x/stateful.py", line 175, in _head
    check_head(head, self.work.facts)
tocsin.errors.RunError: state in the checkpoint must have the plan 'a'; it has 'b': run with what wrote it

	at org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:654)
Caused by: org.apache.spark.SparkException: Task failed
Driver stacktrace: SQLSTATE: XXKST"""
PYTHON = """\
An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "/x/clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
OSError: [Errno 28] No space left on device: 'hunter2'
"""
JAVA = """\
[STREAM_FAILED] Query terminated with exception: boom SQLSTATE: XXKST
Caused by: org.apache.spark.SparkException: Writing job aborted.
Caused by: org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment.
"""


# As PySpark 4.2 gave it in `foreachBatch`, shortened.
FILE = """\
[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in foreach batch sink.
Traceback (most recent call last):
py4j.protocol.Py4JJavaError: An error occurred while calling o53.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult:
Caused by: org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file \
file:///in/bad%20one.json.gz.  SQLSTATE: KD001
Caused by: java.io.EOFException: Unexpected end of input stream
"""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (FILE, "file file:///in/bad one.json.gz cannot be read; EOFException: Unexpected end of input stream"),
        (OPERATOR, "state in the checkpoint must have the plan 'a'; it has 'b': run with what wrote it"),
        (PYTHON, "OSError: [Errno 28] No space left on device: '***'"),
        (JAVA, "TimeoutException: Timed out waiting for a node assignment."),
        (
            "[PATH_NOT_FOUND] Path does not exist: /x. SQLSTATE: 42K03\nmore",
            "[PATH_NOT_FOUND] Path does not exist: /x.",
        ),
        ("", "ValueError"),
        ("x" * 900, "x" * 497 + "..."),
    ],
)
def test_an_error_becomes_its_innermost_sentence(text: str, sentence: str) -> None:
    assert sentence_of(ValueError(text), ["hunter2"]) == sentence


def test_an_error_of_the_disk_names_the_file() -> None:
    assert (
        sentence_of(OSError(28, "No space left on device", "run/alerts/0")) == "run/alerts/0: no space left on device"
    )
    assert sentence_of(OSError(28, "No space left on device")) == "no space left on device"


def test_our_own_errors_stay_as_they_are() -> None:
    assert sentence_of(RunError("a; b")) == "a; b"


def test_secrets_of_sources_and_sinks_are_known(tmp_path: Path) -> None:
    file = check(tmp_path, GOOD).file
    assert file is not None
    assert set(secrets_of(file)) == {"hunter2/@secret", "bell:hunter2%2F%40secret"}


ODD = ["hunter2", "it's", 'say "x"', "both ' and \"", "back\\slash", "two  blanks", "two\nlines", "ümlaut/@", "a b"]


@pytest.mark.parametrize("secret", ODD)
@pytest.mark.parametrize(
    "write",
    [str, repr, json.dumps, quote, lambda text: quote(text, safe=""), lambda text: repr(f"login '{text}' \"x\"")],
    ids=["plain", "repr", "json", "url", "url-part", "repr-of-more"],
)
def test_a_secret_is_blotted_out_however_its_signs_are_written(secret: str, write: Callable[[str], str]) -> None:
    for error in (ValueError(f"login {write(secret)} is wrong"), RunError(f"a; {write(secret)}")):
        shown = sentence_of(error, secrets=[secret])
        assert "***" in shown
        for part in (secret, write(secret), *secret.splitlines()):
            assert part not in shown


def test_a_secret_inside_another_leaves_nothing_of_it() -> None:
    assert sentence_of(ValueError("x hunter2-long y"), ["hunter2", "hunter2-long"]) == "x *** y"


@pytest.mark.parametrize(
    ("name", "value", "secrets"),
    [
        ("spark.hadoop.fs.s3a.secret.key", "it's", {"it's"}),
        ("spark.hadoop.fs.s3a.access.key", "A1", {"A1"}),
        ("spark.ssl.keyPassword", "p q", {"p q"}),
        ("spark.driver.extraJavaOptions", "-Dx.trustStorePassword=hunter2 -Dy=z", {"hunter2"}),
        ("spark.x.jaas.config", 'm required username="u" password="a\\"b";', {'a\\"b'}),
        ("spark.jars.repositories", "https://bell:hunter2@host/x,https://other/y", {"bell:hunter2"}),
        ("spark.driver.memory", "4g", set()),
    ],
)
def test_secrets_of_settings_are_known_by_their_names(name: str, value: str, secrets: set[str]) -> None:
    assert set(secrets_of(conf={name: value})) == secrets


def test_a_session_that_does_not_start_shows_no_secret_of_its_settings(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"

    class Broken:
        def appName(self, name: str) -> Broken:
            return self

        def config(self, name: str, value: str) -> Broken:
            return self

        def getOrCreate(self) -> None:
            raise ValueError("no login with it's")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tocsin.spark.session.SparkSession.builder", Broken())
        conf = {"spark.ssl.keyPassword": "it's"}
        starting = run_session(RunDir(tmp_path), master="local", conf=conf, partitions=1, kafka=False)
        with pytest.raises(RunError, match=r"Spark did not start; no login with \*\*\*$"), starting:
            pass
    assert log.exists()


def test_a_session_has_what_its_sources_need(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    plain = settings(run, master="local[2]", conf={"spark.ui.enabled": "true"}, partitions=2, kafka=False)
    assert plain["spark.ui.enabled"] == "true"
    assert plain["spark.driver.host"] == plain["spark.driver.bindAddress"] == "127.0.0.1"
    assert plain["spark.sql.shuffle.partitions"] == "2"
    assert "spark.jars.packages" not in plain
    package = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
    cluster = settings(run, master="spark://x:1", conf={"spark.jars.packages": "a:b:1"}, partitions=8, kafka=True)
    assert cluster["spark.jars.packages"] == f"a:b:1,{package}"
    assert "spark.driver.host" not in cluster
    brought = {"spark.jars": "/x/spark-sql-kafka-0-10_2.13-4.2.0.jar"}
    assert "spark.jars.packages" not in settings(run, master="local", conf=brought, partitions=1, kafka=True)


def test_partitions_are_the_cores_unless_the_user_says_otherwise() -> None:
    assert partitions_of("local[5]", {}) == 5
    assert partitions_of("local[*]", {}) >= 1
    assert partitions_of("local[5]", {"spark.sql.shuffle.partitions": "3"}) == 3
    with pytest.raises(RunError, match="must be an integer from 1; got 'x'"):
        partitions_of("local", {"spark.sql.shuffle.partitions": "x"})


class OfJvm(Exception):
    """As an error of Py4J, which asks the JVM what it says."""

    def __str__(self) -> str:
        raise ConnectionRefusedError(111, "Connection refused")


def test_an_error_that_must_ask_a_jvm_that_is_gone_has_a_sentence() -> None:
    assert sentence_of(OfJvm()) == "OfJvm"


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("java.lang.OutOfMemoryError: Java heap space", "the JVM of Spark ran out of memory; set more"),
        ("Killed", "the JVM of Spark ended during the run"),
    ],
)
def test_why_a_jvm_has_ended_is_read_from_what_it_said_since_it_began(tmp_path: Path, said: str, sentence: str) -> None:
    log = tmp_path / "spark.log"
    log.write_text("java.lang.OutOfMemoryError: that of a run before\n")
    begun = log.stat().st_size
    with log.open("a") as file:
        file.write(f"26/11/18 ERROR {said}\n")
    # A session that has no context is as far away as one whose JVM is gone.
    assert _end_of_jvm(Gone(), log, begun, OfJvm()).startswith(sentence)  # type: ignore[arg-type]


class Gone:
    @property
    def sparkContext(self) -> None:
        raise ConnectionRefusedError(111, "Connection refused")


@pytest.mark.spark
@pytest.mark.process
def test_a_run_whose_jvm_is_killed_ends_with_one_sentence(tmp_path: Path) -> None:
    log, run = tmp_path / "log", tmp_path / "run"
    process = start([sys.executable, "-m", "tocsin", "run", str(FACTORY), "--run-dir", str(run)], log)
    try:
        assert wait_until((run / "progress.jsonl").exists, process), tail(log)
        java = [one for one in _children(process.pid) if b"java" in Path(f"/proc/{one}/cmdline").read_bytes()]
        os.kill(java[0], signal.SIGKILL)
        assert process.wait(PATIENCE_S) == 1
    finally:
        kill(process)
    said = log.read_text()
    assert "Traceback" not in said
    assert f"the JVM of Spark ended during the run (details: {run / 'spark.log'})" in said.splitlines()[-1]


def _children(pid: int) -> list[int]:
    found = [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return found + [below for one in found for below in _children(one)]


@pytest.mark.parametrize(("module", "printed"), [(py4j.java_gateway, False), (json, True)])
def test_stacks_that_py4j_logs_under_no_name_are_not_printed(module: ModuleType, printed: bool) -> None:
    record = logging.makeLogRecord({"name": "root", "pathname": module.__file__})
    assert _is_not_of_py4j(record) is printed


def test_log_moves_to_a_second_file_when_it_is_too_long_and_writers_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tocsin.spark.session._LOG_BYTES", 10)
    log = tmp_path / "spark.log"
    limit_log(log)
    assert not log.exists()
    # As the JVM and its workers do.
    with log.open("ab", buffering=0) as writer:
        writer.write(b"0123456789")
        limit_log(log)
        assert not log.with_name("spark.log.1").exists()
        writer.write(b"first")
        limit_log(log)
        writer.write(b"second")
    assert log.with_name("spark.log.1").read_bytes() == b"0123456789first"
    assert log.read_bytes() == b"second"
    # A place in the log before it was emptied means the start of it.
    assert _said_since(log, 15) == "second"
    assert _said_since(log, 3) == "ond"
