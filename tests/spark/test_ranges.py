"""Rules with ranges on Spark give what the oracle and the engine in one process give, bounded and streaming."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tocsin
from naive import range_rules
from spark.scenarios import plain
from tocsin import local
from tocsin.runtime.metrics import OUTCOMES

pytestmark = pytest.mark.spark

Row = dict[str, Any]
# Files of either stream, so micro-batches; and rows of both streams.
FILES, ROWS = 4, 600
ENDS = ("low", "high", "low_price", "high_price", "low_index", "high_index")
NUMBERS = {"orders": (*ENDS, "threshold"), "trades": ("price", "index", "volume")}
TEXTS = {"orders": ("id", "action", "owner"), "trades": ("note",)}
SECOND = 1_000_000


def ranges(alert: str, dims: int = 1, **settings: Any) -> tocsin.RangeRule:
    values = ["trades.price", "trades.index"][:dims]
    return tocsin.RangeRule(alert, values, "orders", weight="trades.volume", on="symbol", **settings)


# By name: the rule, and how the oracle is asked for it.
RULES: dict[str, tuple[tocsin.RangeRule, tuple[int, int | None, int | None]]] = {
    "Plain": (ranges("Plain"), (1, None, None)),
    "Plane": (ranges("Plane", 2), (2, None, None)),
    "Recent": (ranges("Recent", within="7s"), (1, 7 * SECOND, None)),
    "Again": (ranges("Again", rearm="3s"), (1, None, 3 * SECOND)),
    "Both": (ranges("Both", 2, within="20s", rearm="0s"), (2, 20 * SECOND, 0)),
    "Spread": (ranges("Spread", shards=3), (1, None, None)),
    "SpreadBoth": (ranges("SpreadBoth", within="9s", rearm="2s", shards=3), (1, 9 * SECOND, 2 * SECOND)),
}
ALL = [rule for rule, _ in RULES.values()]
# Beside them; nothing of it stays open, so that a stream gives what a bounded input does.
HIGH = tocsin.Rule("High", "trades.price > 7", on="symbol", emit="all")
# What is wrong, in which stream, and what is said of it; the last is not even led to a rule.
WRONG: list[tuple[str, Row, str]] = [
    ("orders", {"id": None}, "`id` must be a string or an integer; got null"),
    ("orders", {"action": "drop"}, "`action` must be register or terminate; got 'drop'"),
    ("orders", {"threshold": 2.5}, "`threshold` must be an integer from 1 to 2^53 - 1; got 2.5"),
    ("orders", dict.fromkeys(ENDS[::2], 9.0) | dict.fromkeys(ENDS[1::2], 1.0), "`low"),
    ("trades", {"price": math.nan, "index": math.nan}, "`price` must be a finite number; the value is missing"),
    ("trades", {"price": math.inf, "index": math.inf}, "`price` must be a finite number; got inf"),
    ("trades", {"volume": 0}, "`volume` must be an integer from 1 to 2^40; got 0"),
    ("trades", {"volume": -2}, "`volume` must be an integer from 1 to 2^40; got -2"),
    ("trades", {"volume": 1.5}, "`volume` must be an integer from 1 to 2^40; got 1.5"),
    ("trades", {"symbol": None}, ""),
]


def day(seed: int = 5) -> list[tuple[str, Row]]:
    """Rows of both streams in one order of arrival, with times that go back and forth and few distinct values."""
    random = np.random.default_rng(seed)
    rows: list[tuple[str, Row]] = []
    clock = 0
    for number in range(ROWS):
        clock += int(random.integers(-4 * SECOND, 5 * SECOND))
        row: Row = {"symbol": f"s{random.integers(0, 3)}", "ts": max(clock, 0)}
        if random.random() < 0.6:
            price, index, volume = (float(random.integers(low, high)) for low, high in ((0, 10), (0, 10), (1, 8)))
            rows.append(("trades", row | {"price": price, "index": index, "volume": volume, "note": f"n{number}"}))
            continue
        row |= {"id": f"q{random.integers(0, 30)}", "owner": f"o{number}", "threshold": int(random.integers(1, 60))}
        row["action"] = str(random.choice(["register", "", "", "", "terminate"])) or None
        for low, high in zip(ENDS[::2], ENDS[1::2], strict=True):
            ends = sorted(random.integers(0, 10, 2).tolist())
            row |= {low: float(ends[0]) if random.random() < 0.9 else None, high: float(ends[1])}
        rows.append(("orders", row))
    for place, (stream, wrong, _) in enumerate(WRONG):
        like = next(row for name, row in rows[40 * place + 40 :] if name == stream)
        rows.insert(40 * place + 40, (stream, like | {"id": "wrong", "action": None} | wrong | {"wrong": True}))
    return [(stream, row | {"came": number}) for number, (stream, row) in enumerate(rows)]


def expected(rows: Iterable[tuple[str, Row]], dims: int, within: int | None, rearm: int | None) -> range_rules.Answer:
    kinds = {"orders": "ask", "trades": "count"}
    usable = [
        (kinds[stream], row | {"key": row["symbol"], "weight": row.get("volume")})
        for stream, row in rows
        if not row.get("wrong")
    ]
    return range_rules.run(usable, ["price", "index"][:dims], within, rearm)


def arrays(rows: Iterable[tuple[str, Row]]) -> dict[str, dict[str, Any]]:
    """The streams as the engine in one process takes them."""
    tables = {}
    for stream, numbers in NUMBERS.items():
        mine = [row for name, row in rows if name == stream]
        table = {name: _cells(row.get(name) for row in mine) for name in ("symbol", *TEXTS[stream], *numbers)}
        tables[stream] = table | {name: np.array([row[name] for row in mine], np.int64) for name in ("ts", "came")}
    return tables


def _cells(values: Iterable[Any]) -> Any:
    return np.array([None if value is None else float(value) if isinstance(value, int) else value for value in values])


def write(folder: Path, rows: Sequence[tuple[str, Row]], files: int = FILES) -> None:
    """Write each stream into files that make a micro-batch each, cut at the same moments."""
    for stream, table in arrays(rows).items():
        (folder / stream).mkdir(parents=True)
        types = dict.fromkeys(TEXTS[stream], pa.string()) | dict.fromkeys(NUMBERS[stream], pa.float64())
        arrow = pa.table({name: pa.array(column.tolist(), types.get(name)) for name, column in table.items()})
        for number in range(files):
            path = folder / stream / f"{number:03}.parquet"
            pq.write_table(arrow.filter(pa.array(table["came"] * files // len(rows) == number)), path)
            os.utime(path, (1_700_000_000 + number,) * 2)  # Spark takes files in order of this time.


def frames(session: Any, folder: Path, *, streaming: bool) -> dict[str, Any]:
    reader = session.readStream.option("maxFilesPerTrigger", 1) if streaming else session.read
    schema = {
        stream: ", ".join(
            [f"{name} string" for name in ("symbol", *TEXTS[stream])]
            + [f"{name} double" for name in NUMBERS[stream]]
            + [f"{name} long" for name in ("ts", "came")]
        )
        for stream in NUMBERS
    }
    return {stream: reader.schema(schema[stream]).parquet(str(folder / stream)) for stream in NUMBERS}


def said(alerts: Iterable[Any], rule: str) -> list[tuple[str, str, int, int, int]]:
    """What the alerts of a rule say, as the oracle says it."""
    return sorted(
        (dict(labels)["symbol"], dict(labels)["query"], start, int(value), int(value - margin))
        for name, _, _, labels, start, _, _, value, margin, _, _ in plain(alerts)
        if name == rule
    )


def check_all(alerts: Iterable[Any], rows: Sequence[tuple[str, Row]]) -> None:
    """Each rule says what the oracle says, and all of them together what the engine in one process does."""
    alerts = list(alerts)
    for name, (_, asked) in RULES.items():
        wanted = sorted(expected(rows, *asked).reached)
        assert len(wanted) > 20
        assert said(alerts, name) == wanted, name
    assert plain(alerts) == plain(local.run_local_detailed(arrays(rows), [*ALL, HIGH], arrival="came").alerts)


def check_counts(counts: Mapping[str, Mapping[str, int]], rows: Sequence[tuple[str, Row]]) -> None:
    """Every row is accounted for, once per rule, in parts or not."""
    for stream in NUMBERS:
        mine, received = counts[stream], sum(name == stream for name, _ in rows)
        assert mine["received"] == sum(mine.get(outcome, 0) for outcome in OUTCOMES)
        assert mine["received"] == received * (len(ALL) + (stream == "trades"))
    answers = [expected(rows, *asked) for _, asked in RULES.values()]
    orders, trades = counts["orders"], counts["trades"]
    wrong = Counter(stream for stream, _, _ in WRONG)
    assert orders["quarantined"] == sum(answer.refused for answer in answers) + len(ALL) * wrong["orders"]
    assert orders["retained"] == sum(answer.alive for answer in answers)
    assert trades["late"] == sum(answer.late for answer in answers)
    alone = local.run_local_detailed(arrays(rows), HIGH, arrival="came").counts["trades"]
    assert trades["quarantined"] == len(ALL) * wrong["trades"] + alone["quarantined"]
    assert trades["retained"] == sum(answer.window for answer in answers) + alone.get("retained", 0)


def test_a_bounded_query_gives_alerts_counts_and_unusable_rows_as_they_are_defined(spark: Any, tmp_path: Path) -> None:
    from tocsin.spark.alerts import rows_of
    from tocsin.spark.results import alerts, merged_metrics

    rows = day()
    write(tmp_path, rows)
    found = rows_of(frames(spark, tmp_path, streaming=False), [*ALL, HIGH], arrival="came", buckets=3).cache()
    try:
        check_all(alerts(found).collect(), rows)
        kinds = {kind: [row.json for row in found.collect() if row.kind == kind] for kind in ("metrics", "dead")}
    finally:
        found.unpersist()
    check_counts(merged_metrics(kinds["metrics"]).section("counts"), rows)
    # Each rule refuses for itself, and says so.
    dead = Counter((row["stream"], row["reason"]) for row in map(json.loads, kinds["dead"]))
    for stream, _, reason in WRONG[:-1]:
        shown = sum(n for (name, text), n in dead.items() if name == stream and text.startswith(reason))
        assert shown == len(ALL), reason
    refused = sum(expected(rows, *asked).refused for _, asked in RULES.values())
    assert dead["orders", "`id` is in use by an active request; terminate that request first"] == refused > 0
    assert dead.total() == len(ALL) * (len(WRONG) - 1) + refused


def streamed(session: Any, folder: Path, rules: Any, buckets: int | None = None) -> tuple[list[Any], Any]:
    out = tocsin.alerts(frames(session, folder / "in", streaming=True), rules, arrival="came", buckets=buckets)
    writer = out.writeStream.format("parquet").option("checkpointLocation", str(folder / "check"))
    query = writer.trigger(availableNow=True).start(str(folder / "out"))
    query.awaitTermination()
    return session.read.parquet(str(folder / "out")).collect(), query


def test_a_stream_gives_the_same_in_micro_batches_and_after_a_restart(spark: Any, tmp_path: Path) -> None:
    from tocsin.spark import row_outcomes

    rows = day(seed=6)
    write(tmp_path / "in", rows)
    later = {path: path.read_bytes() for path in (tmp_path / "in").glob("*/*.parquet") if path.stem >= "002"}
    for path in later:
        path.unlink()
    _, first = streamed(spark, tmp_path, [*ALL, HIGH], buckets=5)
    for path, content in sorted(later.items()):
        path.write_bytes(content)
        os.utime(path, (1_700_000_000 + int(path.stem),) * 2)
    # Another query, which must take its queries, windows and rests from the state.
    found, second = streamed(spark, tmp_path, [*ALL, HIGH], buckets=5)
    progress = [*first.recentProgress, *second.recentProgress]
    assert len([one for one in progress if one.numInputRows]) == FILES
    check_all(found, rows)
    counts: dict[str, Counter[str]] = {name: Counter() for name in NUMBERS}
    for one in progress:
        for name, parts in row_outcomes(one.observedMetrics).items():
            counts[name].update(parts)
    check_counts(counts, rows)


def test_requests_of_a_key_in_parts_go_to_one_part_and_elements_to_all() -> None:
    from tocsin.spark.blobs import PAYLOAD, TIME, VALUE, Feed, read_blob
    from tocsin.spark.rows import fold_partition

    rule, texts = ranges("Spread", shards=3), [json.dumps({"id": f"q{number % 9}"}) for number in range(50)]
    plan = local.explain(arrays(day()), rule, arrival="came").ranges[0]
    table = {"symbol": ["s"] * 50, TIME: list(range(50)), PAYLOAD: texts}
    for stream in plan.streams:
        read = tuple(plan.columns(stream))
        rows = pa.RecordBatch.from_pydict(table | {VALUE + name: [1.0] * 50 for name in read})
        for payload in (True, False):
            feed = Feed(0, stream, ("symbol",), read, payload=payload, parts=3, parted=stream == "orders")
            (found,) = fold_partition([rows], [(0, feed)], ids=[0, 1])
            pieces = [read_blob(blob, [feed]) for blob in found.column("blob").to_pylist()]
            parts = {key: np.sort(p.time[p.key == i]) for p in pieces for i, key in enumerate(p.keys)}
            assert set(parts) == {("s", str(part)) for part in range(3)}
            if stream == "trades":
                assert all(times.tolist() == list(range(50)) for times in parts.values())
            else:
                # A request that has no id is shown by the first part.
                assert len(parts["s", "0"]) == 50 or payload
                assert sorted(np.concatenate(list(parts.values()))) == list(range(50))
                owners = [{texts[time] for time in times} for times in parts.values()]
                assert not payload or (all(owners) and sum(map(len, owners)) == 9)
