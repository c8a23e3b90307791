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
touch them all over: with pages of 64 counts a thousand of them would write some forty times as much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from tocsin.errors import RunError
from tocsin.runtime.state_codec import pack, unpack
from tocsin.stages.ranges.queries import Queries
from tocsin.stages.ranges.requests import Elements, Requests

Pages = dict[str, bytes | None]
Batch = tuple[Elements, Requests]
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
        self._open: list[Batch] = []
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
            pages = {f"log/{self._closed}": _write_log(self._open)}
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

    @classmethod
    def read(cls, pages: Mapping[str, bytes]) -> tuple[Journal, dict[str, Any], Iterator[Any]]:
        """Give a journal that goes on from some pages, what waits, and the columns of the base and then the batches."""
        head = pages.get("head", b"")
        waiting, facts = unpack(head)
        if facts.get("kind") != "ranges in pages":
            message = f"state page must belong to a range index in pages; its kind is {facts.get('kind')}"
            raise RunError(message)
        journal = cls(facts["dims"])
        journal._names, journal._head, journal._full = set(pages), bytes(head), False
        return journal, waiting, journal._replay(pages)

    def _replay(self, pages: Mapping[str, bytes]) -> Iterator[Any]:
        base = [unpack(page)[0] for page in _in_order(pages, "base/")]
        self._base_bytes = sum(len(page) for page in _in_order(pages, "base/"))
        yield [np.concatenate([part[name] for part in base]) for name in COLUMNS] if base else None
        for page in _in_order(pages, "log/"):
            self._open = _read_log(page, self.dims)
            for elements, requests in self._open:
                self._log_bytes += _size(elements, requests)
                self._rows += len(elements.weights) + len(requests.at)
                yield elements, requests
            if self._rows >= LOG_ROWS:
                self._closed, self._open, self._rows = self._closed + 1, [], 0


def _size(elements: Elements, requests: Requests) -> int:
    """Count the bytes of a batch, about as many as it takes in a page."""
    return int(sum(column.nbytes for column in elements) + sum(column.nbytes for column in requests))


def _in_order(pages: Mapping[str, bytes], kind: str) -> list[bytes]:
    names = sorted((name for name in pages if name.startswith(kind)), key=lambda name: int(name[len(kind) :]))
    return [pages[name] for name in names]


def _write_log(batches: list[Batch]) -> bytes:
    """Write batches behind each other, with their sizes: as one, an id that matured could not be registered again."""
    elements = Elements._make(np.concatenate(columns) for columns in zip(*(batch[0] for batch in batches), strict=True))
    requests = Requests._make(np.concatenate(columns) for columns in zip(*(batch[1] for batch in batches), strict=True))
    new = requests.is_registration
    columns = {name: getattr(requests, name)[new] for name in ("low", "high", "threshold")}
    columns |= {"at": requests.at, "is_registration": new, "id": requests.id}
    sizes = np.array([(len(elements.weights), len(requests.at)) for elements, requests in batches])
    return pack({"sizes": sizes, **elements._asdict(), **columns})


def _read_log(page: bytes, dims: int) -> list[Batch]:
    arrays, _ = unpack(page)
    at, new = arrays["at"], arrays["is_registration"]
    low, high, threshold = np.zeros((len(at), dims)), np.zeros((len(at), dims)), np.zeros(len(at), dtype=np.int64)
    low[new], high[new], threshold[new] = arrays["low"], arrays["high"], arrays["threshold"]
    elements, requests = (arrays["values"], arrays["weights"]), (at, new, arrays["id"], low, high, threshold)
    ends = np.cumsum(arrays["sizes"], axis=0)[:-1].T
    parts = (zip(*(np.split(column, cuts) for column in columns), strict=True)
             for columns, cuts in zip((elements, requests), ends, strict=True))  # fmt: skip
    return [(Elements(*some), Requests(*asked)) for some, asked in zip(*parts, strict=True)]
