"""Lint: warnings and notes about rules without errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tocsin.errors import NOTE, WARNING
from tocsin.expr.syntax_tree import Variable
from tocsin.rules.durations import duration_text, microseconds
from tocsin.rules.model import Rule
from tocsin.rules.placed import Placed
from tocsin.rules.rulefile import Domain, Stream


@dataclass(frozen=True)
class Read:
    """Variables of a condition that read a column, and the streams that it reads.

    It is whole if the condition has no error and each variable reads a column or a limit.
    """

    variables: tuple[Variable, ...]
    streams: Mapping[str, Stream]
    is_whole: bool

    def domain(self, variable: Variable) -> Domain | None:
        """Return the declared domain of a variable."""
        stream = self.streams.get(variable.stream)
        column = stream.column(variable.column) if stream else None
        return stream.values[column].domain if stream and column else None


def add_warnings(placed: Placed, rule: Rule, read: Read, plan: Any, *, shared: bool) -> None:
    """Add warnings and notes about a rule without mistakes. A rule with `emit: all` has no alert states to warn of.

    `shared`: the file limits the memory that its joins share.
    """
    (watch,) = plan.watches
    (threshold,) = watch.rules
    if delay := watch.delay_text(threshold):
        placed.add("alert-delay", ["alert"], delay, severity=NOTE)
    _warn_of_missing_keys(placed, rule, read)
    _warn_of_unused_options(placed, rule, shares=shared and len(read.streams) > 1 and rule.quality_options.cpu is None)
    if threshold.no_wait:
        message = f"`quality.recall` has no effect ({threshold.no_wait})"
        placed.add("no-effect", ["quality", "recall"], message, severity=WARNING)
    if rule.emit == "all":
        for name in ("for", "keep_firing_for", "stale"):
            if (name,) in placed.places:
                message = f"`{name}` has no effect with `emit: all`, because a match has no end"
                placed.add("no-effect", [name], message, severity=WARNING)
        return
    for_us = microseconds(rule.for_, "`for`")
    if len(read.streams) > 1 and not for_us and not _has_band(rule):
        message = (
            "`keep_firing_for` should be set for a join: each row joins with other rows, so the alert flaps near its "
            "threshold"
        )
        found = "no `for`, `keep_firing_for` or `recovery`"
        placed.add("flapping-alert", ["alert"], message, found, severity=WARNING)
    if rule.stale is None:
        _warn_of_pauses(placed, read, for_us, threshold.stale_us)
    _warn_of_beliefs(placed, rule, read, threshold)


def _warn_of_missing_keys(placed: Placed, rule: Rule, read: Read) -> None:
    """Warn of a rule without `on` if its streams have common key columns: it would join rows of different keys."""
    streams = list(read.streams.values())
    common = [key for key in streams[0].keys if all(key in stream.keys for stream in streams)] if streams else []
    if common and ("on",) not in placed.places:
        message = (
            f"`on` should be set to key columns of the streams ({', '.join(common)}): without it, rows of all keys "
            "are evaluated together and share one alert; write `on: []` if that is intended"
        )
        placed.add("missing-on", ["alert"], message, severity=WARNING)


def _warn_of_unused_options(placed: Placed, rule: Rule, *, shares: bool) -> None:
    """Warn of options that need a memory budget if the rule has no budget and no share of the budget of the file."""
    has_memory = rule.quality_options.memory is not None
    for name in ("prefer", "model", "weight"):
        if ("quality", name) not in placed.places:
            continue
        if not has_memory and not shares:
            message = f"`quality.{name}` has no effect, because the rule has no `quality.memory`"
            placed.add("no-effect", ["quality", name], message, severity=WARNING)
        elif name == "weight" and has_memory:
            message = "`quality.weight` has no effect, because the rule shares no memory: it has a `quality.memory`"
            placed.add("no-effect", ["quality", name], message, severity=WARNING)


def _has_band(rule: Rule) -> bool:
    """Whether a false evaluation does not end the alert at once."""
    return rule.recovery is not None or microseconds(rule.keep_firing_for, "`keep_firing_for`") > 0


def _warn_of_pauses(placed: Placed, read: Read, for_us: int, stale_us: int) -> None:
    """Warn where the file takes pauses for normal in which `for` begins anew, and nobody is told.

    How often rows come is not known here; only `no_data` says which pauses are to be told.
    """
    quiet = {stream.name: stream.no_data.for_us for stream in read.streams.values() if stream.no_data is not None}
    longest = max(quiet, key=lambda name: quiet[name], default="")
    if for_us > stale_us and longest and quiet[longest] > stale_us:
        message = (
            f"`stale` should be set: after a pause of more than {duration_text(stale_us)}, the default here, `for` "
            f"starts again, but `no_data` of {longest!r} allows pauses of up to {duration_text(quiet[longest])}"
        )
        placed.add("short-stale", ["for"], message, severity=WARNING)


def _warn_of_beliefs(placed: Placed, rule: Rule, read: Read, threshold: Any) -> None:
    """Warn of shapes on whose strength rows are left out, and that nothing proves."""
    reduced = {store.stream for store in threshold.needs if not store.whole}
    proofs = dict(threshold.proofs)
    for variable in read.variables:
        if variable.stream not in reduced:
            continue
        column = f"{variable.stream}.{read.streams[variable.stream].column(variable.column)}"
        believed = column in proofs and not proofs[column].proved
        for name in dict.fromkeys((str(variable), column)):
            if believed and rule.shapes.get(name) is not None:
                message = f"`shapes` of {name!r} is stated but not proved: alarms are lost if it is false"
                placed.add("unproved-shape", ["shapes", name], message, severity=WARNING)
