"""Exports: `__all__` of each package, and the libraries that importing Tocsin loads."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import subprocess
import sys
from types import ModuleType

import pytest

import tocsin

LANGUAGE = ("annotations", "TYPE_CHECKING")
HEAVY = ("numba", "pandas", "pyarrow", "pyspark", "sqlglot")


def _packages() -> list[str]:
    found = pkgutil.walk_packages(tocsin.__path__, "tocsin.")
    return ["tocsin", *(module.name for module in found if module.ispkg)]


def _public_names(package: ModuleType) -> set[str]:
    """Return the public names of a package, without modules and without names of other libraries."""
    names = set()
    for name, value in vars(package).items():
        module = getattr(value, "__module__", None) or package.__name__
        is_own = module.partition(".")[0] == "tocsin"
        if not name.startswith("_") and not inspect.ismodule(value) and is_own and name not in LANGUAGE:
            names.add(name)
    return names


@pytest.mark.parametrize("name", _packages())
def test_all_lists_the_public_names_sorted_and_once(name: str) -> None:
    package = importlib.import_module(name)
    listed = list(getattr(package, "__all__", []))
    assert listed == sorted(set(listed))
    missing = [entry for entry in listed if not hasattr(package, entry)]
    assert missing == []
    # A name with lazy import is listed but not bound yet, so the list can be longer.
    assert _public_names(package) <= set(listed)


def test_importing_tocsin_imports_no_heavy_library(capsys: pytest.CaptureFixture[str]) -> None:
    code = (
        "import sys, time; import numpy; start = time.perf_counter(); import tocsin; "
        "took = time.perf_counter() - start; "
        f"print(*[name for name in {HEAVY!r} if name in sys.modules], sep=','); print(f'{{1000 * took:.0f}} ms')"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy, took = run.stdout.split("\n")[:2]
    with capsys.disabled():
        print(f"\nimporting tocsin after numpy: {took}")
    assert heavy == ""


def test_spark_worker_modules_do_not_import_sqlglot() -> None:
    code = "import sys, tocsin.spark.stateful, tocsin.interim.cpu.stream_query; print('sqlglot' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"


def test_every_error_class_is_a_tocsin_error() -> None:
    from tocsin import errors

    classes = [value for name, value in inspect.getmembers(errors, inspect.isclass) if name.endswith("Error")]
    assert classes
    assert all(issubclass(value, errors.TocsinError) for value in classes)
