"""Refuse Python files that have grown too long to be read in one go, and list those that are on the way there."""

from __future__ import annotations

import sys
from pathlib import Path

FOLDERS = ("src", "tests", "benchmarks", "examples", "scripts")
AIM, LIMIT = 300, 500


def lengths(root: Path) -> dict[str, int]:
    """Count the lines of every Python file below the project's folders."""
    files = (file for folder in FOLDERS for file in sorted((root / folder).rglob("*.py")))
    return {str(file.relative_to(root)): len(file.read_text(encoding="utf-8").splitlines()) for file in files}


def main() -> int:
    """Print the long files, longest first; give 1 if one is over the limit."""
    found = lengths(Path(__file__).resolve().parent.parent)
    for name, lines in sorted(found.items(), key=lambda item: -item[1]):
        if lines > LIMIT:
            print(f"{name}: {lines} lines; the limit is {LIMIT}, split it")
        elif lines > AIM:
            print(f"{name}: {lines} lines; the aim is {AIM}")
    return int(any(lines > LIMIT for lines in found.values()))


if __name__ == "__main__":
    sys.exit(main())
