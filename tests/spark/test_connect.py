"""Spark Connect: the session is a client without `sparkContext`; in its own process, since a process has one kind of session."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark.child import batches, finish, free_port, start_job
from spark.scenarios import condensation, plain

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_stream_over_spark_connect_gives_the_alerts_of_the_local_engine(tmp_path: Path) -> None:
    pytest.importorskip("grpc_status", reason="needs pyspark[connect]")
    scenario = condensation()
    scenario.write(tmp_path / "in", files=3)
    job = start_job(tmp_path, "condensation", "connect", "stream", TOCSIN_CONNECT_PORT=str(free_port()))
    assert finish(job, tmp_path) == plain(scenario.local())
    assert batches(tmp_path, "commits") == 3
