"""K-slack and the Synchronizer, one row at a time on plain lists: what leaves, when, and in which order.

Slow and obvious on purpose: it decides what the product must answer, so it shares no code with it.
A row is (number, stream, time); its number is its place in the order of arrival.
"""

from __future__ import annotations

from dataclasses import dataclass, field

Row = tuple[int, int, int]


def by_time(row: Row) -> tuple[int, int]:
    """The order in which rows leave: time, then arrival."""
    number, _, time = row
    return time, number


@dataclass
class KSlack:
    """The buffer of one stream; `clock` is the largest time seen, None before the first row.

    Rows leave when the clock rises; with `prompt`, also when a row comes that is due already.
    """

    slack: int
    clock: int | None = None
    buffer: list[Row] = field(default_factory=list)
    prompt: bool = False

    def arrive(self, row: Row) -> list[Row]:
        """Take a row; give what leaves.

        >>> slack = KSlack(1)
        >>> [[time for *_, time in slack.arrive((n, 0, t))] for n, t in enumerate([1, 4, 3, 5, 7, 8, 6, 9])]
        [[], [1], [], [3, 4], [5], [7], [], [6, 8]]
        """
        self.buffer.append(row)
        due = self.clock is not None and row[2] + self.slack <= self.clock
        if self.clock is not None and row[2] <= self.clock and not (self.prompt and due):
            return []
        self.clock = row[2] if self.clock is None else max(self.clock, row[2])
        leaving = sorted((held for held in self.buffer if held[2] + self.slack <= self.clock), key=by_time)
        self.buffer = [held for held in self.buffer if held not in leaving]
        return leaving

    def delay(self, row: Row) -> int:
        """How far a row that has arrived just now lies behind the clock."""
        assert self.clock is not None
        return self.clock - row[2]


@dataclass
class Synchronizer:
    """Algorithm 1; `t_sync` is None for minus infinity."""

    t_sync: int | None = None
    buffer: list[Row] = field(default_factory=list)

    def arrive(self, rows: list[Row], awaited: set[int]) -> list[Row]:
        """Put the rows of one arrival into the buffer; return the rows that leave while some streams are awaited."""
        behind = [row for row in rows if self.t_sync is not None and row[2] <= self.t_sync]
        self.buffer += [row for row in rows if row not in behind]
        return behind + self.emit(awaited)

    def emit(self, awaited: set[int]) -> list[Row]:
        """Give what leaves while some streams are waited for."""
        leaving = []
        while awaited <= {stream for _, stream, _ in self.buffer}:
            self.t_sync = min(time for *_, time in self.buffer)
            now = sorted((row for row in self.buffer if row[2] == self.t_sync), key=by_time)
            leaving += now
            self.buffer = [row for row in self.buffer if row not in now]
        return leaving


@dataclass
class Order:
    """One group: a K-slack per stream, each with its own K, and a Synchronizer; `idle` is None where no stream is."""

    slacks: list[int]
    idle: int | None = None
    prompt: bool = False

    def __post_init__(self) -> None:
        """Begin with nothing."""
        self.k_slacks = [KSlack(slack, prompt=self.prompt) for slack in self.slacks]
        self.synchronizer = Synchronizer()
        self.front = self.front_before = -(10**18)

    def awaited(self) -> set[int]:
        """The streams that are waited for."""
        clocks = {stream: k.clock for stream, k in enumerate(self.k_slacks) if k.clock is not None}
        if self.idle is None:
            return set(range(len(self.slacks)))
        return {stream for stream, clock in clocks.items() if clock >= max(clocks.values()) - self.idle}

    def arrive(self, row: Row) -> list[Row]:
        """Take a row; give what leaves. A stream becomes idle after all that this row sent on has come together."""
        before = self.awaited() or {row[1]}
        self.front_before = -(10**18) if self.idle is None else self.front
        own = self.k_slacks[row[1]]
        rises = own.clock is None or row[2] > own.clock
        moves = all(k.clock is None or row[2] > k.clock for k in self.k_slacks)
        passed = own.arrive(row)
        for stream, slack in enumerate(self.k_slacks):
            if self.idle is not None and slack.clock is not None and slack.clock < self.newest() - self.idle:
                # The clock of an idle stream stands still: the newest of all takes its place.
                due = [held for held in slack.buffer if held[2] + slack.slack <= self.newest()]
                if moves if stream != row[1] else rises or self.prompt:
                    passed += due
                    slack.buffer = [held for held in slack.buffer if held not in due]
        clocks = {stream: slack.clock for stream, slack in enumerate(self.k_slacks) if slack.clock is not None}
        slowest = min(clocks[stream] for stream in self.awaited() & clocks.keys())
        self.front = slowest if self.idle is None else max(self.front, slowest)
        leaving = self.synchronizer.arrive(sorted(passed, key=by_time), before)
        return leaving + self.synchronizer.emit(self.awaited())

    def newest(self) -> int:
        """The newest clock of all."""
        return max(slack.clock for slack in self.k_slacks if slack.clock is not None)

    def own_clock(self, row: Row) -> int:
        """Return the clock of the stream of the row that arrived last, or the front before it if that is newer."""
        own = self.k_slacks[row[1]].clock
        assert own is not None
        return max(own, self.front_before)

    def delay(self, row: Row) -> int:
        """Return the distance of the row that arrived last to this clock."""
        return self.own_clock(row) - row[2]

    def skew(self, row: Row) -> int:
        """Return the distance of this clock to the front, or to the slowest clock if no stream can be idle."""
        return self.own_clock(row) - self.front

    def held(self) -> list[Row]:
        """Rows that have not left."""
        return self.synchronizer.buffer + [row for k in self.k_slacks for row in k.buffer]
