"""The pages of anytime joins by name: whose they are, and which part of a state they have."""

from __future__ import annotations

import re

from tocsin.errors import RunError
from tocsin.runtime.state_codec import unpack

# How the pages of anytime joins begin: no watch has such a name. Then come the name of the watch, and a part.
PROMISING = "~promising/"
_NAME = re.compile(PROMISING + r"([0-9a-f]+)/(join|cells|state|rows/(?:0|[1-9][0-9]{0,15}))", re.ASCII)


def parts_of(page: str) -> tuple[str, str]:
    """The watch that a page is named by, and which part of its state it has."""
    found = _NAME.fullmatch(page)
    if not found:
        message = (
            f"state page `{page}` must have the name of a page of a CPU-budgeted join; it belongs to another query"
        )
        raise RunError(message)
    return found[1], found[2]


def retained_rows(page: str, data: bytes) -> dict[str, int]:
    """Return the number of retained rows by stream that a page counts. Only the page of the state counts rows."""
    return dict(unpack(data)[1]["retained"]) if parts_of(page)[1] == "state" else {}
