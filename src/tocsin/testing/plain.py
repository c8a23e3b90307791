"""Run kernels uncompiled while inputs are tiny.

Measured (docs/reference/test-file.md has the numbers): loading compiled kernels takes longer than running a few hundred
tests as plain Python, and compiling them from nothing takes longer than anything a test file is likely to hold.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from tocsin.jit import Kernel

# With more samples than this in one call of the command, compiled kernels are worth their loading.
MOST_PLAIN_SAMPLES = 20_000


@contextlib.contextmanager
def plain_kernels(samples: int) -> Iterator[bool]:
    """Let kernels that are not compiled yet run as they are written, if there are few samples; tell whether they do."""
    kernels = _unused() if samples <= MOST_PLAIN_SAMPLES else []
    for kernel in kernels:
        kernel._compiled = kernel.function
    try:
        # Compiled code is silent about overflow, and so should the same code be here.
        with np.errstate(all="ignore"):
            yield bool(kernels)
    finally:
        for kernel in kernels:
            kernel._compiled = None


def _unused() -> list[Kernel[Any, Any]]:
    """The kernels of this process that nobody has called."""
    ours = [module for name, module in list(sys.modules.items()) if name.startswith("tocsin.")]
    found = {id(value): value for module in ours for value in vars(module).values() if isinstance(value, Kernel)}
    return [kernel for kernel in found.values() if kernel._compiled is None]
