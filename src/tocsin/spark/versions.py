"""Several plans side by side over one input: each has its own logic, state and counts, and rows are read once.

What a version gives is marked with its number: alerts, and rows that its rules refuse, have `version`, counts stand
under `number:store`, waits and results under `number:alert`. A row of counts under `number:` alone has the bytes of
state that the version left at the end. Among the newest times `-stream` is the oldest one of a stream, negated, so that
it too can be brought together by the largest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tocsin.errors import RunError
from tocsin.logic import Batch, Logic, Out, Pages
from tocsin.plan import Plan, RangeWatch, Watch

STATE_BYTES = "state_bytes"


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

    def build(self, pages: Pages) -> VersionsLogic:
        """Make the logic of all versions."""
        return VersionsLogic(self, pages)

    def warm_up(self) -> None:
        """Compile the kernels."""
        for plan in self.plans:
            plan.warm_up()


def _reads(watch: Watch | RangeWatch) -> tuple[Any, ...]:
    """What a watch reads; where two are equal, one feed serves both."""
    spread = (watch.spread, watch.requests) if isinstance(watch, RangeWatch) else None
    streams = sorted((name, tuple(watch.columns(name)), frozenset(watch.read_by_all(name))) for name in watch.streams)
    return watch.on, tuple(streams), spread


class VersionsLogic:
    """The logics of all versions; each takes the rows that are its own."""

    def __init__(self, versions: Versions, pages: Pages) -> None:
        if pages:
            message = "versions run side by side over a bounded input only; there is state of an earlier run"
            raise RunError(message)
        self.versions = versions
        self.logics: list[Logic] = [plan.build({}) for plan in versions.plans]
        self._pages: dict[str, bytes | None] = {}

    def on_data(self, batches: Sequence[Batch], now_us: int | None = None) -> Out:
        """Hand each version its rows."""
        mine: list[list[Batch]] = [[] for _ in self.logics]
        for batch in batches:
            for number, place in self.versions.routes[batch.key_set]:
                mine[number].append(replace(batch, key_set=place))
        whole = self._each(lambda number, logic: logic.on_data(mine[number], now_us))
        whole.memory.clear()  # What it found in the end counts, not what was known of it on the way.
        for batch in batches:
            if len(batch.time):
                whole.meet(f"-{batch.stream}", -int(batch.time.min()))
        return whole

    def on_control(self, rows: Sequence[Mapping[str, Any]]) -> Out:
        """Refuse control rows as each version would."""
        return self._each(lambda _, logic: logic.on_control(rows))

    def on_time(self, now_us: int) -> Out:
        """Tell the time to all."""
        return self._each(lambda _, logic: logic.on_time(now_us))

    def on_end(self) -> Out:
        """Let all wait for nothing any more, and weigh what each still remembers."""
        whole = self._each(lambda _, logic: logic.on_end())
        for number, logic in enumerate(self.logics):
            pages = logic.changed_pages()
            self._pages |= {f"{number}:{name}": page for name, page in pages.items()}
            whole.count(f"{number}:", {STATE_BYTES: sum(len(page or b"") for page in pages.values())})
        return whole

    def next_timer(self) -> int | None:
        """Name no time: a bounded input has none."""
        return None

    def changed_pages(self) -> dict[str, bytes | None]:
        """Pages touched, by version."""
        changed, self._pages = self._pages, {}
        return changed

    def _each(self, call: Callable[[int, Logic], Out]) -> Out:
        whole = Out()
        for number, logic in enumerate(self.logics):
            out = call(number, logic)
            whole.alerts += [{**alert, "version": number} for alert in out.alerts]
            whole.dead += [{**row, "version": number} for row in out.dead]
            for name, counts in out.counts.items():
                whole.count(f"{number}:{name}", counts)
            for name, time_us in out.newest.items():
                whole.meet(name, time_us)
            for alert, (wait_us, recall) in out.waits.items():
                whole.wait(f"{number}:{alert}", wait_us, recall)
            for alert, found in out.memory.items():
                whole.remember(f"{number}:{alert}", found)
            for alert, periods in out.results.items():
                for start_us, (in_order, in_all) in periods.items():
                    whole.find(f"{number}:{alert}", start_us, in_order, in_all)
        return whole
