"""Consistency: comparison of checkpoint, progress, alert log, checksums and sink cursors before a start.

A lost, restored or damaged component leaves the other components unchanged. Without the comparison Spark then
repeats micro-batches with other rows under numbers that the alert log has already, and sinks skip them.

Algorithm: `read_facts` collects the facts, `plan_repair` is a pure function from facts to faults and repair steps.
The number of a micro-batch in the run directory is the number of Spark plus `first_batch` of the manifest. A repair
moves `first_batch`, so that new results get numbers above all recorded numbers. No alert file is overwritten, and the
results are ahead of every cursor.
Guarantee: a run that was killed at any moment has no fault, and neither has a run after its repair. Every alert that
is logged after a repair is delivered; alerts of repeated micro-batches are delivered again with the same identity.
Cost: each start reads the alert log once for its checksums.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tocsin.delivery.alert_log import AlertLog, Position, parse_batch
from tocsin.delivery.sink_cursor import POSITIONS_SUFFIX, read_status
from tocsin.errors import RunError
from tocsin.run_directory.checkpoint import METADATA, Checkpoint, read_checkpoint
from tocsin.run_directory.checksums import UNKNOWN, Checksum, measure_file
from tocsin.run_directory.layout import CHECKPOINT, RunDir
from tocsin.run_directory.manifest import Manifest
from tocsin.run_directory.progress import Progress, last_progress, read_progress

_ROWS = re.compile(r"(\d{12})\.jsonl")
_SHOWN = 3
_START = Position(-1, -1)


@dataclass(frozen=True)
class RunFacts:
    """State of a run directory on disk.

    Attributes
    ----------
    checkpoint
        Where Spark resumes.
    query, first_batch
        Query id and number of Spark's micro-batch 0, as in the manifest.
    files
        Files of the alert log by number, with the alerts that can be read.
    listed
        Recorded checksums by file name.
    rows
        Newest number of a file of dead or late rows; -1 without files.
    last, before
        Newest line of progress, and the newest line below the next micro-batch.
    cursors
        Position of each sink; `_START` at the start of the log.
    delivered
        Positions that each sink reached, oldest first.
    has_new_rules
        Whether the rules or the package changed since the last start.
    """

    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    query: str | None = None
    first_batch: int = 0
    files: Mapping[int, Checksum] = field(default_factory=dict)
    listed: Mapping[str, Checksum] = field(default_factory=dict)
    rows: int = -1
    last: Progress | None = None
    before: Progress | None = None
    cursors: Mapping[str, Position] = field(default_factory=dict)
    delivered: Mapping[str, Sequence[Position]] = field(default_factory=dict)
    has_new_rules: bool = False

    @property
    def next_batch(self) -> int:
        """Number of the next micro-batch in the run directory."""
        return self.checkpoint.resume + self.first_batch

    @property
    def recorded(self) -> int:
        """Number of the newest micro-batch with results in the run directory; -1 without results."""
        listed = (parse_batch(name) for name in self.listed)
        progress = -1 if self.last is None else self.last.batch
        return max([progress, self.rows, *self.files, *(batch for batch in listed if batch is not None)])

    @property
    def is_foreign(self) -> bool:
        """Whether the checkpoint belongs to another query."""
        is_other = None not in (self.query, self.checkpoint.query) and self.query != self.checkpoint.query
        return is_other and not (self.checkpoint.is_empty and self.recorded < 0)

    def is_rewritten(self, batch: int) -> bool:
        """Return whether the next micro-batch repeats `batch` with the same rows, and replaces its files."""
        is_newest = batch == self.next_batch == self.recorded
        return is_newest and self.checkpoint.is_planned and not self.is_foreign


@dataclass
class RepairPlan:
    """Faults of a run directory, and the steps that repair them.

    Attributes
    ----------
    faults, steps
        Texts for the user.
    removals, restores_metadata, replaces_checkpoint
        Steps for the checkpoint: removed files, a new file `metadata`, or a new checkpoint.
    first_batch, before
        New number of Spark's micro-batch 0, and the progress whose totals continue; None if the numbers stay.
    cursors
        New positions of sinks; a sink with None starts at the beginning of the log.
    checksums
        Lines to append to the list.
    last
        Number for a line of progress that replaces lost lines; None without lost lines.
    """

    faults: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    removals: tuple[str, ...] = ()
    restores_metadata: bool = False
    replaces_checkpoint: bool = False
    first_batch: int | None = None
    before: Progress | None = None
    cursors: dict[str, Position | None] = field(default_factory=dict)
    checksums: list[Checksum] = field(default_factory=list)
    last: int | None = None

    def add(self, fault: str, step: str) -> None:
        """Add a fault and its repair."""
        self.faults.append(fault)
        self.steps.append(step)


def read_facts(run_dir: RunDir, manifest: Manifest, *, has_new_rules: bool) -> RunFacts:
    """Read a run directory that this process holds."""
    checkpoint = read_checkpoint(run_dir.checkpoint)
    log = AlertLog(run_dir.alerts.folder)
    listed = run_dir.checksums.read()
    cursors = {name: _cursor_position(status) for name, status in read_status(run_dir.delivery).items()}
    last, next_batch = last_progress(run_dir.folder), checkpoint.resume + manifest.first_batch
    before = run_dir.progress().before(next_batch)
    if before is None and last is not None:
        # The end of the file has newer micro-batches only.
        earlier = (one for one in read_progress(run_dir.folder) if one.batch < next_batch)
        before = max(earlier, default=None, key=lambda one: one.batch)
    return RunFacts(
        checkpoint=checkpoint,
        query=manifest.query,
        first_batch=manifest.first_batch,
        files={batch: _measure_alert_file(log, path, listed.get(path.name)) for batch, path in log.batches()},
        listed=listed,
        rows=max(_newest_number(run_dir.dead.folder), _newest_number(run_dir.late.folder)),
        last=last,
        before=before,
        cursors=cursors,
        delivered={name: _read_positions(run_dir.delivery / f"{name}{POSITIONS_SUFFIX}") for name in cursors},
        has_new_rules=has_new_rules,
    )


def format_repair_needed(run_dir: RunDir, plan: RepairPlan) -> str:
    """Return the message of a start that needs a repair."""
    return (
        f"run directory {run_dir.folder}: its parts must fit together; {'; '.join(plan.faults)}: "
        f"start again with `--repair` to {'; '.join(plan.steps)}"
    )


def plan_repair(facts: RunFacts) -> RepairPlan:
    """Compare the facts; a run whose plan has no faults continues."""
    plan = RepairPlan()
    _check_checkpoint(facts, plan)
    _check_alert_files(facts, plan)
    _check_progress(facts, plan)
    _check_cursors(facts, plan)
    return plan


def _check_checkpoint(facts: RunFacts, plan: RepairPlan) -> None:
    found, checkpoint = facts.checkpoint, f"`{CHECKPOINT}`"
    is_behind = facts.recorded >= facts.next_batch and not facts.is_rewritten(facts.recorded)
    if found.is_lost or facts.is_foreign or (found.is_empty and is_behind):
        if facts.is_foreign:
            fault = f"{checkpoint} must belong to query {facts.query}; it belongs to query {found.query}"
        elif found.is_lost:
            fault = f"{checkpoint} has no intact micro-batch; empty or damaged: {_format_names(found.unreadable)}"
        else:
            gap = "has no micro-batch" if found.is_there else "is missing"
            fault = f"{checkpoint} {gap}, but results up to micro-batch {facts.recorded} are recorded"
        rename = f"rename {checkpoint} to `{CHECKPOINT}.damaged`, " if found.is_there else ""
        plan.add(fault, f"{rename}read all sources from their start without retained rows")
        plan.replaces_checkpoint = True
        _renumber(facts, plan, resume=0, before=None)
        return
    if METADATA in found.unreadable:
        plan.add(f"`{CHECKPOINT}/{METADATA}` has no query id", f"write a query id into `{CHECKPOINT}/{METADATA}`")
        plan.restores_metadata = True
    if found.removals:
        damaged = [name for name in found.unreadable if name != METADATA]
        fault = (
            f"empty or damaged: {_format_names(damaged)}"
            if damaged
            else f"not in order: {_format_names(found.removals)}"
        )
        again = "repeat" if found.is_planned else "plan"
        step = f"remove {_format_names(found.removals)} and {again} micro-batch {facts.next_batch}"
        plan.add(f"{checkpoint} has files that Spark cannot use; {fault}", step)
        plan.removals = found.removals
    if is_behind:
        plan.add(
            f"{checkpoint} continues at micro-batch {facts.next_batch}, "
            f"but results up to micro-batch {facts.recorded} are recorded",
            f"repeat the rows of micro-batches {facts.next_batch} to {facts.recorded}",
        )
        _renumber(facts, plan, found.resume, facts.before)


def _renumber(facts: RunFacts, plan: RepairPlan, resume: int, before: Progress | None) -> None:
    """Assign numbers above all recorded results to new results; the number between them has a line of progress."""
    if facts.recorded < 0:
        return
    number = facts.recorded + 2
    plan.first_batch, plan.before = number - resume, before
    plan.steps.append(f"number the next micro-batch {number}; its alerts may repeat alerts of the log")


def _check_alert_files(facts: RunFacts, plan: RepairPlan) -> None:
    listed = {batch: one for name, one in facts.listed.items() if (batch := parse_batch(name)) is not None}
    missing, damaged, unlisted = [], [], []
    for batch in sorted({*listed, *facts.files}):
        known, file = listed.get(batch), facts.files.get(batch)
        if facts.is_rewritten(batch):
            continue
        if file is None:
            assert known is not None
            if known.size is not None:
                missing.append(Checksum(known.file, known.alerts))
        elif known is None or known.size is None:
            unlisted.append(file)
        elif (known.size, known.crc32) != (file.size, file.crc32):
            # Cursors count the lines that were written, also the lines that are lost.
            damaged.append(file._replace(alerts=max(known.alerts, file.alerts)))
    if missing:
        fault = f"{_format_files(missing)} missing in the alert log ({_format_undelivered(missing, facts.cursors)})"
        plan.add(fault, f"record {_pronoun(missing)} as missing and continue without {_pronoun(missing)}")
    if damaged:
        undelivered = _format_undelivered(damaged, facts.cursors)
        fault = f"{_format_files(damaged)} not as written: the checksum differs ({undelivered})"
        plan.add(fault, f"keep {_pronoun(damaged)}; sinks deliver each line that is readable and count the others")
    if unlisted:
        plan.add(
            f"{_format_files(unlisted)} without a line in `checksums.jsonl`", "record the checksum of the file on disk"
        )
    plan.checksums += [*missing, *damaged, *unlisted]
    _check_number_of_alerts(facts, plan)


def _check_number_of_alerts(facts: RunFacts, plan: RepairPlan) -> None:
    """Compare the alerts of the log with the number that progress has counted."""
    if facts.before is None:
        return
    counted = sum(number for states in facts.before.total.alerts.values() for number in states.values())
    names = {one.file: one.alerts for one in [*facts.files.values(), *facts.listed.values(), *plan.checksums]}
    listed = sum(alerts for name, alerts in names.items() if not facts.is_rewritten(_batch_number(name)))
    if listed < counted:
        fault = f"the alert log has {listed:,} changes of state; progress has counted {counted:,}"
        plan.add(fault, f"continue without the other {counted - listed:,}")
        plan.checksums.append(Checksum(UNKNOWN, names.get(UNKNOWN, 0) + counted - listed))


def _check_progress(facts: RunFacts, plan: RepairPlan) -> None:
    done = [batch for batch in facts.files if batch < facts.next_batch]
    known = -1 if facts.last is None else facts.last.batch
    if done and max(done) > known:
        fault = f"`progress.jsonl` ends at micro-batch {known}" if facts.last else "`progress.jsonl` has no micro-batch"
        plan.add(f"{fault}, but the alert log has micro-batch {max(done)}", "continue with the totals that are left")
        plan.last = max(done)


def _check_cursors(facts: RunFacts, plan: RepairPlan) -> None:
    for name, cursor in facts.cursors.items():
        if _is_in_log(facts, cursor):
            if facts.has_new_rules and facts.is_rewritten(cursor.batch) and cursor.line >= 0:
                # The next micro-batch replaces the file under this cursor, and its lines may be others.
                plan.cursors[name] = Position(cursor.batch, -1)
            continue
        reached = [position for position in facts.delivered.get(name, ()) if _is_in_log(facts, position)]
        plan.cursors[name] = reached[-1] if reached else None
        end = f"micro-batch {facts.recorded}" if facts.recorded >= 0 else "no micro-batch"
        line = f"after line {reached[-1].line + 1} of micro-batch {reached[-1].batch}" if reached else ""
        where = f"{line} of the log" if reached else "at the start of the log"
        plan.add(
            f"sink {name} is at line {cursor.line + 1} of micro-batch {cursor.batch}, "
            f"which the alert log does not have; it ends with {end}",
            f"let sink {name} continue {where}",
        )


def _is_in_log(facts: RunFacts, cursor: Position) -> bool:
    """Return whether a cursor is a position of the log. Then it is not ahead of any new alert event."""
    if cursor.batch > facts.recorded:
        return False
    if facts.is_rewritten(cursor.batch) or cursor.line < 0:
        return True
    listed = [one.alerts for name, one in facts.listed.items() if parse_batch(name) == cursor.batch]
    file = facts.files.get(cursor.batch)
    return cursor.line < max([*listed, 0 if file is None else file.alerts])


def _batch_number(name: str) -> int:
    return -1 if (batch := parse_batch(name)) is None else batch


def _format_undelivered(files: Iterable[Checksum], cursors: Mapping[str, Position]) -> str:
    """Return the alerts of files, and how many of them each sink has not passed."""
    files = list(files)
    texts = [f"{sum(one.alerts for one in files):,} changes of state"]
    for name, cursor in cursors.items():
        ahead = sum(
            min(one.alerts, max(0, one.alerts - 1 - cursor.line))
            if _batch_number(one.file) == cursor.batch
            else one.alerts
            for one in files
            if _batch_number(one.file) >= cursor.batch
        )
        texts += [f"sink {name} has not delivered {ahead:,} of them"] if ahead else []
    return ", ".join(texts)


def _format_files(files: Sequence[Checksum]) -> str:
    return f"{'file' if len(files) == 1 else f'{len(files):,} files'} {_format_names([one.file for one in files])}"


def _pronoun(files: Sequence[Checksum]) -> str:
    return "it" if len(files) == 1 else "them"


def _format_names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else shown


def _measure_alert_file(log: AlertLog, path: Path, listed: Checksum | None) -> Checksum:
    """Return the checksum of an alert file; its lines are counted only if the file is not as listed."""
    try:
        found = measure_file(path, 0 if listed is None else listed.alerts)
    except OSError as error:
        message = f"alert log: `{path}` must be a readable file; {(error.strerror or 'it is unreadable').lower()}"
        raise RunError(message) from None
    return found if found == listed else found._replace(alerts=log.count(path))


def _cursor_position(status: Mapping[str, object]) -> Position:
    """Return the position of a sink; a damaged position is the start, because the sink starts there too."""
    match status.get("position"):
        case [int(batch), int(line)]:
            return Position(batch, line)
    return _START


def _read_positions(path: Path) -> list[Position]:
    """Return the positions that a sink reached, as it noted them."""
    found = []
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    for line in lines:
        try:
            batch, number, _ = json.loads(line)
            found.append(Position(int(batch), int(number)))
        except (ValueError, TypeError, RecursionError):
            continue
    return found


def _newest_number(folder: Path) -> int:
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return -1
    return max((int(match[1]) for match in map(_ROWS.fullmatch, names) if match), default=-1)
