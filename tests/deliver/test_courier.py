"""The courier against receivers that fail at random, and kills at random."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deliver.alerts import ManualClock, changes, histories, quick_backoff, row, write_log
from tocsin.deliver import AlertLog, Position
from tocsin.deliver.channel import DELIVERED, Answer, Entry, Verdict, waves
from tocsin.deliver.courier import Courier
from tocsin.deliver.encode import Alert, alert_of, time_text
from tocsin.deliver.ledger import Ledger, read_status
from tocsin.deliver.run import pump
from tocsin.errors import RunError

RETRY = Answer(Verdict.RETRY, "busy", 500)


class Killed(BaseException):
    """The process ends here."""


class Whimsical:
    """A receiver that takes parcels of some size, fails and kills as chance has it, and remembers what it took.

    It may take a parcel and fail to say so. Alerts of the key `poison` it refuses, and with them the parcel.
    """

    whole_batches = False
    cap_s = 60.0

    def __init__(self, seed: int, *, limit: int = 5, trouble: float = 0.3) -> None:
        self.chance, self.limit, self.trouble = random.Random(seed), limit, trouble
        self.taken: list[Alert] = []

    def wants(self, alert: Alert) -> bool:
        return True

    def parcels(self, step: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
        size = self.chance.randint(1, self.limit)
        for wave in waves(step, lambda alert: alert["labels"]["machine"]):
            self.chance.shuffle(wave)
            yield from (wave[i : i + size] for i in range(0, len(wave), size))

    def send(self, parcel: Sequence[Entry]) -> Answer:
        luck = self.chance.random()
        if luck < self.trouble / 3:
            raise Killed
        if luck < self.trouble * 2 / 3:
            return RETRY
        if any(entry.alert["labels"]["machine"] == "poison" for entry in parcel):
            return Answer(Verdict.REJECTED, "bad", 400, split=True)
        self.taken += [entry.alert for entry in parcel]
        if luck < self.trouble:
            raise Killed if luck < self.trouble * 5 / 6 else OSError
        return DELIVERED

    def close(self) -> None:
        pass


def courier_of(run: Path, channel: Any, clock: ManualClock) -> tuple[Courier, Ledger]:
    ledger = Ledger(run / "delivery", "test", "test", clock)
    return Courier(AlertLog(run / "alerts"), channel, ledger, clock, quick_backoff()), ledger


def deliver_through_kills(run: Path, channel: Any, clock: ManualClock) -> Ledger:
    """Start again after each kill, as a new process would."""
    for _ in range(2000):
        courier, ledger = courier_of(run, channel, clock)
        try:
            pump(courier, threading.Event(), clock, drain=True)
        except (Killed, OSError):
            continue
        finally:
            ledger.close()
        return ledger
    pytest.fail("delivery must come to an end")


def first_times(taken: Sequence[Alert]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((alert["id"], alert["state"]) for alert in taken))


@given(batches=histories(), seed=st.integers(0, 10**6), limit=st.integers(1, 7))
def test_through_failures_and_kills_everything_arrives_in_order_per_alert(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[dict[str, Any]]], seed: int, limit: int
) -> None:
    run = tmp_path_factory.mktemp("run")
    log, channel = write_log(run, batches), Whimsical(seed, limit=limit)
    ledger = deliver_through_kills(run, channel, ManualClock())
    logged, arrived = changes(log), first_times(channel.taken)
    assert sorted(arrived) == sorted(logged)
    for key in "abcd":
        # Within one label set even different lives come in their order.
        of_key = [change for change in logged if f"-{key}-" in change[0]]
        assert [change for change in arrived if change in of_key] == of_key
    assert ledger.counts["delivered"] == len(logged)
    assert ledger.counts["pending"] == 0


@given(batches=histories(), seed=st.integers(0, 10**6))
def test_what_is_refused_is_put_aside_and_all_the_rest_arrives(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[dict[str, Any]]], seed: int
) -> None:
    run = tmp_path_factory.mktemp("run")
    poison = row(key="poison")
    log = write_log(run, [[poison, *batch] for batch in batches])
    channel = Whimsical(seed, trouble=0.1)
    ledger = deliver_through_kills(run, channel, ManualClock())
    good = [change for change in changes(log) if "poison" not in change[0]]
    assert sorted(first_times(channel.taken)) == sorted(good)
    refused = [json.loads(line) for line in ledger.rejected_path.read_bytes().splitlines()]
    assert {tuple(each["position"]) for each in refused} == {(number, 0) for number in range(len(batches))}
    assert all((each["answer"], each["status"]) == ("bad", 400) for each in refused)
    assert all(each["alert"]["labels"]["machine"] == "poison" for each in refused)
    assert (ledger.counts["rejected"], ledger.counts["delivered"]) == (len(batches), len(good))


class Script(Whimsical):
    """A receiver whose first answers are given."""

    def __init__(self, *answers: Answer, limit: int = 100) -> None:
        super().__init__(0, limit=limit, trouble=0)
        self.answers = list(answers)
        self.parcels_seen: list[int] = []

    def parcels(self, step: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
        return iter([step])

    def send(self, parcel: Sequence[Entry]) -> Answer:
        self.parcels_seen.append(len(parcel))
        if self.answers:
            return self.answers.pop(0)
        return super().send(parcel)


def test_waits_grow_while_it_fails_and_what_was_asked_for_is_waited(tmp_path: Path) -> None:
    write_log(tmp_path, [[row()]])
    clock = ManualClock()
    asked = Answer(Verdict.RETRY, "later", 503, asked_s=500.0)
    courier, ledger = courier_of(tmp_path, Script(*[RETRY] * 10, asked), clock)
    courier.round(threading.Event())
    assert all(
        0.5 * limit <= wait <= limit for wait, limit in zip(clock.waits, [0.5 * 2**i for i in range(7)], strict=False)
    )
    assert max(clock.waits[:-1]) <= 60
    assert clock.waits[-1] == 500
    assert (ledger.counts["retries"], ledger.counts["delivered"], ledger.failing) == (11, 1, False)
    assert ledger.last_error == "later"
    ledger.close()


def test_status_on_disk_tells_of_the_trouble_while_it_lasts(tmp_path: Path) -> None:
    write_log(tmp_path, [[row(start=i) for i in range(3)], [row(start=5)]])
    stop = threading.Event()

    class Stopping(ManualClock):
        def wait(self, stop: threading.Event, seconds: float) -> None:
            stop.set()

    courier, ledger = courier_of(tmp_path, Script(RETRY, limit=1), Stopping())
    courier.round(stop)
    found = read_status(tmp_path / "delivery")["test"]
    assert found == ledger.status()
    assert (found["pending"], found["retries"], found["lastError"], found["failing"]) == (4, 1, "busy", True)
    assert found["position"] is None
    ledger.close()


@given(keys=st.lists(st.sampled_from("abc"), max_size=12))
def test_a_wave_holds_each_subject_once_and_waves_keep_its_order(keys: list[str]) -> None:
    step = [Entry(Position(0, line), alert_of(row(key=key, start=line))) for line, key in enumerate(keys)]
    found = waves(step, lambda alert: alert["labels"]["machine"])
    for wave in found:
        machines = [entry.alert["labels"]["machine"] for entry in wave]
        assert len(set(machines)) == len(machines) > 0
    for key in "abc":
        lines = [entry.position.line for wave in found for entry in wave if entry.alert["labels"]["machine"] == key]
        assert lines == [line for line, each in enumerate(keys) if each == key]


def test_a_step_is_no_longer_than_its_channel_wants(tmp_path: Path) -> None:
    write_log(tmp_path, [[row(start=i) for i in range(5)], [row(start=i) for i in range(5, 8)]])
    channel = Script(limit=3)
    deliver_through_kills(tmp_path, channel, ManualClock())
    assert channel.parcels_seen == [3, 3, 2]


def test_a_damaged_line_is_counted_told_and_passed_over(tmp_path: Path) -> None:
    log = write_log(tmp_path, [[row(start=i) for i in range(3)], [row(start=5)]])
    path = log.folder / "000000000000.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"?\n" + lines[2])
    ledger = deliver_through_kills(tmp_path, Script(), ManualClock())
    assert (ledger.counts["delivered"], ledger.counts["corrupt"], ledger.counts["pending"]) == (3, 1, 0)
    assert "000000000000.jsonl:2: an alert must be readable" in (ledger.last_error or "")


def test_alerts_that_come_later_are_delivered_too(tmp_path: Path) -> None:
    channel, clock = Script(), ManualClock()
    for start in range(3):
        write_log(tmp_path, [[row(start=start)]], first=start)
        deliver_through_kills(tmp_path, channel, clock)
    assert [alert["id"] for alert in channel.taken] == [f"Condensation-p1-{start}" for start in range(3)]


def test_a_lost_ledger_repeats_under_the_same_identities(tmp_path: Path) -> None:
    log, channel, clock = write_log(tmp_path, [[row(), row("resolved", end=1)]]), Script(), ManualClock()
    deliver_through_kills(tmp_path, channel, clock)
    (tmp_path / "delivery" / "test.json").write_text('{"version": 1, "posit')
    ledger = deliver_through_kills(tmp_path, channel, clock)
    assert first_times(channel.taken) == changes(log)
    assert len(channel.taken) == 4
    assert (tmp_path / "delivery" / "test.json.damaged").exists()
    assert "ledger was damaged" in (ledger.last_error or "")


@pytest.mark.parametrize("content", ["[]", "null", '{"version": 1}', '{"version": 1, "position": 3}', ""])
def test_a_ledger_that_makes_no_sense_is_put_aside(tmp_path: Path, content: str) -> None:
    (tmp_path / "test.json").write_text(content)
    ledger = Ledger(tmp_path, "test", "test", ManualClock())
    assert ledger.position is None
    assert (tmp_path / "test.json.damaged").read_text() == content
    ledger.close()


def test_a_ledger_notes_when_each_position_was_reached_and_of_very_many_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tocsin.deliver.ledger._MOST_TAKEN", 400)
    clock = ManualClock()
    noted = []
    for begin in (0, 25):  # Started again in between: what was reached before is not noted twice.
        ledger = Ledger(tmp_path, "test", "test", clock)
        ledger.save()
        for line in range(begin, begin + 25):
            clock.wait(threading.Event(), 1.0)
            ledger.position = Position(3, line)
            ledger.save()
            ledger.save()
            noted.append([3, line, time_text(clock.now())])
        ledger.close()
    found = [json.loads(line) for line in ledger.taken_path.read_bytes().splitlines()]
    assert 4 <= len(found) <= 12
    assert found == noted[-len(found) :]


def test_a_ledger_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "test.json").write_text('{"version": 2}')
    with pytest.raises(RunError, match=r"test\.json: `version` must be 1; got 2"):
        Ledger(tmp_path, "test", "test", ManualClock())


def test_a_sink_is_served_by_one_process_at_a_time(tmp_path: Path) -> None:
    first = Ledger(tmp_path, "test", "test", ManualClock())
    with pytest.raises(RunError, match="sink `test` must be served by one process at a time"):
        Ledger(tmp_path, "test", "test", ManualClock())
    first.close()
    Ledger(tmp_path, "test", "test", ManualClock()).close()


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "x" * 101])
def test_a_name_that_is_no_file_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(RunError, match="the name of a sink must be letters"):
        Ledger(tmp_path, name, "test", ManualClock())


def test_positions_are_ordered() -> None:
    assert Position(1, 9) < Position(2, 0) < Position(2, 1)
