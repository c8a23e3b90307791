"""What the condition of a rule reads: its variables are looked up among the streams and tables of the file.

What the planner knows is asked of the planner, which stands above and is handed in; here its answers get their places.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

from tocsin.errors import TocsinError
from tocsin.expr.parser import parse_condition_with_errors
from tocsin.expr.syntax_tree import Condition, Key, Variable
from tocsin.rules import compose
from tocsin.rules.compose import Scalar
from tocsin.rules.context import Context
from tocsin.rules.limits import Limits
from tocsin.rules.model import Rule
from tocsin.rules.ranges import RangeRule
from tocsin.rules.rulefile import DOUBTFUL, Domain, Stream

# No column of a file can have this name, so it is never taken for a value.
TIME = " time"


class Planner(Protocol):
    """Plan a rule over columns of streams, or raise what is wrong with it."""

    def __call__(self, rules: Rule | RangeRule, columns: Mapping[str, Sequence[str]], *, time: str) -> Any:
        """Plan a rule."""


@dataclass
class Known:
    """The streams and tables of a file, and who plans. None stands for one that has a mistake of its own."""

    streams: Mapping[str, Stream | None]
    limits: Mapping[str, Limits | None]
    plan: Planner
    # Whether both sections could be read at all; if not, a name that is not there may be meant.
    is_whole: bool = True
    # Whether the file limits the memory that joins share.
    shares_memory: bool = False
    used: set[str] = field(default_factory=set)
    _answers: dict[Key, str] = field(default_factory=dict)
    _columns: dict[str, list[str]] = field(default_factory=dict)

    def is_unsure(self, name: str) -> bool:
        """Whether a name is there, but not what it stands for."""
        return self.streams.get(name, self.limits.get(name, 0 if self.is_whole else None)) is None

    def may_read(self, name: str) -> bool:
        """Whether some condition could read this: a stream, or a column of one, that the file has or may have."""
        stream, _, column = name.partition(".")
        found = self.streams.get(stream)
        return self.is_unsure(stream) if found is None else not column or column in found.values

    def mistake(self, variable: Variable) -> str:
        """Say what is wrong with a variable; the planner is asked once for each."""
        key = variable.key
        if key not in self._answers:
            table = None if variable.stream in self.streams else self.limits.get(variable.stream)
            self._answers[key] = self._planned(variable) if table is None else table.mistake(*key)
        return self._answers[key]

    def _planned(self, variable: Variable) -> str:
        if not self._columns:
            self._columns = {name: [TIME] for name in self.limits}
            self._columns |= {name: [TIME, *(stream.values if stream else ())] for name, stream in self.streams.items()}
        probe = Rule("probe", f"{variable} > 0")
        try:
            self.plan(probe, self._columns, time=TIME)
        except TocsinError as error:
            return str(error).removeprefix(f"{probe.location}: ")
        return ""


@dataclass(frozen=True)
class Read:
    """A condition, the variables of it that are known, and the streams they read.

    It is whole if it has no mistake, and reads nothing that has a mistake of its own.
    """

    condition: Condition | None = None
    variables: tuple[Variable, ...] = ()
    streams: Mapping[str, Stream] = field(default_factory=dict)
    is_whole: bool = False

    def domain(self, variable: Variable) -> Domain | None:
        """The domain of a variable, if its stream declares one."""
        stream = self.streams.get(variable.stream)
        column = stream.column(variable.column) if stream else None
        return stream.values[column].domain if stream and column else None


@dataclass
class Placed:
    """A rule on its way: where its parts stand, by the paths that mistakes name."""

    context: Context
    places: dict[tuple[object, ...], compose.Node]
    node: compose.Node
    where: str
    is_joined: bool = True

    def report(self, message: str, *path: object, offset: int | None = None) -> None:
        """Note a mistake at the nearest part that is there; one in the bounds leaves open what is joined."""
        self.is_joined &= path[:1] != ("within",)
        self.context.report(self._nearest(path), self.where, message, offset=offset)

    def warn(self, message: str, *path: object) -> None:
        """Note a warning at the nearest part that is there."""
        self.context.warn(self._nearest(path), self.where, message)

    def note(self, message: str, *path: object) -> None:
        """Add a note at the nearest part that exists."""
        self.context.note(self._nearest(path), self.where, message)

    def _nearest(self, path: tuple[object, ...]) -> compose.Node:
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path, self.node)


def read_condition(placed: Placed, text: str | None, known: Known) -> Read:
    """Parse a condition and check its variables: all its mistakes are reported."""
    if text is None:
        return Read()
    result = parse_condition_with_errors(text)
    for error in result.errors:
        placed.report(f"`expr`: {error.message}", "expr", offset=error.start)
    good = []
    for variable in result.variables:
        known.used.add(variable.stream)
        if known.is_unsure(variable.stream):
            continue
        if message := known.mistake(variable):
            placed.report(f"`expr`: {message}", "expr", offset=variable.start)
        else:
            good.append(variable)
    streams = {v.stream: stream for v in result.variables if (stream := known.streams.get(v.stream)) is not None}
    is_whole = not result.errors and len(good) == len(result.variables)
    return Read(result.condition, tuple(good), streams, is_whole)


def settings(placed: Placed, read: Read, known: Known) -> dict[str, Any]:
    """What a rule takes from the streams and tables that it reads: domains, tables, the longest `idle_timeout`."""
    domains, tables = {}, {}
    for variable in read.variables:
        domain, table = read.domain(variable), known.limits.get(variable.stream)
        if domain is not None and domain is not DOUBTFUL:
            domains[str(variable)] = domain.ends
        if variable.stream not in read.streams and table is not None:
            tables[variable.stream] = table
            placed.places["limits", variable.stream] = _spot(placed, variable)
    idle = [stream.idle_timeout_us for stream in read.streams.values() if stream.idle_timeout_us is not None]
    return {"domains": domains, "limits": tables} | (
        {"idle_timeout": timedelta(microseconds=max(idle))} if idle else {}
    )


def _spot(placed: Placed, variable: Variable) -> compose.Node:
    """Where a variable stands in the file."""
    node = placed.places["expr",]
    assert isinstance(node, Scalar)
    return compose.Node(*compose.place_in(node, variable.start, placed.context.lines))
