"""JVM options: the options with which Spark's JVM starts quickly on this machine.

The callers are `spark/session.py` and the tests.

- A bounded run (`run --once`, `backtest`, `query`, `explain`) uses only the first compiler of the JVM and one garbage
  collector thread. The second compiler takes more CPU time in the first minute than it saves. A continuous run
  keeps the defaults of the JVM.
- A class archive (Java's AppCDS) holds Spark's classes in the form in which the JVM has them in memory. A JVM with the
  archive starts with half of the CPU time. The JVM of the first bounded run writes the archive when it ends.

Guarantees:
    - Options of the user win. A garbage collector or an archive of the user replaces the one of Tocsin.
    - A missing, damaged or unsuitable archive changes the speed of a start, nothing else. The JVM compares the archive
      with its own version, its jars and the checksums of the content, and ignores an archive that does not match.
    - An archive gets its name only when it is complete, because the JVM writes the first bytes last.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

BOUNDED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
# The JVM reports unsuitable archives on standard output, which belongs to the results of a command.
_QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")
# Environment variables with JVM options.
_VARIABLES = ("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
# Files with further options, which can contain a collector. A JVM with two collectors does not start.
_OPTION_FILE = re.compile(r"-XX:(VMOptionsFile|Flags)=|(^|\s)@")
_COLLECTOR = re.compile(r"-XX:\+Use\w*GC\b")
_COMPILER = re.compile(r"-XX:[+-]?Tiered|-Xint\b|-Xcomp\b")
_ARCHIVE = re.compile(r"-Xshare|-XX:(Shared|[+-]?\w*(Archive|SharedSpaces|DynamicDump))")
# A JVM with one of these options does not start if it must write an archive.
_UNWRITABLE = re.compile(
    r"-javaagent:|-agent(lib|path):|-Xrun|--(limit-modules|upgrade-module-path|patch-module)\b"
    r"|-XX:-UseCompressedClassPointers|-XX:ObjectAlignmentInBytes"
)
# The first bytes of a complete dynamic archive, in the byte orders of all platforms.
_MAGICS = (bytes.fromhex("a8ab0bf0"), bytes.fromhex("f00baba8"))
# An archive without use for this long belongs to a Java or a PySpark that is no longer used.
_UNUSED_S = 30 * 86_400
_UNFINISHED_S = 3_600


def jvm_options(
    given: str, *, is_bounded: bool, may_write: bool = True, environ: Mapping[str, str] = os.environ
) -> list[str]:
    """Return the options for a JVM that also receives the options `given` by the user.

    If no archive exists, the JVM of a bounded run writes one when it ends, unless `may_write` is false or an option
    of the user prevents it.
    """
    known = " ".join([given, *(environ.get(name, "") for name in _VARIABLES), _spark_defaults(environ)])
    if _OPTION_FILE.search(known):
        return []
    options: list[str] = []
    if is_bounded:
        options += [] if _COMPILER.search(known) else BOUNDED[:1]
        options += [] if _COLLECTOR.search(known) else BOUNDED[1:]
    if not _ARCHIVE.search(known):
        # The folder of the user may be missing, full or read-only.
        may_write = may_write and is_bounded and not _UNWRITABLE.search(known)
        with suppress(OSError):
            options += _archive_options(archive_name(environ), may_write=may_write)
    return options


def _archive_options(name: Path | None, *, may_write: bool) -> list[str]:
    """Return the options that use the archive, or that write it."""
    if name is None:
        return []
    name.parent.mkdir(parents=True, exist_ok=True)
    path = find_archive(name)
    if path is not None:
        # The time of the last use, for `_remove_unused`. The folder may belong to another user.
        with suppress(OSError):
            os.utime(path)
        return [f"-XX:SharedArchiveFile={path}", "-XX:+VerifySharedSpaces", *_QUIET]
    if not may_write or any(character.isspace() for character in str(name)):
        return []
    _remove_unused(name.parent)
    return [f"-XX:ArchiveClassesAtExit={name}.{os.getpid()}.new", "-XX:+VerifySharedSpaces", *_QUIET]


def archive_name(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the path of the archive for the Java and the jars of this process, without its size and its suffix.

    Return None if Java is not found.
    """
    java, jars = _java(environ), _jars(environ)
    if java is None or jars is None:
        return None
    release = java.parent.parent / "release"
    state = java.stat()
    facts = [str(java), release.read_text("utf-8", "replace") if release.exists() else str(state.st_mtime_ns)]
    facts += sorted(f"{entry.path} {entry.stat().st_size} {entry.stat().st_mtime_ns}" for entry in os.scandir(jars))
    key = hashlib.blake2b("\n".join(facts).encode(), digest_size=8).hexdigest()
    return _cache_folder(environ) / f"spark-{key}"


def find_archive(name: Path) -> Path | None:
    """Return the complete archive of a name. Remove archives with another size than their name states.

    An archive that an earlier JVM has written receives its final name here.
    """
    for new in name.parent.glob(f"{name.name}.*.new"):
        with suppress(OSError):
            state = new.stat()
            with new.open("rb") as file:
                is_complete = file.read(4) in _MAGICS
            if is_complete:
                new.replace(f"{name}-{state.st_size}.jsa")
            elif time.time() - state.st_mtime > _UNFINISHED_S:
                new.unlink()
    for path in name.parent.glob(f"{name.name}-*.jsa"):
        # The JVM finds other damages, but the verification of a truncated file ends it with a bus error.
        if path.stem.endswith(f"-{path.stat().st_size}"):
            return path
        path.unlink()
    return None


def _remove_unused(folder: Path) -> None:
    for path in folder.glob("spark-*.jsa"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > _UNUSED_S:
                path.unlink()


def _cache_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of Tocsin in the cache directory of the user. XDG requires an absolute path."""
    named = environ.get("XDG_CACHE_HOME", "")
    return (Path(named) if Path(named).is_absolute() else Path.home() / ".cache") / "tocsin"


def _java(environ: Mapping[str, str]) -> Path | None:
    """Return the `java` that Spark's scripts choose."""
    home = environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin") if home else environ.get("PATH"))
    return None if found is None else Path(found).resolve()


def _spark_defaults(environ: Mapping[str, str]) -> str:
    """Return the text of `spark-defaults.conf`, which can contain `spark.driver.defaultJavaOptions`."""
    jars = _jars(environ)
    folder = environ.get("SPARK_CONF_DIR") or (jars.parent / "conf" if jars else None)
    if folder is not None:
        with suppress(OSError):
            return (Path(folder) / "spark-defaults.conf").read_text("utf-8", "replace")
    return ""


def _jars(environ: Mapping[str, str]) -> Path | None:
    """Return the folder of Spark's jars; PySpark itself takes long to import."""
    home = environ.get("SPARK_HOME")
    if not home:
        spec = find_spec("pyspark")
        home = str(Path(spec.origin).parent) if spec is not None and spec.origin else ""
    jars = Path(home) / "jars"
    return jars if home and jars.is_dir() else None
