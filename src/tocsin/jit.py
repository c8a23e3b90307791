"""Kernels: compilation of numeric functions, the one place that imports Numba and sets its flags.

A kernel is a plain Python function on arrays and numbers. Numba compiles it at its first call, so `import tocsin`
compiles nothing. Where Numba is missing, such as on an edge device, the same function runs interpreted.

Guarantees:
    - Interpreted and compiled kernels return equal results.
    - Compiled kernels are cached in files whose names contain a hash of the code that they depend on: their own code,
      the kernels that they call, the constants that they read, and the fields of their tuples. A change of this code
      therefore never runs an old kernel. Other changes of a module compile nothing again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

# Division by zero returns inf or NaN as in NumPy. Fused or reordered arithmetic would break equality of the engines.
# Whether references are counted depends on the kernel, not on its caller.
_FLAGS = {"error_model": "numpy", "fastmath": False, "nogil": True, "_nrt": True}
# Compiled code counts two references per array argument, some nanoseconds each. A kernel that neither creates nor
# returns an array does not need the counts.
_LEAN = {**_FLAGS, "_nrt": False}
_INLINED = {**_LEAN, "forceinline": True}
_NUMBERS = ("None", "bool", "int", "float", "tuple[int, int]", "tuple[float, bool, float]")

# Rows that a process may interpret if compiled kernels are in the cache: to load the kernels takes 0.6 s, to interpret
# a row 10 to 120 microseconds.
MOST_INTERPRETED_ROWS = 10_000
# The same limit without a cache, because compilation takes 25 s.
MOST_INTERPRETED_ROWS_UNCACHED = 50_000
# Seconds of compilation before a message.
_SILENT_S = 2.0

# Modes of a context. `_INTERPRETED` interprets kernels that are not loaded. `_INSIDE` interprets all kernels, because
# the caller is an interpreted kernel.
_COMPILED, _INTERPRETED, _INSIDE = range(3)
_MODE = ContextVar("tocsin_kernel_mode", default=_COMPILED)


class Kernel(Generic[P, R]):
    """Function that is compiled at its first call. Other kernels may call it."""

    def __init__(self, function: Callable[P, R], flags: Mapping[str, Any]) -> None:
        self.function, self.flags = function, flags
        # Replaced only if Python raises an error where compiled code returns a number.
        self.interpreted = function
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self.__module__ = function.__module__
        self._compiled: Callable[P, R] | None = None
        self._called: Callable[P, R] | None = None
        _KERNELS.append(self)

    @property
    def compiled(self) -> Callable[P, R]:
        """Function that Numba compiles. Compiled kernels call it in any context."""
        if self._compiled is None:
            compiled = _compile(self.function, self.flags)
            # Numba returns the function itself if NUMBA_DISABLE_JIT was set when Numba was imported.
            self._compiled = self.interpreted if compiled is self.function else compiled
        return self._compiled

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the kernel: compiled if Numba is installed, unless the context interprets kernels."""
        mode = _MODE.get()
        if mode == _INSIDE:
            # The caller's numbers may have other types than in compiled code, which would compile this kernel again.
            return self.interpreted(*args, **kwargs)
        if self._called is None:
            if mode == _INTERPRETED:
                token = _MODE.set(_INSIDE)
                try:
                    return self.interpreted(*args, **kwargs)
                finally:
                    _MODE.reset(token)
            self._called = self.compiled if enabled() else self.interpreted
        return self._called(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by name, because a worker loads kernels from its own cache."""
        return _by_name, (self.__module__, self.__name__)


_KERNELS: list[Kernel[Any, Any]] = []


def kernel(function: Callable[P, R]) -> Kernel[P, R]:
    """Return a function as a kernel."""
    return Kernel(function, _FLAGS)


def lean(function: Callable[P, R]) -> Kernel[P, R]:
    """Mark a kernel that neither creates nor returns an array, so that references to its arguments are not counted.

    A view of an array (`a[i]`) is allowed; a copy between lines (`a[i] = a[j]`) creates an array.
    """
    return Kernel(_numbers_only(function), _LEAN)


def inlined(function: Callable[P, R]) -> Kernel[P, R]:
    """Mark a lean kernel that is inlined into its callers, so that tuples of many arrays are not passed at all.

    Use it for frequent calls from few places, because each caller compiles the kernel again.
    """
    return Kernel(_numbers_only(function), _INLINED)


def _numbers_only(function: Callable[P, R]) -> Callable[P, R]:
    gives = function.__annotations__["return"]
    if gives not in _NUMBERS:
        name = function.__name__
        message = f"`{name}` must return numbers, because references to arrays are not counted; got {gives}"
        raise TypeError(message)
    return function


@functools.cache
def _is_installed() -> bool:
    return importlib.util.find_spec("numba") is not None


def enabled() -> bool:
    """Return whether kernels can be compiled in this process."""
    return os.environ.get("NUMBA_DISABLE_JIT", "0") == "0" and _is_installed()


class _InterpretedRows:
    """Rows that this process has processed interpreted. Many small inputs together are worth compiled kernels."""

    def __init__(self) -> None:
        self._rows, self._lock = 0, threading.Lock()

    def add(self, rows: int) -> bool:
        """Return whether further rows may be processed interpreted, and count them if so."""
        with self._lock:
            whole = self._rows + rows
            if whole > MOST_INTERPRETED_ROWS and (whole > MOST_INTERPRETED_ROWS_UNCACHED or has_cached_kernels()):
                return False
            self._rows = whole
            return True


_INTERPRETED_ROWS = _InterpretedRows()


@contextlib.contextmanager
def use_interpreted_kernels(rows: int) -> Iterator[bool]:
    """Interpret kernels that are not loaded if `rows` is small; yield whether kernels are interpreted.

    It applies to calls in the same thread (or asyncio task). Kernels that this process has loaded run compiled.
    """
    is_interpreted = not enabled() or _INTERPRETED_ROWS.add(rows)
    if not is_interpreted or _MODE.get() != _COMPILED:
        yield is_interpreted
        return
    import numpy as np

    token = _MODE.set(_INTERPRETED)
    try:
        # Compiled code does not warn about overflow.
        with np.errstate(all="ignore"):
            yield True
    finally:
        _MODE.reset(token)


def has_cached_kernels() -> bool:
    """Return whether the cache has a kernel of the modules that are imported."""
    return any(_is_cached(kernel.function) for kernel in _KERNELS)


def _is_cached(function: Callable[..., Any]) -> bool:
    file = _file_of(function)
    folder = _cache_folder(file.parent)
    # The file name that `caching.CacheImpl` of Numba makes of the hash.
    return folder is not None and any(folder.glob(f"{file.stem}.{function.__name__}-{_code_hash(function)}.*.nbi"))


def _by_name(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def _compile(function: Callable[P, R], flags: Mapping[str, Any]) -> Callable[P, R]:
    import numba

    dispatcher = numba.njit(**flags)(function)
    cache = _numba_parts()
    if dispatcher is not function and _cache_folder(_file_of(function).parent) is not None:
        dispatcher._cache = cache(function)
    return dispatcher  # type: ignore[no-any-return]


@functools.cache
def _numba_parts() -> Any:
    """Register kernels and the message about compilation in Numba; return the class of the kernel cache."""
    from numba.core import caching, event
    from numba.extending import typeof_impl

    class Locator(caching._CacheLocator):  # type: ignore[misc]
        def __init__(self, function: Callable[..., Any]) -> None:
            self._function = function
            # Numba names this file in a warning.
            self._py_file = str(_file_of(function))

        @classmethod
        def from_function(cls, function: Callable[..., Any], _: str) -> Locator:
            return cls(function)

        def get_cache_path(self) -> str:
            return str(_cache_folder(_file_of(self._function).parent))

        def get_source_stamp(self) -> str:
            return _code_hash(self._function)

        def get_disambiguator(self) -> str:
            return _code_hash(self._function)

    class CacheParts(caching.CompileResultCacheImpl):  # type: ignore[misc]
        _locator_classes = (Locator,)

    class Cache(caching.FunctionCache):  # type: ignore[misc]
        _impl_class = CacheParts

        def save_overload(self, signature: Any, result: Any) -> None:
            super().save_overload(signature, result)
            _remove_outdated(Path(self.cache_path), self._impl.filename_base)

    class Listener(event.Listener):  # type: ignore[misc]
        def on_start(self, event: Any) -> None:
            if isinstance(event.data["dispatcher"]._cache, Cache):
                _COMPILATION.begin()

        def on_end(self, event: Any) -> None:
            if isinstance(event.data["dispatcher"]._cache, Cache):
                _COMPILATION.end()

    def type_of(value: Kernel[Any, Any], context: Any) -> Any:
        """Return the type of the compiled function, because a kernel calls the kernel itself."""
        return typeof_impl(value.compiled, context)

    typeof_impl.register(Kernel)(type_of)
    event.register("numba:compile", Listener())
    return Cache


class _Compilation:
    """Duration of compilation in this process; prints one line if it is long. Numba compiles in one thread at a time.

    `TOCSIN_PROGRESS=off` turns the line off.
    """

    def __init__(self) -> None:
        self._depth, self._begun, self._seconds, self._is_reported = 0, 0.0, 0.0, False

    def begin(self) -> None:
        if not self._depth:
            self._begun = time.monotonic()
        self._depth += 1
        self._report()

    def end(self) -> None:
        self._report()
        self._depth -= 1
        if not self._depth:
            self._seconds += time.monotonic() - self._begun

    def _report(self) -> None:
        seconds = self._seconds + time.monotonic() - self._begun
        if self._is_reported or seconds < _SILENT_S or os.environ.get("TOCSIN_PROGRESS") == "off":
            return
        self._is_reported = True
        text = "tocsin: compiling kernels, which can take half a minute; later runs load them from the cache"
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


_COMPILATION = _Compilation()
_PACKAGE = Path(__file__).parent


def _file_of(function: Callable[..., Any]) -> Path:
    return Path(function.__code__.co_filename)


@functools.cache
def _cache_folder(folder: Path) -> Path | None:
    """Return the folder for compiled kernels of the modules of a folder, or None if no folder is writable.

    NUMBA_CACHE_DIR has priority. Otherwise they are beside bytecode, or in the user's cache if the folder is read-only.
    """
    from tempfile import TemporaryFile

    name = folder.relative_to(_PACKAGE.parent) if folder.is_relative_to(_PACKAGE) else Path(folder.name)
    candidates = [folder / "__pycache__"] if folder.is_dir() else []
    if "NUMBA_CACHE_DIR" in os.environ:
        candidates = [Path(os.environ["NUMBA_CACHE_DIR"]) / name]
    else:
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        candidates.append(Path(cache) / "tocsin" / "kernels" / name)
    for candidate in candidates:
        try:
            candidate.mkdir(parents=True, exist_ok=True)
            TemporaryFile(dir=candidate).close()
        except OSError:
            continue
        return candidate
    return None


def _remove_outdated(folder: Path, name: str) -> None:
    """Remove the files of a kernel for other code from a folder beside the source; other folders may serve both."""
    if folder.name != "__pycache__":
        return
    kernel, kept = name.split("-", maxsplit=1)[0], name.split(".py", maxsplit=1)[0]
    for entry in folder.glob(f"{kernel}-*.nb?"):
        if not entry.name.startswith(kept):
            entry.unlink(missing_ok=True)


@functools.cache
def _code_hash(function: Callable[..., Any]) -> str:
    """Return a hash of the code of a kernel and of everything that its compiled code depends on."""
    parts: dict[str, str] = {}
    waiting: list[tuple[str, Any]] = [(function.__qualname__, function)]
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, Kernel):
            name, value = f"{value.__module__}.{value.__name__} {dict(value.flags)}", value.function
        if name in parts:
            continue
        if isinstance(value, FunctionType):
            parts[name], used = _function_parts(value)
            waiting += used
        elif isinstance(value, type) and hasattr(value, "_fields"):
            parts[name] = repr(value._fields)
            space = vars(sys.modules[value.__module__])
            waiting += [pair for text in value.__annotations__.values() for pair in _named_values(str(text), space)]
        else:
            parts[name] = repr(value)
    return hashlib.sha256(repr(sorted(parts.items())).encode()).hexdigest()[:16]


def _function_parts(function: FunctionType) -> tuple[str, list[tuple[str, Any]]]:
    """Return the code of a function as text without positions, and the values that it depends on by name."""
    text, used, codes = "", list[tuple[str, Any]](), [function.__code__]
    for annotation in function.__annotations__.values():
        used += _named_values(str(annotation), function.__globals__)
    while codes:
        code = codes.pop()
        inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        constants = [None if i == 0 and constant == function.__doc__ else constant
                     for i, constant in enumerate(code.co_consts) if constant not in inner]  # fmt: skip
        text += repr((code.co_code, constants, code.co_names, code.co_varnames, code.co_argcount))
        codes += inner
        for name in code.co_names:
            value = function.__globals__.get(name)
            if isinstance(value, ModuleType):
                # Libraries change with their version, which is a part of the file names of Numba.
                if value.__name__.partition(".")[0] == function.__module__.partition(".")[0]:
                    used += [(f"{name}.{one}", getattr(value, one)) for one in code.co_names if hasattr(value, one)]
            elif value is not None:
                used.append((f"{function.__module__}.{name}", value))
    return text, used


def _named_values(annotation: str, space: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the tuple classes that an annotation names, because compiled code contains positions of fields.

    `Any` can be each tuple class of the module.
    """
    names = set(re.findall(r"[A-Za-z_]\w*", annotation))
    values = space.values() if "Any" in names else (space.get(name) for name in names)
    classes = (value for value in values if isinstance(value, type) and hasattr(value, "_fields"))
    return [(f"{value.__module__}.{value.__name__}", value) for value in classes]
