"""Several plans side by side over one input: each has its own session, state and counts, and rows are read once.

The output of a version has its number: alert batches and invalid rows have the field `version`, and the first label of
each metric has the prefix `number:`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tocsin.errors import RunError
from tocsin.plan import Plan, RangeWatch, Watch
from tocsin.runtime.contract import Batch, Listener, Out, Pages, Pipeline
from tocsin.runtime.session import Session


@dataclass(frozen=True)
class Versions:
    """Plans, and per key set of the input the watches that read it, as (plan, watch)."""

    plans: tuple[Plan, ...]
    routes: tuple[tuple[tuple[int, int], ...], ...]

    @classmethod
    def of(cls, plans: Sequence[Plan]) -> Versions:
        """Let watches that read the same columns under the same keys share a key set."""
        routes: dict[Any, list[tuple[int, int]]] = {}
        for number, plan in enumerate(plans):
            for place, watch in enumerate(plan.key_sets):
                routes.setdefault(_reads(watch), []).append((number, place))
        return cls(tuple(plans), tuple(tuple(route) for route in routes.values()))

    def watches(self) -> list[Watch | RangeWatch]:
        """One watch per key set: all that share it read alike."""
        return [self.plans[number].key_sets[place] for (number, place), *_ in self.routes]

    def build_pipelines(self, pages: Pages, listener: Listener | None = None) -> Sequence[Pipeline]:
        """Build one pipeline per version. They report nothing to a listener."""
        if pages:
            message = (
                "versions run side by side only over a bounded input without earlier state; this checkpoint has state "
                "of an earlier run"
            )
            raise RunError(message)
        return [_VersionPipeline(self, number) for number in range(len(self.plans))]

    def read_control(self, row: Mapping[str, Any]) -> None:
        """Raise an error: a bounded input has no coordinator."""
        message = f"versions of a bounded input accept no control rows; got {dict(row)!r}"
        raise RunError(message)

    def warm_up(self) -> None:
        """Compile the kernels."""
        for plan in self.plans:
            plan.warm_up()


def _reads(watch: Watch | RangeWatch) -> tuple[Any, ...]:
    """What a watch reads; where two are equal, one feed serves both."""
    shards = (watch.shards, watch.requests) if isinstance(watch, RangeWatch) else None
    streams = sorted((name, tuple(watch.columns(name)), frozenset(watch.read_by_all(name))) for name in watch.streams)
    return watch.on, tuple(streams), shards


class _VersionPipeline:
    """The session of one version. It reads its own rows, and its number marks the output."""

    def __init__(self, versions: Versions, number: int) -> None:
        self.number, self.session = number, Session(versions.plans[number])
        # Key sets of the version by key set of the input.
        self.places = {
            key_set: [place for version, place in route if version == number]
            for key_set, route in enumerate(versions.routes)
        }
        watches = {
            key_set: versions.plans[number].key_sets[places[0]] for key_set, places in self.places.items() if places
        }
        self.inputs = {
            (key_set, stream): watch.columns(stream) for key_set, watch in watches.items() for stream in watch.streams
        }
        self._pages: dict[str, bytes | None] = {}

    def on_data(self, batches: Sequence[Batch], now_us: int | None, out: Out) -> None:
        """Push the rows of this version."""
        mine = [replace(batch, key_set=place) for batch in batches for place in self.places[batch.key_set]]
        given = self.session.push(mine, now_us)
        self._mark(given, out)
        for batch in batches:
            if len(batch.time):
                out.metrics.record("oldest_us", int(batch.time.min()), f"{self.number}:{batch.stream}")

    def on_control(self, message: None, out: Out) -> None:
        """Ignore control rows: `Versions.read_control` accepts no row."""

    def on_time(self, now_us: int, out: Out) -> None:
        """Advance the version."""
        self._mark(self.session.advance(now_us), out)

    def on_end(self, out: Out) -> None:
        """End the version and report the bytes of its state."""
        self._mark(self.session.end(), out)
        pages = self.session.changed_pages()
        self._pages = {f"{self.number}:{name}": page for name, page in pages.items()}
        out.metrics.record("version_bytes", sum(len(page or b"") for page in pages.values()), f"{self.number}:")

    def next_timer(self) -> int | None:
        """Return None: a bounded input has no timers."""
        return None

    def changed_pages(self) -> dict[str, bytes | None]:
        """Return the pages of the version at its end."""
        changed, self._pages = self._pages, {}
        return changed

    def _mark(self, given: Out, out: Out) -> None:
        """Add output of the version to `out`, marked with its number."""
        number = self.number
        out.alerts += [replace(batch, version=number) for batch in given.alerts]
        out.dead += [{**row, "version": number} for row in given.dead]
        out.metrics.merge(given.metrics.with_prefix(f"{number}:"))
