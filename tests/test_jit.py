"""Kernels give what plain functions give, run plain only then and there, and leave borrowed arrays as counted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tocsin import jit
from tocsin.jit import MOST_PLAIN_SAMPLES, Kernel, inlined, kernel, lean, plain_kernels

ROOT = Path(__file__).resolve().parents[1]


@inlined
def add_line(table: Any, line: int, out: Any) -> int:
    """Add a line to a sum; gives how many numbers it has."""
    cut = table[line]
    for i in range(cut.shape[0]):
        out[i] += cut[i]
    return len(cut)


@lean
def add_lines(table: Any, out: Any) -> int:
    """Add all lines; gives how many numbers they have."""
    added = 0
    for line in range(table.shape[0]):
        added += add_line(table, line, out)
    return added


@kernel
def column_sums(table: Any) -> Any:
    """Make an array, which a lean kernel fills."""
    out = np.zeros(table.shape[1])
    add_lines(table, out)
    return out


def test_lean_kernels_give_what_plain_functions_give() -> None:
    table, out = np.arange(12.0).reshape(4, 3), np.zeros(3)
    assert add_lines(table, out) == 12
    assert out.tolist() == table.sum(axis=0).tolist() == column_sums(table).tolist()


def test_borrowed_arrays_stay_as_they_were_counted() -> None:
    table, out = np.arange(12.0).reshape(4, 3), np.zeros(3)
    before = sys.getrefcount(table), sys.getrefcount(out)
    for _ in range(100):
        add_lines(table, out)
        column_sums(table)
    assert (sys.getrefcount(table), sys.getrefcount(out)) == before


def test_a_lean_kernel_that_gives_back_an_array_is_refused() -> None:
    def first(table: Any) -> Any:
        return table[0]

    for mark in (lean, inlined):
        with pytest.raises(TypeError, match=r"`first` must give back numbers, .*; it gives Any"):
            mark(first)


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Kernel[[int], int]:
    def double(number: int) -> int:
        return 2 * number

    made = kernel(double)
    monkeypatch.setattr(jit, "fresh_kernel", made, raising=False)
    return made


def test_a_kernel_that_nobody_called_runs_as_it_is_written(fresh: Kernel[[int], int]) -> None:
    with plain_kernels(MOST_PLAIN_SAMPLES) as is_plain:
        assert is_plain
        assert fresh(21) == 42
    assert fresh._called is None


def test_a_kernel_that_was_called_stays_as_it_is(fresh: Kernel[[int], int]) -> None:
    def compiled(number: int) -> int:
        return -number

    fresh._called = compiled
    with plain_kernels(0):
        assert fresh(1) == -1
    assert fresh._called is compiled


def test_many_samples_are_worth_compiled_kernels(fresh: Kernel[[int], int]) -> None:
    with plain_kernels(MOST_PLAIN_SAMPLES + 1) as is_plain:
        assert not is_plain
        assert fresh._called is None


def test_an_error_leaves_no_kernel_behind(fresh: Kernel[[int], int]) -> None:
    message = "no"
    with pytest.raises(ValueError, match="no"), plain_kernels(0):
        raise ValueError(message)
    assert fresh._called is None


def test_every_kernel_of_the_engine_is_found_before_it_is_called() -> None:
    code = (
        "import tocsin.testing, tocsin.jit as j; found = {k.__name__ for k in j._unused()}; "
        "print({'by_key', 'search', 'arrange', 'track', 'admit', 'drive', 'run_program', 'survivors'} - found)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.stdout == "set()\n", done.stderr


def test_a_kernel_is_compiled_for_those_that_call_it_though_it_is_called_plain_itself(
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
