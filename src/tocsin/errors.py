"""Errors: the exceptions that Tocsin raises.

    TocsinError
    ├── RuleError          an invalid rule: expression, time bounds, shapes, columns
    │   ├── ExprError      a condition that cannot be parsed; the message underlines the position
    │   └── SqlError       invalid or unsupported SQL; the message underlines the position
    ├── PlanError          valid rules and streams that cannot run together
    └── RunError           a run that cannot start or continue: incompatible state, failing sources

A wrong argument of a Python function raises ValueError or TypeError instead.
"""

from __future__ import annotations


class TocsinError(Exception):
    """Base class of all errors about rules, plans and runs."""


class RuleError(TocsinError):
    """An invalid rule."""


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
        super().__init__(message + _underline(text, start, stop))

    def with_place(self, place: str) -> ExprError:
        """Return the same error whose message begins with the place of the condition."""
        return ExprError(f"{place}: `expr`: {self.message}", self.text, self.start, self.stop)


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
        super().__init__(f"{self.line}:{self.column}: {message}{_underline(text, start, stop)}")


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


def _underline(text: str, start: int, stop: int) -> str:
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
