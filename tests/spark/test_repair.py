"""Runs that lose their checkpoint, alert log or cursor: the start fails, and `--repair` delivers every alert."""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from spark import plant
from spark.test_run import InProcess
from tocsin.delivery import AlertLog
from tocsin.errors import RunError
from tocsin.run_directory import read_manifest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

Change = tuple[str, str]


@dataclass
class Repaired:
    """Result of one fault: the error of the start, the messages of the repair, and the alerts around the repair."""

    error: str
    messages: list[str]
    before: dict[int, list[Change]]
    after: dict[int, list[Change]]
    delivered: set[Change]


@pytest.fixture(scope="module")
def inside(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    from tocsin.spark.sources.data_sources import NAMED_SOURCES

    before = {name: spark.conf.get(name, None) for name in NAMED_SOURCES}
    for name, value in NAMED_SOURCES.items():
        spark.conf.set(name, value)
    run = InProcess(spark, tmp_path_factory.mktemp("repair"))
    run.rules(plant.RULES + "sinks:\n  - log: {path: copy}\n")
    yield run
    for name, value in before.items():
        spark.conf.unset(name) if value is None else spark.conf.set(name, value)


@pytest.fixture(scope="module")
def story(inside: InProcess) -> dict[str, Repaired]:
    """Cause all faults in one run directory, one after another; return the result of each fault."""
    inside.run()
    checkpoint = inside.folder / "run" / "checkpoint"

    def roll_back() -> None:
        for kind in ("offsets", "commits"):
            for path in (checkpoint / kind).iterdir():
                if path.name.isdigit() and int(path.name) >= 2:
                    path.unlink()

    def empty_newest_offsets() -> None:
        newest(checkpoint / "offsets").write_text("")

    def move_cursor() -> None:
        (path,) = (inside.folder / "run" / "delivery").glob("*.json")
        path.write_text(json.dumps(json.loads(path.read_text()) | {"position": [99, 0]}))

    faults = {
        "rolled back": roll_back,
        "empty offsets": empty_newest_offsets,
        "cursor": move_cursor,
        "alert log": lambda: shutil.rmtree(inside.folder / "run" / "alerts"),
        # Micro-batches that have read control rows, whose files Spark has deleted.
        "rolled back far": roll_back,
        "emptied": lambda: [shutil.rmtree(path) if path.is_dir() else path.unlink() for path in checkpoint.iterdir()],
    }
    return {name: repaired(inside, break_run) for name, break_run in faults.items()}


def repaired(inside: InProcess, break_run: Callable[[], object]) -> Repaired:
    before = log_of(inside.folder / "run" / "alerts")
    break_run()
    with pytest.raises(RunError, match="its parts must fit together; ") as caught:
        inside.run()
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("tocsin.run")
    logger.addHandler(handler)
    try:
        ended = inside.run(repair=True)
    finally:
        logger.removeHandler(handler)
    assert ended.delivered
    shown = [message.removeprefix("repair: ") for message in messages if message.startswith("repair: ")]
    delivered = {change for changes in log_of(inside.folder / "copy").values() for change in changes}
    return Repaired(str(caught.value), shown, before, log_of(inside.folder / "run" / "alerts"), delivered)


def log_of(folder: Path) -> dict[int, list[Change]]:
    found: dict[int, list[Change]] = {}
    for position, alert in AlertLog(folder).read():
        found.setdefault(position.batch, []).append((alert["id"], alert["state"]))
    return found


def newest(folder: Path) -> Path:
    return max((path for path in folder.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))


def changes(log: dict[int, list[Change]], first: int = 0) -> list[Change]:
    return sorted(change for batch, found in log.items() if batch >= first for change in found)


@pytest.mark.parametrize("fault", ["rolled back", "empty offsets", "cursor", "alert log", "emptied"])
def test_start_fails_and_names_the_repair_when_a_part_is_lost(story: dict[str, Repaired], fault: str) -> None:
    expected = {
        "rolled back": "`checkpoint` continues at micro-batch 2, but results up to micro-batch 3 are recorded",
        "empty offsets": r"`checkpoint` has files that Spark cannot use; empty or damaged: offsets/\d+",
        "cursor": r"sink log-\w+ is at line 1 of micro-batch 99, which the alert log does not have; it ends with",
        "alert log": r"files 000000000000\.jsonl, .* missing in the alert log \(\d+ changes of state\)",
        "emptied": r"`checkpoint` has no micro-batch, but results up to micro-batch \d+ are recorded",
    }
    assert re.search(expected[fault], story[fault].error)
    assert ": start again with `--repair` to " in story[fault].error
    assert story[fault].messages[0].startswith("fault: ")
    assert story[fault].messages[-1].startswith("done: ")


def test_no_alert_file_is_replaced_and_all_alerts_are_delivered_when_micro_batches_are_repeated(
    story: dict[str, Repaired],
) -> None:
    for fault in ("rolled back", "empty offsets", "rolled back far", "emptied"):
        one = story[fault]
        assert {batch: one.after[batch] for batch in one.before} == one.before
        assert one.delivered >= set(changes(one.after))
    rolled_back = story["rolled back"]
    assert changes(rolled_back.after, first=5) == changes(rolled_back.before, first=2)
    assert min(batch for batch in rolled_back.after if batch > 3) == 5


def test_all_alerts_are_raised_again_when_the_checkpoint_is_emptied(story: dict[str, Repaired]) -> None:
    again = {batch: found for batch, found in story["emptied"].after.items() if batch not in story["emptied"].before}
    assert set(changes(again)) == set(changes(story["rolled back"].before))


def test_run_has_no_fault_when_it_was_repaired(
    story: dict[str, Repaired], inside: InProcess, caplog: pytest.LogCaptureFixture
) -> None:
    manifest = read_manifest(inside.folder / "run")
    assert story
    assert manifest is not None
    stored = json.loads((inside.folder / "run" / "checkpoint" / "metadata").read_text())
    assert manifest.query == stored["id"]
    log = log_of(inside.folder / "run" / "alerts")
    with caplog.at_level(logging.WARNING, logger="tocsin.run"):
        assert not inside.run(repair=True).stopped
    assert "has no fault; nothing was changed" in caplog.text
    after = log_of(inside.folder / "run" / "alerts")
    assert {batch: after[batch] for batch in log} == log
