"""The dashboard over a large run directory: how long a page takes, while the log is read and when it was.

`python -m benchmarks dashboard --json FILE [--alerts 100000] [--rules 1000] [--repeats 9] [--quick]`. The directory is
made from a seed outside what is measured. `first_paint_ms` is what Chromium says of a page that it has not seen before
(first contentful paint, on loopback); `answer_ms` is the whole answer without a browser; both are medians, with all
numbers beside them. `reading` is measured while the alert log is still being read, `read` when it was.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.conditions import conditions
from benchmarks.dashboard_data import make_run

PAGES = {
    "overview": "/run/big",
    "alerts": "/run/big/alerts",
    "alerts, filtered": "/run/big/alerts?q=press-499&state=resolved",
    "alerts, none found": "/run/big/alerts?q=nosuchthing",
    "rules": "/run/big/rules",
    "rule": "",
    "alert": "/run/big/alert/0000000000000007",
    "streams": "/run/big/streams",
}


@contextmanager
def served(run: Path, index: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Start the command on a free port."""
    command = [sys.executable, "-m", "tocsin", "dashboard", str(run), "--port", "0", "--index-dir", str(index)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            found = re.search(r":(\d+)/", server.stdout.readline())
            assert found
            yield server, int(found[1])
        finally:
            server.terminate()


def answer(port: int, path: str) -> tuple[float, str]:
    """Milliseconds until all of an answer was there, and the answer."""
    begun = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("GET", path)
    text = connection.getresponse().read().decode()
    connection.close()
    return 1000 * (time.perf_counter() - begun), text


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far."""
    parts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(parts[11]) + int(parts[12])) / 100


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def is_read(port: int) -> bool:
    return "reading the run directory" not in answer(port, "/run/big/plan")[1]


def of_answers(port: int, repeats: int) -> dict[str, Any]:
    found = {}
    rule = re.search(r"/run/big/rule/\w+", answer(port, "/run/big/rules")[1])
    for name, path in PAGES.items():
        times = [answer(port, path or (rule[0] if rule else "/run/big"))[0] for _ in range(repeats)]
        found[name] = {"answer_ms": round(median(times), 1), "each": [round(one, 1) for one in times]}
    return found


def first_paint(port: int, repeats: int) -> dict[str, Any] | None:
    """What Chromium says of the overview, in a fresh browser each time; None where there is no Chromium."""
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser is None or driver is None:
        return None
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    times = []
    for _ in range(repeats):
        with TemporaryDirectory() as profile:
            options = Options()
            options.binary_location = browser
            for switch in ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"):
                options.add_argument(switch)
            with webdriver.Chrome(options=options, service=Service(driver)) as started:
                started.get("about:blank")
                started.get(f"http://127.0.0.1:{port}/run/big")
                asked = "return performance.getEntriesByName('first-contentful-paint').map((one) => one.startTime)"
                found: list[float] = []
                stop = time.monotonic() + 30
                while not found and time.monotonic() < stop:
                    found = started.execute_script(asked)
                times += found
    return {"first_paint_ms": round(median(times), 1), "each": [round(one, 1) for one in times]} if times else None


def restart(run: Path, index: Path, repeats: int) -> dict[str, Any]:
    """Measure a start with a complete index: time to the first complete page, and bytes of the log that are read."""
    from tocsin.dashboard import alert_records
    from tocsin.dashboard.store import Store

    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        with served(run, index) as (_, port):
            answer(port, "/run/big")
            times.append(1000 * (time.perf_counter() - begun))
    read, whole = [0], alert_records.read_raw_lines

    def counted(path: Path) -> Iterator[bytes]:
        for raw in whole(path):
            read[0] += len(raw)
            yield raw

    alert_records.read_raw_lines = counted
    begun = time.perf_counter()
    store = Store([run], index)
    store.look()
    look_ms = 1000 * (time.perf_counter() - begun)
    events = store.changes_read
    store.close()
    alert_records.read_raw_lines = whole
    return {
        "first_answer_after_start_ms": round(median(times), 1),
        "first_look_ms": round(look_ms, 1),
        "log_bytes_read": read[0],
        "events": events,
    }


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks dashboard", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--alerts", type=int, default=100_000)
    parser.add_argument("--rules", type=int, default=1_000)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="a small directory, one repeat, no browser")
    given = parser.parse_args(argv)
    alerts, rules, repeats = (500, 20, 1) if given.quick else (given.alerts, given.rules, given.repeats)
    with TemporaryDirectory() as name:
        run = make_run(Path(name) / "big", alerts=alerts, rules=rules)
        index = Path(name) / "index"
        size = sum(path.stat().st_size for path in run.rglob("*") if path.is_file())
        before = conditions()
        with served(run, index) as (server, port):
            reading = answer(port, "/run/big")[0]
            paint_reading = None if given.quick else first_paint(port, 1)
            begun = time.perf_counter()
            while not is_read(port):
                time.sleep(0.2)
            read_s, read_cpu_s = time.perf_counter() - begun, cpu_seconds(server.pid)
            found = of_answers(port, repeats)
            painted = None if given.quick else first_paint(port, repeats)
            memory = resident_bytes(server.pid)
        restarted = restart(run, index, repeats)
    result = {
        "conditions": before,
        "alerts": alerts,
        "rules": rules,
        "bytes": size,
        "reading": {"first_answer_ms": round(reading, 1), "paint": paint_reading, "seconds": round(read_s, 2)},
        "cpu_seconds_until_read": round(read_cpu_s, 2),
        "resident_bytes": memory,
        "restart": restarted,
        "read": {"pages": found, "paint": painted},
    }
    text = json.dumps(result, indent=2)
    print(text)
    if given.json:
        given.json.write_text(text + "\n")
    return 0
