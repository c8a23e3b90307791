"""A run directory of one micro-batch, written by hand, and what pages and tiles say of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tocsin.dashboard.app import make_app
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
    """Return a page of a run. The application answers without a server, whose start and end take longer than a page."""
    store = Store([folder])
    store.look()
    path, _, query = "/".join(["", "run", folder.name, *parts]).partition("?")
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode("ascii"),
        "query_string": query.encode("ascii"),
        "headers": [(b"host", b"127.0.0.1")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 1),
    }
    messages: list[MutableMapping[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        messages.append(message)

    asyncio.run(make_app(store)(scope, receive, send))
    start, *bodies = messages
    assert start["status"] == 200
    return b"".join(body["body"] for body in bodies).decode()
