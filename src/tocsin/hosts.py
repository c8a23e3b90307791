"""Host names: the check that protects a server from DNS rebinding, and the test for loopback addresses.

A page of another origin can make its own name resolve to this machine, and then read a server without a password. The
browser sends the name of that origin as the Host header, so a server must answer only under names that it knows.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

# A name or an address, and a port. A Host header has no other parts of a URL, such as `user@`.
_HOST = re.compile(r"(\[[^\[\]]+\]|[^\[\]:/?#@\\]+)(:[0-9]*)?")


def is_loopback(address: str) -> bool:
    """Return whether only this machine can reach an address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


class KnownHosts:
    """The names of a server: `localhost`, the name of the machine, and the names that the user allows."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.names = {"localhost", socket.gethostname().lower(), *(name.lower() for name in names)}

    def accept(self, host: str) -> bool:
        """Return whether a Host header has a known name, or an address in numbers, which cannot be rebound.

        >>> hosts = KnownHosts(["alerts.example.org"])
        >>> hosts.accept("alerts.example.org:8484"), hosts.accept("[::1]:8484"), hosts.accept("evil.example.org")
        (True, True, False)
        """
        if not _HOST.fullmatch(host.strip()):
            return False
        try:
            name = urlsplit(f"//{host}").hostname
        except ValueError:
            return False
        if not name:
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in self.names
        return True
