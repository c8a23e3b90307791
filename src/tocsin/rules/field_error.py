"""A mistake in one field of what the user wrote, and the way to it."""

from __future__ import annotations

from collections.abc import Sequence

from tocsin.errors import RuleError


class FieldError(RuleError):
    """A mistake in one field of a rule.

    `path` leads to it, as in `("labels", "team")`, with `"name"` behind if the name itself is wrong; `sentence` says it
    without the location of the rule; `offset` is the position inside a text.
    """

    def __init__(self, sentence: str, path: Sequence[object], *, location: str = "", offset: int | None = None) -> None:
        self.sentence, self.path, self.offset = sentence, tuple(path), offset
        super().__init__(f"{location}: {sentence}" if location else sentence)


class FieldErrors(RuleError):
    """All mistakes that were found in the fields of a rule."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        self.errors = tuple(errors)
        super().__init__("\n".join(str(error) for error in errors))


def written(path: Sequence[object]) -> str:
    """Write a path as Python would: `within[('a', 'b')]`."""
    return str(path[0]) + "".join(f"[{name!r}]" for name in path[1:])
