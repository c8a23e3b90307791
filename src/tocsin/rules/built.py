"""Build what a mapping of a rule file says; each mistake that it finds in itself is reported, and all are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tocsin.rules.compose import MapNode, Node
from tocsin.rules.field_error import FieldError
from tocsin.rules.quality import remove_option
from tocsin.rules.references import Placed

# Stands for a name that is missing, so that the rest of its rule is checked.
UNNAMED = "unnamed"

Built = TypeVar("Built")


def built(make: Callable[..., Built], given: dict[str, Any], placed: Placed) -> Built:
    """Build a rule; what a mistake is about is left out, and the rest is tried again."""
    while True:
        try:
            return make(**given)
        except FieldError as error:
            placed.report(error.sentence, *error.path, offset=error.offset)
            _leave_out(given, error.path, error.offset)


def place_entries(places: dict[tuple[object, ...], Node], name: str, node: Node | None) -> None:
    """Note where the entries of a mapping stand, and their names."""
    if isinstance(node, MapNode):
        for word, (key, value) in node.entries.items():
            places[name, word] = value
            places[name, word, "name"] = key


def _leave_out(given: dict[str, Any], path: tuple[object, ...], offset: int | None) -> None:
    """Take away the part of a rule that a mistake is about; of a template, blank the action alone."""
    name = "for_" if path[0] == "for" else str(path[0])
    inner = given.get(name)
    if offset is not None and isinstance(inner, dict) and "}}" in inner[path[1]][offset:]:
        text = inner[path[1]]
        start, end = text.rindex("{{", 0, offset + 2), text.index("}}", offset) + 2
        inner[path[1]] = text[:start] + " " * (end - start) + text[end:]
    elif path[0] == "quality" and len(path) > 1 and isinstance(inner, dict):
        remove_option(inner, path[1:])
    elif len(path) > 1 and isinstance(inner, dict):
        del inner[path[1]]
    elif len(path) > 1 and isinstance(inner, tuple):
        given[name] = tuple(item for item in inner if item != path[1])
    elif name == "alert":
        given[name] = UNNAMED
    else:
        del given[name]
