"""Console sink: prints one line per alert event of the configured states, in colour on a terminal.

Delivery is at least once: a line that was printed just before a kill is printed again. Unprintable characters in labels
and annotations are escaped, so that no text can move the cursor, change the colour or imitate another line.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TextIO

from tocsin.delivery.alert_json import Alert, alert_page_url, state_change_time
from tocsin.delivery.backoff import MAX_DELAY_S
from tocsin.delivery.sink_channel import DELIVERED, DeliveryStatus, LogEntry, SinkResponse
from tocsin.delivery.sinks import ConsoleSink

_COLOURS = {"firing": "31;1", "match": "31;1", "pending": "33", "resolved": "32", "inactive": "2"}


class ConsoleChannel:
    """Channel to a text stream, by default standard output."""

    limit = 256
    takes_whole_batches = False
    max_delay_s = MAX_DELAY_S

    def __init__(self, sink: ConsoleSink, stream: TextIO | None = None) -> None:
        self._states, self._dashboard = sink.states, sink.dashboard
        self._stream = stream or sys.stdout
        self._in_colour = self._stream.isatty() and "NO_COLOR" not in os.environ

    def wants(self, alert: Alert) -> bool:
        """Return whether the sink is configured to show the state of an alert event."""
        return alert["state"] in self._states

    def split_requests(self, chunk: Sequence[LogEntry]) -> Iterator[Sequence[LogEntry]]:
        """Yield one request per line."""
        return ([entry] for entry in chunk)

    def send(self, request: Sequence[LogEntry]) -> SinkResponse:
        """Print lines."""
        encoding = self._stream.encoding or "utf-8"
        try:
            for entry in request:
                line = format_console_line(entry.alert, self._dashboard, in_colour=self._in_colour)
                self._stream.write(line.encode(encoding, "backslashreplace").decode(encoding) + "\n")
            self._stream.flush()
        except (OSError, ValueError) as error:
            return SinkResponse(DeliveryStatus.RETRY, f"cannot write to the console: {type(error).__name__}")
        return DELIVERED

    def close(self) -> None:
        """Do nothing. The stream belongs to the caller and stays open."""


def format_console_line(alert: Alert, dashboard: str = "", *, in_colour: bool = False) -> str:
    r"""Return the line of an alert event.

    The line contains time, state, name, labels, value, start, quality words other than `exact`, the summary or the
    description, and the URL of the alert in the dashboard.

    >>> from tocsin.delivery.alert_json import alert_from_row
    >>> row = {"alert": "Hot", "id": "1f", "state": "firing", "labels": {"m": "p\n7"}, "startsAt": 0, "value": 16.0}
    >>> print(format_console_line(alert_from_row(row)))
    1970-01-01T00:00:00.000000Z FIRING   Hot{m="p\n7"} value 16
    """
    labels = ", ".join(
        f'{escape_unprintable(name)}="{_escape_quotes(text)}"' for name, text in sorted(alert["labels"].items())
    )
    state = f"{alert['state'].upper():<8}"
    if in_colour:
        state = f"\x1b[{_COLOURS[alert['state']]}m{state}\x1b[0m"
    value = "" if alert["value"] is None else f" value {alert['value']:.6g}"
    time = state_change_time(alert)
    since = f" since {alert['startsAt']}" if alert["endsAt"] or time != alert["startsAt"] else ""
    quality = "".join(f" {escape_unprintable(word)}" for word in alert["quality"].split() if word != "exact")
    link = f" {alert_page_url(dashboard, escape_unprintable(alert['id']))}" if dashboard else ""
    name = f"{escape_unprintable(alert['alert'])}{{{labels}}}"
    return f"{time} {state} {name}{value}{since}{quality}{_format_summary(alert['annotations'])}{link}"


def _format_summary(annotations: Mapping[str, str]) -> str:
    for name in ("summary", "description"):
        if annotations.get(name, "").strip():
            return f' {name}="{_escape_quotes(annotations[name])}"'
    return ""


def escape_unprintable(text: str) -> str:
    r"""Escape unprintable characters: control characters, line ends and text direction marks.

    >>> escape_unprintable("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def _escape_quotes(text: str) -> str:
    return escape_unprintable(text.replace("\\", "\\\\").replace('"', '\\"'))
