"""Standalone cluster: a master and two workers, one of which is killed while a query runs."""

from __future__ import annotations

import os
import socket
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark.child import batches, finish, free_port, kill, start, start_job, tail, wait_until
from spark.scenarios import disorder, matches, plain
from tocsin.jvm import BOUNDED

pytestmark = [pytest.mark.spark, pytest.mark.process]

FILES = 6


class Cluster:
    """Master and workers in their own processes, all on loopback."""

    def __init__(self, folder: Path) -> None:
        import pyspark

        self.folder, self.home = folder, Path(pyspark.__file__).parent
        self.port, self.log = free_port(), folder / "cluster-log"
        self.url = f"spark://127.0.0.1:{self.port}"
        self.master = self._start("master.Master", "-h", "127.0.0.1", "-p", str(self.port), "--webui-port", "0")
        self.workers = []

    def add_worker(self) -> None:
        folder = self.folder / f"worker-{len(self.workers)}"
        options = ["-h", "127.0.0.1", "-c", "1", "-m", "1g", "-d", str(folder), "--webui-port", "0"]
        self.workers.append(self._start("worker.Worker", *options, self.url))

    def _start(self, name: str, *options: str) -> subprocess.Popen[bytes]:
        command = [str(self.home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *options]
        java = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": " ".join(BOUNDED)}
        return start(command, self.log, SPARK_HOME=str(self.home), SPARK_NO_DAEMONIZE="1", **java)

    def is_open(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def registered(self) -> int:
        return self.log.read_text(errors="replace").count("Successfully registered with master")

    def stop(self) -> None:
        for process in [*self.workers, self.master]:
            kill(process)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    try:
        if not wait_until(made.is_open, made.master):
            pytest.skip(f"no Spark master started: {tail(made.log, 3)}")
        for _ in range(2):
            made.add_worker()
        if not wait_until(lambda: made.registered() == 2, made.master):
            pytest.skip(f"only {made.registered()} of 2 Spark workers started: {tail(made.log, 3)}")
        yield made
    finally:
        made.stop()


def test_a_worker_that_dies_changes_no_alert(cluster: Cluster, tmp_path: Path) -> None:
    scenario = disorder()
    scenario.write(tmp_path / "in", FILES)
    # Executors run this interpreter, where Tocsin is installed.
    process = start_job(tmp_path, "disorder", cluster.url, "stream")
    try:
        assert wait_until(lambda: batches(tmp_path, "commits") >= 2, process), tail(tmp_path / "log")
        used = [folder for folder in tmp_path.glob("worker-*") if list(folder.glob("app-*/*"))]
        assert len(used) == 2, "both workers must have an executor"
        kill(cluster.workers[0])  # with its executor, as when a machine goes down
        assert batches(tmp_path, "commits") < FILES
        found = finish(process, tmp_path)
    finally:
        kill(process)
    assert found == plain(scenario.local())


@pytest.mark.slow
def test_a_zip_of_the_package_can_be_shipped_to_workers(tmp_path: Path) -> None:
    import tocsin

    package = Path(tocsin.__file__).parent
    with zipfile.ZipFile(tmp_path / "tocsin.zip", "w") as archive:
        for path in sorted(package.rglob("*.py")):
            archive.write(path, Path("tocsin") / path.relative_to(package))
    scenario = matches(seconds=40)
    scenario.write(tmp_path / "in", files=1)
    # One core: Numba has no place for its cache beside a zip, so each worker compiles for itself.
    found = finish(start_job(tmp_path, "matches", "local[1]", "shipped"), tmp_path)
    assert f"tocsin.zip{os.sep}tocsin" in (tmp_path / "log").read_text()
    assert found == plain(scenario.local())
