"""Warn of rules that may be meant as written, and often are not."""

from __future__ import annotations

from typing import Any

from tocsin.rules.durations import duration_text, microseconds
from tocsin.rules.model import Rule
from tocsin.rules.references import Placed, Read


def warn_of_traps(placed: Placed, rule: Rule, read: Read, plan: Any, *, shared: bool) -> None:
    """Add warnings and notes about a rule without mistakes. A rule with `emit: all` has no alert states to warn of.

    `shared`: the file limits the memory that its joins share.
    """
    (watch,) = plan.watches
    (threshold,) = watch.rules
    if delay := watch.delay_text(threshold):
        placed.note(delay, "alert")
    _warn_of_idle(placed, rule, shares=shared and len(read.streams) > 1 and rule.spending is None)
    if threshold.no_wait:
        placed.warn(f"`quality` changes nothing ({threshold.no_wait})", "quality")
    if rule.emit == "all":
        return
    for_us = microseconds(rule.for_, "`for`")
    if len(read.streams) > 1 and not for_us and not _has_band(rule):
        message = (
            "`keep_firing_for` should be given where streams are joined: each row finds other partners, so near its "
            "threshold the alert flaps; got neither it nor `for` nor `recovery`"
        )
        placed.warn(message, "alert")
    if rule.stale is None:
        _warn_of_pauses(placed, read, for_us, threshold.stale_us)
    _warn_of_beliefs(placed, rule, read, threshold)


def _warn_of_idle(placed: Placed, rule: Rule, *, shares: bool) -> None:
    """Warn of what says how memory is used where the rule neither has a limited one nor shares that of the file."""
    for name in ("prefer", "model", "weight"):
        if (name,) not in placed.places:
            continue
        if rule.memory is None and not shares:
            placed.warn(f"`{name}` changes nothing: the memory of this rule is not limited, by `memory`", name)
        elif name == "weight" and rule.memory is not None:
            placed.warn("`weight` changes nothing: the rule has a `memory` of its own, and shares none", name)


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
            f"`stale` should be given: in a pause of more than {duration_text(stale_us)}, its default here, `for` "
            f"begins anew; `no_data` of {longest!r} takes up to {duration_text(quiet[longest])} for normal"
        )
        placed.warn(message, "for")


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
                message = f"`shapes` of {name!r} is stated, not proved: if it is false, alarms are lost"
                placed.warn(message, "shapes", name)
