"""Share: rules that read the same of a stream remember it once, and find it in the same store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tocsin.expr.syntax_tree import Node
from tocsin.plan.steps import Store

# What a store is shared by: stream, columns, hopping windows, what rows are compared by, and all of it where a rule
# evaluates what is remembered.
Place = tuple[str, tuple[str, ...], int, str, tuple[Node, ...], Store | None]

Domains = tuple[tuple[float, float], ...]


def place_of(store: Store, alone: Store | None) -> Place:
    """By what rules find a store to share; `alone` is the store itself where they must want the very same."""
    return store.stream, store.columns, store.hop_us, store.closed if store.hop_us else "", store.by, alone


def shared_stores(needs: Iterable[Mapping[Place, Store]]) -> tuple[dict[Place, Store], dict[Place, Place]]:
    """What all rules need of each place together, and where the rows of each place are found."""
    stores: dict[Place, Store] = {}
    for mine in needs:
        for place, store in mine.items():
            stores[place] = _shared(stores[place], store) if place in stores else store
    return stores, {place: _home(place, stores) for place in stores}


def _home(place: Place, stores: Mapping[Place, Store]) -> Place:
    """Where a rule finds its rows: with any that remembers the same columns if it remembers none, or that keeps all."""
    same = [other for other in stores if other[:2] == place[:2] and stores[other].remember]
    if not stores[place].remember:
        return same[0] if same else place
    whole = [other for other in same if other[2:4] == place[2:4] and other[5] is None and stores[other].whole]
    return whole[0] if whole and place[5] is None else place


def _shared(one: Store, other: Store) -> Store:
    """Remember what both need: per side the shorter interval; what no rule may leave out is kept whole."""
    if not one.remember:
        return other
    if not other.remember:
        return one
    if one.whole or other.whole:
        return replace(one, above_us=-1, below_us=-1, tolerance=0.0, domains=_narrower(one.domains, other.domains))
    return replace(
        one,
        above_us=_shorter(one.above_us, other.above_us),
        below_us=_shorter(one.below_us, other.below_us),
        domains=_narrower(one.domains, other.domains),
        tolerance=min(one.tolerance, other.tolerance),
    )


def _shorter(one: int, other: int) -> int:
    return max(one, other) if min(one, other) < 0 else min(one, other)


def _narrower(one: Domains, other: Domains) -> Domains:
    """Per column what lies in both domains; a store that is not reduced may have none."""
    if not one or not other:
        return one or other
    return tuple((max(a[0], b[0]), min(a[1], b[1])) for a, b in zip(one, other, strict=True))
