"""Report: what became of the rows, for a person or a program, on standard error."""

from __future__ import annotations

import json
import sys
from typing import Any


class Report:
    """Writes counts and messages; with `json` each is one object on a line of its own."""

    def __init__(self, *, json: bool) -> None:
        self.json = json

    def counts(self, counts: dict[str, Any]) -> None:
        """Write what became of the rows."""
        self._write(json.dumps(counts) if self.json else text(counts))

    def say(self, message: str) -> None:
        """Write a message."""
        self._write(json.dumps({"message": message}) if self.json else f"tocsin edge: {message}")

    def _write(self, line: str) -> None:
        try:
            sys.stderr.write(line + "\n")
            sys.stderr.flush()
        except OSError:
            # Nobody listens; that must not stop the rows.
            return


def text(counts: dict[str, Any]) -> str:
    """Write counts as one line."""
    parts = " + ".join(f"{counts[name]} {name}" for name in ("sent", "held", "omitted", "malformed"))
    share = counts["bytes_out"] / counts["bytes_in"] if counts["bytes_in"] else 0.0
    line = f"tocsin edge: {counts['received']} received = {parts}; {counts['bytes_in']} bytes in, "
    line += f"{counts['bytes_out']} out ({share:.1%})"
    if counts["out_of_domain"]:
        line += f"; {counts['out_of_domain']} sent for being out of their domain"
    if counts["why"]:
        line += "; malformed: " + ", ".join(f"{reason} {count}" for reason, count in sorted(counts["why"].items()))
    return line
