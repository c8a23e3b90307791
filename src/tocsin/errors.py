"""The errors that Tocsin raises.

    TocsinError
    ├── RuleError          what the user wrote cannot be meant so: expression, bounds, shapes, columns
    │   ├── ExprError      a condition that cannot be read; underlines its place
    │   └── SqlError       SQL that cannot be read or is not supported; underlines its place
    ├── PlanError          the parts are right, together they cannot run
    └── RunError           a run cannot start or go on: state of another version or bucket count, sources that fail

A wrong Python argument stays a ValueError or TypeError.
"""

from __future__ import annotations


class TocsinError(Exception):
    """Base of all errors that are about rules, plans and runs."""


class RuleError(TocsinError):
    """A rule that cannot be meant as written."""


class ExprError(RuleError):
    """A condition that cannot be read, with its place."""

    def __init__(self, message: str, text: str = "", start: int = 0, stop: int = 0) -> None:
        self.message, self.text, self.start, self.stop = message, text, start, stop
        super().__init__(message + _underline(text, start, stop))

    def of(self, place: str) -> ExprError:
        """The same error, told where the condition stands."""
        return ExprError(f"{place}: `expr`: {self.message}", self.text, self.start, self.stop)


class SqlError(RuleError):
    """SQL that cannot be read or is not supported, with its place: line and column from 1, and a mark under it."""

    def __init__(self, message: str, text: str, start: int, stop: int) -> None:
        self.message, self.text, self.start, self.stop = message, text, start, stop
        self.line = text.count("\n", 0, start) + 1
        self.column = start - (text.rfind("\n", 0, start) + 1) + 1
        super().__init__(f"{self.line}:{self.column}: {message}{_underline(text, start, stop)}")


class PlanError(TocsinError):
    """Rules and streams that cannot run together."""


class RunError(TocsinError):
    """A run that cannot start or go on."""


def _underline(text: str, start: int, stop: int) -> str:
    """Draw the line of `text` around `start` and mark it; long lines are cut to what a terminal shows."""
    if not text:
        return ""
    begin = text.rfind("\n", 0, start) + 1
    end = text.find("\n", start)
    end = len(text) if end < 0 else end
    left = max(begin, start - 50)
    shown = text[left : min(end, left + 100)].replace("\t", " ")
    width = max(1, min(stop, end, left + 100) - start)
    return f"\n  {shown}\n  {' ' * (start - left)}{'^' * width}"
