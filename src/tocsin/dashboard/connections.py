"""Connections, and how long each may be silent: whoever only opens them keeps nobody else out.

Guarantee: no more than `MOST_CONNECTIONS` are open; one beyond that is closed at once. One on which no whole request
has come within `REQUEST_S`, after it was opened or after the last answer, is closed, and so is one whose other end does
not take its answer. One that is being answered, as a page that listens for news, stays.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

# With those that wait to be accepted fewer than the files that a process may have open (1,024 as a rule): what a run
# wrote can be read at any time.
MOST_CONNECTIONS, BACKLOG = 600, 128
REQUEST_S, TAKE_S = 10.0, 60.0


class Connection(H11Protocol):
    """A connection that must be used."""

    _request: asyncio.TimerHandle | None = None
    _answer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request; close what is too much."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
        else:
            self._await_request()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._await_request()
        super().on_response_complete()

    def _await_request(self) -> None:
        if self._request is not None:
            self._request.cancel()
        self._request = self.loop.call_later(REQUEST_S, self._overdue)

    def _overdue(self) -> None:
        """Close unless a whole request has come; after its answer the time begins anew."""
        if self.cycle is None or self.cycle.response_complete or self.cycle.more_body:
            self.transport.abort()

    def pause_writing(self) -> None:
        """Wait, not for ever, until the other end takes what was written."""
        super().pause_writing()
        self._answer = self.loop.call_later(TAKE_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on: it was taken."""
        super().resume_writing()
        if self._answer is not None:
            self._answer.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        for timer in (self._request, self._answer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)
