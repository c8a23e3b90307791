"""Login: sessions of browsers that end, and growing pauses for clients that send wrong tokens.

Both are state of the process, so a restart ends all sessions and clears all failures.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import time
from collections.abc import Callable

# Length of a session.
SESSION_S = 12 * 3600
# Wrong tokens that cost no pause, for people who mistype.
FREE_FAILURES = 5
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
# A client without a further wrong token for this long begins again.
EXPIRE_S = 900.0
# With more clients than this, the client whose last failure is the oldest begins again.
MOST_CLIENTS = 1_000

Clock = Callable[[], float]


class Sessions:
    """Sessions as signed texts: each has the time of its end, so the server stores none."""

    def __init__(self, clock: Clock = time.time) -> None:
        self._clock, self._key = clock, secrets.token_bytes(32)

    def begin_session(self) -> str:
        """Return the text of a new session."""
        end = str(round(self._clock() + SESSION_S))
        return f"{end}.{self._sign(end)}"

    def remaining_s(self, session: str) -> float:
        """Return the seconds until a session ends; 0 if it has ended or is not a session of this process."""
        end, _, signature = session.partition(".")
        if not hmac.compare_digest(signature.encode("utf-8", "replace"), self._sign(end).encode()):
            return 0.0
        return max(0.0, int(end) - self._clock())

    def _sign(self, end: str) -> str:
        return hmac.new(self._key, end.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


class FailedLogins:
    """Wrong tokens by client: after `FREE_FAILURES`, each further one doubles the pause before the next attempt.

    The server does not check the token of a client during its pause, so parallel attempts gain nothing. Other clients
    are not affected. The memory is bounded by `MOST_CLIENTS`.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        # Failures and the time of the last one by client, the oldest first.
        self._failures: dict[str, tuple[int, float]] = {}

    def __len__(self) -> int:
        return len(self._failures)

    def pause_s(self, address: str) -> float:
        """Return the seconds until a client may send a token; 0 if it may now."""
        number, last_s = self._failures.get(_client(address), (0, 0.0))
        excess = number - FREE_FAILURES
        # The exponent is bounded: a large one would overflow.
        pause_s = 0.0 if excess < 0 else min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(excess, 30))
        return max(0.0, last_s + pause_s - self._clock())

    def record_failure(self, address: str) -> None:
        """Count a wrong token."""
        client, now_s = _client(address), self._clock()
        number, last_s = self._failures.pop(client, (0, now_s))
        self._failures[client] = (1 if now_s - last_s > EXPIRE_S else number + 1, now_s)
        if len(self._failures) > MOST_CLIENTS:
            del self._failures[next(iter(self._failures))]


def _client(address: str) -> str:
    """Return the client of an address: for IPv6 its network, because one machine can use all addresses of it.

    >>> _client("192.0.2.7"), _client("2001:db8:1:2:3::4")
    ('192.0.2.7', '2001:db8:1:2::/64')
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address[:100]
    if parsed.version == 6 and parsed.ipv4_mapped is None:
        return str(ipaddress.ip_network((int(parsed), 64), strict=False))
    return str(parsed)
