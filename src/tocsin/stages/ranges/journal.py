"""State in pages of which a batch writes few bytes: queries as they once were, and what came since.

Idea: `base/0`, `base/1`, ... hold all queries alive at some moment, with their totals. `log/0`, `log/1`, ... hold the
elements and the requests since then; reading is taking them again. Of these only the last, the open one, is written
when a batch came, and a new one is begun when it has 1,024 rows. When the log is as large as the base, a new base is
written and the log is dropped. `head` holds the requests that wait for the next batch.
Guarantee: an index that is read from its pages gives the same answers.
Cost: in d dimensions 8 + 8 d bytes per element, 17 per termination and 25 + 16 d per registration, twice: in the log,
and as a share of a new base; and the open page, at most 1,024 rows, at every call. The pages together are about twice
the base, and reading takes as long as it took to register its queries and to take what is in the log.
Source: checkpoint and log, as databases recover. Counts per elementary interval are what a query needs, but elements
touch them all over: a thousand would write forty times as much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from tocsin.errors import RunError
from tocsin.pages import pack, unpack
from tocsin.stages.ranges.queries import Queries
from tocsin.stages.ranges.requests import Elements, Requests

Pages = dict[str, bytes | None]
COLUMNS = ("id", "low", "high", "threshold", "total")
# Queries per page of the base, and rows after which a page of the log is closed.
BASE_ROWS = 4096
LOG_ROWS = 1024
# A log smaller than this is never a reason for a new base.
_SMALL_LOG = 1 << 16


class Journal:
    """What the pages hold that were given, and what came since."""

    def __init__(self, dims: int) -> None:
        self.dims = dims
        self._names: set[str] = set()
        self._closed = 0
        self._open: list[tuple[Elements, Requests]] = []
        self._rows = self._base_bytes = self._log_bytes = 0
        # What came since the last call is in `_open`, or, if all is to be written, nowhere.
        self._touched, self._full = False, True
        self._head = b""

    def note(self, elements: Elements, requests: Requests) -> None:
        """Take note of a batch."""
        rows = len(elements.weights) + len(requests.at)
        if self._full or not rows:
            return
        self._open.append((elements, requests))
        self._rows += rows
        self._touched = True
        self._log_bytes += _size(elements, requests)
        if self._log_bytes > max(self._base_bytes, _SMALL_LOG):
            self._full, self._open = True, []

    def changed(self, alive: Callable[[], Queries], waiting: dict[str, Any]) -> Pages:
        """Give the pages that differ from those given before; None for those that are gone."""
        pages: Pages = {}
        if self._full:
            pages = self._new_base(alive())
        elif self._touched:
            pages = {f"log/{self._closed}": self._write_log()}
            if self._rows >= LOG_ROWS:
                self._closed, self._open, self._rows = self._closed + 1, [], 0
        self._touched = False
        head = pack(waiting, kind="ranges in pages", dims=self.dims)
        if head != self._head:
            self._head = pages["head"] = head
        self._names |= set(pages)
        return pages

    def _new_base(self, queries: Queries) -> Pages:
        """Write all queries, and drop the log."""
        pages: Pages = dict.fromkeys(self._names - {"head"})
        self._names = set()
        self._closed, self._open, self._rows, self._base_bytes, self._log_bytes = 0, [], 0, 0, 0
        self._full = False
        for start in range(0, len(queries.id), BASE_ROWS):
            part = {name: getattr(queries, name)[start : start + BASE_ROWS] for name in COLUMNS}
            page = pack(part)
            pages[f"base/{start // BASE_ROWS}"] = page
            self._base_bytes += len(page)
        return pages

    def _write_log(self) -> bytes:
        """Write the open batches as one: where it is cut does not show."""
        if len(self._open) > 1:
            self._open = [_as_one(self._open)]
        elements, requests = self._open[0]
        new = requests.is_registration
        columns = {name: getattr(requests, name)[new] for name in ("low", "high", "threshold")}
        columns |= {"at": requests.at, "is_registration": new, "id": requests.id}
        return pack({**elements._asdict(), **columns})

    @classmethod
    def read(cls, pages: Mapping[str, bytes]) -> tuple[Journal, dict[str, Any], Iterator[Any]]:
        """Give a journal that goes on from some pages, what waits, and the columns of the base and then the batches."""
        head = pages.get("head", b"")
        waiting, facts = unpack(head)
        if facts.get("kind") != "ranges in pages":
            message = f"state page must be of a range index in pages; its kind is {facts.get('kind')}"
            raise RunError(message)
        journal = cls(facts["dims"])
        journal._names, journal._head, journal._full = set(pages), bytes(head), False
        return journal, waiting, journal._replay(pages)

    def _replay(self, pages: Mapping[str, bytes]) -> Iterator[Any]:
        base = [unpack(page)[0] for page in _in_order(pages, "base/")]
        self._base_bytes = sum(len(page) for page in _in_order(pages, "base/"))
        yield [np.concatenate([part[name] for part in base]) for name in COLUMNS] if base else None
        for page in _in_order(pages, "log/"):
            batch = _read_log(page, self.dims)
            self._log_bytes += _size(*batch)
            self._rows = len(batch[0].weights) + len(batch[1].at)
            self._open = [batch]
            if self._rows >= LOG_ROWS:
                self._closed, self._open, self._rows = self._closed + 1, [], 0
            yield batch


def _size(elements: Elements, requests: Requests) -> int:
    """Count the bytes of a batch, about as many as it takes in a page."""
    return int(sum(column.nbytes for column in elements) + sum(column.nbytes for column in requests))


def _in_order(pages: Mapping[str, bytes], kind: str) -> list[bytes]:
    names = sorted((name for name in pages if name.startswith(kind)), key=lambda name: int(name[len(kind) :]))
    return [pages[name] for name in names]


def _as_one(batches: list[tuple[Elements, Requests]]) -> tuple[Elements, Requests]:
    """Put batches behind each other, with the requests among the same elements."""
    before, moved = 0, []
    for elements, requests in batches:
        moved.append(requests._replace(at=requests.at + before))
        before += len(elements.weights)
    elements = Elements._make(np.concatenate(columns) for columns in zip(*(batch[0] for batch in batches), strict=True))
    return elements, Requests._make(np.concatenate(columns) for columns in zip(*moved, strict=True))


def _read_log(page: bytes, dims: int) -> tuple[Elements, Requests]:
    arrays, _ = unpack(page)
    at, new = arrays["at"], arrays["is_registration"]
    low, high, threshold = np.zeros((len(at), dims)), np.zeros((len(at), dims)), np.zeros(len(at), dtype=np.int64)
    low[new], high[new], threshold[new] = arrays["low"], arrays["high"], arrays["threshold"]
    return Elements(arrays["values"], arrays["weights"]), Requests(at, new, arrays["id"], low, high, threshold)
