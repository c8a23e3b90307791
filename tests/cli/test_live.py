"""What a run prints while a line moves on the terminal."""

from __future__ import annotations

import io
import re
import sys

import pytest

from tocsin.cli.live import Live

pytest.importorskip("rich")
LINE = "2026-01-01T00:00:00.000000Z FIRING   Condensation{} " + "x" * 300


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _plain(text: str) -> list[str]:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "\n", text).split("\n")


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")


def test_a_long_line_is_not_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "stdout", terminal)
    with Live():
        print(LINE)
    assert LINE in _plain(terminal.getvalue())


def test_what_goes_elsewhere_stays_there(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, file = _Terminal(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "stdout", file)
    with Live():
        print(LINE)
    assert file.getvalue() == LINE + "\n"
    assert "FIRING" not in terminal.getvalue()
