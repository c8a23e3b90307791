"""Console: one line per change of state that is asked for, plain where it is not a terminal.

At least once: a line printed just before a kill is printed again. What labels and annotations hold is escaped, so that
no text can move the cursor, change a colour or forge a line.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TextIO

from tocsin.deliver.channel import DELIVERED, Answer, Entry, Verdict
from tocsin.deliver.clock import CAP_S
from tocsin.deliver.encode import Alert, changed_at
from tocsin.deliver.sinks import ConsoleSink

_COLOURS = {"firing": "31;1", "match": "31;1", "pending": "33", "resolved": "32", "inactive": "2"}


class ConsoleChannel:
    """A stream that people read."""

    limit = 256
    whole_batches = False
    cap_s = CAP_S

    def __init__(self, sink: ConsoleSink, stream: TextIO | None = None) -> None:
        self._states = sink.states
        self._stream = stream or sys.stdout
        self._in_colour = self._stream.isatty() and "NO_COLOR" not in os.environ

    def wants(self, alert: Alert) -> bool:
        """Only the states of the sink are shown."""
        return alert["state"] in self._states

    def parcels(self, step: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
        """One line at a time."""
        return ([entry] for entry in step)

    def send(self, parcel: Sequence[Entry]) -> Answer:
        """Print lines."""
        encoding = self._stream.encoding or "utf-8"
        try:
            for entry in parcel:
                line = console_line(entry.alert, in_colour=self._in_colour)
                self._stream.write(line.encode(encoding, "backslashreplace").decode(encoding) + "\n")
            self._stream.flush()
        except (OSError, ValueError) as error:
            return Answer(Verdict.RETRY, f"the stream must take text; {type(error).__name__}")
        return DELIVERED

    def close(self) -> None:
        """Leave the stream open: it is not ours."""


def console_line(alert: Alert, *, in_colour: bool = False) -> str:
    r"""An alert in one line: its value, its quality unless that is exact alone, its summary, or else its description.

    >>> from tocsin.deliver.encode import alert_of
    >>> row = {"alert": "Hot", "id": "1f", "state": "firing", "labels": {"m": "p\n7"}, "startsAt": 0, "value": 16.0}
    >>> print(console_line(alert_of(row)))
    1970-01-01T00:00:00.000000Z FIRING   Hot{m="p\n7"} value 16
    """
    labels = ", ".join(f'{printable(name)}="{_quotable(text)}"' for name, text in sorted(alert["labels"].items()))
    word = f"{alert['state'].upper():<8}"
    if in_colour:
        word = f"\x1b[{_COLOURS[alert['state']]}m{word}\x1b[0m"
    value = "" if alert["value"] is None else f" value {alert['value']:.6g}"
    time = changed_at(alert)
    since = f" since {alert['startsAt']}" if alert["endsAt"] or time != alert["startsAt"] else ""
    marks = "".join(f" {printable(mark)}" for mark in alert["quality"].split() if mark != "exact")
    name = f"{printable(alert['alert'])}{{{labels}}}"
    return f"{time} {word} {name}{value}{since}{marks}{_told(alert['annotations'])}"


def _told(annotations: Mapping[str, str]) -> str:
    for name in ("summary", "description"):
        if annotations.get(name, "").strip():
            return f' {name}="{_quotable(annotations[name])}"'
    return ""


def printable(text: str) -> str:
    r"""Escape what would not stand still on a terminal: control characters, line ends, marks of direction.

    >>> printable("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def _quotable(text: str) -> str:
    return printable(text.replace("\\", "\\\\").replace('"', '\\"'))
