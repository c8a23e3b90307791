"""Compile kernels: the one place that imports Numba and sets its flags.

A kernel is a plain Python function on arrays and numbers. It is compiled by Numba at its first call, so importing
Tocsin costs nothing, and where Numba is missing (an edge device) the same function runs uncompiled.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

# Division by zero gives inf or NaN as NumPy does; fused or reordered arithmetic would break equality of the engines.
# References are counted or not as the kernel says, never as the kernel that calls it.
_FLAGS = {"error_model": "numpy", "fastmath": False, "nogil": True, "_nrt": True}
# For each array that it hands on compiled code counts two references, each some nanoseconds; a kernel that makes no
# array and gives none back can borrow them.
_LEAN = {**_FLAGS, "_nrt": False}
_INLINED = {**_LEAN, "forceinline": True}
_NUMBERS = ("None", "bool", "int", "float", "tuple[int, int]", "tuple[float, bool, float]")
_TYPE_REGISTERED = False
# With more samples than this, compiled kernels are worth their loading.
MOST_PLAIN_SAMPLES = 20_000


class Kernel(Generic[P, R]):
    """A function that compiles itself when it is first called; other kernels may call it."""

    def __init__(self, function: Callable[P, R], flags: Mapping[str, Any]) -> None:
        self.function, self.flags = function, flags
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self.__module__ = function.__module__
        self._compiled: Callable[P, R] | None = None
        self._called: Callable[P, R] | None = None

    @property
    def compiled(self) -> Callable[P, R]:
        """The function as Numba compiles it: what compiled kernels call, also while others get it as it was written."""
        if self._compiled is None:
            self._compiled = _compile(self.function, self.flags)
        return self._compiled

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the kernel: compiled if Numba is there, else as it was written."""
        if self._called is None:
            self._called = self.compiled if enabled() else self.function
        return self._called(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by name: a worker compiles, or loads from its cache, what it needs."""
        return _by_name, (self.__module__, self.__name__)


def kernel(function: Callable[P, R]) -> Kernel[P, R]:
    """Mark a function as a kernel."""
    return Kernel(function, _FLAGS)


def lean(function: Callable[P, R]) -> Kernel[P, R]:
    """Mark a kernel that makes no array and gives none back: references to what it is handed are not counted.

    To cut a line out of an array is fine, to copy one line to another (`a[i] = a[j]`) makes an array.
    """
    return Kernel(_numbers_only(function), _LEAN)


def inlined(function: Callable[P, R]) -> Kernel[P, R]:
    """Mark a lean kernel that becomes part of those that call it: tuples of many arrays are then not handed on at all.

    For what is called often, from few places: each compiles it anew.
    """
    return Kernel(_numbers_only(function), _INLINED)


def _numbers_only(function: Callable[P, R]) -> Callable[P, R]:
    gives = function.__annotations__["return"]
    if gives not in _NUMBERS:
        name = function.__name__
        message = f"`{name}` must give back numbers, as references to arrays are not counted; it gives {gives}"
        raise TypeError(message)
    return function


def enabled() -> bool:
    """Tell whether kernels are compiled in this process."""
    return os.environ.get("NUMBA_DISABLE_JIT", "0") == "0" and importlib.util.find_spec("numba") is not None


@contextlib.contextmanager
def plain_kernels(samples: int) -> Iterator[bool]:
    """Let kernels that nobody has called yet run as they are written, if there are few samples; tell whether they do.

    Measured (docs/reference/test-file.md has the numbers): loading compiled kernels takes longer than running a few
    hundred tests as plain Python, and compiling them from nothing takes longer than any test file is likely to take.
    """
    import numpy as np

    kernels = _unused() if samples <= MOST_PLAIN_SAMPLES else []
    for kernel in kernels:
        kernel._called = kernel.function
    try:
        # Compiled code is silent about overflow, and so should the same code be here.
        with np.errstate(all="ignore"):
            yield bool(kernels)
    finally:
        for kernel in kernels:
            kernel._called = None


def _unused() -> list[Kernel[Any, Any]]:
    """The kernels of this process that nobody has called."""
    ours = [module for name, module in list(sys.modules.items()) if name.startswith("tocsin.")]
    found = {id(value): value for module in ours for value in vars(module).values() if isinstance(value, Kernel)}
    return [kernel for kernel in found.values() if kernel._called is None]


def _by_name(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def _compile(function: Callable[P, R], flags: Mapping[str, Any]) -> Callable[P, R]:
    import numba

    _register_type()
    try:
        return numba.njit(cache=True, **flags)(function)  # type: ignore[no-any-return]
    except RuntimeError:
        # No place for a cache file: the package was shipped to this worker inside a zip archive.
        return numba.njit(cache=False, **flags)(function)  # type: ignore[no-any-return]


def _register_type() -> None:
    """Teach Numba that a kernel called inside a kernel stands for its compiled function."""
    global _TYPE_REGISTERED
    if _TYPE_REGISTERED:
        return
    from numba.extending import typeof_impl

    def _typeof(value: Kernel[Any, Any], context: Any) -> Any:
        return typeof_impl(value.compiled, context)

    typeof_impl.register(Kernel)(_typeof)
    _TYPE_REGISTERED = True
