"""Kernels run uncompiled for few samples, and only then and there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tocsin.jit import Kernel, kernel
from tocsin.testing import plain
from tocsin.testing.plain import MOST_PLAIN_SAMPLES, plain_kernels

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Kernel[[int], int]:
    def double(number: int) -> int:
        return 2 * number

    made = kernel(double)
    monkeypatch.setattr(plain, "fresh_kernel", made, raising=False)
    return made


def test_a_kernel_that_nobody_called_runs_as_it_is_written(fresh: Kernel[[int], int]) -> None:
    with plain_kernels(MOST_PLAIN_SAMPLES) as is_plain:
        assert is_plain
        assert fresh.compiled is fresh.function
        assert fresh(21) == 42
    assert fresh._compiled is None


def test_a_kernel_that_is_compiled_stays_so(fresh: Kernel[[int], int]) -> None:
    def compiled(number: int) -> int:
        return -number

    fresh._compiled = compiled
    with plain_kernels(0):
        assert fresh(1) == -1
    assert fresh._compiled is compiled


def test_many_samples_are_worth_compiled_kernels(fresh: Kernel[[int], int]) -> None:
    with plain_kernels(MOST_PLAIN_SAMPLES + 1) as is_plain:
        assert not is_plain
        assert fresh._compiled is None


def test_an_error_leaves_no_kernel_behind(fresh: Kernel[[int], int]) -> None:
    message = "no"
    with pytest.raises(ValueError, match="no"), plain_kernels(0):
        raise ValueError(message)
    assert fresh._compiled is None


def test_every_kernel_of_the_engine_is_found_before_it_is_called() -> None:
    code = (
        "import tocsin.testing, tocsin.testing.plain as p; found = {k.__name__ for k in p._unused()}; "
        "print({'by_key', 'search', 'arrange', 'track', 'admit', 'drive', 'run_program', 'survivors'} - found)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.stdout == "set()\n", done.stderr
