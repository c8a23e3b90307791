"""Run directory: repeated micro-batches, incomplete lines, locks, and rejected files."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rule_files import load_file
from tocsin.errors import RunError
from tocsin.expr.certify.certificate import VERDICTS
from tocsin.plan import describe_plan, plan_file
from tocsin.run_directory import (
    DeadLetterWriter,
    Manifest,
    Progress,
    ProgressLog,
    RunDir,
    Tally,
    find_incompatibilities,
    last_progress,
    read_dead,
    read_manifest,
    read_progress,
)
from tocsin.run_directory.dead_letters import StagedRows, format_late_row
from tocsin.run_directory.delay_histogram import count_delays, delay_class_bounds
from tocsin.run_directory.manifest import build_manifest
from tocsin.run_directory.progress import PROGRESS, parse_progress, unusable_streams
from tocsin.runtime.metrics import OUTCOMES

NAMES = st.sampled_from(["air", "surface", 'a "quoted" name', "Ünïcode"])
COUNTS = st.dictionaries(NAMES, st.integers(-5, 10**12), max_size=3)
OUTCOME_COUNTS = st.dictionaries(st.sampled_from(["received", *OUTCOMES]), st.integers(-5, 10**12), max_size=3)
TALLIES = st.builds(
    Tally,
    rows=COUNTS,
    counts=st.dictionaries(NAMES, OUTCOME_COUNTS, max_size=2),
    alerts=st.dictionaries(NAMES, COUNTS, max_size=2),
    dead=COUNTS,
    state_bytes=st.integers(-100, 10**12),
    batches=st.integers(0, 3),
)
MANIFEST = Manifest(
    rule_file="/x/rules.yaml",
    rule_hash="00",
    plan="Pipeline keyed by machine\n  Retention air(value): unreduced",
    streams={"air": {"source": "parquet", "from": "air", "keys": ["machine"], "time": "ts", "values": ["value"]}},
    sinks=("console",),
    archive=None,
    buckets=2,
    partitions=2,
)


def progress(batch: int, rows: int, before: Progress | None = None, second: int = 0) -> Progress:
    gained = Tally(rows={"air": rows}, batches=1)
    total = (before.total if before else Tally(newest_us={"air": 1_000_000})).plus(gained)
    return Progress(batch, f"2026-01-01T00:00:{second:02}.000000Z", gained, total)


@given(TALLIES, TALLIES, TALLIES)
def test_sum_of_tallies_is_independent_of_their_order(one: Tally, two: Tally, three: Tally) -> None:
    assert one.plus(two) == two.plus(one)
    assert one.plus(two).plus(three) == one.plus(two.plus(three))
    assert one.plus(Tally()) == one


@given(TALLIES, TALLIES, COUNTS)
def test_progress_line_is_parsed_to_the_written_progress(gained: Tally, total: Tally, newest: dict[str, int]) -> None:
    wrote = Progress(7, "2026-01-01T00:00:00.000000Z", gained, total.plus(Tally(newest_us=newest)), {"detect": 5})
    line = wrote.line()
    assert b"\n" not in line
    (read,) = parse_progress([line])
    assert read == wrote
    assert read.newest_us == newest


def test_progress_has_the_same_totals_when_a_micro_batch_is_repeated(tmp_path: Path) -> None:
    path, written = tmp_path / PROGRESS, list[Progress]()
    for batch in range(3):
        written.append(progress(batch, 10 + batch, written[-1] if written else None))
        ProgressLog(path).add(written[-1])
    # A kill between the line and the commit: a new process repeats micro-batch 2.
    log = ProgressLog(path)
    before = log.before(2)
    assert before == written[1]
    again = progress(2, 12, before, second=59)
    log.add(again)
    assert log.before(3) == again
    assert path.read_bytes().count(b"\n") == 4
    assert read_progress(tmp_path) == [*written[:2], again]
    assert last_progress(tmp_path) == again
    assert again.total == written[2].total
    assert again.total.rows == {"air": 33}
    assert again.total.batches == 3


def test_incomplete_line_is_skipped_by_readers_and_by_the_next_run(tmp_path: Path) -> None:
    path = tmp_path / PROGRESS
    first = progress(0, 5)
    ProgressLog(path).add(first)
    with path.open("ab") as file:
        file.write(progress(1, 7, first).line()[:-9])
    assert read_progress(tmp_path) == [first]
    assert last_progress(tmp_path) == first
    log = ProgressLog(path)
    assert log.before(1) == first
    log.add(progress(1, 7, first))
    assert [one.total.rows["air"] for one in read_progress(tmp_path)] == [5, 12]


@pytest.mark.parametrize(
    "invalid", [b"", b"5", b"null", b"[]", b'{"batch": 1}', b'{"gained": 5}', b"\xff\xfe", b'{"a"']
)
def test_reader_skips_invalid_progress_lines(tmp_path: Path, invalid: bytes) -> None:
    first = progress(0, 5)
    (tmp_path / PROGRESS).write_bytes(invalid + b"\n" + first.line() + b"\n" + invalid)
    assert read_progress(tmp_path) == [first]
    assert last_progress(tmp_path) == first


def test_progress_log_has_the_last_result_when_only_the_end_of_the_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tocsin.run_directory import progress as module

    monkeypatch.setattr(module, "_TAIL", 2000)
    lines, last = [], None
    for batch in range(100):
        last = progress(batch, 1, last)
        lines.append(last.line())
    (tmp_path / PROGRESS).write_bytes(b"\n".join(lines) + b"\n")
    assert ProgressLog(tmp_path / PROGRESS).before(100) == last
    assert len(read_progress(tmp_path)) == 100


@pytest.mark.parametrize("tail", [b"", b'{"batch": 3, "ti'], ids=["complete", "incomplete"])
def test_progress_log_has_the_last_result_when_lines_are_longer_than_the_first_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tail: bytes
) -> None:
    from tocsin.run_directory import progress as module

    monkeypatch.setattr(module, "_TAIL", 100)
    lines, last = [], None
    for batch in range(3):
        last = progress(batch, 1, last)
        lines.append(last.line())
    assert last is not None
    (tmp_path / PROGRESS).write_bytes(b"\n".join([*lines, tail]))
    assert len(lines[0]) > 100
    log = ProgressLog(tmp_path / PROGRESS)
    assert log.before(3) == last_progress(tmp_path) == last
    # The last micro-batch may be run again.
    before = log.before(2)
    assert before is not None
    assert before.batch == 1


def test_quiet_micro_batch_is_the_last_result_without_a_line(tmp_path: Path) -> None:
    log = ProgressLog(tmp_path / PROGRESS)
    first = progress(0, 5)
    log.add(first)
    quiet = Progress(1, first.time, Tally(), first.total)
    assert quiet.gained.is_quiet
    assert not first.gained.is_quiet
    log.record(quiet)
    assert log.before(2) == quiet
    assert read_progress(tmp_path) == [first]


def test_firing_is_the_number_of_firing_events_without_a_resolved_event() -> None:
    total = Tally(alerts={"Hot": {"pending": 9, "firing": 5, "resolved": 3, "inactive": 4}, "Cold": {"pending": 1}})
    assert total.firing() == {"Hot": 2, "Cold": 0}


def test_dead_letter_file_is_equal_when_a_micro_batch_is_repeated(tmp_path: Path) -> None:
    writer = DeadLetterWriter(tmp_path / "dead")
    rows = [
        {"stream": "air", "reason": "it is not JSON", "raw": f"x{n}\n\ud800" if n == 3 else f"x{n}"} for n in range(5)
    ]
    lines = [json.dumps(row) for row in rows]
    assert writer.write(4, lines) == {"air": 5}
    first = (tmp_path / "dead" / "000000000004.jsonl").read_bytes()
    assert writer.write(4, lines) == {"air": 5}
    assert (tmp_path / "dead" / "000000000004.jsonl").read_bytes() == first
    assert writer.write(5, []) == {}
    assert [(row.batch, row.stream, row.raw) for row in read_dead(tmp_path)] == [(4, "air", row["raw"]) for row in rows]
    assert list(read_dead(tmp_path, since=5)) == []
    assert [path.name for path in (tmp_path / "dead").iterdir()] == ["000000000004.jsonl"]


def test_staged_rows_are_copied_once_when_an_earlier_attempt_left_other_rows(tmp_path: Path) -> None:
    writer = DeadLetterWriter(tmp_path / "dead")
    line = json.dumps({"stream": "air", "reason": "it is not JSON", "raw": "x"})
    for name in ("earlier", "current"):
        writer.staging.mkdir(parents=True, exist_ok=True)
        (writer.staging / name).write_text(2 * f"{line}\n")
    assert writer.write(4, [line], [StagedRows("air", "current", 2)]) == {"air": 3}
    assert [row.raw for row in read_dead(tmp_path)] == ["x"] * 3
    assert [path.name for path in (tmp_path / "dead").iterdir()] == ["000000000004.jsonl"]
    with pytest.raises(RunError, match=r"`.*lost` must be in a folder that driver and workers share; file not found"):
        writer.write(5, [], [StagedRows("air", "lost", 1)])


def test_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_manifest(tmp_path) is None
    started = MANIFEST.after(None, "t0")
    for number in range(1, 200):
        started = MANIFEST.after(started, f"t{number}")
    started.write(tmp_path)
    assert read_manifest(tmp_path) == started
    assert (started.started[0], started.started[-1], len(started.started)) == ("t0", "t199", 100)
    assert started.run == "0"
    assert MANIFEST.after(None, "2026-11-16T08:35:57.857052Z").run == "20261116083557857052"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "the manifest must be readable; it is damaged"),
        ("[]", "the manifest must be readable; it is damaged"),
        ('{"version": 2}', "the manifest must be readable; it is damaged"),
        (json.dumps({**asdict(MANIFEST), "streams": []}), "the manifest must be readable; it is damaged"),
        (json.dumps({**asdict(MANIFEST), "streams": {"air": {}}}), "the manifest must be readable; it is damaged"),
        (json.dumps({**asdict(MANIFEST), "state": 5}), "the manifest must be readable; it is damaged"),
        ("[" * 100_000, "the manifest must be readable; it is damaged"),
        ('{"version": 1}', "`version` must be 2, the layout of this version of Tocsin; got 1: use a new run directory"),
        ('{"version": 3}', "`version` must be 2, the layout of this version of Tocsin; got 3"),
    ],
)
def test_manifest_is_rejected_when_it_is_damaged_or_has_another_version(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(RunError, match=message):
        read_manifest(tmp_path)


def test_run_directory_is_rejected_by_its_version_when_its_layout_is_old(tmp_path: Path) -> None:
    (tmp_path / "ticks").mkdir()
    (tmp_path / "manifest.json").write_text(json.dumps({**asdict(MANIFEST), "version": 1}))
    remedy = "use a new run directory, or continue this run with the version of Tocsin that wrote it"
    with pytest.raises(RunError, match=rf"manifest.json: `version` must be 2, .*; got 1: {remedy}$"):
        read_manifest(tmp_path)


def test_run_directory_has_control_rows_in_the_folder_control(tmp_path: Path) -> None:
    with RunDir(tmp_path / "run").lock() as run:
        run.write_control_rows("start", [{"wait": 5}])
    assert (tmp_path / "run" / "control" / "start").read_text() == '{"wait": 5}\n'


def test_incompatibilities_are_moved_sources_and_other_numbers_of_buckets() -> None:
    assert (
        find_incompatibilities(
            MANIFEST, replace(MANIFEST, rule_hash="11", plan="other", sinks=(), archive="x", state={})
        )
        == []
    )
    moved = {**MANIFEST.streams["air"], "source": "kafka", "from": "air"}
    more = {"air": moved, "oil": moved}
    before = f"{MANIFEST.streams['air']['source']} {MANIFEST.streams['air']['from']}"
    assert find_incompatibilities(MANIFEST, replace(MANIFEST, streams=more, buckets=3)) == [
        f"stream 'air' had source {before} and now has source kafka air (rename the stream)",
        "`buckets` was 2 and is now 3",
    ]
    assert find_incompatibilities(MANIFEST, replace(MANIFEST, streams={})) == []


def test_manifest_of_a_rule_file_is_equal_when_the_working_directory_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "streams:\n  air: {source: {csv: {path: data/air}}, keys: [m]}\ngroups:\n"
    text += "  - name: g\n    rules: [{alert: Warm, expr: air > 1, on: [m]}]\n"
    (tmp_path / "plant").mkdir()
    (tmp_path / "plant" / "rules.yaml").write_text(text)
    found = []
    for folder, path in ((tmp_path, "plant/rules.yaml"), (tmp_path / "plant", "rules.yaml")):
        monkeypatch.chdir(folder)
        file = load_file(path)
        found.append(build_manifest(file, plan_file(file), (), 2).streams)
    assert found[0] == found[1]
    assert found[0]["air"]["from"] == str(tmp_path / "plant" / "data" / "air")


RULES_WITH_LIMITS = """\
streams:
  air: {source: {json: {path: in}}, keys: [machine]}
limits:
  by_machine: {file: limits.csv, on: [machine]}
groups:
  - name: g
    rules:
      - {alert: Hot, expr: air > by_machine.high, on: [machine]}
"""


def test_manifest_has_other_rules_when_a_table_of_limits_changed(tmp_path: Path) -> None:
    def manifest(high: int) -> Manifest:
        (tmp_path / "limits.csv").write_text(f"machine,high\nm1,{high}\n")
        file = load_file(tmp_path / "rules.yaml")
        plan = plan_file(file)
        return replace(build_manifest(file, plan, (), 1), state=describe_plan(plan))

    (tmp_path / "rules.yaml").write_text(RULES_WITH_LIMITS)
    manifest(30).write(tmp_path)
    before = read_manifest(tmp_path)
    assert before is not None
    assert manifest(30).has_rules_of(before)
    assert not manifest(31).has_rules_of(before)


def test_lock_is_rejected_when_another_process_has_it(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    code = (
        "import sys; from tocsin.run_directory import RunDir\n"
        f"with RunDir({str(folder)!r}).lock(): print('locked', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        message = f"run directory .* is in use by process {holder.pid}"
        with pytest.raises(RunError, match=message), RunDir(folder).lock():
            pass
        holder.kill()
        holder.wait()
        with RunDir(folder).lock():
            assert (folder / "lock").read_text() != f"{holder.pid}\n"


def test_run_directory_is_rejected_when_it_has_other_files(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(RunError, match=r"must be new, empty, or have a `manifest\.json`; it has other files"):
        RunDir(tmp_path).lock().__enter__()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(RunError, match="must be a folder; not a directory"):
        RunDir(tmp_path / "thesis.tex").lock().__enter__()


def test_run_directory_is_imported_without_spark() -> None:
    code = "import sys, tocsin.run_directory; print(*[n for n in ('pyspark', 'pandas', 'numba') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


@pytest.mark.parametrize(
    ("time_us", "text"),
    [(1_500_000, "1970-01-01T00:00:01.500000Z"), (253402300799_999999, "9999-12-31T23:59:59.999999Z")],
)
def test_late_row_has_its_time_in_the_format_of_the_alert_log(time_us: int, text: str) -> None:
    row = {"stream": "air", "rules": ["Hot"], "time": time_us, "values": {"temp": 1.0}}
    assert json.loads(format_late_row(json.dumps(row))) == {**row, "time": text}


@given(st.lists(st.integers(-(10**9), 10**15), max_size=60))
def test_delay_is_counted_in_the_class_whose_bounds_contain_it(delays_us: list[int]) -> None:
    found = count_delays(np.array(delays_us, np.int64))
    expected: dict[str, int] = {}
    for delay in delays_us:
        for number in range(-1, 41):
            low, high = delay_class_bounds(number)
            if (
                (delay < 0)
                if number < 0
                else (delay >= 0 and (number == 0 or low < delay / 1e6) and delay / 1e6 <= high)
            ):
                expected[str(number)] = expected.get(str(number), 0) + 1
                break
        else:
            expected["40"] = expected.get("40", 0) + 1
    assert found == expected


def test_progress_line_has_each_quantity_at_its_place() -> None:
    gained = Tally(rows={"air": 9}, counts={"air": {"received": 9, "retained": -1, "omitted": 10}}, batches=1)
    total = Tally(
        rows={"air": 20},
        counts={"air": {"received": 20, "retained": 7, "omitted": 13}},
        delays={"air": {"-1": 2, "12": 18}},
        alerts={"Hot": {"firing": 2, "resolved": 1}},
        dead={"air": 1},
        unreadable={"air": 3},
        newest_us={"air": 1_000_000},
        waits={"Hot": {"wait_us": 2_500_000, "recall": 0.97}, "Damp": {"wait_us": 0, "recall": None}},
        shares={"Damp": 5000},
        memory={"Damp": {"predicted": 0.9, "reached": None}},
        cpu={"Damp": {"rows": 0.5, "results": None}},
        state_bytes=7,
        batches=2,
    )
    line = Progress(7, "1970-01-01T00:00:03.500000Z", gained, total, {"detect": 5}, ("oil",)).line().decode()
    assert line == (
        '{"format":2,"batch":7,"time":"1970-01-01T00:00:03.500000Z",'
        '"gained":{"rows":{"air":9},"counts":{"air":{"received":9,"retained":-1,"omitted":10}},"batches":1},'
        '"total":{"rows":{"air":20},"dead":{"air":1},"unreadable":{"air":3},'
        '"counts":{"air":{"received":20,"retained":7,"omitted":13}},"delays":{"air":{"-1":2,"12":18}},'
        '"alerts":{"Hot":{"firing":2,"resolved":1}},"batches":2,"state_bytes":7,"newest_us":{"air":1000000},'
        '"waits":{"Hot":{"wait_us":2500000,"recall":0.97},"Damp":{"wait_us":0,"recall":null}},"shares":{"Damp":5000},'
        '"memory":{"Damp":{"predicted":0.9,"reached":null}},"cpu":{"Damp":{"rows":0.5,"results":null}}},'
        '"lag_seconds":{"air":2.5},"milliseconds":{"detect":5},"historic":["oil"]}'
    )


@pytest.mark.parametrize(
    "change",
    [{"format": 1}, {"gained": {"rows": {"air": "many"}}}, {"total": {"rows": {"air": 1e300}}}, {"total": {"rows": 5}},
     {"total": {"waits": {"Hot": {"recall": "high"}}}}, {"milliseconds": {"detect": -1}}, {"batch": "7"}],
)  # fmt: skip
def test_line_with_an_invalid_value_is_skipped(change: dict[str, Any]) -> None:
    stored = json.loads(progress(7, 5).line())
    assert list(parse_progress([json.dumps(stored).encode()])) != []
    assert list(parse_progress([json.dumps(stored | change).encode()])) == []


def test_manifest_is_read_when_it_has_no_rules(tmp_path: Path) -> None:
    stored = asdict(MANIFEST)
    del stored["rules"]
    (tmp_path / "manifest.json").write_text(json.dumps(stored))
    assert read_manifest(tmp_path) == MANIFEST


def test_manifest_describes_each_rule_of_the_plan(tmp_path: Path) -> None:
    examples = Path(__file__).resolve().parents[1] / "examples"
    for name in ("cold-store.yaml", "ranges.yaml", "factory.yaml"):
        file = load_file(examples / name)
        plan = plan_file(file)
        manifest = build_manifest(file, plan, (), 2)
        manifest.write(tmp_path)
        read = read_manifest(tmp_path)
        assert read is not None
        assert read.rules == manifest.rules
        rules = [*(r for w in plan.watches for r in (*w.rules, *w.silences)), *plan.ranges]
        assert [one["alert"] for one in read.rules] == [rule.alert for rule in rules]
        for one in read.rules:
            assert set(one["streams"]) <= set(read.streams)
            if one["kind"] == "threshold":
                assert one["condition"]
                assert {proof["verdict"] for proof in one["proofs"].values()} <= set(VERDICTS)
                assert [line for line in read.plan.splitlines() if one["description"] in line]


def test_stream_is_unusable_when_all_its_rows_are_invalid_under_each_name() -> None:
    counted = [("air(a)", "air"), ("air(b)", "air"), ("oil", "oil"), ("gas", "gas")]
    all_dead, one_used = {"received": 6, "quarantined": 6}, {"received": 6, "quarantined": 5}
    assert unusable_streams(counted, {"air(a)": all_dead, "oil": one_used}, ["air", "oil", "air"]) == ("air",)
    assert unusable_streams(counted, {"air(a)": all_dead, "air(b)": one_used}, ["air"]) == ()
    # The stream has no rows because its files were unreadable.
    assert unusable_streams(counted, {"oil": all_dead}, ["gas"]) == ("gas",)
    assert unusable_streams(counted, {}, []) == ()
