"""Write lines and tables of words to a terminal, coloured, or to anything else, plain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO


def write_line(text: str, stream: TextIO, colour: str) -> None:
    """Write one line; on a terminal its place, up to the first space, stands out."""
    if not stream.isatty():
        print(text, file=stream)
        return
    # Only a terminal pays for the import.
    from rich.console import Console
    from rich.text import Text

    place, space, rest = text.partition(" ")
    Console(file=stream, soft_wrap=True).print(Text.assemble((place, f"bold {colour}"), space, rest))


def write_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], stream: TextIO, column: int, colours: Sequence[str]
) -> None:
    """Write a table; on a terminal long cells wrap, and one column has colours, one per row."""
    if not stream.isatty():
        from tocsin.cli.tables import table

        for line in table(head, rows, words=len(head)):
            print(line, file=stream)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from tocsin.rules.mistakes import printable

    drawn = Table(*head, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for row, colour in zip(rows, colours, strict=True):
        # Text, so that no cell is read as markup.
        drawn.add_row(*(Text(printable(cell), colour if i == column else "") for i, cell in enumerate(row)))
    Console(file=stream).print(drawn)
