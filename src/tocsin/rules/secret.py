"""Values that must not be shown: they come from the environment, and are given up only when asked for by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote

from tocsin.errors import Diagnostic, RuleError

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_USER_INFO = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*://)([^/?#]*)@")


class Secret:
    """A text that no log, message or JSON shows; `shown` is what they show instead.

    >>> f"{Secret('hunter2')} {Secret('hunter2')!r}"
    '*** Secret(***)'
    """

    __slots__ = ("__text", "shown")

    def __init__(self, text: str, shown: str = "***") -> None:
        self.__text = text
        self.shown = shown

    def reveal(self) -> str:
        """Give the text itself, for the connection that needs it."""
        return self.__text

    def __str__(self) -> str:
        return self.shown

    def __repr__(self) -> str:
        return f"Secret({self.shown})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other.reveal() == self.__text

    def __hash__(self) -> int:
        return hash(self.__text)

    def __reduce__(self) -> tuple[type[Secret], tuple[str, str]]:
        """Travel whole to where the connection is made."""
        return Secret, (self.__text, self.shown)


def has_reference(text: str) -> bool:
    """Tell whether a text asks for something of the environment."""
    return "${" in text


def substitute(text: str, environment: Mapping[str, str]) -> str:
    """Put variables of the environment in the place of `${VAR}`; no message shows what stands beside them."""
    rest = _REFERENCE.sub("", text)
    if "${" in rest:
        message = "a variable must be written `${NAME}`"
        raise RuleError(Diagnostic("invalid-variable", (), message, "`${` without a name and `}`"))
    for name in _REFERENCE.findall(text):
        if name not in environment:
            message = f"`${{{name}}}` must be set in the environment; this variable is not set"
            raise RuleError(Diagnostic("missing-variable", (), message))
    return _REFERENCE.sub(lambda match: environment[match[1]], text)


def read_url(text: str, environment: Mapping[str, str]) -> Secret:
    """Read a URL whose user-info may come from the environment; it shows all but the user-info.

    >>> read_url("https://bell:${PASS}@host/x", {"PASS": "a/b"}).reveal()
    'https://bell:a%2Fb@host/x'
    """
    found = _USER_INFO.match(text)
    if not found:
        return Secret(text, text)
    quoted = {name: quote(value, safe="") for name, value in environment.items()} if has_reference(found[2]) else {}
    info, rest = substitute(found[2], quoted), text[found.end() :]
    return Secret(f"{found[1]}{info}@{rest}", f"{found[1]}***@{rest}")


def outside_user_info(text: str) -> tuple[str, str]:
    """Split a URL behind its user-info, which is hidden; without any, the first part is empty.

    >>> outside_user_info("https://bell:hunter2@host/x")
    ('https://***@', 'host/x')
    """
    found = _USER_INFO.match(text)
    return (f"{found[1]}***@", text[found.end() :]) if found else ("", text)
