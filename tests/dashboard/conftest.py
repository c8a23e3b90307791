"""A plant that ran for seven minutes, made once; each test that changes one has a copy."""

from __future__ import annotations

from pathlib import Path

import pytest

from dashboard.plant import Plant


@pytest.fixture(scope="session")
def plant(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a plant: `run`, `rules.yaml` and the archive `kept`. Nothing may be changed in it."""
    folder = tmp_path_factory.mktemp("plant")
    made = Plant(folder)
    made.step(7)
    made.deliver((5, 3), failing=True)
    return folder
