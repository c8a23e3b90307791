"""Errors: `Diagnostic`, the value that describes an error, and the exceptions that Tocsin raises.

    TocsinError
    ├── RuleError          invalid rules: all diagnostics
    │   ├── ExprError      a condition that cannot be parsed; the message underlines the position
    │   └── SqlError       invalid or unsupported SQL; the message underlines the position
    ├── PlanError          valid rules and streams that cannot run together
    └── RunError           a run that cannot start or continue: incompatible state, failing sources

A wrong argument of a Python function raises ValueError or TypeError instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

# Severities. A warning reports a valid but suspicious setting, a note a property of a valid rule.
ERROR, WARNING, NOTE = "error", "warning", "note"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """An error, a warning or a note about a part of a rule or a file.

    Attributes
    ----------
    code
        Stable name of the kind of error; `tocsin.diagnostic_codes` has its cause and remedy.
    path
        Names and positions that lead from the rule, the plan or the file to the part. It ends with `NAME` if the name
        of the part is wrong.
    message
        Thing and rule.
    found
        Value that was found. It is empty if the message contains the value.
    hint
        Remedy. It is empty if the message states the remedy.
    severity
        `error`, `warning` or `note`.
    where
        Name of the rule, the stream or the section of the file.
    quoted, span
        Text that contains the error, such as a condition, and its range of characters.
    file, line, column
        Position in a file, both numbers from 1; 0 if the value does not come from a file.
    """

    code: str
    path: tuple[object, ...]
    message: str
    found: str = ""
    hint: str = ""
    severity: str = ERROR
    where: str = ""
    quoted: str = ""
    span: tuple[int, int] | None = None
    file: str = ""
    line: int = 0
    column: int = 0

    @property
    def sentence(self) -> str:
        """Message, value and hint, without the position."""
        found = f"got {self.found}" if self.found else ""
        return "; ".join(part for part in (self.message, found, self.hint) if part)

    @property
    def excerpt(self) -> str:
        """The quoted text in a line, and a line that underlines the error; empty if nothing is quoted."""
        return underline(self.quoted, *self.span) if self.span is not None else ""

    def __str__(self) -> str:
        """Return position, severity and sentence in one line, in the format of compilers."""
        place = f"{self.file}:{self.line}:{self.column}" if self.line else ""
        severity = "" if self.severity == ERROR else self.severity
        return ": ".join(part for part in (place, severity, self.where, self.sentence) if part)


# Last element of a path: the name of the part is wrong, not its value.
NAME = "name"


class Diagnostics(list[Diagnostic]):
    """Diagnostics in the order in which they were found."""

    def add(
        self, code: str, path: Sequence[object], message: str, found: str = "", hint: str = "", **rest: Any
    ) -> None:
        """Append a diagnostic."""
        self.append(Diagnostic(code, tuple(path), message, found, hint, **rest))

    @contextmanager
    def at(self, *path: object) -> Iterator[None]:
        """Append the diagnostics of a RuleError that is raised inside, with `path` in front of their paths."""
        try:
            yield
        except RuleError as error:
            self.extend(replace(one, path=(*path, *one.path)) for one in error.diagnostics)

    @contextmanager
    def of(self, where: str) -> Iterator[Diagnostics]:
        """Return a collector for one rule; its diagnostics are appended with the name of the rule."""
        mine = Diagnostics()
        yield mine
        self.extend(replace(one, where=one.where or where) for one in mine)

    def raise_errors(self, where: str = "") -> None:
        """Raise all errors together, if there are errors; `where` names the rule of those without a rule."""
        errors = [replace(one, where=one.where or where) for one in self if one.severity == ERROR]
        if not errors:
            return
        if all(one.code == "invalid-condition" for one in errors):
            raise ExprError.join(errors)
        raise RuleError(*errors) if any(one.where for one in errors) else PlanError(*errors)


class TocsinError(Exception):
    """Base class of all errors about rules, plans and runs.

    Attributes
    ----------
    diagnostics
        The errors, each with its code and path. An error with a text only has one diagnostic with this text.
    """

    def __init__(self, *errors: str | Diagnostic) -> None:
        self.diagnostics = tuple(
            one if isinstance(one, Diagnostic) else Diagnostic("failed", (), one) for one in errors
        )
        super().__init__("\n".join(f"{one}{one.excerpt}" for one in self.diagnostics))


class RuleError(TocsinError):
    """Invalid rules."""


class ExprError(RuleError):
    """A condition that cannot be parsed.

    Attributes
    ----------
    message
        Message without the quoted condition.
    text, start, stop
        Condition, and the range of characters that has the error. The text is empty if no range is known.
    """

    def __init__(self, message: str, text: str = "", start: int = 0, stop: int = 0) -> None:
        self.message, self.text, self.start, self.stop = message, text, start, stop
        span = (start, stop) if text else None
        super().__init__(Diagnostic("invalid-condition", ("expr",), message, quoted=text, span=span))

    @classmethod
    def join(cls, errors: Sequence[Diagnostic]) -> ExprError:
        """Return one error with the diagnostics of several."""
        start, stop = errors[0].span or (0, 0)
        joined = cls(errors[0].message, errors[0].quoted, start, stop)
        RuleError.__init__(joined, *errors)
        return joined


class SqlError(RuleError):
    """Invalid or unsupported SQL.

    Attributes
    ----------
    message
        Message without the position and the quoted SQL.
    text, start, stop
        SQL, and the range of characters that has the error.
    line, column
        Position of the first of these characters, both from 1.
    """

    def __init__(self, message: str, text: str, start: int, stop: int) -> None:
        self.message, self.text, self.start, self.stop = message, text, start, stop
        self.line = text.count("\n", 0, start) + 1
        self.column = start - (text.rfind("\n", 0, start) + 1) + 1
        super().__init__(f"{self.line}:{self.column}: {message}{underline(text, start, stop)}")


class PlanError(TocsinError):
    """Valid rules and streams that cannot run together."""


class RunError(TocsinError):
    """A run that cannot start or continue."""


def value_text(value: object) -> str:
    """Return a value as a message shows it, with at most 60 characters."""
    try:
        return f"{value!r:.60}"
    except ValueError:
        # Python cannot convert integers with thousands of digits.
        return "a number with too many digits"


def underline(text: str, start: int, stop: int) -> str:
    """Return the line of `text` around `start`, cut to the width of a terminal, and a line that underlines it."""
    if not text:
        return ""
    begin = text.rfind("\n", 0, start) + 1
    end = text.find("\n", start)
    end = len(text) if end < 0 else end
    left = max(begin, start - 50)
    shown = text[left : min(end, left + 100)].replace("\t", " ")
    width = max(1, min(stop, end, left + 100) - start)
    return f"\n  {shown}\n  {' ' * (start - left)}{'^' * width}"


LONGEST = 500


def printable(text: str) -> str:
    r"""Cut a text to one line without control characters, which a terminal would obey.

    >>> printable("a" + chr(27) + "[31m")
    'a\\x1b[31m'
    """
    text = text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
