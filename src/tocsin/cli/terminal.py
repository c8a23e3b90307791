"""Write lines to a terminal, coloured, or to anything else, plain."""

from __future__ import annotations

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
