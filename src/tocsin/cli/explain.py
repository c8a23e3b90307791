"""Explain rules: how they will run, or why an alert was or was not there at some time.

    tocsin explain cold-store.yaml
    tocsin explain cold-store.yaml Condensation
    tocsin explain cold-store.yaml Condensation --key machine=press-7 --at 2026-01-01T00:05:00Z --around 5m

Without --at it shows the plan: what is remembered of each stream and for how long, and what each rule does with it.
Nothing is read but the rule file.

With --at it reads the rows of one key from the sources of the rule file, takes them through the same plan, and says in
sentences what happened near that time: the alert fired, or was pending because of `for`; the condition stayed below its
threshold, and by how much; a stream had no row, or none within the bounds; rows were left out, and which rows excuse
them; rows came too late or could not be used.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tocsin.cli.given import GivenUpError, add_span, add_spark, give_up, interrupted, moment, read_file, settings

if TYPE_CHECKING:
    from tocsin.plan import Plan, Threshold, Watch
    from tocsin.rules.rulefile import RuleFile
    from tocsin.trace import Answer

SUMMARY = "show how rules run, or why an alert was or was not there"
EPILOG = """\
exit codes:
  0  explained, whatever the answer is
  1  mistakes in the rule file, no such rule, or sources that cannot be read
  2  wrong usage

The answer of --at is that of all rows that the sources have now: a row that came late counts, and the alert it raised
is called late. With --at it needs Java 17 or newer and tocsin[spark], and takes some seconds to start. docs/explain.md
shows each kind of answer.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("rules", metavar="RULES.yaml", help="a rule file")
    parser.add_argument("rule", nargs="?", metavar="RULE", help="the name of an alert; all of them without it")
    parser.add_argument("--at", type=moment, metavar="TIME", help="when: 2026-01-01T00:05:00Z")
    parser.add_argument(
        "--key", action="append", default=[], metavar="NAME=VALUE", help="whose: once per key column of the rule"
    )
    parser.add_argument(
        "--around", metavar="DURATION", help="how near rows must be to count (default: the span of the rule, or 1m)"
    )
    add_span(parser)
    parser.add_argument("--json", action="store_true", help="write one JSON object instead of lines")
    add_spark(parser)


def run(arguments: argparse.Namespace) -> int:
    """Explain; give 1 if that cannot be done."""
    if arguments.at is None and (arguments.key or arguments.around):
        arguments.refuse("--key and --around need --at, the time that is asked about")
    if arguments.at is not None and arguments.rule is None:
        arguments.refuse("--at needs RULE, the alert that is asked about")
    try:
        return _explain(arguments)
    except GivenUpError as error:
        return give_up("explain", error, as_json=arguments.json)
    except KeyboardInterrupt:
        return interrupted("explain")


def _explain(arguments: argparse.Namespace) -> int:
    from tocsin.errors import TocsinError
    from tocsin.plan.file import plan_file

    file = read_file(arguments.rules, as_json=arguments.json)
    try:
        plan = plan_file(file)
    except TocsinError as error:
        raise GivenUpError(str(error)) from None
    chosen = _chosen(plan, arguments.rule)
    if arguments.at is None and arguments.rule is None and not arguments.json:
        print(plan)
        return 0
    if arguments.at is None:
        # A watch without rules watches for silence alone.
        watches = {id(watch): watch for watch, _ in chosen}.values() if arguments.rule else plan.watches
        _show_plan(file, watches, chosen, as_json=arguments.json)
        return 0
    answers = [(rule, *_why(arguments, file, watch, rule)) for watch, rule in chosen]
    if arguments.json:
        found = [_object(rule, key, arguments.at, answer) for rule, key, answer in answers]
        print(json.dumps({"ok": True, "file": file.path, "answers": found}, indent=2))
    else:
        for rule, key, answer in answers:
            _show_answer(rule, key, arguments.at, answer)
    return 0


def _chosen(plan: Plan, name: str | None) -> list[tuple[Watch, Threshold]]:
    """The rules of a name, each with its watch; rules of one name may differ in labels."""
    from tocsin.rules.nearest import nearest

    rules = [(watch, rule) for watch in plan.watches for rule in watch.rules]
    if name is None:
        return rules
    mine = [(watch, rule) for watch, rule in rules if rule.alert == name]
    if not mine:
        names = list(dict.fromkeys(rule.alert for _, rule in rules))
        message = f"RULE must be an alert of the file ({', '.join(names)}); got {name!r}{nearest(name, names)}"
        raise GivenUpError(message)
    return mine


def _show_plan(
    file: RuleFile, watches: Iterable[Watch], chosen: list[tuple[Watch, Threshold]], *, as_json: bool
) -> None:
    """Write watches with the chosen rules, and the stores that these read."""
    shown = []
    for watch in watches:
        rules = [rule for mine, rule in chosen if mine is watch]
        used = sorted({store for rule in rules for store in rule.stores})
        shown.append((watch, rules, [watch.stores[store] for store in used]))
    if as_json:
        print(json.dumps({"ok": True, "file": file.path, "watches": [_watch_object(*one) for one in shown]}, indent=2))
        return
    for watch, rules, stores in shown:
        print(str(watch).splitlines()[0])
        for store in stores:
            print(f"  Store {store}")
        for rule in rules:
            print(f"  Threshold {rule}")


def _watch_object(watch: Watch, rules: list[Threshold], stores: list[Any]) -> dict[str, Any]:
    return {
        "on": list(watch.on),
        "outage_us": watch.outage_us,
        "stores": [
            {"stream": store.stream, "columns": list(store.columns), "keeps": str(store).partition(": ")[2]}
            for store in stores
        ],
        "rules": [
            {"alert": rule.alert, "labels": dict(rule.labels), "condition": str(rule.condition), "does": str(rule)}
            for rule in rules
        ],
        "no_data": [str(silence) for silence in watch.silences],
    }


def _why(
    arguments: argparse.Namespace, file: RuleFile, watch: Watch, rule: Threshold
) -> tuple[tuple[str, ...], Answer]:
    """Read the rows of a key and ask why."""
    from tocsin.cli.history import trace_key
    from tocsin.errors import RuleError
    from tocsin.rules.durations import microseconds
    from tocsin.trace import why

    key = _key(arguments, watch)
    around = None
    if arguments.around is not None:
        try:
            around = microseconds(arguments.around, "`--around`")
        except RuleError as error:
            arguments.refuse(str(error))
    traced = trace_key(file, watch, key, (arguments.from_us, arguments.to_us), arguments.master, settings(arguments))
    return key, why(traced, rule, arguments.at, around)


def _key(arguments: argparse.Namespace, watch: Watch) -> tuple[str, ...]:
    given = {}
    for text in arguments.key:
        name, sign, value = text.partition("=")
        if not sign or name not in watch.on:
            arguments.refuse(f"`--key` must be NAME=VALUE with a key column ({', '.join(watch.on)}); got {text!r}")
        given[name] = value
    missing = [name for name in watch.on if name not in given]
    if missing:
        arguments.refuse(f"`--key` must be given for each key column; {missing[0]!r} is missing")
    return tuple(given[name] for name in watch.on)


def _show_answer(rule: Threshold, key: tuple[str, ...], at_us: int, answer: Answer) -> None:
    from tocsin.rules.mistakes import printable
    from tocsin.trace.words import date

    whose = f" of {', '.join(key)}" if key else ""
    print(printable(f"{rule.alert}{whose} at {date(at_us)}: {answer.verdict}"))
    for reason in answer.reasons:
        print(f"  {printable(reason.text)}")


def _object(rule: Threshold, key: tuple[str, ...], at_us: int, answer: Answer) -> dict[str, Any]:
    reasons = [{"kind": one.kind, "text": one.text, **one.facts} for one in answer.reasons]
    return {
        "alert": rule.alert,
        "labels": dict(rule.labels),
        "key": list(key),
        "at_us": at_us,
        "verdict": answer.verdict,
        "reasons": reasons,
    }
