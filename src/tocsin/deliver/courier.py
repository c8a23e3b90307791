"""The courier: brings the alerts of the log to one receiver, in order, until each is delivered or refused.

Idea: it takes the log in steps, sends a step, and only then notes how far it came. A failure is waited out with
growing pauses and the same parcel is sent again; nothing overtakes it.
Guarantee: at least once, under the same identity each time; order per alert is kept. After a kill at most one step is
repeated. What the receiver refuses for good is put aside with its answer, and counted.
Cost: memory for one step. A receiver that is down costs a try per minute, and delays no one else.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tocsin.deliver.alertlog import AlertLog, Position
from tocsin.deliver.channel import Answer, Channel, Entry, Verdict
from tocsin.deliver.clock import Backoff, Clock
from tocsin.deliver.encode import STATES, Alert
from tocsin.deliver.ledger import Ledger

LOOK_S = 1.0


@dataclass
class Step:
    """A piece of the log: what to send, how much of it is not for this receiver, and where it ends."""

    entries: list[Entry] = field(default_factory=list)
    skipped: int = 0
    end: Position | None = None


class Courier:
    """Serves one receiver that is told every change of state."""

    def __init__(self, log: AlertLog, channel: Channel, ledger: Ledger, clock: Clock, backoff: Backoff) -> None:
        self.log, self.channel, self.ledger, self.clock, self.backoff = log, channel, ledger, clock, backoff
        backoff.cap_s = min(backoff.cap_s, channel.cap_s)
        self.backlog = Backlog(log, ledger)
        self._entries: Iterator[tuple[Position, Alert]] | None = None
        self._held: Entry | None = None
        self._refused = 0
        ledger.takes = [state for state in STATES if channel.wants({"state": state})]

    def round(self, stop: threading.Event) -> bool:
        """Deliver one step; say whether there was one."""
        step = self._step()
        if step.end is None:
            self.backlog.ended(self.ledger.position)
            self.ledger.save_news()
            return False
        self.backlog.look()
        self._refused = 0
        for parcel in self.channel.parcels(step.entries):
            if not self._deliver(parcel, stop):
                return True
        self.ledger.position = step.end
        delivered = len(step.entries) - self._refused
        self.ledger.add(delivered=delivered, rejected=self._refused, skipped=step.skipped)
        self.backlog.passed(len(step.entries) + step.skipped)
        self.ledger.save()
        return True

    def nap_s(self, poll_s: float) -> float:
        """How long to wait when there was nothing to do."""
        return poll_s

    def is_done(self) -> bool:
        """Whether all that was read is delivered."""
        return True

    def close(self) -> None:
        """Note the last of it and give up the receiver."""
        self.ledger.save(sync=True)
        self.channel.close()

    def _deliver(self, parcel: Sequence[Entry], stop: threading.Event) -> bool:
        """Send a parcel until it is delivered or refused; say whether it came to that before the stop."""
        while not stop.is_set():
            answer = self.channel.send(parcel)
            if answer.verdict is Verdict.DELIVERED:
                self.backoff.reset()
                self.ledger.succeeded()
                return True
            if answer.verdict is Verdict.REJECTED:
                self.backoff.reset()
                return self._refuse(parcel, answer, stop)
            self._pause(answer, stop)
        return False

    def _refuse(self, parcel: Sequence[Entry], answer: Answer, stop: threading.Event) -> bool:
        if answer.split and len(parcel) > 1:
            middle = len(parcel) // 2
            return self._deliver(parcel[:middle], stop) and self._deliver(parcel[middle:], stop)
        for entry in parcel:
            self.ledger.reject(entry.position, entry.alert, answer)
        self._refused += len(parcel)
        return True

    def _pause(self, answer: Answer, stop: threading.Event) -> None:
        self.ledger.failed(answer.text)
        self.ledger.add(retries=1)
        self.backlog.look()
        self.ledger.save()
        self.clock.wait(stop, self.backoff.next_s(answer.asked_s))

    def _step(self) -> Step:
        """Take the next piece of the log, not too long."""
        step = Step()
        while len(step.entries) < self.channel.limit:
            entry = self._next()
            if entry is None:
                break
            if self._is_apart(step, entry):
                self._held = entry
                break
            step.end = entry.position
            if self.channel.wants(entry.alert):
                step.entries.append(entry)
            else:
                step.skipped += 1
        return step

    def _is_apart(self, step: Step, entry: Entry) -> bool:
        """Whether an entry must wait because it is of another batch."""
        return self.channel.whole_batches and step.end is not None and step.end.batch != entry.position.batch

    def _next(self) -> Entry | None:
        if self._held is not None:
            entry, self._held = self._held, None
            return entry
        if self._entries is None:
            self._entries = self.log.read(self.ledger.position)
        found = next(self._entries, None)
        if found is None:
            self._entries = None
            return None
        return Entry(*found)


class Backlog:
    """Counts the lines of the log that a sink has still to pass; each new file is counted once, each second at most."""

    def __init__(self, log: AlertLog, ledger: Ledger) -> None:
        self.log, self.ledger = log, ledger
        self._corrupt = 0
        place = ledger.position
        self._next_batch = place.batch if place else 0
        self._looked_at = float("-inf")
        ledger.counts["pending"] = -(place.line + 1) if place else 0
        self.look()

    def look(self) -> None:
        """Count what is new, and what could not be read."""
        self.ledger.add(corrupt=self.log.corrupt - self._corrupt)
        if self.log.corrupt > self._corrupt:
            self.ledger.failed(self.log.fault)
        self._corrupt = self.log.corrupt
        now = self.ledger.clock.now()
        if now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        for batch, path in self.log.batches(self._next_batch):
            self._next_batch = batch + 1
            self.ledger.add(pending=self.log.count(path))

    def passed(self, lines: int) -> None:
        """Take away what was dealt with."""
        self.ledger.counts["pending"] = max(0, self.ledger.counts["pending"] - lines)

    def ended(self, place: Position | None) -> None:
        """Begin anew at the end of the log, so that lines that could not be read do not add up."""
        self._next_batch = place.batch + 1 if place else 0
        self.ledger.counts["pending"] = 0
        self.look()
