"""`tocsin run` as a process of its own: killed and restarted, taken to its end, watched by Prometheus, stopped."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from delivery.receivers import receiver, status
from rule_files import load_file
from spark import plant
from spark.child import PATIENCE_S, free_port, kill, start, tail, wait_until
from tocsin.delivery import AlertLog
from tocsin.delivery.alert_json import format_time
from tocsin.errors import RunError
from tocsin.run_directory import Progress, Tally, read_dead, read_manifest, read_progress

pytestmark = pytest.mark.spark

SECRET = "hunter2"


@dataclass
class Story:
    """A run that is killed, then taken to its end with `--once`, then watched while all is silent, and stopped."""

    folder: Path
    killed: Progress
    told: dict[str, Any]
    said: str
    scraped: str
    stopped: str
    pages: dict[str, str]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    folder = tmp_path_factory.mktemp("story")
    plant.write(folder)
    log, port = folder / "log", free_port()
    with receiver() as server:
        server.default = status(500, "no")
        url = server.url.replace("//", f"//bell:{SECRET}@")
        sinks = f"sinks:\n  - console: {{}}\n  - webhook: {{url: '{url}/x', headers: {{X-Key: {SECRET}}}}}\n"
        (folder / "rules.yaml").write_text(plant.RULES + sinks + "archive: {path: kept}\n")
        first = start(command(folder, "--interval", "100ms"), log)
        try:
            # The kill comes after the line of a micro-batch: before, in or after its commit.
            assert wait_until(lambda: len(read_progress(folder / "run")) >= 2, first), tail(log)
        finally:
            kill(first)
        killed = read_progress(folder / "run")[-1]
        once = subprocess.run(command(folder, "--once", "--json"), capture_output=True, text=True, check=False)
        assert once.returncode == 0, once.stderr
        third = start(command(folder, "--metrics-port", str(port), "--dashboard", "0"), log)
        try:
            # All input is silent, and the alert that is open ends by silence.
            assert wait_until(lambda: len(alerts(folder, "Pulse")) == 2, third), tail(log)
            wait_until(lambda: 'tocsin_alerts_firing{alert="Pulse"} 0.0' in _scraped(port), third)
            scraped = _scraped(port)
            pages = _pages(re.findall(r"dashboard at (http://\S+)", tail(log, 10_000))[-1], third)
            # As Ctrl-C does, to the whole group; Spark has a handler of its own for it.
            os.killpg(third.pid, signal.SIGINT)
            assert third.wait(PATIENCE_S) == 0, tail(log)
        finally:
            kill(third)
    return Story(folder, killed, json.loads(once.stdout), once.stderr, scraped, tail(log, 1000), pages)


def command(folder: Path, *more: str) -> list[str]:
    fixed = ["--run-dir", str(folder / "run"), "--master", "local[2]", "--conf", "spark.driver.memory=512m"]
    return [sys.executable, "-m", "tocsin", "run", str(folder / "rules.yaml"), *fixed, "--drain", "1s", *more]


def _scraped(port: int) -> str:
    try:
        return str(urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode())
    except OSError:
        return ""


def _pages(address: str, process: subprocess.Popen[bytes]) -> dict[str, str]:
    """Some pages of the dashboard that a run has started, once it has read the run directory."""
    found: dict[str, str] = {"address": address}
    wait_until(lambda: "reading the run" not in _page(f"{address}run/run"), process)
    for name in ("", "/alerts", "/rules", "/streams", "/plan"):
        found[name] = _page(f"{address}run/run{name}")
    (rule,) = re.findall(r"/run/run/rule/\w+(?=\">Warm<)", found["/rules"])
    return found | {"rule": _page(address + rule.lstrip("/"))}


def _page(address: str) -> str:
    return str(urllib.request.urlopen(address, timeout=60).read().decode())


def alerts(folder: Path, name: str) -> list[dict[str, Any]]:
    """The alerts of the log by key, in the order of their states."""
    found = [alert for _, alert in AlertLog(folder / "run" / "alerts").read() if alert["alert"] == name]
    return sorted(found, key=lambda alert: sorted(alert["labels"].items()))


def all_rows() -> dict[str, int]:
    return {name: len(rows) + len(plant.DEAD.get(name, [])) for name, rows in plant.readings().items()}


def check_alerts(folder: Path, pulse: list[str], checkpoint: Path | None = None) -> None:
    """The log has each alert once, with its annotations, and they are those of the engine in one process."""
    found = alerts(folder, "Warm")
    assert [plant.plain(alert) for alert in found] == plant.expected(load_file(folder / "rules.yaml"), checkpoint)
    assert len(found) > 12
    first = found[0]
    air, surface = (part["values"] for part in first["witness"])
    assert first["annotations"] == {"summary": f"m0: {air['value']:g} over {surface['heat']:g}"}
    assert [alert["state"] for alert in alerts(folder, "Pulse")] == pulse


@pytest.mark.process
def test_a_run_that_was_killed_gives_each_alert_once_and_as_the_engine_in_one_process(story: Story) -> None:
    assert sum(story.killed.total.rows.values()) < sum(all_rows().values()), "the kill came after the end of the input"
    check_alerts(story.folder, ["firing", "resolved"], story.folder / "run" / "checkpoint")
    manifest = read_manifest(story.folder / "run")
    assert manifest is not None
    assert len(manifest.started) == 3


@pytest.mark.process
def test_a_run_shows_itself_in_a_browser_and_its_pages_end_with_it(story: Story) -> None:
    assert "running; micro-batch" in story.pages[""]
    assert "Some of this run cannot be read" not in story.pages[""]
    assert all(name in story.pages["/rules"] for name in ("Warm", "Pulse", "AnyAir"))
    assert all(name in story.pages["/streams"] for name in ("air", "surface", "pulse", "nonsense"))
    assert 'aria-label="Proofs"' in story.pages["rule"]
    with pytest.raises(OSError, match="refused"):
        _page(story.pages["address"])


@pytest.mark.process
def test_what_is_silent_is_ended_by_the_clock_at_its_own_time(story: Story) -> None:
    firing, resolved = alerts(story.folder, "Pulse")
    last = plant.START + plant.SECONDS - 1
    assert firing["startsAt"] == resolved["startsAt"] == format_time(last)
    assert resolved["endsAt"] == format_time(last + 2)


@pytest.mark.process
def test_every_row_is_accounted_for(story: Story) -> None:
    dead = list(read_dead(story.folder / "run"))
    assert Counter((row.stream, row.raw) for row in dead) == Counter(
        (name, line) for name, lines in plant.DEAD.items() for line in lines
    )
    assert all(row.reason for row in dead)
    whole = story.told["total"]
    assert whole["rows"] == all_rows()
    assert whole["dead"] == {name: len(lines) for name, lines in plant.DEAD.items()}
    for name, counts in whole["counts"].items():
        assert counts["received"] == sum(number for part, number in counts.items() if part != "received")
        # `air` stands in two key sets, and is counted in both.
        assert counts.get("quarantined", 0) == len(plant.DEAD.get(name, [])) * (1 + (name == "air"))


@pytest.mark.process
def test_the_archive_has_every_row_once(story: Story) -> None:
    for name, rows in plant.readings().items():
        table = pq.read_table(story.folder / "kept" / name).to_pylist()
        kept = [row for row in table if row["tocsin_reason"] is None]
        value = "heat" if name == "surface" else "value"
        payload = {row["tocsin_payload"] for row in kept}
        assert payload == ({f'{{"sensor":"s{n}"}}' for n in (0, 1)} if name == "air" else {None})
        assert sorted((row["machine"], row["ts"].timestamp(), row[value]) for row in kept) == sorted(
            (row["machine"], float(row["ts"]), row[value]) for row in rows
        )
        assert [row["tocsin_raw"] for row in table if row["tocsin_reason"]] == plant.DEAD.get(name, [])


@pytest.mark.process
def test_progress_has_each_batch_and_totals_that_add_up(story: Story) -> None:
    found = read_progress(story.folder / "run")
    assert [one.batch for one in found] == list(range(len(found)))
    with_rows = [one.batch for one in found if sum(one.gained.rows.values())]
    # Spark logs the next file of a source before it plans the micro-batch. If the kill falls between the two, the next
    # micro-batch reads two files of that source.
    assert with_rows in (list(range(plant.FILES)), list(range(plant.FILES - 1)))
    whole = Tally()
    for one in found:
        whole = whole.plus(one.gained)
    total = found[-1].total
    for quantity in ("rows", "dead", "counts", "alerts", "batches", "state_bytes"):
        assert getattr(total, quantity) == getattr(whole, quantity)
    assert story.told["batch"] in (with_rows[-1], with_rows[-1] + 1)
    assert story.told["firing"] == {"Warm": 0, "Pulse": 1}
    lines = re.findall(r"INFO tocsin.run: batch=(\d+) rows=\d+ .* seconds=[\d.]+ detect_ms=\d+", story.said)
    assert lines
    assert int(lines[-1]) == story.told["batch"]


@pytest.mark.process
def test_a_sink_that_answers_500_stops_nothing_and_is_not_waited_for_for_ever(story: Story) -> None:
    sinks = story.told["sinks"].values()
    hook, console = (next(sink for sink in sinks if sink["kind"] == kind) for kind in ("webhook", "console"))
    assert (story.told["delivered"], hook["delivered"], hook["failing"]) == (False, 0, True)
    assert console["delivered"] == len(alerts(story.folder, "Warm")) + 1
    assert "not delivered within 1 s, left to the next run: webhook-" in story.said
    assert "SIGINT received; stopping after the current micro-batch" in story.stopped
    assert "stopped by SIGINT; " in story.stopped
    assert "Traceback" not in story.stopped


@pytest.mark.process
def test_a_run_says_where_it_stands_before_its_first_micro_batch(story: Story) -> None:
    first, spark, opened, batch = [line for line in story.said.splitlines() if " INFO tocsin.run: " in line][:4]
    assert first.endswith(
        f" run directory {story.folder / 'run'} continues after micro-batch {story.killed.batch}; metrics are not "
        "served"
    )
    assert spark.endswith(" starting Spark at local[2]")
    read = ", ".join(f"{name} from json {story.folder / 'in' / name}" for name in ("air", "surface", "pulse"))
    assert f" streams are open: {read}; the first micro-batch begins; " in opened
    assert " batch=" in batch


@pytest.mark.process
def test_no_secret_is_on_disk_or_said(story: Story) -> None:
    files = [path for path in (story.folder / "run").rglob("*") if path.is_file()]
    assert len(files) > 20
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
    assert SECRET not in json.dumps(story.told) + story.said + story.scraped + story.stopped


@pytest.mark.process
def test_what_prometheus_reads_is_what_the_run_directory_has(story: Story) -> None:
    from tocsin.runtime.metrics import METRICS

    numbers = dict(re.findall(r"^(\w+(?:\{[^}]*\})?) (\S+)$", story.scraped, re.MULTILINE))
    progress = read_progress(story.folder / "run")[-1]
    for stream, rows in progress.total.rows.items():
        assert float(numbers[f'tocsin_rows_received_total{{stream="{stream}"}}']) == rows
        for part, metric in (("omitted", "omitted"), ("late", "late_dropped"), ("quarantined", "quarantined")):
            counted = progress.total.counts[stream].get(part, 0)
            assert float(numbers[f'tocsin_rows_{metric}_total{{stream="{stream}"}}']) == counted
        retained = progress.total.counts[stream].get("retained", 0)
        assert float(numbers[f'tocsin_rows_retained{{stream="{stream}"}}']) == retained
        newest = float(numbers[f'tocsin_newest_event_timestamp_seconds{{stream="{stream}"}}'])
        assert newest == progress.newest_us[stream] / 1e6
    for alert, states in progress.total.alerts.items():
        for state, number in states.items():
            assert float(numbers[f'tocsin_alerts_total{{alert="{alert}",state="{state}"}}']) == number
    assert numbers['tocsin_alerts_firing{alert="Pulse"}'] == "0.0"
    assert float(numbers["tocsin_state_bytes"]) == progress.total.state_bytes
    # No rule of this run waits, and none has a budget of memory or of processor time.
    others = {"tocsin_wait_seconds", "tocsin_recall_estimated"}
    others |= {f"tocsin_memory_recall_{name}" for name in ("predicted", "predicted_low", "predicted_high", "measured")}
    others |= {"tocsin_memory_error_predicted", "tocsin_memory_error_reached"}
    others |= {"tocsin_cpu_rows_processed_ratio", "tocsin_cpu_recall_ratio"}
    # Its rows are of 2023, so they have no lag, and files have no broker.
    others |= {"tocsin_lag_seconds", "tocsin_source_up"}
    # Arrival times are unknown, so no row has a delay.
    others |= {"tocsin_memory_share", "tocsin_rows_by_delay_total"}
    names = {metric.public_name for metric in METRICS if metric.exported}
    assert names - {re.sub(r"\{.*|_count$", "", name) for name in numbers} == others


class InProcess:
    """Runs inside the session of the tests, so that no JVM is started."""

    def __init__(self, session: Any, folder: Path) -> None:
        self.session, self.folder, self.seen = session, folder, list[Progress]()
        plant.write(folder)
        self.rules(plant.RULES)

    def rules(self, text: str) -> None:
        (self.folder / "rules.yaml").write_text(text)

    def run(self, *, stop_after: int | None = None, **options: Any) -> Any:
        from tocsin.spark.run import Options, run

        stop = threading.Event()

        def report(progress: Progress) -> None:
            self.seen.append(progress)
            if len(self.seen) == stop_after:
                stop.set()

        settings = Options(self.folder / "run", once=True, master="local[2]", **options)
        file = load_file(self.folder / "rules.yaml")
        return run(file, settings, stop, report, sessions=lambda: nullcontext(self.session))


@pytest.fixture
def inside(spark: Any, tmp_path: Path) -> InProcess:
    return InProcess(spark, tmp_path)


def test_a_run_is_stopped_fails_is_refused_and_goes_on_each_time(inside: InProcess) -> None:
    place = inside.folder / "run"
    # Stopped: the micro-batch that runs is finished, and no other begun.
    ended = inside.run(stop_after=1)
    assert (ended.stopped, ended.delivered, ended.progress.batch) == (True, True, 0)
    assert {path.name for path in (place / "checkpoint" / "commits").glob("[0-9]*")} == {"0"}
    # Failed: the next alert file cannot be written, because a folder has its temporary name.
    (place / "alerts" / ".000000000001.jsonl.tmp").mkdir()
    with pytest.raises(RunError, match=r"000000000001.jsonl.tmp: is a directory \(details: .*spark.log\)$"):
        inside.run()
    (place / "alerts" / ".000000000001.jsonl.tmp").rmdir()
    # Refused by the operator itself; its words come out of a stack of two languages.
    manifest = (place / "manifest.json").read_text()
    (place / "manifest.json").write_text(manifest.replace('"buckets": 2', '"buckets": 3'))
    with pytest.raises(
        RunError, match=r"^the state in the checkpoint must have the number of buckets 3; got 2: use the earlier"
    ):
        inside.run()
    (place / "manifest.json").write_text(manifest)
    assert not inside.run().stopped
    assert [one.batch for one in inside.seen] == list(range(plant.FILES))
    check_alerts(inside.folder, ["firing"])


def test_run_keeps_its_partitions_when_the_setting_has_changed(
    inside: InProcess, caplog: pytest.LogCaptureFixture
) -> None:
    inside.run(stop_after=1)
    inside.run(conf={"spark.sql.shuffle.partitions": "3"})
    assert "`spark.sql.shuffle.partitions` has no effect: the run keeps its 2 partitions; got 3" in caplog.messages
    assert json.loads((inside.folder / "run" / "manifest.json").read_text())["partitions"] == 2
    check_alerts(inside.folder, ["firing"])


def test_a_busy_port_and_a_folder_elsewhere_are_one_sentence(inside: InProcess) -> None:
    with receiver() as server:
        port = server.server_address[1]
        with pytest.raises(RunError, match=f"`--metrics-port` {port} cannot be opened on 127.0.0.1; address"):
            inside.run(metrics_port=port)
    inside.rules(plant.RULES + "archive: {path: 's3a://bucket/x'}\n")
    with pytest.raises(RunError, match="archive: `path` must be a directory that driver and workers share; got"):
        inside.run()


@pytest.fixture
def small_results(spark: Any) -> Iterator[None]:
    """Let the driver collect no more than 1 MiB; a stage takes the setting when it begins."""
    settings = spark.sparkContext._jsc.sc().conf()
    settings.set("spark.driver.maxResultSize", "1m")
    yield
    settings.remove("spark.driver.maxResultSize")


@pytest.mark.usefixtures("small_results")
def test_dead_rows_beyond_what_the_driver_may_collect_are_each_there_once(inside: InProcess) -> None:
    place, batch = inside.folder / "run", 2
    long = {f"{number:02}{'x' * 50_000}" for number in range(60)}
    with (inside.folder / "in" / "air" / f"{batch:03}.jsonl").open("a") as file:
        file.writelines(f"{text}\n" for text in long)
    os.utime(file.name, (plant.START + batch, plant.START + batch))
    # Its micro-batch is done twice: at first its line of progress cannot be written.
    inside.run(stop_after=batch)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tocsin.run_directory.progress.append_line", _full)
        with pytest.raises(RunError, match="no space left on device"):
            inside.run()
    ended = inside.run()
    assert Counter(row.raw for row in read_dead(place)) == Counter(
        [*long, *(line for lines in plant.DEAD.values() for line in lines)]
    )
    assert ended.progress.total.dead == {"air": len(long) + len(plant.DEAD["air"]), "surface": 1}
    assert {path.suffix for path in (place / "dead").iterdir()} == {".jsonl"}
    check_alerts(inside.folder, ["firing"])


def _full(path: Path, line: bytes) -> None:
    raise OSError(errno.ENOSPC, "No space left on device", str(path))
