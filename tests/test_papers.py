"""Paper modules: each module under `benchmarks/papers` can be imported."""

from __future__ import annotations

import importlib
import pkgutil

from benchmarks import papers


def test_paper_modules_can_be_imported() -> None:
    names = [module.name for module in pkgutil.walk_packages(papers.__path__, "benchmarks.papers.")]
    assert "benchmarks.papers.p004.window_join" in names
    for name in names:
        importlib.import_module(name)
