"""The driver of random cases: equal seeds draw equal cases, stopped runs continue, and differences are reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.laws import random_cases
from tests.laws.drawn_plans import Drawn


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_cases, "CHUNK", 5)
    monkeypatch.setattr(random_cases, "_SETTINGS", random_cases.settings(random_cases._SETTINGS, max_examples=5))


def chunk(seed: int, number: int) -> dict[str, Any]:
    found = random_cases.run_chunk(seed, ("direct",), None, number)
    assert found is not None
    return found


def test_cases_depend_on_seed_and_chunk_only() -> None:
    first, again, other = chunk(1, 0), chunk(1, 0), chunk(1, 1)
    assert first["counts"] == again["counts"] != other["counts"]
    assert first["counts"]["checked"] >= 5
    assert not first["differences"]


def test_a_run_continues_with_the_chunks_that_are_not_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cases.json"
    run = ["--processes", "1", "--seed", "1", "--families", "direct", "--json", str(file), "--cases"]
    done = {"0": {"number": 0, "family": "direct", "cpu_s": 1.0, "counts": {"checked": 5}, "differences": []}}
    head = {"seed": 1, "chunk": 5, "families": ["direct"]}
    file.write_text(json.dumps(head | {"chunks": done}), encoding="utf-8")
    assert random_cases.main([*run, "5"]) == 0
    assert json.loads(capsys.readouterr().out)["summary"]["checked"] == 5
    with pytest.raises(SystemExit, match="chunks of other cases"):
        random_cases.main([*run, "5", "--seed", "2"])


def test_a_difference_is_reported_with_its_minimal_case(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(drawn: Drawn) -> None:
        assert not drawn.streams, "every case has streams"

    monkeypatch.setattr(random_cases, "run_once", fail)
    (difference,) = chunk(1, 0)["differences"]
    assert "every case has streams" in difference
    assert "Drawn(" in difference
    assert "family='direct'" in difference
