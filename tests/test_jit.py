"""Kernels: compiled and interpreted results, the choice between them, cached kernels, the message, reference counts."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tocsin import jit
from tocsin.jit import (
    MOST_INTERPRETED_ROWS,
    MOST_INTERPRETED_ROWS_UNCACHED,
    Kernel,
    inlined,
    kernel,
    lean,
    use_interpreted_kernels,
)

ROOT = Path(__file__).resolve().parents[1]


@inlined
def add_line(table: Any, line: int, out: Any) -> int:
    """Add a line of a table to a sum; return the number of values in the line."""
    values = table[line]
    for i in range(values.shape[0]):
        out[i] += values[i]
    return len(values)


@lean
def add_lines(table: Any, out: Any) -> int:
    """Add all lines of a table; return the number of values."""
    added = 0
    for line in range(table.shape[0]):
        added += add_line(table, line, out)
    return added


@kernel
def column_sums(table: Any) -> Any:
    """Return the column sums, which a lean kernel computes."""
    out = np.zeros(table.shape[1])
    add_lines(table, out)
    return out


def test_lean_kernels_return_the_result_of_plain_functions() -> None:
    table, out = np.arange(12.0).reshape(4, 3), np.zeros(3)
    assert add_lines(table, out) == 12
    assert out.tolist() == table.sum(axis=0).tolist() == column_sums(table).tolist()


def test_reference_counts_of_arrays_are_unchanged_after_lean_kernels() -> None:
    table, out = np.arange(12.0).reshape(4, 3), np.zeros(3)
    before = sys.getrefcount(table), sys.getrefcount(out)
    for _ in range(100):
        add_lines(table, out)
        column_sums(table)
    assert (sys.getrefcount(table), sys.getrefcount(out)) == before


def test_lean_kernel_raises_an_error_when_it_returns_an_array() -> None:
    def first(table: Any) -> Any:
        return table[0]

    for mark in (lean, inlined):
        with pytest.raises(TypeError, match=r"`first` must return numbers, .*; got Any"):
            mark(first)


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Kernel[[int], int]:
    """Return a kernel that no caller has loaded, in a process that has interpreted no rows."""

    def double(number: int) -> int:
        return 2 * number

    monkeypatch.setattr(jit, "_INTERPRETED_ROWS", jit._InterpretedRows())
    return kernel(double)


def test_kernel_is_interpreted_when_rows_are_few(fresh: Kernel[[int], int]) -> None:
    with use_interpreted_kernels(MOST_INTERPRETED_ROWS) as is_interpreted:
        assert is_interpreted
        assert fresh(21) == 42
    assert fresh._called is None


def test_loaded_kernel_runs_compiled_when_rows_are_few(fresh: Kernel[[int], int]) -> None:
    def compiled(number: int) -> int:
        return -number

    fresh._called = compiled
    with use_interpreted_kernels(0):
        assert fresh(1) == -1
    assert fresh._called is compiled


def test_called_kernel_is_interpreted_when_its_caller_is_interpreted(fresh: Kernel[[int], int]) -> None:
    def compiled(_: int) -> int:
        raise AssertionError

    outer = kernel(lambda number: fresh(number) + 1)
    fresh._called = compiled
    with use_interpreted_kernels(0):
        assert outer(1) == 3


@pytest.mark.parametrize(("rows", "is_cached", "is_interpreted"), [
    (MOST_INTERPRETED_ROWS, True, True),
    (MOST_INTERPRETED_ROWS + 1, True, False),
    (MOST_INTERPRETED_ROWS_UNCACHED, False, True),
    (MOST_INTERPRETED_ROWS_UNCACHED + 1, False, False),
])  # fmt: skip
def test_more_rows_are_interpreted_when_no_kernel_is_cached(
    monkeypatch: pytest.MonkeyPatch, fresh: Kernel[[int], int], rows: int, *, is_cached: bool, is_interpreted: bool
) -> None:
    monkeypatch.setattr(jit, "has_cached_kernels", lambda: is_cached)
    with use_interpreted_kernels(rows) as found:
        assert found == is_interpreted
        assert fresh(21) == 42
    assert (fresh._called is None) == is_interpreted


def test_small_inputs_are_compiled_when_they_are_many(
    monkeypatch: pytest.MonkeyPatch, fresh: Kernel[[int], int]
) -> None:
    monkeypatch.setattr(jit, "has_cached_kernels", lambda: True)
    found = []
    for _ in range(4):
        with use_interpreted_kernels(MOST_INTERPRETED_ROWS // 3) as is_interpreted:
            found.append(is_interpreted)
    assert found == [True, True, True, False]
    assert fresh(21) == 42


def test_kernels_of_other_threads_are_compiled_when_a_thread_interprets(fresh: Kernel[[int], int]) -> None:
    with use_interpreted_kernels(0), ThreadPoolExecutor(1) as pool:
        assert pool.submit(fresh, 21).result() == 42
    assert fresh._called is not None


def test_kernels_are_compiled_again_after_an_error(fresh: Kernel[[int], int]) -> None:
    message = "invalid"
    with pytest.raises(ValueError, match="invalid"), use_interpreted_kernels(0):
        raise ValueError(message)
    assert fresh(21) == 42
    assert fresh._called is not None


# A package with one kernel that calls a kernel of another file.
INNER = """
from tocsin.jit import kernel

@kernel
def scaled(number):
    return number * {factor}
"""
OUTER = """
import sys
from tocsin import jit
from pair import inner
{reason}

@jit.kernel
def total(number):
    return inner.scaled(number) + 1

if __name__ != "__main__":
    print(jit.has_cached_kernels(), total(10), sum(total.compiled.stats.cache_hits.values()))
"""


def run_code(code: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    given = {name: value for name, value in os.environ.items() if name != "TOCSIN_PROGRESS"}
    path = os.pathsep.join([str(folder), str(ROOT)])
    variables = given | {"PYTHONPATH": path, "NUMBA_CACHE_DIR": str(folder / "kernels"), **environment}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=variables)
    assert done.returncode == 0, done.stderr
    return done


def write_pair(folder: Path, factor: int, reason: str = "") -> None:
    (folder / "pair").mkdir(exist_ok=True)
    (folder / "pair" / "__init__.py").touch()
    (folder / "pair" / "reason.py").touch()
    (folder / "pair" / "inner.py").write_text(INNER.format(factor=factor), encoding="utf-8")
    (folder / "pair" / "outer.py").write_text(OUTER.format(reason=reason), encoding="utf-8")


def test_cached_kernel_is_loaded_only_while_the_code_that_it_needs_is_equal(tmp_path: Path) -> None:
    outputs = []
    for factor, reason in ((2, ""), (2, ""), (3, ""), (3, "from pair import reason"), (2, "")):
        write_pair(tmp_path, factor, reason)
        # Equal sizes and times must not hide a change of the inner file.
        for file in (tmp_path / "pair").glob("*.py"):
            os.utime(file, (1, 1))
        outputs.append(run_code("import pair.outer", tmp_path, PYTHONDONTWRITEBYTECODE="1").stdout.split())
    assert outputs == [
        ["False", "21", "0"],
        ["True", "21", "1"],
        ["False", "31", "0"],
        ["True", "31", "1"],
        ["True", "21", "1"],
    ]


PARTS = """
from typing import NamedTuple
from tocsin.jit import _code_hash, kernel
{before}
LIMIT = {limit}

class Point(NamedTuple):
    {fields}

class Pair(NamedTuple):
    first: Point
    second: int

@kernel
def add(number: int) -> int:
    {text}
    return number + {step}

@kernel
def total(pair: Pair, number: int) -> int:
    return add(number) + LIMIT + pair.second

print(_code_hash(total.function))
"""


@pytest.mark.parametrize(
    ("change", "is_equal"),
    [
        ({"before": "import json  # a reason\n\n"}, True),
        ({"text": '"""Add one."""'}, True),
        ({"limit": "8"}, False),
        ({"step": "2"}, False),
        ({"fields": "y: float; x: float"}, False),
    ],
)
def test_hash_of_a_kernel_changes_only_with_the_code_that_it_depends_on(
    tmp_path: Path, change: dict[str, str], *, is_equal: bool
) -> None:
    given = {"before": "", "limit": "7", "fields": "x: float; y: float", "text": '"""Add."""', "step": "1"}
    found = []
    for parts in (given, given | change):
        (tmp_path / "parts.py").write_text(PARTS.format(**parts), encoding="utf-8")
        found.append(run_code("import parts", tmp_path, PYTHONDONTWRITEBYTECODE="1").stdout)
    assert (found[0] == found[1]) == is_equal


def test_kernels_beside_their_sources_are_replaced_when_the_sources_change(tmp_path: Path) -> None:
    for factor in (2, 3):
        write_pair(tmp_path, factor)
        code = "import os; del os.environ['NUMBA_CACHE_DIR']; import pair.outer"
        run_code(code, tmp_path, PYTHONDONTWRITEBYTECODE="1")
        found = [file.name.split("-")[0] for file in (tmp_path / "pair" / "__pycache__").glob("*.nb?")]
        assert sorted(found) == ["inner.scaled", "inner.scaled", "outer.total", "outer.total"]


def test_long_compilation_prints_one_line_that_can_be_turned_off(tmp_path: Path) -> None:
    write_pair(tmp_path, 2)
    code = "import tocsin.jit as jit; jit._SILENT_S = {limit}; import pair.outer"
    line = "tocsin: compiling kernels, which can take half a minute; later runs load them from the cache\n"
    assert run_code(code.format(limit=0), tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "a")).stderr == line
    assert run_code(code.format(limit=0), tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "a")).stderr == ""
    assert run_code(code.format(limit=600), tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "b")).stderr == ""
    off = {"NUMBA_CACHE_DIR": str(tmp_path / "c"), "TOCSIN_PROGRESS": "off"}
    assert run_code(code.format(limit=0), tmp_path, **off).stderr == ""


def test_interpreted_kernel_is_compiled_when_a_compiled_kernel_calls_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inner = Kernel(add_line.function, add_line.flags)
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    assert inner(np.ones((1, 2)), 0, np.zeros(2)) == 2
    assert inner._called is inner.function
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "0")
    monkeypatch.setitem(globals(), "add_line", inner)
    outer = Kernel(add_lines.function, add_lines.flags)
    assert outer(np.ones((3, 2)), np.zeros(2)) == 6
