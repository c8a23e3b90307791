"""The pages of anytime joins by name: whose they are, which part of a state they have, and which nobody wants."""

from __future__ import annotations

import re
from collections.abc import Collection

from tocsin.errors import RunError
from tocsin.plan.steps import Watch
from tocsin.plan.watch import readable
from tocsin.runtime.contract import Out, Pages
from tocsin.runtime.metrics import RowOutcome
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


def forgotten_rows(pages: Pages, watches: Collection[Watch]) -> tuple[list[str], Out]:
    """Name the pages of watches that are gone, and count the rows that they held as expired."""
    known, names, out = {watch.apart for watch in watches}, [], Out()
    for page, data in pages.items():
        watch, part = parts_of(page)
        if watch in known:
            continue
        names.append(page)
        if part == "state":
            with readable(page):
                retained = unpack(data)[1]["retained"].items()
            for stream, rows in retained:
                out.metrics.count_rows(stream, {RowOutcome.RETAINED: -rows, RowOutcome.EXPIRED: rows})
    return names, out
