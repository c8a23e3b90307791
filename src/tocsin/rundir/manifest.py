"""The manifest: what a run directory belongs to. No secret is in it: of sources and sinks only kinds and names."""

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
from tocsin.plan import Plan
from tocsin.plan.shown import rules_shown
from tocsin.rules.rulefile import RuleFile
from tocsin.rules.values import has_scheme

MANIFEST = "manifest.json"
VERSION = 1
_MOST_STARTS, _MOST_BYTES = 100, 1 << 28


@dataclass(frozen=True)
class Manifest:
    """What runs.

    Parameters
    ----------
    rule_file, rule_hash
        Path of the rule file, and the SHA-256 of its text.
    plan, state
        The plan as `explain` shows it, and what of it the state depends on.
    streams
        Per stream the kind of its source, its key columns, time column and value columns.
    sinks
        Names of the sinks, as in `RUN/delivery`.
    archive
        Where every row received is kept; None if nowhere.
    buckets, partitions
        Into how many parts keys and tasks are divided; the state is bound to both.
    changes
        What the last start found changed in the rules, and what became of their state.
    passing
        Per name under which rows are counted, the share of the ways of taking them in which nothing is remembered.
    rules
        Every rule as `plan/shown.py` shows it: what it reads and remembers, and what was proved of it.
    unit_ns
        How many nanoseconds a unit of work takes, as was measured at the first start that had a limit of processor
        time.
    query, first_batch
        Id of Spark's query, once it has started, and the number that its micro-batch 0 has in this run directory.
    started
        When the run was started and restarted: the first time and the last ones.
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

    @property
    def run(self) -> str:
        """The name of this run, whose directory has it for ever: when it was first started, in digits."""
        return re.sub(r"\D", "", self.started[0]) if self.started else "0"

    def write(self, run_dir: Path) -> None:
        """Put it on disk."""
        replace_file(run_dir / MANIFEST, json.dumps(asdict(self), indent=2, ensure_ascii=False).encode() + b"\n")

    def has_rules_of(self, before: Manifest) -> bool:
        """Return whether a repeated micro-batch raises the alerts of the earlier start; tables of limits count too."""
        return all(getattr(self, name) == getattr(before, name) for name in ("rule_hash", "plan", "state", "tocsin"))

    def after(self, before: Manifest | None, started: str) -> Manifest:
        """Return the manifest of a start, with the earlier starts, the query and the numbers of the run."""
        earlier = before.started if before else ()
        kept = (*earlier[:1], *earlier[1:][-(_MOST_STARTS - 2) :])
        query, first_batch = (before.query, before.first_batch) if before else (None, 0)
        return replace(self, started=(*kept, started), query=query, first_batch=first_batch)


def describe(file: RuleFile, plan: Plan, sinks: tuple[str, ...], buckets: int) -> Manifest:
    """Describe a rule file and its plan; the partitions are as many as buckets until told otherwise."""
    streams = {
        name: {
            "source": stream.source.kind,
            "from": _origin(stream.source.options),
            "keys": list(stream.keys),
            "time": stream.time,
            "values": list(stream.values),
        }
        for name, stream in file.streams.items()
    }
    return Manifest(
        rule_file=str(Path(file.path).absolute()),
        rule_hash=hash_of(Path(file.path)),
        plan=str(plan),
        streams=streams,
        sinks=sinks,
        archive=None if file.archive is None else str(Path(file.archive).absolute()),
        buckets=buckets,
        partitions=buckets,
        tocsin=package_version(),
        rules=tuple(rules_shown(plan)),
        passing=passing_of(plan),
    )


def hash_of(path: Path) -> str:
    """Name the text of a rule file, to know it again."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def passing_of(plan: Plan) -> dict[str, float]:
    """Per name under which rows are counted, the share of those ways of taking them in which nothing is remembered.

    A stream has one name in several watches: a join remembers its rows, a rule of one stream and `no_data` do not. A
    rule with ranges remembers requests, and the rows that it counts only for a window. Each of them takes every row.
    """
    ways: dict[str, list[bool]] = {}
    for watch in plan.watches:
        remembering = {name for name, store in zip(watch.store_names, watch.stores, strict=True) if store.remember}
        for name, _ in watch.counted:
            ways.setdefault(name, []).append(name in remembering)
    for ranges in plan.ranges:
        for name, _ in ranges.counted:
            ways.setdefault(name, []).append(name == ranges.requests or ranges.within_us is not None)
    return {name: mine.count(False) / len(mine) for name, mine in ways.items()}


def _origin(options: Mapping[str, Any]) -> str:
    """Return where the rows of a source are; a local path is absolute, because starts may have other directories."""
    found = {name: str(options[name]) for name in ("path", "topic", "servers", "host") if name in options}
    if "path" in found and not has_scheme(found["path"]):
        found["path"] = str(Path(found["path"]).absolute())
    return " at ".join(found.values())


def package_version() -> str:
    """The version of this package."""
    try:
        return version("tocsin")
    except PackageNotFoundError:
        return "unknown"


def read_manifest(run_dir: Path | str) -> Manifest | None:
    """Read the manifest of a run; None if there is none yet."""
    path = Path(run_dir) / MANIFEST
    try:
        stored = json.loads(read_file(path, _MOST_BYTES))
        given = stored["version"]
        if given == VERSION:
            known = {field.name for field in fields(Manifest)}
            lists = {name: tuple(map(str, stored[name])) for name in ("sinks", "started", "changes")}
            read = Manifest(**{name: value for name, value in stored.items() if name in known} | lists)
            for stream in read.streams.values():
                _ = stream["source"], stream["from"]  # What a later start compares.
            _ = read.state.items()
            return replace(read, rules=tuple(read.rules))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        what = error.strerror if isinstance(error, OSError) else "it is damaged"
        message = f"{path}: a manifest must be readable; {(what or 'it is not').lower()}"
        raise RunError(message) from None
    message = f"{path}: `version` must be {VERSION}; got {given!r}: run the Tocsin that wrote it"
    raise RunError(message)


def refusals(before: Manifest, now: Manifest) -> list[str]:
    """Say what the state of a run cannot go on with, each in half a sentence; other changes are for the plan to say."""
    found = []
    for name, stream in now.streams.items():
        old = before.streams.get(name, stream)
        if (old["source"], old["from"]) != (stream["source"], stream["from"]):
            was, is_now = (f"{one['source']} {one['from']}".strip() for one in (old, stream))
            found.append(f"stream {name!r} came from {was} and now comes from {is_now} (give it another name)")
    for name in ("buckets", "partitions"):
        if getattr(before, name) != getattr(now, name):
            found.append(f"`{name}` was {getattr(before, name)} and is now {getattr(now, name)}")
    return found
