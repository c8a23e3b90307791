"""HTTP client: posts a body to one URL and classifies the result in a response text without secrets.

- 2xx: delivered, even if the connection breaks after the status line.
- 408, 425, 429, 5xx, no connection, timeout, broken connection: retry.
- Other 4xx: rejected.
- 307 and 308 to the same scheme, host and port: followed, because they repeat the POST. Other hosts must not receive
  the headers.
- Other 3xx: retry.
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

from tocsin.delivery.backoff import Clock
from tocsin.delivery.sink_channel import DELIVERED, DeliveryStatus, SinkResponse
from tocsin.delivery.sinks import Text, reveal_secret, url_origin

MAX_REDIRECTS = 3
MAX_RESPONSE_BYTES, MAX_SHOWN_CHARS = 65_536, 300
# Client errors that can be temporary.
_RETRIED = {408, 425, 429}
# Client errors that can be caused by a single alert of the request.
_SPLIT = {400, 413, 422}
_UNPRINTABLE = re.compile(r"[^\x20-\x7e\xa0-\ud7ff\ue000-\uffff]")


class HttpClient:
    """Client with a persistent connection to one URL."""

    def __init__(self, url: Text, path: str, headers: Mapping[str, Text], timeout_s: float, clock: Clock) -> None:
        parts = urlsplit(reveal_secret(url))
        self.origin, self.clock, self.timeout_s = url_origin(url), clock, timeout_s
        self._path = (parts.path.rstrip("/") + path if path else parts.path or "/") + (
            f"?{parts.query}" if parts.query else ""
        )
        revealed = {name: reveal_secret(value) for name, value in headers.items()}
        login = _basic_auth(parts.username, parts.password)
        self._headers = urllib3.HTTPHeaderDict({"User-Agent": "tocsin", "Accept": "application/json", **login})
        for name, value in revealed.items():
            self._headers[name] = value
        user_info = [unquote(text) for text in (parts.username, parts.password) if text]
        self._secrets = _secret_spellings(
            [*revealed.values(), *login.values(), *user_info, *_secret_parts(parts.path, parts.query)]
        )
        timeout = urllib3.Timeout(connect=timeout_s, read=timeout_s)
        self._pool = urllib3.connection_from_url(self.origin, maxsize=1, timeout=timeout, retries=False)

    def __repr__(self) -> str:
        return f"HttpClient({self.origin})"

    def send(self, body: bytes, content_type: str) -> SinkResponse:
        """POST a body, follow allowed redirects, and return the classified response."""
        headers = self._headers.copy()
        headers["Content-Type"] = content_type
        path = self._path
        for _ in range(MAX_REDIRECTS + 1):
            result = self._post_once(path, body, headers)
            if isinstance(result, SinkResponse):
                return result
            path = result
        return self._retry_response(f"{self.origin}: more than {MAX_REDIRECTS} redirects")

    def close(self) -> None:
        """Close the connection."""
        self._pool.close()

    def _post_once(self, path: str, body: bytes, headers: Mapping[str, str]) -> SinkResponse | str:
        """Send one request; return its response, or the path of a redirect."""
        try:
            with _SILENCED:
                response = self._pool.urlopen(
                    "POST", path, body=body, headers=headers, redirect=False, preload_content=False, retries=False
                )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            return self._retry_response(self._describe_error(error))
        try:
            text = self._read_body(response)
            location = response.headers.get("Location", "")
            if response.status in {307, 308} and self._is_same_origin(path, location):
                return self._redirect_path(path, location)
            return self._classify_response(response, text)
        finally:
            # A connection whose response was read completely is already back in the pool. Any other is unusable.
            response.close()
            response.release_conn()

    def _classify_response(self, response: Any, text: str) -> SinkResponse:
        status = response.status
        if 200 <= status < 300:
            return DELIVERED
        message = f"{self.origin}: {status} {text}".rstrip()
        if 300 <= status < 400:
            return self._retry_response(
                f"{self.origin}: {status}, redirect not followed; configure the final address", status
            )
        if 400 <= status < 500 and status not in _RETRIED:
            return SinkResponse(DeliveryStatus.REJECTED, message, status, split=status in _SPLIT)
        retry_after_s = _parse_retry_after(response.headers.get("Retry-After", ""), self.clock.now())
        return SinkResponse(DeliveryStatus.RETRY, message, status, retry_after_s)

    def _retry_response(self, text: str, status: int = 0) -> SinkResponse:
        return SinkResponse(DeliveryStatus.RETRY, text, status)

    def _read_body(self, response: Any) -> str:
        """Return the beginning of a response body, read for at most the timeout or until the connection breaks."""
        data, deadline = b"", time.monotonic() + self.timeout_s
        try:
            while len(data) < MAX_RESPONSE_BYTES and time.monotonic() < deadline:
                block = response.read1(4096, decode_content=False)
                if not block:
                    break
                data += block
        except (urllib3.exceptions.HTTPError, OSError):
            pass
        return self.redact(data.decode("utf-8", "replace"))[:MAX_SHOWN_CHARS]

    def redact(self, text: str) -> str:
        """Replace secrets, which a receiver may send back, by `***`, and unprintable characters by spaces."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return _UNPRINTABLE.sub(" ", text).strip()

    def _describe_error(self, error: Exception) -> str:
        """Return a message about a failed request. The text of urllib3 is not used, because it quotes paths."""
        is_connection_error = isinstance(error, urllib3.exceptions.NewConnectionError)
        if isinstance(error, urllib3.exceptions.TimeoutError) and not is_connection_error:
            return f"{self.origin}: no response within {self.timeout_s:g} s"
        cause: BaseException | None = error
        while cause is not None and not (isinstance(cause, OSError) and cause.strerror):
            cause = cause.__cause__ or cause.__context__
        reason = cause.strerror if isinstance(cause, OSError) else "connection broken"
        return f"{self.origin}: {type(error).__name__}: {self.redact(str(reason))[:MAX_SHOWN_CHARS]}"

    def _is_same_origin(self, path: str, location: str) -> bool:
        try:
            return bool(location) and url_origin(urljoin(self.origin + path, location)) == self.origin
        except ValueError:
            return False

    def _redirect_path(self, path: str, location: str) -> str:
        parts = urlsplit(urljoin(self.origin + path, location))
        return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _basic_auth(user: str | None, password: str | None) -> dict[str, str]:
    if user is None:
        return {}
    user_info = f"{unquote(user)}:{unquote(password or '')}"
    return {"Authorization": "Basic " + base64.b64encode(user_info.encode()).decode()}


def _secret_parts(path: str, query: str) -> list[str]:
    """Return the parts of a URL that may be tokens: the path, its long segments, the query and its values."""
    segments = [part for part in path.split("/") if len(part) >= 8]
    values = [value for _, _, value in (part.partition("=") for part in query.split("&"))]
    return [*([path] if path.strip("/") else []), *segments, query, *values]


def _secret_spellings(secrets: Iterable[str]) -> list[str]:
    """Return all spellings of secrets: complete, each word, quoted and unquoted; longest first."""
    words = {word for secret in secrets for word in (secret, *secret.split()) if word not in {"Basic", "Bearer"}}
    forms = {form for word in words for form in (word, quote(word, safe=""), unquote(word), json.dumps(word)[1:-1])}
    return sorted((form for form in forms if form), key=len, reverse=True)


def _parse_retry_after(text: str, now: float) -> float:
    """Return the seconds of a `Retry-After` header, which has seconds or a date; 0 if it is invalid."""
    if text.strip().isdecimal():
        return float(text)
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return 0.0
    return max(0.0, (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now)


class _ThreadLogFilter(logging.Filter):
    """Log filter that drops the records of threads inside its `with` block."""

    def __init__(self) -> None:
        super().__init__()
        self._local = threading.local()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return False in a thread that is inside the `with` block."""
        return not getattr(self._local, "is_silenced", False)

    def __enter__(self) -> None:
        self._local.is_silenced = True

    def __exit__(self, *_: object) -> None:
        self._local.is_silenced = False


# At debug level, urllib3 logs complete paths, which may contain tokens.
_SILENCED = _ThreadLogFilter()
logging.getLogger("urllib3.connectionpool").addFilter(_SILENCED)
