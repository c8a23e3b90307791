"""What limits of memory and of processor time gave in a run, as its directory says; for `tocsin explain --run-dir`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tocsin.cli.given import GivenUpError, run_errors
from tocsin.cli.remarks import bought_text

if TYPE_CHECKING:
    from tocsin.rules.rulefile import RuleFile


def found_in(run_dir: str, file: RuleFile, units: Mapping[str, str | None], spending: Iterable[str]) -> dict[str, Any]:
    """Read what the alerts found with their memory, and those that are `spending` with their processor time.

    `units` has the alerts, each with what its memory is counted in, if it is limited: in a run with other rules it may
    have been counted otherwise. Of a run it is as of its last micro-batch.
    `another` is there where it ran with other rules than those of the file.
    """
    from tocsin.rundir.found import read_bought, read_found

    found = read_found(run_dir)
    if found is None:
        why = "neither progress nor the summary of a backtest that ended"
        message = f"`--run-dir` must be that of a run or a backtest; {run_dir} has {why}"
        raise GivenUpError(message)
    bought, another = read_bought(run_dir), _another(run_dir, file)
    mine = {
        alert: {"share": share, "unit": None if another else units[alert], **one._asdict()}
        for alert, (share, one) in found.items()
        if alert in units
    }
    shares = {alert: bought.get(alert, (None, None)) for alert in spending}
    cpu = {alert: {"worked_on": rows, "found": results} for alert, (rows, results) in shares.items()}
    return {"found": mine, "bought": cpu, **another}


def _another(run_dir: str, file: RuleFile) -> dict[str, str]:
    """Say with which rules a run was started, if it was not with those of the file as they are now."""
    from pathlib import Path

    from tocsin.rundir.manifest import hash_of, read_manifest

    with run_errors():
        manifest = read_manifest(run_dir)
    if manifest is None or manifest.rule_hash == hash_of(Path(file.path)):
        return {}
    if Path(manifest.rule_file) == Path(file.path).absolute():
        return {"another": f"{file.path} was changed since {run_dir} was last started with it"}
    return {"another": f"{run_dir} was last started with {manifest.rule_file}, and not with {file.path} as it is"}


def found_lines(run_dir: str, found: dict[str, Any]) -> Iterator[str]:
    """Write what was found for people; that it was another file comes first."""
    from tocsin.logic import Found
    from tocsin.plan.budget import found_text
    from tocsin.rules.mistakes import printable

    if "another" in found:
        yield printable(f"{found['another']}: alerts are compared by their names")
    if found["found"] or not found["bought"]:
        yield f"Memory as {run_dir} found it" + ("" if found["found"] else ": no rule shown here had a limited one")
    for alert, one in found["found"].items():
        share = one["share"]
        kept = "" if share is None else f"may keep {share:,} {one['unit'] or '(bytes, or rows)'} now; "
        yield f"  {alert}: {kept}{found_text(Found(*(one[name] for name in Found._fields)))}"
    if found["bought"]:
        yield f"Processor time as {run_dir} spent it"
    for alert, shares in found["bought"].items():
        rows, results = shares["worked_on"], shares["found"]
        unknown = rows is None and results is None
        yield f"  {alert}: {'not known; only a run records it' if unknown else bought_text(rows, results)}"
