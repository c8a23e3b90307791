"""Registered queries in pages: what is read again is what was there, and a query that ends does not write a page."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tocsin.plan import registered
from tocsin.plan.registered import Registered


def put(queries: Registered, names: list[str], slots: Any) -> None:
    number = np.array([int(name[1:]) for name in names])
    payload: list[str | None] = [None if n % 3 == 0 else f'{{"owner": "{n}"}}' for n in number.tolist()]
    queries.put(slots, names, payload, number * 10, number + 1, np.column_stack([number - 0.5, number + 0.5]))


def told(queries: Registered) -> dict[str, tuple[Any, ...]]:
    """What is known of each query, by its id."""
    columns = (queries.id, queries.payload, queries.time, queries.threshold)
    return {
        name: (*(column[slot] for column in columns), *queries.ends[slot].tolist())
        for name, slot in queries.slot.items()
    }


def write(pages: dict[str, bytes], queries: Registered) -> int:
    """Store what changed; give its bytes."""
    changed = queries.changed_pages()
    for name, page in changed.items():
        if page is None:
            del pages[name]
        else:
            pages[name] = page
    return sum(len(page or b"") for page in changed.values())


@pytest.mark.parametrize("seed", range(20))
def test_what_is_read_again_is_what_was_there(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, number in (("SLOTS_PER_PAGE", 16), ("_MOST_NEW", 2), ("_MOST_CHANGED", 8)):
        monkeypatch.setattr(registered, name, number)
    random = np.random.default_rng(seed)
    queries, pages, number = Registered(1), dict[str, bytes](), 0
    alive: dict[str, int] = {}
    for _ in range(40):
        count = int(random.integers(0, 12))
        slots = queries.open(count)
        assert not set(slots.tolist()) & set(alive.values())
        names = [f"q{number + i}" for i in range(count)]
        number += count
        put(queries, names, slots)
        alive |= dict(zip(names, slots.tolist(), strict=True))
        gone = [name for name in alive if random.random() < random.choice([0.05, 0.4, 1.0], p=[0.6, 0.3, 0.1])]
        # An id that ends may come again at once, in another slot.
        back = {name: int(queries.open(1)[0]) for name in gone[:1]}
        put(queries, list(back), np.array(list(back.values()), np.int64))
        queries.free(np.array([alive[name] for name in gone], np.int64))
        alive = {name: slot for name, slot in alive.items() if name not in gone} | back
        assert queries.slot == alive
        write(pages, queries)
        assert not queries.changed_pages()
        again = Registered(1)
        again.load(pages)
        assert told(again) == told(queries)
        assert again.slot == alive
        assert not again.changed_pages()
        assert bool(pages) == bool(alive)
        if random.random() < 0.5:
            queries = again


def test_a_query_that_ends_does_not_write_its_page_again() -> None:
    queries, pages = Registered(1), dict[str, bytes]()
    slots = queries.open(5 * registered.SLOTS_PER_PAGE)
    put(queries, [f"q{slot}" for slot in slots.tolist()], slots)
    whole = write(pages, queries)
    for ended in slots[::1000].reshape(-1, 3):
        queries.free(ended)
        assert write(pages, queries) < whole / 1000
    again = Registered(1)
    again.load(pages)
    assert told(again) == told(queries)
    # So many that end are worth a new page.
    queries.free(np.setdiff1d(slots[:3000], slots[::1000]))
    write(pages, queries)
    assert "0+" not in pages
    assert len(pages["0"]) < whole / 15
