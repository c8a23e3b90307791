"""Unreadable files: source files that Spark skipped because of damaged content, as in a `.gz` file without gzip data.

Spark names a skipped file only in its log. So the log settings of a local session copy these messages to a file of the
run directory, and the caller reads new messages after each micro-batch or at the end of a backtest. Tasks write a
message before they end. A file is reported once per start, also if Spark reads it several times.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from pyspark import SparkContext

from tocsin.rules.rulefile import Stream

_IGNORE = "spark.sql.files.ignoreCorruptFiles"
_SKIPPED = re.compile(r"corrupted file: path: (\S+), range: ")
# Spark logs a skipped file under the name of this class.
SCAN_LOGGER = "org.apache.spark.sql.execution.datasources.FileScanRDD"
# A line of the file: two texts of JSON. The reason is empty if the error has no message.
LINE_PATTERN = '["%enc{%m}{JSON}", "%enc{%ex{short.message}}{JSON}"]%n'


class UnreadableFile(NamedTuple):
    """A source file whose content Spark skipped, from the damaged place on."""

    stream: str
    path: str
    reason: str

    @property
    def dead_line(self) -> str:
        """Line for `RUN/dead`."""
        return json.dumps({"stream": self.stream, "reason": self.described_reason, "raw": self.path})

    @property
    def described_reason(self) -> str:
        """Reason as `RUN/dead` and messages have it."""
        return f"the file cannot be read: {self.reason}"

    def __str__(self) -> str:
        return f"stream `{self.stream}`: file {self.path} cannot be read and was skipped; {self.reason}"


def skip_settings(master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that make Spark skip damaged files, if the messages about them reach the run directory.

    That needs a local session, a JVM that this session starts, and the log settings of the run.
    """
    is_logged = not any("log4j" in value for value in conf.values()) and SparkContext._gateway is None
    return {_IGNORE: "true"} if master.startswith("local") and is_logged else {}


class UnreadableFiles:
    """Reader of the messages about skipped files."""

    def __init__(self, path: Path, streams: Iterable[Stream]) -> None:
        self._path = path
        self._folders = {stream.name: _plain(str(stream.source.options.get("path", ""))) for stream in streams}
        self._known: set[str] = set()

    def take(self) -> list[UnreadableFile]:
        """Return the files that were skipped since the last call."""
        try:
            lines = self._path.read_text("utf-8", "replace").splitlines()
        except FileNotFoundError:
            return []
        found = []
        for line in lines:
            try:
                message, reason = json.loads(line)
            except ValueError:
                continue  # A line that is still being written is read by the next call.
            match = _SKIPPED.search(message)
            if match and match[1] not in self._known:
                self._known.add(match[1])
                path = _plain(unquote(match[1]))
                found += [UnreadableFile(name, path, reason or "damaged content") for name in self._streams_of(path)]
        return found

    def _streams_of(self, path: str) -> list[str]:
        """Return the streams that read a file; several may read the same folder."""
        return [name for name, folder in self._folders.items() if folder and _is_inside(path, folder)]


def _plain(path: str) -> str:
    """Return the path of a local file without its scheme."""
    return str(Path(urlsplit(path).path if path.startswith("file:") else path).absolute())


def _is_inside(path: str, folder: str) -> bool:
    """Return whether a file is a folder, or inside a folder, that may be a pattern."""
    pattern = re.split(r"[*?\[{]", folder, maxsplit=1)
    return path.startswith(pattern[0]) if len(pattern) > 1 else path == folder or path.startswith(f"{folder}/")
