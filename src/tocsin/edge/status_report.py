"""Status report: counts of rows and messages on standard error, as text or as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any


class StatusReport:
    """Writer of counts and messages. With `json`, each is an object on a line of its own."""

    def __init__(self, *, json: bool) -> None:
        self.json = json

    def write_counts(self, counts: dict[str, Any]) -> None:
        """Write the counts of rows."""
        self._write(json.dumps(counts) if self.json else format_counts(counts))

    def write_message(self, message: str) -> None:
        """Write a message."""
        self._write(json.dumps({"message": message}) if self.json else f"tocsin edge: {message}")

    def _write(self, line: str) -> None:
        try:
            sys.stderr.write(line + "\n")
            sys.stderr.flush()
        except OSError:
            # A closed standard error must not stop the rows.
            return


def format_counts(counts: dict[str, Any]) -> str:
    """Return counts as one line."""
    terms = " + ".join(f"{counts[name]} {name}" for name in ("sent", "held", "omitted", "malformed"))
    share = counts["bytes_out"] / counts["bytes_in"] if counts["bytes_in"] else 0.0
    line = f"tocsin edge: {counts['received']} received = {terms}; {counts['bytes_in']} bytes in, "
    line += f"{counts['bytes_out']} out ({share:.1%})"
    if counts["out_of_domain"]:
        line += f"; {counts['out_of_domain']} sent because they were outside their domain"
    if counts["why"]:
        line += "; malformed: " + ", ".join(f"{reason} {count}" for reason, count in sorted(counts["why"].items()))
    return line
