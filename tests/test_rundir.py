"""The run directory: repeated micro-batches, torn lines, locks, and what is refused."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loaded import load_file
from tocsin.errors import RunError
from tocsin.expr.certify.certificate import VERDICTS
from tocsin.plan import describe_plan
from tocsin.plan.file import plan_file
from tocsin.rundir import (
    DeadWriter,
    Manifest,
    Progress,
    ProgressLog,
    RunDir,
    Tally,
    last_progress,
    read_dead,
    read_manifest,
    read_progress,
    refusals,
)
from tocsin.rundir.dead import Aside, late_line
from tocsin.rundir.delays import delay_class, delay_counts
from tocsin.rundir.manifest import describe
from tocsin.rundir.progress import PROGRESS, unusable_streams

NAMES = st.sampled_from(["air", "surface", 'a "quoted" name', "Ünïcode"])
COUNTS = st.dictionaries(NAMES, st.integers(-5, 10**12), max_size=3)
TALLIES = st.builds(
    Tally,
    COUNTS,
    st.dictionaries(NAMES, COUNTS, max_size=2),
    st.dictionaries(NAMES, COUNTS, max_size=2),
    COUNTS,
    st.integers(-100, 10**12),
    st.integers(0, 3),
)
MANIFEST = Manifest(
    rule_file="/x/rules.yaml",
    rule_hash="00",
    plan="Watch on machine\n  Store air(value): kept whole",
    streams={"air": {"source": "parquet", "from": "air", "keys": ["machine"], "time": "ts", "values": ["value"]}},
    sinks=("console",),
    archive=None,
    buckets=2,
    partitions=2,
)


def progress(batch: int, rows: int, before: Progress | None = None, second: int = 0) -> Progress:
    gained = Tally(rows={"air": rows}, batches=1)
    whole = before.total.plus(gained) if before else gained
    return Progress(batch, f"2026-01-01T00:00:{second:02}.000000Z", gained, whole, {"air": 1_000_000})


@given(TALLIES, TALLIES, TALLIES)
def test_tallies_add_up_in_any_order(one: Tally, two: Tally, three: Tally) -> None:
    assert one.plus(two) == two.plus(one)
    assert one.plus(two).plus(three) == one.plus(two.plus(three))
    assert one.plus(Tally()) == one


@given(TALLIES, TALLIES, COUNTS)
def test_a_line_is_read_as_it_was_written(gained: Tally, whole: Tally, newest: dict[str, int]) -> None:
    wrote = Progress(7, "2026-01-01T00:00:00.000000Z", gained, whole, newest, {"detect": 5})
    line = wrote.line()
    assert b"\n" not in line
    (read,) = parse_progress([line])
    for one, other in ((read.gained, gained), (read.total, whole)):
        assert one == replace(other, **{name: value or type(value)() for name, value in vars(other).items()})
    assert (read.batch, read.time, read.newest_us, read.milliseconds) == (7, wrote.time, newest, {"detect": 5})


def parse_progress(lines: list[bytes]) -> list[Progress]:
    from tocsin.rundir.progress import parse_progress as parsed

    return list(parsed(lines))


def test_a_repeated_batch_has_the_totals_that_it_had_and_the_last_line_counts(tmp_path: Path) -> None:
    path, written = tmp_path / PROGRESS, list[Progress]()
    for batch in range(3):
        written.append(progress(batch, 10 + batch, written[-1] if written else None))
        ProgressLog(path).add(written[-1])
    # Killed after the line, before the commit: batch 2 is run again by a new process.
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


def test_a_torn_line_is_passed_over_by_readers_and_by_the_next_run(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("junk", [b"", b"5", b"null", b"[]", b'{"batch": 1}', b'{"gained": 5}', b"\xff\xfe", b'{"a"'])
def test_lines_that_are_none_are_passed_over(tmp_path: Path, junk: bytes) -> None:
    first = progress(0, 5)
    (tmp_path / PROGRESS).write_bytes(junk + b"\n" + first.line() + b"\n" + junk)
    assert read_progress(tmp_path) == [first]
    assert last_progress(tmp_path) == first


def test_a_long_record_is_opened_by_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tocsin.rundir import progress as module

    monkeypatch.setattr(module, "_TAIL", 2000)
    lines, last = [], None
    for batch in range(100):
        last = progress(batch, 1, last)
        lines.append(last.line())
    (tmp_path / PROGRESS).write_bytes(b"\n".join(lines) + b"\n")
    assert ProgressLog(tmp_path / PROGRESS).before(100) == last
    assert len(read_progress(tmp_path)) == 100


@pytest.mark.parametrize("torn", [b"", b'{"batch": 3, "ti'], ids=["whole", "torn"])
def test_lines_longer_than_the_end_that_is_read_count_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torn: bytes
) -> None:
    from tocsin.rundir import progress as module

    monkeypatch.setattr(module, "_TAIL", 100)
    lines, last = [], None
    for batch in range(3):
        last = progress(batch, 1, last)
        lines.append(last.line())
    assert last is not None
    (tmp_path / PROGRESS).write_bytes(b"\n".join([*lines, torn]))
    assert len(lines[0]) > 100
    log = ProgressLog(tmp_path / PROGRESS)
    assert log.before(3) == last_progress(tmp_path) == last
    # The last micro-batch may be run again.
    before = log.before(2)
    assert before is not None
    assert before.batch == 1


def test_a_batch_that_is_not_worth_a_line_still_counts(tmp_path: Path) -> None:
    log = ProgressLog(tmp_path / PROGRESS)
    first = progress(0, 5)
    log.add(first)
    quiet = Progress(1, first.time, Tally(), first.total)
    assert quiet.gained.is_quiet
    assert not first.gained.is_quiet
    log.note(quiet)
    assert log.before(2) == quiet
    assert read_progress(tmp_path) == [first]


def test_what_fires_is_what_began_and_did_not_end() -> None:
    whole = Tally(alerts={"Hot": {"pending": 9, "firing": 5, "resolved": 3, "inactive": 4}, "Cold": {"pending": 1}})
    assert whole.firing() == {"Hot": 2, "Cold": 0}


def test_dead_rows_are_all_there_and_a_repeated_batch_replaces_its_own(tmp_path: Path) -> None:
    writer = DeadWriter(tmp_path / "dead")
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


def test_dead_rows_that_were_put_aside_are_taken_once_and_those_of_an_earlier_try_never(tmp_path: Path) -> None:
    writer = DeadWriter(tmp_path / "dead")
    line = json.dumps({"stream": "air", "reason": "it is not JSON", "raw": "x"})
    for name in ("earlier", "taken"):
        writer.aside.mkdir(parents=True, exist_ok=True)
        (writer.aside / name).write_text(2 * f"{line}\n")
    assert writer.write(4, [line], [Aside("air", "taken", 2)]) == {"air": 3}
    assert [row.raw for row in read_dead(tmp_path)] == ["x"] * 3
    assert [path.name for path in (tmp_path / "dead").iterdir()] == ["000000000004.jsonl"]
    with pytest.raises(RunError, match=r"`.*gone` must be in a folder that driver and workers share; it is not there"):
        writer.write(5, [], [Aside("air", "gone", 1)])


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
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
        ("{", "a manifest must be readable; it is damaged"),
        ("[]", "a manifest must be readable; it is damaged"),
        ('{"version": 1}', "a manifest must be readable; it is damaged"),
        (json.dumps({**asdict(MANIFEST), "streams": []}), "a manifest must be readable; it is damaged"),
        (json.dumps({**asdict(MANIFEST), "streams": {"air": {}}}), "a manifest must be readable; it is damaged"),
        (json.dumps({**asdict(MANIFEST), "state": 5}), "a manifest must be readable; it is damaged"),
        ("[" * 100_000, "a manifest must be readable; it is damaged"),
        ('{"version": 2}', "`version` must be 1; got 2: run the Tocsin that wrote it"),
    ],
)
def test_a_manifest_that_cannot_be_read_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(RunError, match=message):
        read_manifest(tmp_path)


def test_one_function_says_what_a_run_cannot_go_on_with() -> None:
    assert refusals(MANIFEST, replace(MANIFEST, rule_hash="11", plan="other", sinks=(), archive="x", state={})) == []
    moved = {**MANIFEST.streams["air"], "source": "kafka", "from": "air"}
    more = {"air": moved, "oil": moved}
    was = f"{MANIFEST.streams['air']['source']} {MANIFEST.streams['air']['from']}"
    assert refusals(MANIFEST, replace(MANIFEST, streams=more, buckets=3)) == [
        f"stream 'air' came from {was} and now comes from kafka air (give it another name)",
        "`buckets` was 2 and is now 3",
    ]
    assert refusals(MANIFEST, replace(MANIFEST, streams={})) == []


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
        found.append(describe(file, plan_file(file), (), 2).streams)
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
        return replace(describe(file, plan, (), 1), state=describe_plan(plan))

    (tmp_path / "rules.yaml").write_text(RULES_WITH_LIMITS)
    manifest(30).write(tmp_path)
    before = read_manifest(tmp_path)
    assert before is not None
    assert manifest(30).has_rules_of(before)
    assert not manifest(31).has_rules_of(before)


def test_two_runs_never_share_a_directory(tmp_path: Path) -> None:
    place = tmp_path / "run"
    code = (
        "import sys; from tocsin.rundir import RunDir\n"
        f"with RunDir({str(place)!r}).held(): print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as it:
        assert it.stdout is not None
        assert it.stdout.readline() == "held\n"
        message = f"run directory .* must belong to one run at a time; process {it.pid} holds it"
        with pytest.raises(RunError, match=message), RunDir(place).held():
            pass
        it.kill()
        it.wait()
        with RunDir(place).held():
            assert (place / "lock").read_text() != f"{it.pid}\n"


def test_a_folder_with_other_things_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(RunError, match="must be new, empty, or that of a run; it has other files"):
        RunDir(tmp_path).held().__enter__()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(RunError, match="must be a folder; not a directory"):
        RunDir(tmp_path / "thesis.tex").held().__enter__()


def test_reading_a_run_imports_nothing_of_spark() -> None:
    code = "import sys, tocsin.rundir; print(*[n for n in ('pyspark', 'pandas', 'numba') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


def test_the_example_of_the_page_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).resolve().parents[1] / "docs" / "run.md").read_text("utf-8")
    ((code, output),) = re.findall(r"```python\n(.*?)```\n\n((?:    [^\n]*\n)+)", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    with RunDir("run").held() as run:
        replace(MANIFEST, plan="Watch on machine; outage 1h\n  Store air(value): kept whole").write(run.folder)
        run.dead.write(1, [json.dumps({"stream": "air", "reason": "time `ts` is missing", "raw": "{}"})])
        row = {"alert": "Hot", "id": "1f", "state": "firing", "labels": {"machine": "m1"}, "startsAt": 0}
        run.alerts.write(0, [row])
        log = run.progress()
        first = Tally({"air": 3}, {"air": {"received": 3, "retained": 3}}, {"Hot": {"firing": 1}}, batches=1)
        second = Tally({"air": 2}, {"air": {"received": 2, "retained": 1, "quarantined": 1}}, {}, {"air": 1}, batches=1)
        log.add(Progress(0, "2026-01-01T00:00:00.000000Z", first, first))
        log.add(Progress(1, "2026-01-01T00:00:01.000000Z", second, first.plus(second)))
    exec(compile(code, "docs/run.md", "exec"), {})
    assert capsys.readouterr().out == textwrap.dedent(output)


@pytest.mark.parametrize(
    ("time_us", "text"),
    [(1_500_000, "1970-01-01T00:00:01.500000Z"), (253402300799_999999, "9999-12-31T23:59:59.999999Z")],
)
def test_a_late_row_is_written_with_its_time_as_the_alert_log_has_it(time_us: int, text: str) -> None:
    row = {"stream": "air", "rules": ["Hot"], "time": time_us, "values": {"temp": 1.0}}
    assert json.loads(late_line(json.dumps(row))) == {**row, "time": text}


@given(st.lists(st.integers(-(10**9), 10**15), max_size=60))
def test_each_delay_is_counted_in_the_class_that_holds_it(delays_us: list[int]) -> None:
    found = delay_counts(np.array(delays_us, np.int64))
    wanted: dict[str, int] = {}
    for delay in delays_us:
        for number in range(-1, 41):
            low, high = delay_class(number)
            if (
                (delay < 0)
                if number < 0
                else (delay >= 0 and (number == 0 or low < delay / 1e6) and delay / 1e6 <= high)
            ):
                wanted[str(number)] = wanted.get(str(number), 0) + 1
                break
        else:
            wanted["40"] = wanted.get("40", 0) + 1
    assert found == wanted


def test_delays_stand_outside_the_tallies_so_that_earlier_readers_take_the_line(tmp_path: Path) -> None:
    with_delays = replace(progress(1, 5), delays={"air": {"0": 3, "12": 2}})
    ProgressLog(tmp_path / PROGRESS).add(with_delays)
    assert read_progress(tmp_path) == [with_delays]
    # Earlier readers refuse a tally with any other name; these may never become more.
    assert set(vars(Tally())) == {"rows", "counts", "alerts", "dead", "state_bytes", "batches"}
    assert "delays" not in json.loads(progress(1, 5).line())


def test_a_manifest_without_rules_is_read_and_has_none(tmp_path: Path) -> None:
    stored = asdict(MANIFEST)
    del stored["rules"]
    (tmp_path / "manifest.json").write_text(json.dumps(stored))
    assert read_manifest(tmp_path) == MANIFEST


def test_a_manifest_describes_every_rule_of_its_plan(tmp_path: Path) -> None:
    examples = Path(__file__).resolve().parents[1] / "examples"
    for name in ("cold-store.yaml", "ranges.yaml", "factory.yaml"):
        file = load_file(examples / name)
        plan = plan_file(file)
        manifest = describe(file, plan, (), 2)
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
                assert [line for line in read.plan.splitlines() if one["does"] in line]


def test_stream_is_unusable_when_all_its_rows_are_dead_under_every_name() -> None:
    counted = [("air(a)", "air"), ("air(b)", "air"), ("oil", "oil"), ("gas", "gas")]
    all_dead, one_used = {"received": 6, "quarantined": 6}, {"received": 6, "quarantined": 5}
    assert unusable_streams(counted, {"air(a)": all_dead, "oil": one_used}, ["air", "oil", "air"]) == ("air",)
    assert unusable_streams(counted, {"air(a)": all_dead, "air(b)": one_used}, ["air"]) == ()
    # Its files were unreadable, so it has no rows.
    assert unusable_streams(counted, {"oil": all_dead}, ["gas"]) == ("gas",)
    assert unusable_streams(counted, {}, []) == ()
