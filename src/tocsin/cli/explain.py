"""Explain rules: how they will run, or why an alert was or was not there at some time.

    tocsin explain cold-store.yaml
    tocsin explain cold-store.yaml Condensation
    tocsin explain cold-store.yaml --run-dir runs/cold-store
    tocsin explain cold-store.yaml Condensation --key machine=press-7 --at 2026-01-01T00:05:00Z --around 5m

Without --at it shows the plan: what is remembered of each stream and for how long, and what each rule does with it.
Nothing is read but the rule file. With --run-dir it says, of rules whose memory is limited, what a run or a backtest
found with it: what each may keep now, and the recall or error that was predicted and reached; and of rules whose
processor time is limited what that bought in a run: the shares of rows worked on and of results found. Where it was
started with other rules than those of the file, it says so.

With --at it reads the rows of one key from the sources of the rule file, takes them through the same plan, and says in
sentences what happened near that time: the alert fired, or was pending because of `for`; the condition stayed below its
threshold, and by how much; a stream had no row, or none within the bounds; rows were left out, and which rows excuse
them; rows came too late or could not be used; the key stands in no table of limits. Of a NoData it says when its
stream was last heard.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tocsin.cli.given import (
    GivenUpError,
    add_span,
    add_spark,
    attempt,
    ends,
    moment,
    no_such_rule,
    read_file,
    settings,
)

if TYPE_CHECKING:
    from tocsin.plan import Plan, RangeWatch, Threshold, Watch
    from tocsin.plan.steps import Silence
    from tocsin.rules.rulefile import RuleFile
    from tocsin.trace import Answer, Traced

    Rule = Threshold | Silence
    Chosen = tuple[Watch, Rule]
    # A watch, and of it some stores, rules and silences.
    Shown = tuple[Watch, list[int], list[Threshold], list[Silence]]

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
    parser.add_argument(
        "--run-dir", metavar="DIR", help="of a run or a backtest: what limits of memory and processor time gave"
    )
    add_span(parser)
    parser.add_argument("--json", action="store_true", help="write one JSON object instead of lines")
    add_spark(parser)


def run(arguments: argparse.Namespace) -> int:
    """Explain; give 1 if that cannot be done."""
    if arguments.at is None and (arguments.key or arguments.around):
        arguments.refuse("--key and --around need --at, the time that is asked about")
    if arguments.at is not None and arguments.run_dir is not None:
        arguments.refuse("--run-dir says what limits gave, and --at why an alert was there; give one of them")
    if arguments.at is not None and arguments.rule is None:
        arguments.refuse("--at needs RULE, the alert that is asked about")
    return attempt("explain", _explain, arguments)


def _explain(arguments: argparse.Namespace) -> int:
    from tocsin.errors import TocsinError
    from tocsin.plan.file import plan_file

    file = read_file(arguments.rules, as_json=arguments.json)
    try:
        plan = plan_file(file)
    except TocsinError as error:
        raise GivenUpError(str(error)) from None
    if arguments.rule is not None and any(one.alert == arguments.rule for one in plan.ranges):
        return _explain_ranges(file, [one for one in plan.ranges if one.alert == arguments.rule], arguments)
    chosen = _chosen(plan, arguments.rule)
    found = _found(arguments, file, chosen)
    if arguments.at is None and arguments.rule is None and not arguments.json:
        print("\n".join([str(plan), *_found_lines(arguments, found)]))
        return 0
    if arguments.at is None:
        # A watch without rules watches for silence alone.
        watches = {id(watch): watch for watch, _ in chosen}.values() if arguments.rule else plan.watches
        shown = _shown(watches, chosen)
        if arguments.json:
            ranges = () if arguments.rule else plan.ranges
            print(json.dumps({"ok": True, "file": file.path, **_plan_object(shown, ranges), **found}, indent=2))
        else:
            print("\n".join([*_plan_lines(shown), *_found_lines(arguments, found)]))
        return 0
    answers = [(traced, rule, _why(traced, rule, arguments)) for traced, rule in _traced(arguments, file, chosen)]
    if arguments.json:
        objects = [_object(rule, traced.key, arguments.at, answer) for traced, rule, answer in answers]
        print(json.dumps({"ok": True, "file": file.path, "answers": objects}, indent=2))
    else:
        for traced, rule, answer in answers:
            _show_answer(rule, traced.key, arguments.at, answer)
    return 0


def _explain_ranges(file: RuleFile, ranges: Sequence[RangeWatch], arguments: argparse.Namespace) -> int:
    """Show rules with ranges; what became of one request, its alert and `tocsin ranges` tell."""
    if arguments.at is not None:
        message = f"--at must be used with a rule that has `expr`; {arguments.rule!r} has ranges: see `tocsin ranges`"
        raise GivenUpError(message)
    if arguments.run_dir is not None:
        message = (
            f"--run-dir must be used with a rule that has `expr`; {arguments.rule!r} has ranges, and no limited memory"
        )
        raise GivenUpError(message)
    if arguments.json:
        from tocsin.plan.shown import range_object

        print(json.dumps({"ok": True, "file": file.path, "ranges": [range_object(one) for one in ranges]}, indent=2))
        return 0
    for one in ranges:
        print(one)
    return 0


def _chosen(plan: Plan, name: str | None) -> list[Chosen]:
    """The rules of a name, and NoData of that name, each with its watch; those of one name may differ in labels."""
    rules: list[Chosen] = []
    for watch in plan.watches:
        rules += [(watch, rule) for rule in watch.rules] + [(watch, silence) for silence in watch.silences]
    if name is None:
        return rules
    mine = [(watch, rule) for watch, rule in rules if rule.alert == name]
    if not mine:
        raise no_such_rule(name, [*(rule.alert for _, rule in rules), *(ranges.alert for ranges in plan.ranges)])
    return mine


def _shown(watches: Iterable[Watch], chosen: list[Chosen]) -> list[Shown]:
    """Watches with the chosen rules and silences, and the stores that these read."""
    shown = []
    for watch in watches:
        mine = [rule for place, rule in chosen if place is watch]
        rules = [rule for rule in watch.rules if rule in mine]
        silences = [silence for silence in watch.silences if silence in mine]
        used = sorted({store for rule in rules for store in rule.stores})
        shown.append((watch, used, rules, silences))
    return shown


def _plan_object(shown: list[Shown], ranges: Sequence[RangeWatch]) -> dict[str, Any]:
    from tocsin.plan.shown import range_object, watch_object

    return {"watches": [watch_object(*one) for one in shown], "ranges": [range_object(one) for one in ranges]}


def _plan_lines(shown: list[Shown]) -> Iterator[str]:
    for watch, stores, rules, silences in shown:
        yield from watch.head_lines
        lines = watch.store_lines(stores) + [line for rule in rules for line in watch.rule_lines(rule)]
        lines += [f"NoData {silence}" for silence in silences]
        yield from (f"  {line}" for line in lines)


def _found(arguments: argparse.Namespace, file: RuleFile, chosen: list[Chosen]) -> dict[str, Any]:
    """What the limits of the chosen rules gave in the run that is named, if one is."""
    from tocsin.cli.found import found_in

    if arguments.run_dir is None:
        return {}
    spending = dict.fromkeys(rule.alert for watch, rule in chosen if watch.anytime is not None)
    units = {rule.alert: None if watch.budget is None else watch.budget.memory.unit for watch, rule in chosen}
    return found_in(arguments.run_dir, file, units, spending)


def _found_lines(arguments: argparse.Namespace, found: dict[str, Any]) -> Iterable[str]:
    from tocsin.cli.found import found_lines

    return found_lines(arguments.run_dir, found) if found else ()


def _traced(arguments: argparse.Namespace, file: RuleFile, chosen: list[Chosen]) -> list[tuple[Traced, Rule]]:
    """Read the rows of the key, once for all rules of a watch, and trace them."""
    from tocsin.cli.history import trace_key

    watches = {id(watch): watch for watch, _ in chosen}
    keys = {number: _key(arguments, watch) for number, watch in watches.items()}
    _around(arguments)  # which is refused, if it must be, before anything is read
    span, conf = ends(arguments), settings(arguments)
    found = {
        number: trace_key(file, watch, keys[number], span, arguments.master, conf) for number, watch in watches.items()
    }
    return [(found[id(watch)], rule) for watch, rule in chosen]


def _why(traced: Traced, rule: Rule, arguments: argparse.Namespace) -> Answer:
    from tocsin.plan import Threshold
    from tocsin.trace import why, why_silent

    if isinstance(rule, Threshold):
        return why(traced, rule, arguments.at, _around(arguments))
    return why_silent(traced, rule, arguments.at)


def _around(arguments: argparse.Namespace) -> int | None:
    from tocsin.errors import RuleError
    from tocsin.rules.durations import microseconds

    if arguments.around is not None:
        try:
            return microseconds(arguments.around, "`--around`")
        except RuleError as error:
            arguments.refuse(str(error))
    return None


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


def _show_answer(rule: Rule, key: tuple[str, ...], at_us: int, answer: Answer) -> None:
    from tocsin.plan.steps import Silence
    from tocsin.rules.mistakes import printable
    from tocsin.trace.words import date

    whose = f" ({rule.stream})" if isinstance(rule, Silence) else ""
    whose += f" of {', '.join(key)}" if key else ""
    print(printable(f"{rule.alert}{whose} at {date(at_us)}: {answer.verdict}"))
    for reason in answer.reasons:
        print(f"  {printable(reason.text)}")


def _object(rule: Rule, key: tuple[str, ...], at_us: int, answer: Answer) -> dict[str, Any]:
    reasons = [{"kind": one.kind, "text": one.text, **one.facts} for one in answer.reasons]
    return {
        "alert": rule.alert,
        "labels": dict(rule.labels),
        "key": list(key),
        "at_us": at_us,
        "verdict": answer.verdict,
        "reasons": reasons,
    }
