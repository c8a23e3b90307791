"""Manifest: the description of the run that a run directory belongs to.

It contains no secrets: for sources and sinks it has only kinds, names and locations.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tocsin.errors import RunError
from tocsin.files import read_file, replace_file
from tocsin.plan import Plan, rules_shown
from tocsin.rules.rulefile import RuleFile
from tocsin.rules.values import has_scheme

MANIFEST = "manifest.json"
# Version of the layout of the run directory.
VERSION = 2
_MAX_STARTS, _MAX_BYTES = 100, 1 << 28


@dataclass(frozen=True)
class Manifest:
    """Description of a run, as of its last start.

    Attributes
    ----------
    rule_file, rule_hash
        Absolute path of the rule file, and the SHA-256 of its text.
    plan, state
        Text of the plan, as `tocsin explain` prints it, and the part of the plan that the state depends on.
    streams
        For each stream the kind and location of its source, its key columns, time column and value columns.
    sinks
        Names of the sinks, as in `RUN/delivery`.
    archive
        Folder of the archive of received rows; None without an archive.
    buckets, partitions
        Number of buckets of keys, and number of Spark partitions. The state depends on the buckets. Spark keeps the
        partitions of its checkpoint.
    started
        Times of the starts: the first one and the last ones.
    changes
        Changes of the rules that the last start found, and their effect on the state.
    tocsin
        Version of the package.
    rules
        Description of each rule: its streams, its retention and its proofs (see `plan/shown.py`).
    version
        Version of the layout of the run directory.
    unit_ns
        Nanoseconds per work unit, measured at the first start with a CPU budget.
    passing
        Share of pass-through rows for each name of the row outcomes (see `pass_through_shares`).
    query, first_batch
        Id of Spark's query, once it has started, and the number that its micro-batch 0 has in this run directory.
    interval_s
        Seconds between the starts of two micro-batches; None for a run that ends by itself.
    alertmanagers
        Addresses of the Alertmanager sinks, without user-info.
    """

    rule_file: str
    rule_hash: str
    plan: str
    streams: Mapping[str, Mapping[str, Any]]
    sinks: tuple[str, ...]
    archive: str | None
    buckets: int
    partitions: int
    state: Mapping[str, Any] = field(default_factory=dict)
    started: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    tocsin: str = ""
    rules: tuple[Mapping[str, Any], ...] = ()
    version: int = VERSION
    unit_ns: float | None = None
    passing: Mapping[str, float] = field(default_factory=dict)
    query: str | None = None
    first_batch: int = 0
    interval_s: float | None = None
    alertmanagers: tuple[str, ...] = ()

    @property
    def run(self) -> str:
        """Permanent name of the run: the digits of its first start time."""
        return re.sub(r"\D", "", self.started[0]) if self.started else "0"

    def write(self, run_dir: Path) -> None:
        """Write the manifest to disk."""
        replace_file(run_dir / MANIFEST, json.dumps(asdict(self), indent=2, ensure_ascii=False).encode() + b"\n")

    def has_rules_of(self, before: Manifest) -> bool:
        """Return whether a repeated micro-batch raises the alerts of the earlier start; tables of limits count too."""
        return all(getattr(self, name) == getattr(before, name) for name in ("rule_hash", "plan", "state", "tocsin"))

    def after(self, before: Manifest | None, started: str) -> Manifest:
        """Return the manifest of a start, with the earlier starts, the query and the numbers of the run."""
        earlier = before.started if before else ()
        kept = (*earlier[:1], *earlier[1:][-(_MAX_STARTS - 2) :])
        query, first_batch = (before.query, before.first_batch) if before else (None, 0)
        return replace(self, started=(*kept, started), query=query, first_batch=first_batch)


def build_manifest(file: RuleFile, plan: Plan, sinks: tuple[str, ...], buckets: int) -> Manifest:
    """Return the manifest of a rule file and its plan, with as many partitions as buckets."""
    streams = {
        name: {
            "source": stream.source.kind,
            "from": _format_origin(stream.source.options),
            "keys": list(stream.keys),
            "time": stream.time,
            "values": list(stream.values),
        }
        for name, stream in file.streams.items()
    }
    return Manifest(
        rule_file=str(Path(file.path).absolute()),
        rule_hash=hash_rule_file(Path(file.path)),
        plan=str(plan),
        streams=streams,
        sinks=sinks,
        archive=None if file.archive is None else str(Path(file.archive).absolute()),
        buckets=buckets,
        partitions=buckets,
        tocsin=package_version(),
        rules=tuple(rules_shown(plan)),
        passing=pass_through_shares(plan),
    )


def hash_rule_file(path: Path) -> str:
    """Return the SHA-256 of the text of a rule file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def pass_through_shares(plan: Plan) -> dict[str, float]:
    """Return, for each name of the row outcomes, the share of its readers that retain no rows.

    Several keyed pipelines and range rules can read a stream under one name, and each of them receives every row. A
    join retains rows; a rule of one stream and `no_data` do not. A range rule retains requests, and it retains the
    other rows only if it has a window.
    """
    retains: dict[str, list[bool]] = {}
    for watch in plan.watches:
        retaining = {name for name, store in zip(watch.store_names, watch.stores, strict=True) if store.remember}
        for name, _ in watch.counted:
            retains.setdefault(name, []).append(name in retaining)
    for ranges in plan.ranges:
        for name, _ in ranges.counted:
            retains.setdefault(name, []).append(name == ranges.requests or ranges.within_us is not None)
    return {name: readers.count(False) / len(readers) for name, readers in retains.items()}


def _format_origin(options: Mapping[str, Any]) -> str:
    """Return the location of a source. Local paths become absolute, because starts can have other directories."""
    parts = {name: str(options[name]) for name in ("path", "topic", "servers", "host") if name in options}
    if "path" in parts and not has_scheme(parts["path"]):
        parts["path"] = str(Path(parts["path"]).absolute())
    return " at ".join(parts.values())


def package_version() -> str:
    """Return the version of the installed package."""
    try:
        return version("tocsin")
    except PackageNotFoundError:
        return "unknown"


def read_manifest(run_dir: Path | str) -> Manifest | None:
    """Read the manifest of a run, or return None if it does not exist."""
    path = Path(run_dir) / MANIFEST
    try:
        stored = json.loads(read_file(path, _MAX_BYTES))
        layout = stored["version"]
        if layout == VERSION:
            names = {field.name for field in fields(Manifest)}
            lists = {name: tuple(map(str, stored[name])) for name in ("sinks", "started", "changes")}
            lists["alertmanagers"] = tuple(map(str, stored.get("alertmanagers", ())))
            read = Manifest(**{name: value for name, value in stored.items() if name in names} | lists)
            for stream in read.streams.values():
                _ = stream["source"], stream["from"]  # The next start compares these.
            _ = read.state.items()
            return replace(read, rules=tuple(read.rules))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is damaged"
        message = f"{path}: the manifest must be readable; {(reason or 'unknown error').lower()}"
        raise RunError(message) from None
    message = (
        f"{path}: `version` must be {VERSION}, the layout of this version of Tocsin; got {layout!r}: use a new run "
    )
    message += "directory, or continue this run with the version of Tocsin that wrote it"
    raise RunError(message)


def find_incompatibilities(before: Manifest, now: Manifest) -> list[str]:
    """Return a message for each change of streams or buckets that the state of a run does not survive.

    The planner reports changes of rules.
    """
    messages = []
    for name, stream in now.streams.items():
        old = before.streams.get(name, stream)
        if (old["source"], old["from"]) != (stream["source"], stream["from"]):
            before_text, now_text = (f"{source['source']} {source['from']}".strip() for source in (old, stream))
            messages.append(
                f"stream {name!r} had source {before_text} and now has source {now_text} (rename the stream)"
            )
    if before.buckets != now.buckets:
        messages.append(f"`buckets` was {before.buckets} and is now {now.buckets}")
    return messages
