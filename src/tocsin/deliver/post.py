"""HTTP: POST a body to one address, and turn whatever happens into an answer that holds no secret.

2xx is delivered, whatever follows the status line. 408, 425, 429, 5xx, 3xx, no connection, no answer in time and a
broken connection are tried again. Any other 4xx is refused. A redirect is followed only with 307 and 308, which repeat
the POST, and only to the same scheme, host and port: elsewhere nobody may read our headers.
"""

from __future__ import annotations

import base64
import json
import logging
import re
import threading
import time
from collections.abc import Iterable, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import quote, unquote, urljoin, urlsplit

import urllib3

from tocsin.deliver.channel import DELIVERED, Answer, Verdict
from tocsin.deliver.clock import Clock
from tocsin.deliver.sinks import Text, origin_of, reveal

MOST_REDIRECTS = 3
MOST_BYTES, MOST_SHOWN = 65_536, 300
_PATIENT = {408, 425, 429}
_SPLIT = {400, 413, 422}
_UNPRINTABLE = re.compile(r"[^\x20-\x7e\xa0-\ud7ff\ue000-\uffff]")


class Post:
    """A connection to one address, kept open between requests."""

    def __init__(self, url: Text, path: str, headers: Mapping[str, Text], timeout_s: float, clock: Clock) -> None:
        parts = urlsplit(reveal(url))
        self.origin, self.clock, self.timeout_s = origin_of(url), clock, timeout_s
        self._path = (parts.path.rstrip("/") + path if path else parts.path or "/") + (
            f"?{parts.query}" if parts.query else ""
        )
        own = {name: reveal(value) for name, value in headers.items()}
        login = _login(parts.username, parts.password)
        self._headers = urllib3.HTTPHeaderDict({"User-Agent": "tocsin", "Accept": "application/json", **login})
        for name, value in own.items():
            self._headers[name] = value
        info = [unquote(text) for text in (parts.username, parts.password) if text]
        self._secrets = _spellings([*own.values(), *login.values(), *info, *_hidden_parts(parts.path, parts.query)])
        timeout = urllib3.Timeout(connect=timeout_s, read=timeout_s)
        self._pool = urllib3.connection_from_url(self.origin, maxsize=1, timeout=timeout, retries=False)

    def __repr__(self) -> str:
        return f"Post({self.origin})"

    def send(self, body: bytes, content_type: str) -> Answer:
        """POST a body."""
        headers = self._headers.copy()
        headers["Content-Type"] = content_type
        path = self._path
        for _ in range(MOST_REDIRECTS + 1):
            found = self._once(path, body, headers)
            if isinstance(found, Answer):
                return found
            path = found
        return self._retry(f"a redirect must lead somewhere; {MOST_REDIRECTS} were followed")

    def close(self) -> None:
        """Close the connection."""
        self._pool.close()

    def _once(self, path: str, body: bytes, headers: Mapping[str, str]) -> Answer | str:
        """Send once; an answer, or the path that the receiver sends us to."""
        try:
            with _quiet():
                response = self._pool.urlopen(
                    "POST", path, body=body, headers=headers, redirect=False, preload_content=False, retries=False
                )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            return self._retry(self._reason(error))
        try:
            text = self._text(response)
            location = response.headers.get("Location", "")
            if response.status in {307, 308} and self._is_same_place(path, location):
                return self._path_of(path, location)
            return self._judge(response, text)
        finally:
            # One whose answer was read to its end went back to the pool by itself; any other is of no more use.
            response.close()
            response.release_conn()

    def _judge(self, response: Any, text: str) -> Answer:
        status = response.status
        if 200 <= status < 300:
            return DELIVERED
        shown = f"{self.origin}: {status} {text}".rstrip()
        if 300 <= status < 400:
            return self._retry(f"{self.origin}: {status}, a redirect that is not followed", status)
        if 400 <= status < 500 and status not in _PATIENT:
            return Answer(Verdict.REJECTED, shown, status, split=status in _SPLIT)
        asked_s = _asked_s(response.headers.get("Retry-After", ""), self.clock.now())
        return Answer(Verdict.RETRY, shown, status, asked_s)

    def _retry(self, text: str, status: int = 0) -> Answer:
        return Answer(Verdict.RETRY, text, status)

    def _text(self, response: Any) -> str:
        """Read the beginning of an answer, for no longer than the timeout; what breaks off is what there is."""
        data, until = b"", time.monotonic() + self.timeout_s
        try:
            while len(data) < MOST_BYTES and time.monotonic() < until:
                block = response.read1(4096, decode_content=False)
                if not block:
                    break
                data += block
        except (urllib3.exceptions.HTTPError, OSError):
            pass
        return self.hide(data.decode("utf-8", "replace"))[:MOST_SHOWN]

    def hide(self, text: str) -> str:
        """Strike out secrets, which a receiver may send back to us, and what would trouble a terminal."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return _UNPRINTABLE.sub(" ", text).strip()

    def _reason(self, error: Exception) -> str:
        """Say what went wrong without the library's own text, which quotes paths."""
        refused = isinstance(error, urllib3.exceptions.NewConnectionError)
        if isinstance(error, urllib3.exceptions.TimeoutError) and not refused:
            return f"{self.origin}: no answer within {self.timeout_s:g} s"
        cause: BaseException | None = error
        while cause is not None and not (isinstance(cause, OSError) and cause.strerror):
            cause = cause.__cause__ or cause.__context__
        reason = cause.strerror if isinstance(cause, OSError) else "the connection broke"
        return f"{self.origin}: {type(error).__name__}: {self.hide(str(reason))[:MOST_SHOWN]}"

    def _is_same_place(self, path: str, location: str) -> bool:
        try:
            return bool(location) and origin_of(urljoin(self.origin + path, location)) == self.origin
        except ValueError:
            return False

    def _path_of(self, path: str, location: str) -> str:
        parts = urlsplit(urljoin(self.origin + path, location))
        return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _login(user: str | None, password: str | None) -> dict[str, str]:
    if user is None:
        return {}
    info = f"{unquote(user)}:{unquote(password or '')}"
    return {"Authorization": "Basic " + base64.b64encode(info.encode()).decode()}


def _hidden_parts(path: str, query: str) -> list[str]:
    """What of an address may be a token: the path as a whole, its long segments, the query and its values."""
    segments = [part for part in path.split("/") if len(part) >= 8]
    values = [value for _, _, value in (part.partition("=") for part in query.split("&"))]
    return [*([path] if path.strip("/") else []), *segments, query, *values]


def _spellings(secrets: Iterable[str]) -> list[str]:
    """Secrets, their words, and how they look quoted; the longest first."""
    words = {word for secret in secrets for word in (secret, *secret.split()) if word not in {"Basic", "Bearer"}}
    forms = {form for word in words for form in (word, quote(word, safe=""), unquote(word), json.dumps(word)[1:-1])}
    return sorted((form for form in forms if form), key=len, reverse=True)


def _asked_s(text: str, now: float) -> float:
    """Read `Retry-After`: seconds, or a date."""
    if text.strip().isdecimal():
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return 0.0
    return max(0.0, (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now)


class _Quiet(logging.Filter):
    """Drops what urllib3 logs in a thread that asked for it: at the level of debugging it quotes whole paths."""

    def __init__(self) -> None:
        super().__init__()
        self._asked = threading.local()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record may pass."""
        return not getattr(self._asked, "quiet", False)

    def __call__(self) -> _Quiet:
        return self

    def __enter__(self) -> None:
        self._asked.quiet = True

    def __exit__(self, *_: object) -> None:
        self._asked.quiet = False


_quiet = _Quiet()
logging.getLogger("urllib3.connectionpool").addFilter(_quiet)
