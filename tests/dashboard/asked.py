"""Ask a dashboard over HTTP: a thread with the real server, on loopback; and a run directory full of evil."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import uvicorn

from dashboard.plant import change
from tocsin.dashboard.app import make_app
from tocsin.dashboard.serve import Where, _listen, config_of
from tocsin.dashboard.store import Store
from tocsin.delivery import AlertWriter
from tocsin.run_directory import Progress, Tally
from tocsin.run_directory.manifest import VERSION

EVIL = (
    "<script>window.evil=1</script>",
    "`<script>window.evil=1</script>` and `</code><img src=x onerror=window.evil=1>",
    "<img src=x onerror=window.evil=1>",
    "\"'><svg onload=window.evil=1>",
    "javascript:window.evil=1",
    "{{ 7*7 }}{% raw %}",
    "a\x00b\x1b[31mc\x7f",
    "\u202egnp.exe\u2066",
    "../../etc/passwd",
    "&lt;b&gt;",
    "x" * 1_000_000,
    "\ud800",
)


class Answer(NamedTuple):
    code: int
    text: str
    headers: dict[str, str]


class Server:
    """A dashboard that listens; `store.look()` takes what is new."""

    def __init__(self, store: Store, port: int) -> None:
        self.store, self.port = store, port

    def get(self, path: str, *, method: str = "GET", body: str | None = None, **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, given)
        answer = connection.getresponse()
        told = {name.lower(): value for name, value in answer.getheaders()}
        found = Answer(answer.status, answer.read().decode("utf-8"), told)
        connection.close()
        return found


@contextmanager
def served(*folders: Path, token: str | None = None, names: tuple[str, ...] = ()) -> Iterator[Server]:
    store = Store(folders)
    store.look()
    listening = _listen(Where(port=0))
    server = uvicorn.Server(config_of(make_app(store, token, names)))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        yield Server(store, listening.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


def evil_run(folder: Path) -> Path:
    """A run directory in which every text that can come from outside is hostile."""
    folder.mkdir(parents=True)
    second = 1_000_000
    rows = []
    for number, text in enumerate(EVIL):
        safe = text.encode("utf-8", "replace").decode()
        witness = [
            {
                "stream": safe[:5000],
                "time": f"2026-01-01T00:00:{number:02}.000000Z",
                "values": {safe[:5000]: 1.0, "nothing": None},
                "payload": {safe[:200]: safe, "none": None},
            }
        ]
        labels = {"machine": safe, safe[:300]: "label name"}
        more = {"labels": labels, "witness": witness, "annotations": {safe[:300]: safe}, "quality": "late"}
        rows.append(change(safe or "empty", "firing", number * second, id=f"{number:016x}", **more))
        rows.append(change("Evil", "firing", number * second, id=safe[:3000], **more))
    AlertWriter(folder / "alerts").write(0, rows)
    evil = EVIL[0]
    stream = {"source": evil, "from": evil, "keys": [evil], "time": evil, "values": [evil]}
    proof = {"verdict": evil, "proof": evil, "rounding": None, "help": evil}
    rule = {
        "alert": evil,
        "labels": {evil: evil},
        "condition": evil,
        "description": evil,
        "kind": "threshold",
        "on": [evil],
    }
    rule |= {"streams": [evil], "retention": {evil: evil}, "proofs": {evil: proof}, "waits": evil, "memory": evil}
    ranges = {"alert": "Evil", "kind": "ranges", "requests": evil, "description": evil, "streams": [evil]}
    manifest = {"rule_file": evil, "rule_hash": evil, "plan": evil, "streams": {evil: stream}, "sinks": [evil]}
    manifest |= {"archive": evil, "buckets": 1, "partitions": 1, "state": {}, "started": [evil], "changes": [evil]}
    manifest |= {"tocsin": evil, "rules": [rule, ranges, 5, {"alert": 7}, None], "version": VERSION}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    counts = {"received": 5, "retained": 3, "omitted": 1}
    total = Tally(
        rows={evil: 5},
        counts={evil: counts},
        alerts={evil: {"firing": 1}},
        dead={evil: 2},
        state_bytes=10,
        batches=1,
        newest_us={evil: 1},
        waits={evil: {"wait_us": 5, "recall": 0.5}},
        memory={evil: {"predicted": 0.9, "reached": None}},
        delays={evil: {"3": 5}},
    )
    line = Progress(0, "2026-01-01T00:00:00.000000Z", total, total, {"detect": 1})
    (folder / "progress.jsonl").write_bytes(line.line() + b"\n")
    (folder / "dead").mkdir()
    dead = [{"stream": evil, "reason": text, "raw": text} for text in EVIL[:-1]]
    (folder / "dead" / "000000000000.jsonl").write_text("".join(json.dumps(row) + "\n" for row in dead))
    (folder / "delivery").mkdir()
    told = {"sink": "evil", "kind": evil, "failing": True, "lastError": evil, "position": None, "pending": evil}
    (folder / "delivery" / "evil.json").write_text(json.dumps(told))
    return folder
