"""Compile kernels: the one place that imports Numba and sets its flags.

A kernel is a plain Python function on arrays and numbers. It is compiled by Numba at its first call, so importing
Tocsin costs nothing, and where Numba is missing (an edge device) the same function runs uncompiled.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

# Division by zero gives inf or NaN as NumPy does; fused or reordered arithmetic would break equality of the engines.
_FLAGS = {"error_model": "numpy", "fastmath": False, "nogil": True}
_TYPE_REGISTERED = False


class Kernel(Generic[P, R]):
    """A function that compiles itself when it is first called; other kernels may call it."""

    def __init__(self, function: Callable[P, R]) -> None:
        self.function = function
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self.__module__ = function.__module__
        self._compiled: Callable[P, R] | None = None

    @property
    def compiled(self) -> Callable[P, R]:
        """The function to call: compiled if Numba is there, else as it was written."""
        if self._compiled is None:
            self._compiled = _compile(self.function) if enabled() else self.function
        return self._compiled

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the kernel."""
        return self.compiled(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by name: a worker compiles, or loads from its cache, what it needs."""
        return _by_name, (self.__module__, self.__name__)


def kernel(function: Callable[P, R]) -> Kernel[P, R]:
    """Mark a function as a kernel."""
    return Kernel(function)


def enabled() -> bool:
    """Tell whether kernels are compiled in this process."""
    return os.environ.get("NUMBA_DISABLE_JIT", "0") == "0" and importlib.util.find_spec("numba") is not None


def _by_name(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def _compile(function: Callable[P, R]) -> Callable[P, R]:
    import numba

    _register_type()
    try:
        return numba.njit(cache=True, **_FLAGS)(function)  # type: ignore[no-any-return]
    except RuntimeError:
        # No place for a cache file: the package was shipped to this worker inside a zip archive.
        return numba.njit(cache=False, **_FLAGS)(function)  # type: ignore[no-any-return]


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
