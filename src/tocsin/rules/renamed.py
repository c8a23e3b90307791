"""Renamed keys: the new name of every key, parameter and word of rules that has been renamed.

The readers of rule files and the classes of rules use this table to name the new key in the error for an old key.
"""

from __future__ import annotations

import functools
from collections.abc import Container, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from tocsin.rules.field_error import FieldError

# Old name -> new name. A dot separates a new block from a key in it.
RENAMED: Mapping[str, str] = {
    "ahead": "max_ahead",
    "cpu": "quality.cpu",
    "deadline": "quality.deadline",
    "every": "adapt_every",
    "grain": "step",
    "idle": "idle_timeout",
    "memory": "quality.memory",
    "model": "quality.model",
    "outage": "allowed_lateness",
    "over": "period",
    "prefer": "quality.prefer",
    "show_past": "max_age",
    "spread": "shards",
    "starting": "starting_offsets",
    "wait": "quality.wait",
    "weight": "quality.weight",
    "whole": "unreduced",
}

Rules = TypeVar("Rules")


def renamed_hint(name: object, known: Container[str]) -> str:
    """Return the hint that names the new key, or an empty text if no key in `known` replaces `name`.

    >>> renamed_hint("outage", ["expr", "allowed_lateness"])
    '; use `allowed_lateness`'
    >>> renamed_hint("outage", ["keys", "source"])
    ''
    """
    new = RENAMED.get(name, "") if isinstance(name, str) else ""
    return f"; use `{new}`" if new.partition(".")[0] in known else ""


def reject_renamed_parameters(rules: type[Rules]) -> type[Rules]:
    """Decorate a dataclass of rules: its constructor raises a FieldError if a parameter has been renamed."""
    build = rules.__init__
    known = {field.name for field in fields(rules)}  # type: ignore[arg-type]

    @functools.wraps(build)
    def check_and_build(self: Rules, *args: Any, **given: Any) -> None:
        for name in given.keys() - known:
            if hint := renamed_hint(name, known):
                alert = args[0] if args else given.get("alert")
                message = f"`{name}` is not a parameter of {rules.__name__}{hint}"
                raise FieldError(message, [name], location=f'rule "{alert}"')
        build(self, *args, **given)

    rules.__init__ = check_and_build  # type: ignore[assignment, method-assign]
    return rules
