"""Who may ask: a Host that is ours, a token where others can reach the server; and what a browser may do with a page.

Guarantee: a page of another origin cannot read anything (Host is checked, so names that are rebound to this machine are
refused); no script but ours runs, whatever labels or rows contain; nothing is asked of any other server.
"""

from __future__ import annotations

import asyncio
import hmac
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from urllib.parse import parse_qs, quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tocsin.dashboard.login import SESSION_S, FailedLogins, Sessions
from tocsin.hosts import KnownHosts

COOKIE = "tocsin_session"
LOGIN = "/login"
# What may be asked for without a token: the way to give it, and what makes that readable.
_STATIC = "/static/"
_MOST_BODY = 4096
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
# The address of a file of ours has a hash of its content: another content has another address.
_KEPT = {"Cache-Control": "public, max-age=31536000, immutable"}
_NOTHING: Mapping[str, str] = {}


class Guard:
    """Stands in front of all routes; `names` are those under which the server may be asked, besides addresses."""

    def __init__(self, app: ASGIApp, token: str | None = None, names: Iterable[str] = ()) -> None:
        self.app, self.token = app, token
        self.hosts = KnownHosts(names)
        self.sessions, self.failures = Sessions(), FailedLogins()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass, or answer it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        refused = self._refusal(scope)
        if refused is not None:
            await refused(scope, receive, _with_headers(send))
            return
        if scope["path"].startswith(_STATIC) and scope["query_string"]:
            await self.app(scope, receive, _with_headers(send, _KEPT))
            return
        if scope["path"] == LOGIN and scope["method"] == "POST":
            await (await self._log_in(Request(scope, receive)))(scope, receive, _with_headers(send))
            return
        await self._serve(scope, receive, _with_headers(send))

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass until its session ends: a page that listens for news must not outlast it."""
        has_session = self.token is not None and not _is_open(scope) and _bearer(scope) is None
        try:
            async with asyncio.timeout(self._remaining_s(scope) if has_session else None) as limit:
                await self.app(scope, receive, send)
        except TimeoutError:
            if not limit.expired():
                raise

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if not self.hosts.accept(headers.get("host", "")):
            text = "unknown host name; start the dashboard with --name to allow it\n"
            return PlainTextResponse(text, 421)
        if scope["method"] not in {"GET", "HEAD", "POST"}:
            return PlainTextResponse("method not allowed: only GET\n", 405)
        if scope["method"] == "POST" and scope["path"] != LOGIN:
            return PlainTextResponse("method not allowed: pages are read-only\n", 405)
        if self.token is None or _is_open(scope):
            return None
        given = _bearer(scope)
        if given is not None:
            return self._token_refusal(given, scope, _unauthorized())
        if self._remaining_s(scope):
            return None
        if headers.get("sec-fetch-mode", "navigate") == "navigate" and "text/html" in headers.get("accept", ""):
            # Whatever bytes a query has: those that are no ASCII are quoted once more.
            asked = scope["query_string"].decode("latin-1")
            back = quote(scope["path"] + (f"?{asked}" if asked else ""))
            return RedirectResponse(f"{LOGIN}?back={back}", 303)
        return _unauthorized()

    def _token_refusal(self, given: str, scope: Scope, wrong: Response) -> Response | None:
        """Return None for the right token, `wrong` for a wrong one, and 429 if its client must wait."""
        address = (scope.get("client") or ("", 0))[0]
        pause_s = math.ceil(self.failures.pause_s(address))
        if pause_s:
            text = f"too many wrong tokens from this address; try again in {pause_s} s\n"
            return PlainTextResponse(text, 429, {"Retry-After": str(pause_s)})
        if hmac.compare_digest(given.encode("utf-8", "replace"), (self.token or "").encode()):
            return None
        self.failures.record_failure(address)
        return wrong

    def _remaining_s(self, scope: Scope) -> float:
        return self.sessions.remaining_s(Request(scope).cookies.get(COOKIE, ""))

    async def _log_in(self, request: Request) -> Response:
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > _MOST_BODY:
                return PlainTextResponse("too long for a token\n", 413)
        fields = parse_qs(body.decode("utf-8", "replace"))
        back = fields.get("back", ["/"])[0]
        # An address of another server would be a way to lead people there.
        back = back if back.startswith("/") and not back.startswith(("//", "/\\")) else "/"
        wrong = RedirectResponse(f"{LOGIN}?wrong=1&back={quote(back)}", 303)
        if self.token is None:
            return wrong
        refused = self._token_refusal(fields.get("token", [""])[0].strip(), request.scope, wrong)
        if refused is not None:
            return refused
        answer = RedirectResponse(quote(back, safe="/?=&%~"), 303)
        is_secure = request.url.scheme == "https"
        session = self.sessions.begin_session()
        answer.set_cookie(COOKIE, session, SESSION_S, path="/", secure=is_secure, httponly=True, samesite="strict")
        return answer


def _is_open(scope: Scope) -> bool:
    """Return whether a path needs no token."""
    return bool(scope["path"] == LOGIN or scope["path"].startswith(_STATIC))


def _bearer(scope: Scope) -> str | None:
    """Return the token that a program sends, or None."""
    given = Headers(scope=scope).get("authorization", "")
    return given[7:].strip() if given.lower().startswith("bearer ") else None


def _unauthorized() -> Response:
    return PlainTextResponse("token required\n", 401, {"WWW-Authenticate": "Bearer"})


def _with_headers(send: Send, kept: Mapping[str, str] = _NOTHING) -> Callable[[Message], Awaitable[None]]:
    """Send an answer with our headers; `kept` stand for those of the same name, if there is what was asked for."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in {**HEADERS, **(kept if message["status"] == 200 else {})}.items():
                headers.setdefault(name, value)
        await send(message)

    return sending
