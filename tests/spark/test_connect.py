"""Spark Connect: the session is a client without `sparkContext`; it needs a process of its own."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from spark.child import batches, finish, start_job
from spark.scenarios import condensation, plain

pytestmark = [pytest.mark.spark, pytest.mark.process]

PORT = 15002  # PySpark's client looks for a server that it started itself here and nowhere else


def test_a_stream_over_spark_connect_gives_the_alerts_of_the_local_engine(tmp_path: Path) -> None:
    pytest.importorskip("grpc_status", reason="needs pyspark[connect]")
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", PORT)) == 0:
            pytest.skip(f"needs port {PORT}, which another process has")
    scenario = condensation()
    scenario.write(tmp_path / "in", files=2)
    assert finish(start_job(tmp_path, "condensation", "connect", "stream"), tmp_path) == plain(scenario.local())
    assert batches(tmp_path, "commits") == 2
