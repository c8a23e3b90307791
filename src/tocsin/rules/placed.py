"""Placed rule: a rule of a file, the positions of its parts, and its construction without the parts that are wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, Protocol, TypeVar

from tocsin.errors import Diagnostic, Diagnostics
from tocsin.rules.compose import ListNode, MapNode, Node, Scalar
from tocsin.rules.context import Context
from tocsin.rules.limits import Limits
from tocsin.rules.rulefile import Stream, scope_of
from tocsin.rules.scope import Scope

# Name of a rule without a valid name, so that the rest of the rule is checked.
UNNAMED = "unnamed"
# The same for a stream. No stream has this name.
UNREAD = " unread"


class _Checked(Protocol):
    def check(self, diagnostics: Diagnostics) -> None: ...


Rules = TypeVar("Rules", bound=_Checked)


class Planned(Protocol):
    """Result of planning."""

    @property
    def plan(self) -> Any:
        """The plan, or None if there are errors."""

    @property
    def diagnostics(self) -> Diagnostics:
        """The errors."""


class Planner(Protocol):
    """Function that plans rules, such as `tocsin.plan.plan_rules`."""

    def __call__(self, rules: Any, scope: Scope) -> Planned:
        """Plan rules over the streams of a scope."""


@dataclass
class FileScope:
    """Streams and tables of a file, None if they have errors, and the planner."""

    streams: Mapping[str, Stream | None]
    tables: Mapping[str, Limits | None]
    plan: Planner
    # Whether both sections could be read. If not, an unknown name can be correct.
    is_whole: bool = True
    # Whether the file limits the memory that joins share.
    shares_memory: bool = False
    used: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Compute what conditions can read."""
        streams = {name: stream for name, stream in self.streams.items() if stream is not None}
        tables = {name: table for name, table in self.tables.items() if table is not None}
        wrong = (self.streams.keys() | self.tables.keys()) - (streams.keys() | tables.keys())
        self.scope = replace(scope_of(streams, tables), doubtful=frozenset(wrong), is_whole=self.is_whole)


@dataclass
class Placed:
    """Positions of the parts of a rule, by the paths of its diagnostics."""

    context: Context
    places: dict[tuple[object, ...], Node]
    node: Node
    where: str

    def report(self, diagnostics: Iterable[Diagnostic]) -> None:
        """Add diagnostics, each at the nearest part that exists."""
        for one in diagnostics:
            self.context.place(replace(one, where=self.where), self.find(one.path))

    def add(self, code: str, path: Iterable[object], message: str, found: str = "", hint: str = "", **at: Any) -> None:
        """Add a diagnostic."""
        self.report([Diagnostic(code, tuple(path), message, found, hint, **at)])

    def find(self, path: tuple[object, ...]) -> Node:
        """Return the node of the longest part of a path that exists."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path, self.node)

    def place_entries(self, name: str, node: Node | None) -> None:
        """Add the positions of the entries of a mapping, and of their names."""
        if isinstance(node, MapNode):
            for word, (key, value) in node.entries.items():
                self.places[name, word] = value
                self.places[name, word, "name"] = key

    def build(self, rules: type[Rules], given: dict[str, Any]) -> tuple[Rules, Diagnostics]:
        """Return a rule without the arguments that are wrong, and their diagnostics, which are reported."""
        diagnostics = Diagnostics()
        unchecked(rules, given).check(diagnostics)
        self.report(diagnostics)
        for one in diagnostics:
            _leave_out(given, one)
        return unchecked(rules, given), diagnostics


def unchecked(rules: type[Rules], given: Mapping[str, Any]) -> Rules:
    """Return a rule with some arguments and the defaults of the others, without a check."""
    rule = object.__new__(rules)
    for one in fields(rules):  # type: ignore[arg-type]
        default = one.default_factory() if one.default_factory is not MISSING else one.default
        object.__setattr__(rule, one.name, given.get(one.name, default))
    return rule


def _leave_out(given: dict[str, Any], one: Diagnostic) -> None:
    """Remove the argument, or the entry of an argument, that an error is about."""
    name = "for_" if one.path[0] == "for" else str(one.path[0])
    inner = given.get(name)
    if one.code in {"invalid-template", "unknown-label"}:
        return  # The reader of templates omits invalid actions.
    if name == "quality" and len(one.path) > 1 and isinstance(inner, dict):
        block = inner.get(str(one.path[1]))
        if len(one.path) > 2 and isinstance(block, dict):
            block.pop(one.path[2], None)
        else:
            inner.pop(one.path[1], None)
    elif len(one.path) > 1 and isinstance(inner, dict):
        inner.pop(one.path[1], None)
    elif len(one.path) > 1 and isinstance(inner, tuple):
        given[name] = tuple(item for item in inner if item != one.path[1])
    elif name in {"alert", "expr", "values", "requests"}:
        given[name] = {"values": (UNREAD,), "requests": UNREAD}.get(name, UNNAMED)
    else:
        given.pop(name, None)


def item_named(node: Node, name: str) -> Node:
    """Return an item of a list by its text, or the list."""
    items = node.items if isinstance(node, ListNode) else []
    return next((item for item in items if isinstance(item, Scalar) and item.text == name), node)
