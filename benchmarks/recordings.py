"""Recordings: public data sets that benchmarks and tests read but that the project does not contain.

The environment variable `TOCSIN_RECORDINGS` names the folder that holds them, one folder per data set. Without the
variable, benchmarks omit the parts that read recordings and tests skip them.
"""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "TOCSIN_RECORDINGS"


def recordings_folder() -> Path | None:
    """Return the folder of the recordings, or None if the variable is not set.

    Raises
    ------
    NotADirectoryError
        If the variable is set but does not name a folder.
    """
    name = os.environ.get(VARIABLE)
    if not name:
        return None
    folder = Path(name)
    if not folder.is_dir():
        message = f"{VARIABLE} must name a folder; got {name!r}"
        raise NotADirectoryError(message)
    return folder


def recording(path: str) -> Path:
    """Return the path of a recording; the file does not exist if the variable is not set."""
    return (recordings_folder() or Path(os.devnull)) / path
