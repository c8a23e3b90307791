"""Found: what limits of memory and of processor time gave, as a run or a backtest wrote it down."""

from __future__ import annotations

import json
from pathlib import Path

from tocsin.logic import Found, Shares
from tocsin.rundir.folder import SUMMARY
from tocsin.rundir.progress import last_progress

# What a join may keep now, if that is known, and what it finds with it.
Kept = tuple[int | None, Found]


def read_found(run_dir: Path | str) -> dict[str, Kept] | None:
    """By alert, what its memory found: as of the last micro-batch of a run, or in a backtest; None: it is neither."""
    last = last_progress(run_dir)
    if last is not None:
        return {alert: (last.shares.get(alert), found) for alert, found in last.memory.items()}
    try:
        stored = json.loads((Path(run_dir) / SUMMARY).read_text(encoding="utf-8"))
        return {one["alert"]: (None, Found(*(one[name] for name in Found._fields))) for one in stored["memory"]}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read_bought(run_dir: Path | str) -> dict[str, Shares]:
    """By alert, what its processor time bought as of the last micro-batch of a run; a backtest does not record it."""
    last = last_progress(run_dir)
    return {} if last is None else dict(last.cpu)
