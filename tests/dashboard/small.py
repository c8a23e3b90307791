"""A run directory of one micro-batch, written by hand, and what pages and tiles say of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dashboard.asked import served
from tocsin.dashboard.pages.tiles import tiles
from tocsin.dashboard.store import Store
from tocsin.delivery import AlertWriter
from tocsin.delivery.alert_json import format_time
from tocsin.run_directory import Progress, RunDir, Tally
from tocsin.run_directory.manifest import VERSION

START_S = 1_767_225_600

Rows = Iterable[Mapping[str, Any]]


def small_run(folder: Path, alerts: Rows = (), rules: Rows = (), **told: Any) -> Path:
    """A run directory with one micro-batch; `told` has sections of its totals, fields of `Progress`, and some files."""
    passing, summary = told.pop("passing", {}), told.pop("summary", None)
    folder.mkdir()
    manifest: dict[str, Any] = {"rule_file": "plant.yaml", "rule_hash": "0", "plan": "", "streams": {}, "sinks": []}
    manifest |= {"archive": None, "buckets": 1, "partitions": 1, "state": {}, "started": [], "changes": []}
    manifest |= {"tocsin": "0", "rules": list(rules), "version": VERSION, "passing": passing}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    if summary is not None:
        (folder / "summary.json").write_text(json.dumps(summary))
    AlertWriter(folder / "alerts").write(0, [dict(one) for one in alerts])
    counts = told.pop("counts", {})
    rows = told.pop("rows", {name: parts["received"] for name, parts in counts.items()})
    fields = {name: told.pop(name) for name in ("milliseconds", "historic") if name in told}
    total = Tally(rows=rows, counts=counts, state_bytes=2048, batches=1, **told)
    RunDir(folder).progress().add(Progress(0, format_time(START_S), total, total, **fields))
    return folder


def tiles_of(folder: Path) -> dict[str, tuple[str, str, str]]:
    store = Store([folder])
    store.look()
    found = tiles(store, next(iter(store.runs.values())))
    return {one.title: (one.number, one.note, one.kind) for one in found}


def page_of(folder: Path, *parts: str) -> str:
    with served(folder) as server:
        answer = server.get("/".join(["", "run", folder.name, *parts]))
    assert answer.code == 200
    return answer.text
