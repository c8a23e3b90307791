"""What is asked of the archive of a run, and where there is nothing to ask."""

from __future__ import annotations

from typing import Any

from tocsin.dashboard.rundata import RunData
from tocsin.dashboard.tracer import Tracer

TRACER = Tracer()


def why_not_traced(run: RunData) -> str:
    """Why the rows around an alert cannot be shown; nothing if they can."""
    if run.manifest is None:
        return "the manifest cannot be read"
    if run.is_backtest or run.whose:
        return "a backtest keeps no rows; `tocsin backtest --report` draws the rows around alerts"
    if run.manifest.archive is None:
        return "this run keeps no rows; with `archive: {path: kept}` in its rule file it would"
    return ""


def whose(run: RunData, kind: str) -> dict[str, Any]:
    """What a question to the archive must say of its run."""
    manifest = run.manifest
    assert manifest is not None
    told = {"rule_file": manifest.rule_file, "rule_hash": manifest.rule_hash, "archive": manifest.archive}
    # Answers are kept by their question: with another micro-batch it is another one.
    return {"kind": kind, "run": manifest.run, **told, "last": run.last.batch if run.last else None}
