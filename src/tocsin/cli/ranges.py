"""Look at the requests of rules with ranges, and load more of them.

    tocsin ranges list runs/desk
    tocsin ranges list runs/desk --rule SharesSold --key symbol=ACME --most 50
    tocsin ranges progress runs/desk anna-17 bert-3
    tocsin ranges load desk.yaml SharesSold requests.csv

`list` and `progress` read the checkpoint of a run as of its last micro-batch, while it runs or after it ended, and
change nothing in it. `load` checks a file of requests (CSV with a header, or lines of JSON) and writes it, whole or not
at all, to where the rule's stream of requests is read from: a folder of JSON, CSV or Parquet files, or a topic of
Kafka. The run takes it with its next micro-batch.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tocsin.cli.given import (
    GivenUpError,
    add_spark,
    attempt,
    in_a_sentence,
    needs_spark,
    no_such_rule,
    read_file,
    run_errors,
    settings,
)

if TYPE_CHECKING:
    from tocsin.plan import RangeWatch
    from tocsin.rules.rulefile import RuleFile

SUMMARY = "look at the requests of rules with ranges, and load more"
EPILOG = """\
exit codes:
  0  fine
  1  no such run, rule or file, a request that cannot be used, or Spark failed
  2  wrong usage

`list` and `progress` need Java 17 or newer, and tocsin[spark]. docs/ranges.md says what requests are.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the actions of this command."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="show the alive requests, the nearest to their thresholds first")
    listing.add_argument("--most", type=_number, default=20, metavar="N", help="how many (default: %(default)s)")
    progress = actions.add_parser("progress", help="show how far some requests have come")
    for reading in (listing, progress):
        reading.add_argument("run_dir", metavar="RUN", help="the directory of a run")
        reading.add_argument("--rule", metavar="RULE", help="of this rule alone")
        reading.add_argument("--key", action="append", default=[], metavar="NAME=VALUE", help="of this key alone")
        reading.add_argument("--json", action="store_true", help="write one JSON object instead of a table")
        add_spark(reading)
    progress.add_argument("ids", nargs="+", metavar="ID", help="ids of requests")
    loading = actions.add_parser("load", help="check a file of requests and hand it to a rule")
    loading.add_argument("rules", metavar="RULES.yaml", help="the rule file")
    loading.add_argument("rule", metavar="RULE", help="the rule")
    loading.add_argument("file", metavar="FILE", help="requests: .csv with a header, else lines of JSON")
    loading.add_argument("--json", action="store_true", help="write one JSON object instead of a sentence")


def _number(text: str) -> int:
    if not text.isdecimal() or not int(text):
        message = f"it must be a whole number from 1; got {text!r}"
        raise argparse.ArgumentTypeError(message)
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Run; give 1 if that cannot be done."""
    return attempt(f"ranges {arguments.action}", _load if arguments.action == "load" else _show, arguments)


def _load(arguments: argparse.Namespace) -> int:
    from tocsin.cli.asking import check_asked, read_asked, write_asked

    file = read_file(arguments.rules, as_json=arguments.json)
    watch = _rule(file, arguments.rule)
    lines, stream = read_asked(Path(arguments.file)), file.streams[watch.requests]
    check_asked(lines, watch, stream)
    place = write_asked(lines, stream) if lines else None
    if arguments.json:
        print(json.dumps({"ok": True, "requests": len(lines), "written_to": place}, indent=2))
    else:
        number = "1 request" if len(lines) == 1 else f"{len(lines):,} requests"
        print(f"{number} for {watch.alert}: {place or 'nothing to write'}")
    return 0


def _rule(file: RuleFile, name: str) -> RangeWatch:
    from tocsin.plan.file import plan_file

    ranges = plan_file(file).ranges if file.ranges else ()
    found = [one for one in ranges if one.alert == name]
    if not found:
        raise no_such_rule(name, [one.alert for one in ranges])
    return found[0]


def _show(arguments: argparse.Namespace) -> int:
    needs_spark()
    conf = settings(arguments)
    wanted = _wanted_key(arguments)
    checkpoint = Path(arguments.run_dir) / "checkpoint"
    if not (checkpoint / "state").is_dir():
        message = f"{arguments.run_dir} must be the directory of a run that took rows; there is no state in it"
        raise GivenUpError(message)
    found = _found(checkpoint, arguments, wanted, conf)
    alive = {one["query"] for one in found["requests"]}
    gone = [name for name in getattr(arguments, "ids", ()) if name not in alive]
    if gone:
        found["gone"] = reached_before(Path(arguments.run_dir), gone, arguments.rule, wanted)
    if arguments.json:
        print(json.dumps({"ok": True, **found}, indent=2))
        return 0
    _write(found, arguments)
    return 0


def _wanted_key(arguments: argparse.Namespace) -> dict[str, str]:
    for text in arguments.key:
        if not text.partition("=")[1] or not text.partition("=")[0]:
            arguments.refuse(f"`--key` must be NAME=VALUE; got {text!r}")
    return {name: value for name, _, value in (text.partition("=") for text in arguments.key)}


def _found(
    checkpoint: Path, arguments: argparse.Namespace, key: dict[str, str], conf: dict[str, str]
) -> dict[str, Any]:
    """Ask Spark; what it says goes nowhere but into a sentence."""
    from tocsin.cli.history import scratch

    with run_errors(), scratch(None) as run, in_a_sentence([], conf):
        from tocsin.spark.quiet import bounded_session
        from tocsin.spark.standing import Wanted, find_requests

        with bounded_session(run, master=arguments.master, conf=conf, kafka=False) as session:
            ids = tuple(getattr(arguments, "ids", ()))
            wanted = Wanted(arguments.rule, key, ids, len(ids) * 1000 or arguments.most)
            return find_requests(session, checkpoint, wanted)


def reached_before(run_dir: Path, ids: list[str], rule: str | None, key: dict[str, str]) -> dict[str, Any]:
    """Find the last alert of each id in the alert log of a run; None where there is none."""
    from tocsin.deliver.alertlog import AlertLog
    from tocsin.deliver.run import ALERTS
    from tocsin.rules.ranges import QUERY

    found: dict[str, Any] = dict.fromkeys(ids)
    for _, alert in AlertLog(run_dir / ALERTS).read():
        labels = alert["labels"]
        if alert["state"] != "match" or labels.get(QUERY) not in found or (rule or alert["alert"]) != alert["alert"]:
            continue
        if all(labels.get(name) == value for name, value in key.items()):
            on = {name: value for name, value in labels.items() if name != QUERY}
            found[labels[QUERY]] = {
                "alert": alert["alert"], "labels": on, "reached": alert["startsAt"], "total": alert["value"]
            }  # fmt: skip
    return found


def _write(found: dict[str, Any], arguments: argparse.Namespace) -> None:
    from tocsin.cli.terminal import write_table
    from tocsin.rules.mistakes import printable
    from tocsin.trace.words import date

    requests = found["requests"]
    rows = [
        [
            one["alert"],
            ", ".join(f"{name}={value}" for name, value in one["key"].items()),
            one["query"],
            _range(one["ends"]),
            f"{one['total']:,}",
            f"{one['threshold']:,}",
            f"{100 * one['total'] / one['threshold']:.1f} %",
            date(one["since_us"]),
        ]
        for one in requests
    ]
    if rows:
        head = ["rule", "key", "id", "range", "total", "threshold", "reached", "since"]
        write_table(head, rows, sys.stdout, 6, [""] * len(rows))
    gone = found.get("gone", {})
    for name, last in gone.items():
        if last is None:
            said = "not alive; no alert says that it was reached: it was terminated, or never registered"
        else:
            labels = "".join(f", {label}={value}" for label, value in last["labels"].items())
            said = f"reached at {last['reached']} with {last['total']:,.0f} ({last['alert']}{labels})"
        print(printable(f"{name}: {said}"))
    if not gone:
        alive = "1 request is alive" if found["alive"] == 1 else f"{found['alive']:,} requests are alive"
        print(alive + (f", {len(rows):,} shown" if len(rows) < found["alive"] else ""))


def _range(ends: dict[str, float]) -> str:
    """A range as people write it: an end that is open has no number."""
    columns = dict.fromkeys(name.removeprefix("low").removeprefix("high") for name in ends)
    parts = []
    for column in columns:
        low, high = (f"{ends[name + column]:g}" if name + column in ends else "" for name in ("low", "high"))
        parts.append(f"{column.removeprefix('_')} {low}..{high}".strip())
    return ", ".join(parts) or "everything"
