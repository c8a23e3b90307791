"""What all tests share: Hypothesis profiles, and a reason to skip where there is no Java."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a JVM where there is none."""
    if _java() is not None:
        return
    skip = pytest.mark.skip(reason="needs Java 17 or newer: `make java` finds or installs it")
    for item in items:
        if item.get_closest_marker("spark") or item.get_closest_marker("cluster"):
            item.add_marker(skip)


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home) / "bin") if home else None)
