"""Consistency of a run directory: no fault after a kill, a fault for each lost file, and repairs that lose no alert."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from naive.deliveries import is_loss_possible, undelivered
from run_dirs import ALERTS, QUERY, Crash, CrashError, SyntheticRun, alerts_of, copy_of
from tocsin.delivery import Position, read_status
from tocsin.errors import RunError
from tocsin.run_directory import apply_repair, last_progress, plan_repair, read_facts, read_manifest
from tocsin.run_directory.consistency import RepairPlan, RunFacts

pytest.importorskip("pyspark", reason="needs pyspark: install tocsin[spark]")

BATCHES = range(5)
SINKS = {"fast": 0, "slow": 4, "new": None}


def facts_of(run: SyntheticRun, *, has_new_rules: bool = False) -> RunFacts:
    manifest = read_manifest(run.folder)
    assert manifest is not None
    return read_facts(run.run_dir, manifest, has_new_rules=has_new_rules)


def repair(run: SyntheticRun) -> RepairPlan:
    """Repair a run, and check that no fault is left."""
    manifest = read_manifest(run.folder)
    assert manifest is not None
    facts = facts_of(run)
    plan = plan_repair(facts)
    apply_repair(run.run_dir, plan, facts, manifest)
    assert plan_repair(facts_of(run)).faults == []
    return plan


def cursors(run: SyntheticRun) -> dict[str, tuple[int, int] | None]:
    positions = {name: status["position"] for name, status in read_status(run.run_dir.delivery).items()}
    return {name: None if position is None else (position[0], position[1]) for name, position in positions.items()}


def check_continuation(run: SyntheticRun, batches: int = 2) -> None:
    """Continue a repaired run; every alert of the new micro-batches is still ahead of every cursor."""
    point = facts_of(run).checkpoint
    before, positions = run.log(), cursors(run)
    run.run(range(point.resume, point.resume + batches), SINKS)
    after = run.log()
    first = facts_of(run).first_batch
    repeated = point.resume + first if point.is_planned else None
    assert {batch: after[batch] for batch in before} == before
    for batch in range(point.resume, point.resume + batches):
        new = [alert["id"] for alert in alerts_of(batch)]
        assert after.get(batch + first, []) == new
        if batch + first != repeated:
            assert all(undelivered({batch + first: new}, position) == new for position in positions.values())
    assert plan_repair(facts_of(run)).faults == []


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> SyntheticRun:
    run = SyntheticRun(tmp_path_factory.mktemp("healthy") / "run")
    run.run(BATCHES, SINKS)
    return run


@pytest.fixture
def run(healthy: SyntheticRun, tmp_path: Path) -> SyntheticRun:
    return copy_of(healthy, tmp_path)


def test_plan_has_no_fault_when_the_run_is_healthy(run: SyntheticRun) -> None:
    before = {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()}
    assert repair(run) == RepairPlan()
    assert {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()} == before
    check_continuation(run)


@pytest.mark.parametrize("is_torn", [False, True], ids=["whole", "torn"])
def test_plan_has_no_fault_when_a_run_is_killed_at_any_write(tmp_path: Path, is_torn: bool) -> None:
    whole = SyntheticRun(tmp_path / "whole" / "run")
    whole.run(BATCHES, SINKS)
    writes = whole.crash.done
    assert writes > 30
    for number in range(writes):
        run = SyntheticRun(tmp_path / str(number) / "run", Crash(number, is_torn))
        with pytest.raises(CrashError):
            run.run(BATCHES, SINKS)
        for has_new_rules in (False, True):
            assert plan_repair(facts_of(run, has_new_rules=has_new_rules)).faults == [], number
        again = SyntheticRun(run.folder)
        again.run(range(facts_of(run).checkpoint.resume, BATCHES.stop), SINKS)
        assert again.log() == whole.log()
        assert plan_repair(facts_of(again)).faults == []
        shutil.rmtree(run.folder.parent)


@pytest.mark.parametrize("kept", [0, 1], ids=["no alert", "one alert"])
def test_plan_has_no_fault_when_new_rules_raise_fewer_alerts_in_the_repeated_batch(tmp_path: Path, kept: int) -> None:
    whole = SyntheticRun(tmp_path / "whole" / "run")
    whole.run(BATCHES, SINKS)
    for number in range(whole.crash.done):
        run = SyntheticRun(tmp_path / str(number) / "run", Crash(number))
        with pytest.raises(CrashError):
            run.run(BATCHES, SINKS)
        facts, manifest = facts_of(run, has_new_rules=True), read_manifest(run.folder)
        assert manifest is not None
        apply_repair(run.run_dir, plan_repair(facts), facts, manifest)
        again, first = SyntheticRun(run.folder), facts.checkpoint.resume
        with patch("run_dirs.alerts_of", lambda batch: alerts_of(batch)[:kept]):
            again.run(range(first, first + 2), SINKS)
        assert plan_repair(facts_of(again)).faults == [], number
        assert {batch: len(ids) for batch, ids in again.log().items() if batch >= first and len(ids) > kept} == {}
        shutil.rmtree(run.folder.parent)


def remove(*names: str) -> Callable[[SyntheticRun], None]:
    def change(run: SyntheticRun) -> None:
        for name in names:
            path = run.folder / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return change


def empty(*names: str) -> Callable[[SyntheticRun], None]:
    def change(run: SyntheticRun) -> None:
        for name in names:
            (run.folder / "checkpoint" / name).write_text("")

    return change


def move_cursor(batch: int, line: int) -> Callable[[SyntheticRun], None]:
    def change(run: SyntheticRun) -> None:
        run.write_cursor("fast", (batch, line))

    return change


def damage(name: str) -> Callable[[SyntheticRun], None]:
    def change(run: SyntheticRun) -> None:
        path = run.folder / name
        path.write_bytes(path.read_bytes()[:-9])

    return change


LAST = "checkpoint/offsets/4", "checkpoint/offsets/3", "checkpoint/commits/4", "checkpoint/commits/3"
NEW = f"number the next micro-batch {BATCHES.stop + 1}; its alerts may repeat alerts of the log"
RESTART = "rename `checkpoint` to `checkpoint.damaged`, read all sources from their start without retained rows"
FAULTS = {
    "checkpoint removed": (
        remove("checkpoint"),
        "`checkpoint` is missing, but results up to micro-batch 4 are recorded",
        [RESTART.partition(", ")[2], NEW],
        0,
    ),
    "offsets and commits removed": (
        remove("checkpoint/offsets", "checkpoint/commits"),
        "`checkpoint` has no micro-batch, but results up to micro-batch 4 are recorded",
        [RESTART, NEW],
        0,
    ),
    "two micro-batches rolled back": (
        remove(*LAST),
        "`checkpoint` continues at micro-batch 3, but results up to micro-batch 4 are recorded",
        ["repeat the rows of micro-batches 3 to 4", NEW],
        3,
    ),
    "another checkpoint": (
        lambda run: (run.checkpoint / "metadata").write_text('{"id": "other"}'),
        f"`checkpoint` must belong to query {QUERY}; it belongs to query other",
        [RESTART, NEW],
        0,
    ),
    "empty offsets after the commit": (
        empty("offsets/4"),
        "`checkpoint` has files that Spark cannot use; empty or damaged: offsets/4",
        ["remove commits/4, offsets/4 and plan micro-batch 4", "repeat the rows of micro-batches 4 to 4", NEW],
        4,
    ),
    "empty commit": (
        empty("commits/4"),
        "`checkpoint` has files that Spark cannot use; empty or damaged: commits/4",
        ["remove commits/4 and repeat micro-batch 4"],
        4,
    ),
    "empty offsets and commit": (
        empty("offsets/4", "commits/4"),
        "`checkpoint` has files that Spark cannot use; empty or damaged: commits/4, offsets/4",
        ["remove commits/4, offsets/4 and plan micro-batch 4", "repeat the rows of micro-batches 4 to 4", NEW],
        4,
    ),
    "empty file list of a source": (
        empty("sources/air/4"),
        "`checkpoint` has files that Spark cannot use; empty or damaged: sources/air/4",
        [
            "remove commits/4, offsets/4, sources/air/4 and plan micro-batch 4",
            "repeat the rows of micro-batches 4 to 4",
            NEW,
        ],
        4,
    ),
    "empty state": (
        empty("state/0/1/5.changelog"),
        "`checkpoint` has files that Spark cannot use; empty or damaged: state/0/1/5.changelog",
        ["remove commits/4, state/0/1/5.changelog and repeat micro-batch 4"],
        4,
    ),
    "empty old state": (
        empty("state/0/1/1.changelog"),
        "`checkpoint` has files that Spark cannot use; empty or damaged: state/0/1/1.changelog",
        [
            "remove commits/4, commits/3, commits/2 and 7 more and repeat micro-batch 0",
            "repeat the rows of micro-batches 0 to 4",
            NEW,
        ],
        0,
    ),
    "all offsets empty": (
        empty(*(f"offsets/{batch}" for batch in BATCHES)),
        "`checkpoint` has no intact micro-batch; empty or damaged: offsets/4, offsets/3, offsets/2 and 2 more",
        [RESTART, NEW],
        0,
    ),
    "empty metadata": (
        empty("metadata"),
        "`checkpoint/metadata` has no query id",
        ["write a query id into `checkpoint/metadata`"],
        5,
    ),
    "commit without offsets": (
        remove("checkpoint/offsets/4"),
        "`checkpoint` has files that Spark cannot use; not in order: commits/4",
        ["remove commits/4 and plan micro-batch 4", "repeat the rows of micro-batches 4 to 4", NEW],
        4,
    ),
    "cursor ahead of the log": (
        move_cursor(9, 0),
        "sink fast is at line 1 of micro-batch 9, which the alert log does not have; it ends with micro-batch 4",
        ["let sink fast continue after line 4 of micro-batch 4 of the log"],
        5,
    ),
    "cursor ahead inside a file": (
        move_cursor(2, 100),
        "sink fast is at line 101 of micro-batch 2, which the alert log does not have; it ends with micro-batch 4",
        ["let sink fast continue after line 4 of micro-batch 4 of the log"],
        5,
    ),
    "alert log removed": (
        remove("alerts"),
        "4 files 000000000000.jsonl, 000000000002.jsonl, 000000000003.jsonl and 1 more missing in the alert log "
        "(10 changes of state, sink new has not delivered 10 of them, sink slow has not delivered 4 of them)",
        ["record them as missing and continue without them"],
        5,
    ),
    "alert log and checksums removed": (
        remove("alerts", "checksums.jsonl", "delivery"),
        "the alert log has 0 changes of state; progress has counted 10",
        ["continue without the other 10"],
        5,
    ),
    "alert file truncated": (
        damage("alerts/000000000002.jsonl"),
        "file 000000000002.jsonl not as written: the checksum differs "
        "(3 changes of state, sink new has not delivered 3 of them)",
        ["keep it; sinks deliver each line that is readable and count the others"],
        5,
    ),
    "checksums removed": (
        remove("checksums.jsonl"),
        "4 files 000000000000.jsonl, 000000000002.jsonl, 000000000003.jsonl and 1 more without a line in "
        "`checksums.jsonl`",
        ["record the checksum of the file on disk"],
        5,
    ),
    "progress removed": (
        remove("progress.jsonl"),
        "`progress.jsonl` has no micro-batch, but the alert log has micro-batch 4",
        ["continue with the totals that are left"],
        5,
    ),
}


@pytest.mark.parametrize(("change", "fault", "steps", "resume"), FAULTS.values(), ids=FAULTS)
def test_repair_loses_no_alert_when_one_part_is_lost(
    run: SyntheticRun, change: Callable[[SyntheticRun], None], fault: str, steps: list[str], resume: int
) -> None:
    change(run)
    plan = repair(run)
    assert plan.faults[0] == fault
    assert plan.steps == steps
    assert facts_of(run).checkpoint.resume == resume
    check_continuation(run)


def test_repair_finds_a_damaged_file_when_its_micro_batch_is_repeated_under_a_new_number(run: SyntheticRun) -> None:
    remove("checkpoint/offsets/4", "checkpoint/offsets/3", *(f"checkpoint/commits/{batch}" for batch in (4, 3, 2)))(run)
    damage("alerts/000000000002.jsonl")(run)
    move_cursor(2, 50)(run)
    facts = facts_of(run)
    assert (facts.next_batch, facts.checkpoint.is_planned) == (2, True)
    plan = repair(run)
    assert [fault.split(" ")[0] for fault in plan.faults] == ["`checkpoint`", "file", "sink"]
    check_continuation(run)


def test_totals_continue_from_the_resume_point_when_micro_batches_are_repeated(run: SyntheticRun) -> None:
    remove(*LAST)(run)
    repair(run)
    kept = last_progress(run.folder)
    assert (kept.batch, kept.total.rows, kept.total.alerts) == (5, {"air": 30}, {"Hot": {"firing": sum(ALERTS[:3])}})
    run.run(range(3, 5), SINKS)
    whole = last_progress(run.folder).total
    assert (whole.rows, whole.alerts) == ({"air": 50}, {"Hot": {"firing": sum(ALERTS)}})


def test_totals_start_at_zero_when_the_checkpoint_is_lost(run: SyntheticRun) -> None:
    remove("checkpoint")(run)
    repair(run)
    assert last_progress(run.folder).total.rows == {}
    run.run(range(1), SINKS)
    assert last_progress(run.folder).total.rows == {"air": 10}


def test_cursor_moves_to_the_start_of_the_micro_batch_when_other_rules_repeat_it(run: SyntheticRun) -> None:
    (run.checkpoint / "commits/4").unlink()
    assert plan_repair(facts_of(run)) == RepairPlan()
    plan = plan_repair(facts_of(run, has_new_rules=True))
    assert plan == RepairPlan(cursors={"fast": Position(4, -1)})


def test_cursor_starts_at_the_log_start_when_no_delivery_is_known(run: SyntheticRun) -> None:
    remove("delivery/fast.positions.jsonl")(run)
    move_cursor(9, 0)(run)
    remove("delivery/fast.positions.jsonl")(run)
    plan = repair(run)
    assert plan.cursors == {"fast": None}
    assert plan.steps == ["let sink fast continue at the start of the log"]
    assert read_status(run.run_dir.delivery)["fast"]["position"] is None


def test_metadata_has_a_new_query_id_when_no_id_is_recorded(run: SyntheticRun) -> None:
    manifest = read_manifest(run.folder)
    assert manifest is not None
    replace(manifest, query=None).write(run.folder)
    empty("metadata")(run)
    repair(run)
    assert facts_of(run).checkpoint.query


def test_damaged_checkpoint_stays_beside_the_new_checkpoint_when_it_is_replaced_twice(run: SyntheticRun) -> None:
    for _ in range(2):
        (run.checkpoint / "metadata").write_text('{"id": "other"}')
        repair(run)
        run.run(range(1), SINKS)
        manifest = read_manifest(run.folder)
        assert manifest is not None
        replace(manifest, query="new").write(run.folder)
    assert sorted(path.name for path in run.folder.glob("checkpoint*")) == [
        "checkpoint",
        "checkpoint.damaged",
        "checkpoint.damaged1",
    ]


def test_start_names_the_alert_file_when_it_is_a_folder(run: SyntheticRun) -> None:
    (run.folder / "alerts/000000000009.jsonl").mkdir()
    with pytest.raises(RunError, match=r"alert log: `.*000000000009.jsonl` must be a readable file; is a directory"):
        facts_of(run)


CHANGES = st.lists(
    st.one_of(
        st.builds(move_cursor, st.integers(0, 12), st.integers(-1, 6)),
        st.sampled_from(
            [
                *(empty(f"{kind}/{batch}") for kind in ("offsets", "commits", "sources/air") for batch in BATCHES),
                *(empty(f"state/0/1/{batch + 1}.changelog") for batch in BATCHES),
                *(remove(f"checkpoint/{kind}/{batch}") for kind in ("offsets", "commits") for batch in BATCHES),
                *(remove(f"alerts/{batch:012}.jsonl") for batch in (0, 2, 3, 4)),
                *(damage(f"alerts/{batch:012}.jsonl") for batch in (0, 2, 3, 4)),
                *(remove(name) for name in ("checkpoint", "alerts", "checksums.jsonl", "progress.jsonl", "delivery")),
                empty("metadata"),
            ]
        ),
    ),
    min_size=1,
    max_size=5,
)


@given(CHANGES)
def test_repair_loses_no_alert_when_any_parts_are_lost(
    healthy: SyntheticRun, changes: list[Callable[[SyntheticRun], None]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = copy_of(healthy, Path(folder))
        for change in changes:
            try:
                change(run)
            except FileNotFoundError:
                continue  # An earlier change has removed it.
        facts = facts_of(run)
        point = facts.checkpoint
        recorded = {*facts.files, *({facts.last.batch} if facts.last else ())}
        positions = cursors(run)
        is_loss = is_loss_possible(facts.next_batch, same_rows=point.is_planned, recorded=recorded, cursors=positions)
        plan = plan_repair(facts)
        assert plan.faults or not is_loss
        repair(run)
        check_continuation(run)
