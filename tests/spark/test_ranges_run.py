"""`tocsin run` and `tocsin backtest` with standing ranges: killed, restarted, asked anew, with other rules."""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from rule_files import load_file
from spark.child import kill, start, tail, wait_until
from spark.test_ranges import Row, day, expected
from spark.test_run import command
from spark.test_run_kafka import begun
from tocsin.cli.main import main
from tocsin.delivery import AlertLog
from tocsin.delivery.alert_json import format_time
from tocsin.run_directory import Progress, Tally, read_dead, read_manifest, read_progress

pytestmark = pytest.mark.spark

FILES, KILLS = 4, 2
SECOND = 1_000_000
STREAMS = """\
streams:
  orders:
    source: {json: {path: in/orders, max_files_per_batch: 1}}
    keys: [symbol]
    arrival: came
    values: {low: {}, high: {}, low_price: {}, high_price: {}, low_index: {}, high_index: {}, threshold: {}}
  trades:
    source: {json: {path: in/trades, max_files_per_batch: 1}}
    keys: [symbol]
    arrival: came
    values: {price: {}, index: {}, volume: {}}
groups:
  - name: desk
    rules:
"""
SOLD = """\
      - alert: Sold
        ranges: trades.price
        weight: trades.volume
        requests: orders
        on: symbol
        annotations: {summary: "{{ $labels.query }}: {{ $value }} of {{ $labels.symbol }}"}
"""
AGAIN = """\
      - alert: Again
        ranges: [trades.price, trades.index]
        weight: trades.volume
        requests: orders
        on: symbol
        within: 20s
        rearm: 3s
        shards: 2
"""
COUNTED = SOLD.replace("        weight: trades.volume\n", "").replace("Sold", "Counted")
# How the oracle is asked for a rule.
ASKED = {"Sold": (1, None, None), "Again": (2, 20 * SECOND, 3 * SECOND), "Counted": (1, None, None)}
ALIVE = "`id` is in use by an active request; terminate that request first"
NO_ID = "`id` must be a string or an integer; got null"
DEAD = {
    "orders": [
        ('{"symbol": "s1", "ts": 1, "threshold": 5}', NO_ID),
        ('{"symbol": "s1", "ts": 1, "id": "x", "low": "soon", "threshold": 5}', "value `low` is not a finite number"),
    ],
    "trades": [
        ("nonsense", "the line is not a JSON object in UTF-8"),
        (
            '{"symbol": "s1", "ts": 1, "price": 1, "index": 1, "volume": 0.5}',
            "`volume` must be an integer from 1 to 2^40; got 0.5",
        ),
        ('{"symbol": "s1", "ts": 1, "price": "NaN", "volume": 2}', "value `price` is not a finite number"),
    ],
}


def usable(seed: int = 7) -> list[tuple[str, Row]]:
    return [(stream, row) for stream, row in day(seed) if not row.get("wrong")]


def write(folder: Path, rows: Sequence[tuple[str, Row]], files: Iterable[int] = range(FILES)) -> None:
    """Write some of the files, of which either stream has one for each micro-batch; dead lines are in the second."""
    last = rows[-1][1]["came"] + 1
    for stream in ("orders", "trades"):
        (folder / "in" / stream).mkdir(parents=True, exist_ok=True)
        for number in files:
            mine = [row for name, row in rows if name == stream and row["came"] * FILES // last == number]
            lines = [json.dumps({name: cell for name, cell in row.items() if cell is not None}) for row in mine]
            lines += [line for line, _ in DEAD[stream]] if number == 1 else []
            path = folder / "in" / stream / f"{number:03}.jsonl"
            path.write_text("\n".join(lines) + "\n")
            os.utime(path, (1_700_000_000 + number,) * 2)  # Spark takes files in order of this time.


def alerts(folder: Path, name: str) -> list[tuple[str, str, str, int, int]]:
    """The alerts of a rule in the log, as the oracle says them; each has an id of its own."""
    found = [alert for _, alert in AlertLog(folder / "run" / "alerts").read() if alert["alert"] == name]
    assert len({alert["id"] for alert in found}) == len(found)
    return sorted(
        (a["labels"]["symbol"], a["labels"]["query"], a["startsAt"], int(a["value"]), int(a["value"] - a["margin"]))
        for a in found
    )


def wanted(rows: Sequence[tuple[str, Row]], rule: str) -> list[tuple[str, str, str, int, int]]:
    reached = expected(rows, *ASKED[rule]).reached
    assert len(reached) > 5
    return sorted((key, query, format_time(ts / SECOND), *numbers) for key, query, ts, *numbers in reached)


def check_whole(folder: Path, rows: Sequence[tuple[str, Row]], rules: Sequence[str]) -> None:
    """The log has what the oracle has, dead rows are there with their reasons, and all numbers add up."""
    for rule in rules:
        assert alerts(folder, rule) == wanted(rows, rule)
    answers = [expected(rows, *ASKED[rule]) for rule in rules]
    dead = Counter((row.stream, row.reason) for row in read_dead(folder / "run"))
    for stream, lines in DEAD.items():
        for line, reason in lines:
            # What no rule can use is shown once; what only a rule refuses, by each of them.
            mine = len(rules) if "must" in reason else 1
            assert dead[stream, reason] == mine
            assert sum(line in row.raw for row in read_dead(folder / "run")) in {0, 1}
    told = read_progress(folder / "run")
    whole = Tally()
    for one in told:
        whole = whole.plus(one.gained)
    assert told[-1].total == whole
    assert whole.rows == {
        stream: sum(name == stream for name, _ in rows) + len(lines) for stream, lines in DEAD.items()
    }
    for stream, parts in whole.counts.items():
        assert parts["received"] == len(rules) * whole.rows[stream]
        assert parts["received"] == sum(number for part, number in parts.items() if part != "received")
    orders, trades = whole.counts["orders"], whole.counts["trades"]
    refused = sum(answer.refused for answer in answers)
    assert orders["quarantined"] == len(rules) * len(DEAD["orders"]) + refused
    assert orders["retained"] == sum(answer.alive for answer in answers)
    assert trades["quarantined"] == len(rules) * len(DEAD["trades"])
    assert trades.get("late", 0) == sum(answer.late for answer in answers)
    assert trades.get("retained", 0) == sum(answer.window for answer in answers)
    assert whole.dead == {"orders": refused + len(rules) + 1, "trades": len(rules) + 2}


@pytest.mark.slow
def test_a_run_killed_at_random_moments_gives_each_alert_once(tmp_path: Path) -> None:
    rows = usable()
    write(tmp_path, rows)
    (tmp_path / "rules.yaml").write_text(STREAMS + SOLD + AGAIN)
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # pytest shows it when the test fails
    draw, log = random.Random(seed), tmp_path / "log"
    for number in range(KILLS):
        goal = begun(tmp_path) + draw.randint(1, 2)
        process = start(command(tmp_path, "--interval", "100ms"), log)
        try:
            # The moment falls before, into or between the writes of offsets, state, alerts, progress and commit.
            assert wait_until(lambda goal=goal: begun(tmp_path) >= goal, process), tail(log)
            time.sleep(draw.uniform(0.0, 2.0))
        finally:
            kill(process)
        if not number:
            done = read_progress(tmp_path / "run")
            assert not done or done[-1].batch < FILES - 1, "the first kill came after the end of the input"
    once = subprocess.run(command(tmp_path, "--once", "--json"), capture_output=True, text=True, check=False)
    assert once.returncode == 0, once.stderr
    check_whole(tmp_path, rows, ["Sold", "Again"])
    told = json.loads(once.stdout)
    assert told["total"]["alerts"] == {rule: {"match": len(wanted(rows, rule))} for rule in ("Sold", "Again")}


def run(session: Any, folder: Path, rules: str) -> Any:
    """Run to the end of what is there, in the session of the tests."""
    from tocsin.spark.run import Options, run

    (folder / "rules.yaml").write_text(STREAMS + rules)
    settings = Options(folder / "run", once=True, master="local[2]")
    nothing: list[Progress] = []
    return run(
        load_file(folder / "rules.yaml"),
        settings,
        threading.Event(),
        nothing.append,
        sessions=lambda: nullcontext(session),
    )


def test_requests_and_rules_may_change_between_runs(spark: Any, tmp_path: Path) -> None:
    rows = usable()
    half = FILES // 2
    write(tmp_path, rows, range(half))
    run(spark, tmp_path, SOLD + AGAIN)
    cut = next(i for i, (_, row) in enumerate(rows) if row["came"] * FILES // (rows[-1][1]["came"] + 1) == half)
    before = expected(rows[:cut], *ASKED["Sold"])
    assert before.alive > 5
    # A rule comes beside the two: they keep the requests that they have, and it has those that come from now on.
    write(tmp_path, rows, range(half, FILES))
    ended = run(spark, tmp_path, SOLD + AGAIN + COUNTED)
    for rule in ("Sold", "Again"):
        assert alerts(tmp_path, rule) == wanted(rows, rule)
    unweighted = [(stream, row | {"volume": 1}) for stream, row in rows[cut:]]
    assert alerts(tmp_path, "Counted") == wanted(unweighted, "Counted")
    manifest = read_manifest(tmp_path / "run")
    assert manifest is not None
    assert manifest.changes == ('rule "Counted": it starts without requests; only new requests count',)
    held = [expected(rows, *ASKED["Sold"]), expected(rows, *ASKED["Again"]), expected(unweighted, 1, None, None)]
    assert ended.progress.total.counts["orders"]["retained"] == sum(answer.alive for answer in held)
    # A rule that counts otherwise forgets its requests and says so; nothing that came before is counted.
    more = day(seed=8)
    again = [(stream, row | {"came": row["came"] + len(rows) + 99}) for stream, row in more if not row.get("wrong")]
    for stream in ("orders", "trades"):
        lines = [json.dumps({k: v for k, v in row.items() if v is not None}) for name, row in again if name == stream]
        (tmp_path / "in" / stream / "later.jsonl").write_text("\n".join(lines) + "\n")
    by_index = SOLD.replace("trades.volume", "trades.index")
    ended = run(spark, tmp_path, by_index + AGAIN)
    manifest = read_manifest(tmp_path / "run")
    assert manifest is not None
    assert manifest.changes == (
        'rule "Sold": it was removed or counts in another way; its requests are dropped',
        'rule "Counted": it was removed or counts in another way; its requests are dropped',
        'rule "Sold": it starts without requests; only new requests count',
    )
    assert alerts(tmp_path, "Again") == wanted([*rows, *again], "Again")
    # A trade whose index is 0 has no weight, and cannot be used by this rule.
    indexed = [(s, row | {"volume": row.get("index")}) for s, row in again if s == "orders" or row["index"] > 0]
    assert alerts(tmp_path, "Sold") == sorted([*wanted(rows, "Sold"), *wanted(indexed, "Sold")])
    held = [expected([*rows, *again], *ASKED["Again"]), expected(indexed, *ASKED["Sold"])]
    counts = ended.progress.total.counts["orders"]
    assert counts["retained"] == sum(answer.alive for answer in held)
    assert counts["received"] == sum(number for part, number in counts.items() if part != "received")


def backtest(*arguments: str | Path) -> str:
    output = io.StringIO()
    with redirect_stdout(output):
        assert main(["backtest", *map(str, arguments)]) == 0
    return output.getvalue()


@pytest.mark.usefixtures("spark")
def test_a_backtest_says_what_the_run_would_have_said_beside_another_version(tmp_path: Path) -> None:
    rows = usable()
    write(tmp_path, rows)
    rules, other = tmp_path / "rules.yaml", tmp_path / "other.yaml"
    rules.write_text(STREAMS + SOLD + AGAIN)
    other.write_text(STREAMS + SOLD + AGAIN.replace("20s", "40s"))
    report = tmp_path / "report.html"
    told = json.loads(backtest(rules, "--against", other, "--run-dir", tmp_path / "run", "--report", report, "--json"))
    for rule in ("Sold", "Again"):
        assert alerts(tmp_path, rule) == wanted(rows, rule)
    wider = expected(rows, 2, 40 * SECOND, 3 * SECOND)
    for said, again in ((told, expected(rows, *ASKED["Again"])), (told["against"], wider)):
        sold = expected(rows, *ASKED["Sold"])
        fired = {rule["alert"]: rule["alerts"] for rule in said["rules"]}
        assert fired == {"Sold": len(sold.reached), "Again": len(again.reached)}
        assert said["streams"]["orders"]["retained"] == sold.alive + again.alive
        assert said["streams"]["trades"]["retained"] == again.window
        # What a version's own rules refuse is its own; what no rule can use is that of all.
        dead = {(row["stream"], row["reason"]): row["count"] for row in said["dead"]}
        assert dead["orders", ALIVE] == sold.refused + again.refused
        assert dead["orders", NO_ID] == 2
        assert dead["trades", "the line is not a JSON object in UTF-8"] == 1
    assert told["rows"] == len(rows) + sum(map(len, DEAD.values()))
    assert len(list(read_dead(tmp_path / "run"))) == sum(row["count"] for row in told["dead"])
    # Alerts are the same if they have name, labels and time in common.
    mine, others = (Counter(one[:3] for one in all_of.reached) for all_of in (expected(rows, *ASKED["Again"]), wider))
    assert len(told["difference"]["only_first"]) == (mine - others).total() > 0
    assert len(told["difference"]["only_second"]) == (others - mine).total()
    text = report.read_text()
    assert all(f"<td>{rule}</td>" in text or f">{rule}<" in text for rule in ("Sold", "Again"))
    assert "Traceback" not in text


@pytest.mark.usefixtures("spark")
def test_a_backtest_tells_people_of_the_same_in_tables(tmp_path: Path) -> None:
    rows = usable()
    write(tmp_path, rows)
    (tmp_path / "rules.yaml").write_text(STREAMS + SOLD)
    text = backtest(tmp_path / "rules.yaml")
    sold = expected(rows, *ASKED["Sold"])
    (line,) = [line for line in text.splitlines() if line.split()[:1] == ["Sold"]]
    assert line.split()[1:3] == [str(len(sold.reached)), str(len({one[0] for one in sold.reached}))]
    assert ALIVE in text
    (orders,) = [line.split() for line in text.splitlines() if line.split()[:1] == ["orders"]]
    (_, received, kept, _, _, unusable, plain) = orders
    assert int(kept) == int(received) - int(unusable) == int(plain)
    assert f"; {sold.alive} active requests of `orders`\n" in text
