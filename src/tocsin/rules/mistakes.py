"""What is wrong with a rule file: a list of mistakes, each with its place, instead of the first one alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tocsin.errors import RuleError

LONGEST = 500
MOST = 1000


# Kinds of `Mistake`. A note reports a property of a correct rule.
ERROR, WARNING, NOTE = "error", "warning", "note"


@dataclass(frozen=True, order=True)
class Mistake:
    """One thing that cannot be meant as written; a warning may be meant so, and often is not."""

    file: str
    line: int
    column: int
    where: str
    message: str
    kind: str = ERROR

    def __str__(self) -> str:
        """Write it as compilers do: `file:line:col: where: what must hold; what was found`."""
        parts = [self.kind] * (self.kind != ERROR) + [self.where] * bool(self.where) + [self.message]
        return f"{printable(self.file)}:{self.line}:{self.column}: {': '.join(parts)}"


class RuleFileError(RuleError):
    """A rule file with mistakes: all of them, in the order of their places."""

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(str(mistake) for mistake in self.mistakes))


class TooManyMistakes(Exception):
    """Reading on would say nothing new."""


class Mistakes:
    """Collect the mistakes of one file and of the tables it names; after a thousand the file is given up."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.count = 0
        self._found: dict[Mistake, None] = {}

    def add(self, line: int, column: int, where: str, message: str, *, file: str = "", kind: str = ERROR) -> None:
        """Note a mistake; the same one at the same place, seen through an alias, is noted once."""
        mistake = Mistake(file or self.file, line, column, printable(where), printable(message), kind)
        if mistake in self._found:
            return
        if self.count == MOST and kind == ERROR:
            message = f"only the first {MOST:,} errors are reported; the rest of the file is not checked"
            self._found[Mistake(self.file, line, column, "", message)] = None
            raise TooManyMistakes
        self._found[mistake] = None
        self.count += kind == ERROR

    def sorted(self, kind: str = ERROR) -> tuple[Mistake, ...]:
        """Return the mistakes of a kind by their place: those of the rule file first."""
        noted = (mistake for mistake in self._found if mistake.kind == kind)
        return tuple(sorted(noted, key=lambda mistake: (mistake.file != self.file, mistake)))


def printable(text: str) -> str:
    r"""Cut a text to one line that a terminal shows and does not obey.

    >>> printable("a" + chr(27) + "[31m")
    'a\\x1b[31m'
    """
    text = text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
