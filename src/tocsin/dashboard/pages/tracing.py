"""Queries of the archive of a run, and the reason if it cannot be queried."""

from __future__ import annotations

from typing import Any

from tocsin.dashboard.rundata import RunData
from tocsin.dashboard.tracer import Tracer

TRACER = Tracer()


def why_not_traced(run: RunData) -> str:
    """Return the reason why the rows around an alert are not available; empty if they are."""
    if run.manifest is None:
        return "the manifest of the run cannot be read"
    if run.is_backtest or run.whose:
        return "a backtest archives no rows; `tocsin backtest --report` draws the rows around alerts"
    if run.manifest.archive is None:
        return "this run archives no rows; add `archive: {path: DIR}` to its rule file"
    return ""


def whose(run: RunData, kind: str) -> dict[str, Any]:
    """Return the part of an archive query that identifies the run."""
    manifest = run.manifest
    assert manifest is not None
    told = {"rule_file": manifest.rule_file, "rule_hash": manifest.rule_hash, "archive": manifest.archive}
    # Answers are kept by their question: with another micro-batch it is another one.
    return {"kind": kind, "run": manifest.run, **told, "last": run.last.batch if run.last else None}
