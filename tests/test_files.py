"""Atomic replacement of files, complete lines after a crash, and exclusive locks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tocsin import files
from tocsin.files import append_line, lock_file, replace_file


def test_replace_file_keeps_the_old_content_when_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "edge.state"
    replace_file(path, b"first")

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        replace_file(path, b"second")
    assert path.read_bytes() == b"first"


def test_append_line_starts_a_new_line_after_an_incomplete_line(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    append_line(path, b"one")
    with path.open("ab") as file:
        file.write(b'{"tor')
    append_line(path, b"two")
    append_line(path, b"three")
    assert path.read_bytes() == b'one\n{"tor\ntwo\nthree\n'


def test_lock_file_is_exclusive_until_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    held = lock_file(path)
    assert held is not None
    assert lock_file(path) is None
    held.close()
    again = lock_file(path)
    assert again is not None
    again.close()


def test_import_of_files_loads_only_the_standard_library() -> None:
    code = "import sys, tocsin.files; print(*sorted({'numpy', 'rich', 'yaml'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
