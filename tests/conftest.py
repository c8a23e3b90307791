"""Configuration of all tests: Hypothesis profiles, environment, order of tests, and skipped tests."""

from __future__ import annotations

import gc
import os
import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from benchmarks.recordings import VARIABLE, recordings_folder
from tocsin.jvm import jvm_options
from tocsin.operators.join import operator as join_operator

# Compiling a kernel takes seconds at its first call, so no example has a deadline. The default profile draws the same
# examples in every run, so that a failure is due to the change under test. `--hypothesis-profile=nightly` draws other
# examples in each run. `small` is for kernels that run as plain Python.
_ALL = {"deadline": None, "print_blob": True, "suppress_health_check": [HealthCheck.too_slow]}
_NIGHTLY = "nightly"
settings.register_profile("ci", max_examples=100, derandomize=True, **_ALL)
settings.register_profile("small", max_examples=15, derandomize=True, **_ALL)
settings.register_profile(_NIGHTLY, max_examples=500, **_ALL)
settings.load_profile("ci")

# Spark workers run the Python of the tests and can import test modules. Spark listens only on this machine.
_TESTS = Path(__file__).resolve().parent
_FOLDERS = [str(_TESTS), str(_TESTS.parent), os.environ.get("PYTHONPATH", "")]
os.environ["PYTHONPATH"] = os.pathsep.join(folder for folder in _FOLDERS if folder)
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
# Tests compare standard error. On a busy machine, commands would print their progress, which they do after 2 s.
os.environ["TOCSIN_PROGRESS"] = "off"
# `make` writes the class archive into this cache. JVMs without the archive start more slowly.
os.environ["XDG_CACHE_HOME"] = str(_TESTS.parent / ".cache")
# With one compiler the code cache has 48 MB. The code of the shared session would fill it, so that the JVM removes code
# and compiles it again.
_OPTIONS = [*jvm_options("", is_bounded=True, may_write=False), "-XX:ReservedCodeCacheSize=240m"]
os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(_OPTIONS))

# Time limit in seconds of a test that starts a JVM. The duration of a test depends on the load of the machine.
_JVM_S = 1800
# Objects that are allocated before Python's collector searches for cycles. Hypothesis and planning allocate many.
_ALLOCATED = 10_000
# Folder of the tests that can use the shared Spark session, because its `conftest.py` has the fixture.
_SPARK = "tests/spark"


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose the seed of the nightly profile. Workers receive it with the options."""
    if config.option.hypothesis_profile == _NIGHTLY and config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(random.SystemRandom().getrandbits(32))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the seed, so that `--hypothesis-seed` can repeat the run."""
    if config.option.hypothesis_seed is not None:
        terminalreporter.write_line(f"hypothesis seed: {config.option.hypothesis_seed}")


@pytest.fixture(scope="session", autouse=True)
def select_cells_of_small_batches() -> Iterator[None]:
    """Enable the selection of cells for batches of any size, because examples have few rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(join_operator, "MIN_ROWS_FOR_CELLS", 0)
        yield


class SharedSessionScheduling(LoadFileScheduling):
    """Scheduler of xdist: one worker runs all files of the shared Spark session; other files are distributed."""

    def _split_scope(self, nodeid: str) -> str:
        return _SPARK if nodeid.startswith(f"{_SPARK}/") else super()._split_scope(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> SharedSessionScheduling | None:
    """Return the scheduler for `--dist loadgroup`; other values of `--dist` keep their scheduler."""
    return SharedSessionScheduling(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Exclude the modules and the list of tests from searches for cycles: a search visits a million objects there."""
    gc.disable()
    try:
        result = yield
    finally:
        gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(_ALLOCATED)
    return result


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests on Spark first, so that all workers end together; skip tests without JVM or recordings."""
    items.sort(key=lambda item: not item.nodeid.startswith(f"{_SPARK}/"))
    java, skip = _java(), pytest.mark.skip(reason="needs Java 17 or newer: `make java` finds or installs it")
    skip_recorded = pytest.mark.skip(reason=f"needs recordings; set {VARIABLE} to their directory")
    try:
        recorded = recordings_folder()
    except NotADirectoryError as error:
        raise pytest.UsageError(str(error)) from None
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.timeout(_JVM_S))
        if java is None and item.get_closest_marker("spark"):
            item.add_marker(skip)
        if recorded is None and item.get_closest_marker("recordings"):
            item.add_marker(skip_recorded)


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home) / "bin") if home else None)
