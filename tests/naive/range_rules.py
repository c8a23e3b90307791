"""Rules with ranges, from their definition: rows one by one in order of arrival, each query a list of what it counted.

Slow and obvious on purpose: it decides what the product must answer, so it shares no code with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]


@dataclass
class Query:
    """A request that was taken, and the (moment, weight) of each row that counts."""

    row: Row
    number: int
    counted: list[tuple[int, int]] = field(default_factory=list)
    rests_until: int | None = None

    def total(self) -> int:
        return sum(weight for _, weight in self.counted)

    def covers(self, row: Row, columns: list[str]) -> bool:
        for column in columns:
            name = "" if len(columns) == 1 else f"_{column}"
            low, high = self.row.get(f"low{name}"), self.row.get(f"high{name}")
            if not (-math.inf if _open(low) else low) <= row[column] <= (math.inf if _open(high) else high):
                return False
        return True


def _open(end: float | None) -> bool:
    return end is None or math.isnan(end)


@dataclass
class Answer:
    """What was reached, as (key, id, time of the element, total, threshold), and how many rows are what."""

    reached: list[tuple[str, str, int, int, int]] = field(default_factory=list)
    refused: int = 0
    alive: int = 0
    late: int = 0
    window: int = 0


def run(
    rows: list[tuple[str, Row]], columns: list[str], within_us: int | None = None, rearm_us: int | None = None
) -> Answer:
    """Take rows, `("ask", ...)` or `("count", ...)`, that are usable and in order of arrival; `weight` is given."""
    answer = Answer()
    queries: dict[str, dict[str, Query]] = {}
    clocks: dict[str, int] = {}
    window: dict[str, list[int]] = {}
    for number, (kind, row) in enumerate(rows):
        key = row["key"]
        mine = queries.setdefault(key, {})
        if kind == "ask":
            if row.get("action") == "terminate":
                mine.pop(str(row["id"]), None)
            elif str(row["id"]) in mine:
                answer.refused += 1
            else:
                mine[str(row["id"])] = Query(row, number)
            continue
        before = clocks.get(key, row["ts"])
        clock = clocks[key] = max(before, row["ts"])
        if within_us is not None and before - row["ts"] >= within_us:
            answer.late += 1
            continue
        if within_us is not None:
            window[key] = [moment for moment in [*window.get(key, []), clock] if clock - moment < within_us]
        for name, query in sorted(mine.items(), key=lambda item: item[1].number):
            if query.rests_until is not None and clock < query.rests_until:
                continue
            query.rests_until = None
            if within_us is not None:
                query.counted = [(at, weight) for at, weight in query.counted if clock - at < within_us]
            if query.covers(row, columns):
                query.counted.append((clock, row["weight"]))
            if query.total() >= query.row["threshold"]:
                answer.reached.append((key, name, row["ts"], query.total(), query.row["threshold"]))
                query.counted = []
                if rearm_us is None:
                    del mine[name]
                else:
                    query.rests_until = clock + rearm_us
    answer.alive = sum(map(len, queries.values()))
    answer.window = sum(map(len, window.values()))
    return answer
