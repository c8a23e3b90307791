"""The manifest: what a run directory belongs to. No secret is in it: of sources and sinks only kinds and names."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tocsin.errors import RunError
from tocsin.files import replace_file
from tocsin.rules.rulefile import RuleFile

MANIFEST = "manifest.json"
VERSION = 1
_MOST_STARTS = 100


@dataclass(frozen=True)
class Manifest:
    """What runs.

    Parameters
    ----------
    rule_file, rule_hash
        Path of the rule file, and the SHA-256 of its text.
    plan, fingerprint
        The plan as `explain` shows it, and its name, to which the state is bound.
    streams
        Per stream the kind of its source, its key columns, time column and value columns.
    sinks
        Names of the sinks, as in `RUN/delivery`.
    archive
        Where every row received is kept; None if nowhere.
    buckets, partitions
        Into how many parts keys and tasks are divided; the state is bound to both.
    started
        When the run was started and restarted: the first time and the last ones.
    """

    rule_file: str
    rule_hash: str
    plan: str
    fingerprint: str
    streams: Mapping[str, Mapping[str, Any]]
    sinks: tuple[str, ...]
    archive: str | None
    buckets: int
    partitions: int
    started: tuple[str, ...] = ()
    tocsin: str = ""
    version: int = VERSION

    @property
    def run(self) -> str:
        """The name of this run, whose directory has it for ever: when it was first started, in digits."""
        return re.sub(r"\D", "", self.started[0]) if self.started else "0"

    def write(self, run_dir: Path) -> None:
        """Put it on disk."""
        replace_file(run_dir / MANIFEST, json.dumps(asdict(self), indent=2, ensure_ascii=False).encode() + b"\n")

    def after(self, before: Manifest | None, started: str) -> Manifest:
        """The manifest of a start, which remembers those before it."""
        earlier = before.started if before else ()
        kept = (*earlier[:1], *earlier[1:][-(_MOST_STARTS - 2) :])
        return replace(self, started=(*kept, started))


def describe(file: RuleFile, plan: object, fingerprint: str, sinks: tuple[str, ...], buckets: int) -> Manifest:
    """Describe a rule file and its plan; the partitions are as many as buckets until told otherwise."""
    text = Path(file.path).read_bytes()
    streams = {
        name: {
            "source": stream.source.kind,
            "keys": list(stream.keys),
            "time": stream.time,
            "values": list(stream.values),
        }
        for name, stream in file.streams.items()
    }
    return Manifest(
        rule_file=str(Path(file.path).absolute()),
        rule_hash=hashlib.sha256(text).hexdigest(),
        plan=str(plan),
        fingerprint=fingerprint,
        streams=streams,
        sinks=sinks,
        archive=None if file.archive is None else str(Path(file.archive).absolute()),
        buckets=buckets,
        partitions=buckets,
        tocsin=package_version(),
    )


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
        stored = json.loads(path.read_bytes())
        given = stored["version"]
        if given == VERSION:
            known = {field.name for field in fields(Manifest)}
            lists = {name: tuple(stored[name]) for name in ("sinks", "started")}
            return Manifest(**{name: value for name, value in stored.items() if name in known} | lists)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = error.strerror if isinstance(error, OSError) else "it is damaged"
        message = f"{path}: a manifest must be readable; {(what or 'it is not').lower()}"
        raise RunError(message) from None
    message = f"{path}: `version` must be {VERSION}; got {given!r}: run the Tocsin that wrote it"
    raise RunError(message)


def differences(before: Manifest, now: Manifest) -> list[str]:
    """Say what the state of a run does not fit any more, each in half a sentence; nothing if it goes on as it is.

    This is the one place that compares two starts of a run.
    """
    found = []
    if before.fingerprint != now.fingerprint:
        gone = [line.strip() for line in before.plan.splitlines() if line not in now.plan.splitlines()]
        new = [line.strip() for line in now.plan.splitlines() if line not in before.plan.splitlines()]
        what = [f"no more `{gone[0]}`"] * bool(gone) + [f"now `{new[0]}`"] * bool(new)
        found.append(f"the plan is another ({', '.join(what) or 'in what it does not show'})")
    for name in ("buckets", "partitions"):
        if getattr(before, name) != getattr(now, name):
            found.append(f"`{name}` was {getattr(before, name)} and is now {getattr(now, name)}")
    return found
