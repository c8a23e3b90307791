"""What all tests share: Hypothesis profiles, rows that are sifted however few, a reason to skip without Java."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from benchmarks.recordings import VARIABLE, recordings_folder
from servers import SHORT_LIVED
from tocsin.plan import follow

# Compiling a kernel takes seconds at its first call, so no example has a deadline. The default profile draws the same
# examples in every run: a failure is then due to the change under test. `--hypothesis-profile=thorough` draws new ones.
_ALL = {"deadline": None, "print_blob": True, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("ci", max_examples=100, derandomize=True, **_ALL)
settings.register_profile("small", max_examples=15, derandomize=True, **_ALL)
settings.register_profile("thorough", max_examples=2000, **_ALL)
settings.load_profile("ci")

# Spark's workers run the Python of the tests and find functions defined in them; nothing listens beyond this machine.
_TESTS = Path(__file__).resolve().parent
_FOLDERS = [str(_TESTS), str(_TESTS.parent), os.environ.get("PYTHONPATH", "")]
os.environ["PYTHONPATH"] = os.pathsep.join(folder for folder in _FOLDERS if folder)
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
# `make` lets a JVM write the file, without which others start more slowly.
_CLASSES = _TESTS.parent / ".cache" / "spark.jsa"
_SHARED = (f"-XX:SharedArchiveFile={_CLASSES}", "-Xlog:disable") if _CLASSES.exists() else ()
os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join([*SHORT_LIVED, *_SHARED]))

# Marks of what takes long, the longest first.
_LONG = ("slow", "spark")
# How long that is depends on what else the machine does; the limit is for what hangs.
_LONG_S = 1800
# Each compiles many kernels of its own: processes of Spark, several at a time, then find them in the cache.
_COMPILES = [_TESTS / name for name in ("test_laws.py", "test_ranges.py", "test_memory.py")]


@pytest.fixture(scope="session", autouse=True)
def few_rows_are_sifted_too() -> Iterator[None]:
    """Examples are small: let all of them go where many rows would."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(follow, "FEWEST_SIFTED", 0)
        yield


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run long files first, so that both workers stay busy to the end; skip tests without their JVM or recordings."""
    rank: dict[Path, int] = {}
    for item in items:
        rank[item.path] = min(rank.get(item.path, len(_LONG)), _rank(item))
    items.sort(key=lambda item: (item.path not in _COMPILES, rank[item.path]))
    java, skip = _java(), pytest.mark.skip(reason="needs Java 17 or newer: `make java` finds or installs it")
    skip_recorded = pytest.mark.skip(reason=f"needs recordings; set {VARIABLE} to the folder that holds them")
    try:
        recorded = recordings_folder()
    except NotADirectoryError as error:
        raise pytest.UsageError(str(error)) from None
    for item in items:
        if _rank(item) < len(_LONG):
            item.add_marker(pytest.mark.timeout(_LONG_S))
        if java is None and (item.get_closest_marker("spark") or item.get_closest_marker("cluster")):
            item.add_marker(skip)
        if recorded is None and item.get_closest_marker("recordings"):
            item.add_marker(skip_recorded)


def _rank(item: pytest.Item) -> int:
    return next((rank for rank, mark in enumerate(_LONG) if item.get_closest_marker(mark)), len(_LONG))


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home) / "bin") if home else None)
