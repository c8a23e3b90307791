"""Four small inputs with their rules, as every engine takes them: columns, files by micro-batch, the oracle's form.

A batch engine, at the end of its input, applies what waits for progress and ends what is silent; a stream waits on.
So each input ends with closing rows: false, at the same time in every stream, for every key, longer after the rest than
any life lasts; where there are late lives, a late one too. Then nothing waits and nothing is open, and all engines must
give the same alerts.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tocsin
from tests.naive.alerts import Rule as NaiveRule
from tests.naive.alerts import naive_alerts
from tests.naive.join import Join, within_bounds
from tocsin.runtime.contract import ALERT_TIMES

SECOND = 1_000_000
START = 1_700_000_000 * SECOND
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COLUMNS = ("alert", "id", "state", "labels", "startsAt", "firesAt", "endsAt", "value", "margin", "witness", "quality")

Table = dict[str, list[Any]]


@dataclass(frozen=True)
class Scenario:
    """One input with one rule; `types` are the Arrow types of columns that are not what Arrow would guess."""

    streams: Mapping[str, Table]
    rule: tocsin.Rule
    naive: NaiveRule
    arrival: str | None
    types: Mapping[str, pa.DataType]

    def local(self, cuts: Sequence[int] = ()) -> list[dict[str, Any]]:
        """What the engine in one process gives."""
        return tocsin.run_local(self.arrays(), self.rule, arrival=self.arrival, cuts=cuts)

    def oracle(self, *, end: bool = True) -> list[dict[str, Any]]:
        """What brute force gives, in its own form; without `end`, as if more might come."""
        alerts = naive_alerts(self.streams, self.naive, arrival=self.arrival, end=end)
        return [{**alert, "key": tuple(_key_text(part) for part in alert["key"])} for alert in alerts]

    def arrays(self) -> dict[str, dict[str, np.ndarray]]:
        """The streams as arrays."""
        return {
            name: {c: np.array(cells, None if c in ("ts", "at") else object) for c, cells in table.items()}
            for name, table in self.streams.items()
        }

    def write(self, folder: Path, files: int) -> None:
        """Write each stream in order of arrival, cut at the same moments into as many Parquet files.

        File i of each stream makes micro-batch i; rows of one moment stay together. A stream without rows between two
        cuts has an empty file there.
        """
        moments = sorted({moment for table in self.streams.values() for moment in table[self.arrival or "ts"]})
        cuts = [moments[len(moments) * i // files] for i in range(1, files)]
        for name, table in self.streams.items():
            (folder / name).mkdir(parents=True)
            arrow = pa.table({c: pa.array(cells, self.types.get(c), from_pandas=False) for c, cells in table.items()})
            part = np.searchsorted(cuts, np.array(table[self.arrival or "ts"]), side="right")
            for i in range(files):
                path = folder / name / f"{i:03d}.parquet"
                pq.write_table(arrow.filter(pa.array(part == i)), path)
                os.utime(path, (1_700_000_000 + i, 1_700_000_000 + i))  # Spark takes files in order of this time.

    def frames(self, session: Any, folder: Path, *, streaming: bool) -> dict[str, Any]:
        """The written streams as DataFrames, one file of each stream per micro-batch."""
        from pyspark.sql.pandas.types import from_arrow_schema

        frames = {}
        for name in self.streams:
            # Read from the file itself: Spark would start a job to learn it.
            schema = from_arrow_schema(pq.read_schema(folder / name / "000.parquet"), prefer_timestamp_ntz=True)
            reader = session.readStream.option("maxFilesPerTrigger", 1) if streaming else session.read
            frames[name] = reader.schema(schema).parquet(str(folder / name))
        return frames


def _key_text(part: Any) -> str:
    return str(part).lower() if isinstance(part, bool) else str(part)


def condensation(machines: int = 3, seconds: int = 60) -> Scenario:
    """Water condenses on a surface: three streams, each shape used, alerts that wait and that keep on."""
    names = ("humidity", "air", "surface")
    streams: dict[str, Table] = {name: {"ts": [], "machine": [], "value": []} for name in names}
    streams["air"] |= {"sensor": [], "batch": []}
    for machine in range(machines):
        for second in [*range(seconds), seconds + 60, seconds + 61]:
            closing = second >= seconds
            wet = not closing and (second + 7 * machine) % 30 < 9 + machine
            values = {
                "air": 20 + 2 * math.sin(0.7 * second + machine) + 4 * wet,
                "humidity": 55 + 3 * math.cos(0.9 * second) + 15 * wet,
                "surface": 1.05 + 0.1 * math.sin(0.3 * second),
            }
            for place, (name, table) in enumerate(streams.items()):
                shift = 0 if closing else (170_000 * machine + 310_000 * place + 37_000 * second * (place + 1)) % SECOND
                table["ts"].append(START + second * SECOND + shift)
                table["machine"].append(f"m{machine}")
                table["value"].append(values[name])
            streams["air"]["sensor"].append(f"s{machine}-{second % 4}")
            streams["air"]["batch"].append(second // 10)
    streams["air"]["value"][5] = None
    streams["humidity"]["value"][11] = math.inf
    text = "ln(humidity/100) + 18.678*air/(257.14+air) - surface > 0"
    rule = tocsin.Rule(
        "condensation", text, within="1500ms", on=["machine"], for_="2s", keep_firing_for="3s", allowed_lateness="20s",
        shapes={"humidity": "increasing", "air": "increasing", "surface": "decreasing"}, labels={"severity": "page"},
    )  # fmt: skip
    naive = NaiveRule(
        Join(names, within_bounds(names, 1_500_000), within=1_500_000), _magnus,
        tuple((name, "value") for name in names), "condensation", ("machine",), 2 * SECOND, 3 * SECOND,
        allowed_lateness_us=20 * SECOND,
    )  # fmt: skip
    return Scenario(streams, rule, naive, None, {"ts": pa.timestamp("us", tz="UTC"), "value": pa.float64()})


def _magnus(values: Mapping[tuple[str, str], Any]) -> tuple[float, bool, float]:
    humidity, air, surface = (float(values[name, "value"]) for name in ("humidity", "air", "surface"))
    margin = math.log(humidity / 100) + 18.678 * air / (257.14 + air) - surface
    return margin, margin > 0, margin


def disorder(machines: int = 4, seconds: int = 50) -> Scenario:
    """Temperature follows load by -2 s to 5 s; rows arrive out of order, some too late; no row is omitted."""
    load: Table = {"ts": [], "at": [], "machine": [], "kw": []}
    temp: Table = {"ts": [], "at": [], "machine": [], "value": [], "note": []}
    for machine in range(machines):
        for second in range(seconds):
            hot = (second * (machine + 2)) % 23 < 7
            time = START + second * SECOND + machine
            for table, delay in ((load, (second * 5 + machine) % 7), (temp, (second * 3 + 2 * machine) % 11)):
                # Machine 3's temperatures of 10 s come 15 s late; every 17th row is beyond the allowed lateness.
                gap = 15 if table is temp and machine == 3 and 20 <= second < 30 else 0
                lost = 40 if second % 17 == 16 and table is load else 0
                table["ts"].append(time)
                table["at"].append(time + (delay + gap + lost) * SECOND)
                table["machine"].append(machine)
            load["kw"].append(0.5 * (second % 9))
            temp["value"].append(0.5 * (second % 5) + (12.0 if hot else 0.0))
            temp["note"].append(f"run {second // 20}")
        for second, delay in ((seconds + 90, 0), (seconds + 92, 0), (seconds + 91, 2)):
            for table in (load, temp):
                table["ts"].append(START + second * SECOND)
                table["at"].append(START + (second + delay) * SECOND)
                table["machine"].append(machine)
            load["kw"].append(9.0)
            temp["value"].append(0.0)
            temp["note"].append("end")
    for column, cells in temp.items():  # one row comes again
        cells.append(cells[8] + 9 * SECOND if column == "at" else cells[8])
    load["machine"][6] = None
    rule = tocsin.Rule(
        "overheat", "temp - 2*load.kw > 3", within={("load", "temp"): ("-2s", "5s")}, on=["machine"],
        allowed_lateness="20s", keep_firing_for="1s", closed="left", shapes={"temp": None, "load.kw": None},
    )  # fmt: skip
    naive = NaiveRule(
        Join(("temp", "load"), {("load", "temp"): (-2 * SECOND, 5 * SECOND)}, "left"), _overheat,
        (("temp", "value"), ("load", "kw")), "overheat", ("machine",), keep_us=SECOND, allowed_lateness_us=20 * SECOND,
    )  # fmt: skip
    return Scenario({"load": load, "temp": temp}, rule, naive, "at", {"machine": pa.int32()})


def _overheat(values: Mapping[tuple[str, str], Any]) -> tuple[Any, bool, Any]:
    value = values["temp", "value"] - 2 * values["load", "kw"]
    return value - 3, value > 3, value


def matches(seconds: int = 40) -> Scenario:
    """Every true combination of two streams, keyed by three columns; times without a zone, whole numbers."""
    columns = ("ts", "site", "line", "night", "value")
    streams: dict[str, Table] = {name: {column: [] for column in columns} for name in ("left", "right")}
    for number, (site, line, night) in enumerate([("a", 1, True), ("a", 2, False), ("b", 1, False), ("b", 1, True)]):
        for second in [*range(seconds), seconds + 30]:
            for place, table in enumerate(streams.values()):
                table["ts"].append(START + second * SECOND + 250_000 * place)
                table["site"].append(site)
                table["line"].append(line)
                table["night"].append(night)
                table["value"].append(0 if second > seconds else (second * (3 + place) + number) % 10)
    streams["right"]["value"][3] = None
    on = ("site", "line", "night")
    rule = tocsin.Rule("both_high", "min(left, right) >= 8", within="1250ms", on=on, emit="all")
    naive = NaiveRule(
        Join(("left", "right"), within_bounds(("left", "right"), 1_250_000), within=1_250_000), _both_high,
        (("left", "value"), ("right", "value")), "both_high", on, allowed_lateness_us=3600 * SECOND, emit="all",
    )  # fmt: skip
    types = {"ts": pa.timestamp("us"), "value": pa.int32(), "line": pa.int16()}
    return Scenario(streams, rule, naive, None, types)


def _both_high(values: Mapping[tuple[str, str], Any]) -> tuple[Any, bool, Any]:
    value = min(values.values())
    return value - 8, value >= 8, value


def peaks(machines: int = 3, seconds: int = 40) -> Scenario:
    """One stream, whose condition is called on what is retained only."""
    table: Table = {"ts": [], "machine": [], "value": []}
    for machine in range(machines):
        for second in [*range(seconds), *range(seconds + 60, seconds + 160, 20)]:
            table["ts"].append(START + second * SECOND + 1000 * machine)
            table["machine"].append(f"m{machine}")
            height = 3 * math.sin(0.21 * second + machine) + math.sin(1.3 * second)
            table["value"].append(0.0 if second >= seconds else round(height, 1))
    text = "abs(level) > 2.5"
    rule = tocsin.Rule(
        "peak", text, within="5s", on=["machine"], shapes={"level": "quasiconvex"}, allowed_lateness="20s"
    )
    naive = NaiveRule(
        Join(("level",), {}, within=5 * SECOND), _peak, (("level", "value"),), "peak", ("machine",),
        allowed_lateness_us=20 * SECOND, shape="quasiconvex",
    )  # fmt: skip
    return Scenario({"level": table}, rule, naive, None, {})


def _peak(values: Mapping[tuple[str, str], Any]) -> tuple[Any, bool, Any]:
    value = abs(values["level", "value"])
    return value - 2.5, value > 2.5, value


SCENARIOS = {"condensation": condensation, "disorder": disorder, "matches": matches, "peaks": peaks}


def plain(alerts: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Alerts of an engine, rows of Spark or dicts, in a form and order that compares; times are microseconds."""
    dicts = [row.asDict(recursive=True) if hasattr(row, "asDict") else row for row in alerts]
    return sorted((_plain(row) for row in dicts), key=repr)


def _plain(row: Mapping[str, Any]) -> tuple[Any, ...]:
    assert list(row) == list(COLUMNS)
    witness = tuple(
        (part["stream"], _micros(part["time"]), tuple(sorted(part["values"].items())), _texts(part["payload"]))
        for part in row["witness"]
    )
    times = {name: _micros(row[name]) for name in ALERT_TIMES}
    changed = {**row, **times, "witness": witness, "labels": tuple(sorted(row["labels"].items()))}
    return tuple(changed[column] for column in COLUMNS)


def _texts(payload: Mapping[str, str] | None) -> Any:
    return None if payload is None else tuple(sorted(payload.items()))


def _micros(time: datetime | None) -> int | None:
    if time is None:
        return None
    aware = time if time.tzinfo else time.replace(tzinfo=UTC)
    return (aware - EPOCH) // timedelta(microseconds=1)
