"""A step for the adapter's tests: it counts rows per key, and gives an alert for each value above 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, ClassVar

from tests.alert_batches import batches_of
from tocsin.runtime.contract import Batch, Listener, Out, Pages
from tocsin.runtime.metrics import RowOutcome
from tocsin.runtime.state_codec import pack, unpack


@dataclass(frozen=True)
class Toy:
    """With `quiet_us`, an alert `quiet` follows when no rows came for so long."""

    quiet_us: int | None = None

    def build_pipelines(self, pages: Pages, listener: Listener | None = None) -> list[ToyPipeline]:
        return [ToyPipeline(self, unpack(pages["rows"])[1] if pages else {})]

    def read_control(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        return row


class ToyPipeline:
    inputs: ClassVar = {(0, name): ("value",) for name in ("r", "s")}

    def __init__(self, step: Toy, rows: dict[str, int]) -> None:
        self.step, self.rows, self.timer = step, rows, None
        self.changed = False

    def on_data(self, batches: Sequence[Batch], now_us: int | None, out: Out) -> None:
        rows = [(b.arrival[i], b, i) for b in batches for i in range(len(b.time)) if isfinite(b.values["value"][i])]
        for _, batch, i in sorted(rows, key=lambda row: row[0]):
            key = "/".join(batch.keys[batch.key[i]])
            self.rows[key] = self.rows.get(key, 0) + 1
            if batch.values["value"][i] > 0:
                out.alerts += batches_of([self._alert("above", key, batch, i)])
        for b in batches:
            missing = sum(not isfinite(value) for value in b.values["value"])
            outcomes = {RowOutcome.QUARANTINED: b.quarantined + missing, RowOutcome.EXPIRED: len(b.time) - missing}
            out.metrics.count_rows(b.stream, outcomes)
        if self.step.quiet_us is not None and now_us is not None:
            self.timer = now_us + self.step.quiet_us
        self.changed = True

    def on_control(self, message: Mapping[str, Any], out: Out) -> None:
        pass

    def on_time(self, now_us: int, out: Out) -> None:
        self.timer = None
        out.alerts += batches_of(self._alert("quiet", key) for key in self.rows)

    def on_end(self, out: Out) -> None:
        out.alerts += batches_of(self._alert("end", key) for key in sorted(self.rows))

    def next_timer(self) -> int | None:
        return self.timer

    def changed_pages(self) -> dict[str, bytes | None]:
        pages: dict[str, bytes | None] = {"rows": pack({}, **self.rows)} if self.changed else {}
        self.changed = False
        return pages

    def _alert(self, name: str, key: str, batch: Batch | None = None, i: int = 0) -> dict[str, Any]:
        witness, time = [], 0
        if batch is not None:
            time, values = int(batch.time[i]), {name: float(column[i]) for name, column in batch.values.items()}
            witness = [{"stream": batch.stream, "time": time, "values": values, "payload": None}]
        return {
            "alert": name,
            "id": f"{key}#{self.rows[key]}",
            "state": "firing",
            "labels": {"key": key},
            "startsAt": time,
            "firesAt": time,
            "endsAt": None,
            "value": float(self.rows[key]),
            "margin": float("-inf"),
            "witness": witness,
            "quality": "",
        }
