"""Explain rules: show how they run, or why an alert did or did not fire at a given time.

    tocsin explain cold-store.yaml
    tocsin explain cold-store.yaml Condensation
    tocsin explain cold-store.yaml --run-dir runs/cold-store
    tocsin explain cold-store.yaml Condensation --key machine=press-7 --at 2026-01-01T00:05:00Z --context 5m

Without --at, the command shows the plan: which rows of each stream are retained, for how long, and how each rule uses
them. It reads the rule file only.

--run-dir adds the results of a run or a backtest for rules with a budget:
  memory budget  share of the budget, predicted and measured recall or error
  CPU budget     share of rows processed, share of results found
If the run was started with other rules than those of the file, a note reports it.

With --at, the command reads the rows of one key from the sources, evaluates them with the same plan, and explains the
result near that time. For example:
  - the alert fired, or was pending because of `for`
  - the largest margin was below the threshold
  - a stream had no row, or no row within the time bounds
  - rows were omitted, and which rows cover them
  - rows were late or invalid
  - a limits table has no row for the key
For a NoData rule, it shows the last row of the stream.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tocsin.cli.arguments import (
    CommandError,
    add_spark_options,
    add_time_range,
    parse_time,
    read_file,
    run_command,
    spark_settings,
    time_range,
    tocsin_errors_as_message,
    unknown_rule_error,
)
from tocsin.cli.live import ProgressLine

if TYPE_CHECKING:
    from tocsin.plan import Plan, RangeWatch, Silence, Threshold, Watch
    from tocsin.rules.rulefile import RuleFile
    from tocsin.trace import Answer, Traced

    Rule = Threshold | Silence
    Chosen = tuple[Watch, Rule]
    # A keyed pipeline with the selected input states, rules and NoData rules.
    Selection = tuple[Watch, list[int], list[Threshold], list[Silence]]

SUMMARY = "show how rules run, or why an alert did or did not fire"
EPILOG = """\
exit codes:
  0  success
  1  errors in the rule file, an unknown rule, or a source that cannot be read
  2  invalid arguments

--at uses all rows that the sources have now, including out-of-order rows; the alerts that these raise are marked late.
It needs Java 17 or newer and tocsin[spark], and takes some seconds to start.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("rules", metavar="RULES.yaml", help="rule file")
    parser.add_argument("rule", nargs="?", metavar="RULE", help="name of an alert (default: all)")
    parser.add_argument("--at", type=parse_time, metavar="TIME", help="time to explain, such as 2026-01-01T00:05:00Z")
    parser.add_argument(
        "--key",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="value of a key column; required for each key column of the rule",
    )
    parser.add_argument(
        "--context",
        metavar="DURATION",
        help="time before and after --at that is searched (default: the span of the rule, or 1m)",
    )
    parser.add_argument("--run-dir", metavar="DIR", help="run directory: show the effect of the memory and CPU budgets")
    add_time_range(parser)
    parser.add_argument("--json", action="store_true", help="write one JSON object instead of text")
    add_spark_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Explain rules; return 1 if that fails."""
    if arguments.at is None and (arguments.key or arguments.context):
        arguments.usage_error("--key and --context need --at")
    if arguments.at is not None and arguments.run_dir is not None:
        arguments.usage_error("use either --run-dir (effect of the memory and CPU budgets) or --at (explain one alert)")
    if arguments.at is not None and arguments.rule is None:
        arguments.usage_error("--at needs RULE")
    return run_command("explain", _explain, arguments)


def _explain(arguments: argparse.Namespace, progress: ProgressLine) -> int:
    from tocsin.errors import TocsinError
    from tocsin.plan import plan_file

    file = read_file(arguments.rules, progress, as_json=arguments.json)
    try:
        plan = plan_file(file)
    except TocsinError as error:
        raise CommandError(str(error)) from None
    if arguments.rule is not None and any(one.alert == arguments.rule for one in plan.ranges):
        progress.stop()
        return _explain_ranges(file, [one for one in plan.ranges if one.alert == arguments.rule], arguments)
    chosen = _chosen(plan, arguments.rule)
    budgets = _budget_results(arguments, file, chosen)
    if arguments.at is None:
        progress.stop()
    if arguments.at is None and arguments.rule is None and not arguments.json:
        print("\n".join([str(plan), *format_budget_results(arguments.run_dir, budgets)]))
        return 0
    if arguments.at is None:
        # Include keyed pipelines that have NoData rules only.
        watches = {id(watch): watch for watch, _ in chosen}.values() if arguments.rule else plan.watches
        selected = _select(watches, chosen)
        if arguments.json:
            ranges = () if arguments.rule else plan.ranges
            print(json.dumps({"ok": True, "file": file.path, **_plan_object(selected, ranges), **budgets}, indent=2))
        else:
            print("\n".join([*_plan_lines(selected), *format_budget_results(arguments.run_dir, budgets)]))
        return 0
    traces = _traced(arguments, file, chosen, progress)
    answers = [(traced, rule, _why(traced, rule, arguments)) for traced, rule in traces]
    progress.stop()
    if arguments.json:
        objects = [_object(rule, traced.key, arguments.at, answer) for traced, rule, answer in answers]
        print(json.dumps({"ok": True, "file": file.path, "answers": objects}, indent=2))
    else:
        for traced, rule, answer in answers:
            _show_answer(rule, traced.key, arguments.at, answer)
    return 0


def _explain_ranges(file: RuleFile, ranges: Sequence[RangeWatch], arguments: argparse.Namespace) -> int:
    """Show range rules. `tocsin ranges` shows single requests."""
    if arguments.at is not None:
        message = f"--at needs a rule with `expr`; {arguments.rule!r} is a range rule: use `tocsin ranges`"
        raise CommandError(message)
    if arguments.run_dir is not None:
        message = f"--run-dir needs a rule with `expr`; {arguments.rule!r} is a range rule, which has no budget"
        raise CommandError(message)
    if arguments.json:
        from tocsin.plan import range_object

        print(json.dumps({"ok": True, "file": file.path, "ranges": [range_object(one) for one in ranges]}, indent=2))
        return 0
    for one in ranges:
        print(one)
    return 0


def _chosen(plan: Plan, name: str | None) -> list[Chosen]:
    """Return the rules and NoData rules of an alert, or all, each with its keyed pipeline."""
    rules: list[Chosen] = []
    for watch in plan.watches:
        rules += [(watch, rule) for rule in watch.rules] + [(watch, silence) for silence in watch.silences]
    if name is None:
        return rules
    mine = [(watch, rule) for watch, rule in rules if rule.alert == name]
    if not mine:
        raise unknown_rule_error(name, [*(rule.alert for _, rule in rules), *(ranges.alert for ranges in plan.ranges)])
    return mine


def _select(watches: Iterable[Watch], chosen: list[Chosen]) -> list[Selection]:
    """Return keyed pipelines with the chosen rules, and the input states that these rules read."""
    selected = []
    for watch in watches:
        mine = [rule for pipeline, rule in chosen if pipeline is watch]
        rules = [rule for rule in watch.rules if rule in mine]
        silences = [silence for silence in watch.silences if silence in mine]
        used = sorted({store for rule in rules for store in rule.stores})
        selected.append((watch, used, rules, silences))
    return selected


def _plan_object(selected: list[Selection], ranges: Sequence[RangeWatch]) -> dict[str, Any]:
    from tocsin.plan import range_object, watch_object

    return {"pipelines": [watch_object(*one) for one in selected], "ranges": [range_object(one) for one in ranges]}


def _plan_lines(selected: list[Selection]) -> Iterator[str]:
    for watch, stores, rules, silences in selected:
        yield from watch.head_lines
        lines = watch.store_lines(stores) + [line for rule in rules for line in watch.rule_lines(rule)]
        lines += [f"NoData {silence}" for silence in silences]
        yield from (f"  {line}" for line in lines)


def _budget_results(arguments: argparse.Namespace, file: RuleFile, chosen: list[Chosen]) -> dict[str, Any]:
    """Return the results of the chosen rules in the run of --run-dir, or an empty object without it."""
    if arguments.run_dir is None:
        return {}
    cpu_alerts = dict.fromkeys(rule.alert for watch, rule in chosen if watch.anytime is not None)
    units = {rule.alert: None if watch.budget is None else watch.budget.memory.unit for watch, rule in chosen}
    return read_budget_results(arguments.run_dir, file, units, cpu_alerts)


def read_budget_results(
    run_dir: str, file: RuleFile, units: Mapping[str, str | None], cpu_alerts: Iterable[str]
) -> dict[str, Any]:
    """Return the results of rules with a memory or CPU budget in a run, as of its last micro-batch.

    `units` has the unit of the memory budget of each alert, or None without one. The object has `rule_file_mismatch` if
    the run was started with another version of the rules; then the units are unknown.
    """
    from tocsin.run_directory.progress import read_cpu_results, read_memory_results

    results = read_memory_results(run_dir)
    if results is None:
        problem = "neither progress nor the summary of a completed backtest"
        message = f"`--run-dir` must be the directory of a run or a backtest; {run_dir} has {problem}"
        raise CommandError(message)
    shares, mismatch = read_cpu_results(run_dir), _rule_file_mismatch(run_dir, file)
    memory = {
        alert: {"share": share, "unit": None if mismatch else units[alert], **one}
        for alert, (share, one) in results.items()
        if alert in units
    }
    cpu_results = {alert: shares.get(alert, {}) for alert in cpu_alerts}
    cpu = {
        alert: {"rows_processed": one.get("rows"), "results_found": one.get("results")}
        for alert, one in cpu_results.items()
    }
    return {"memory": memory, "cpu": cpu, **mismatch}


def _rule_file_mismatch(run_dir: str, file: RuleFile) -> dict[str, str]:
    """Return the rules that the run was started with, or an empty object if they are those of the file."""
    from pathlib import Path

    from tocsin.run_directory.manifest import hash_rule_file, read_manifest

    with tocsin_errors_as_message():
        manifest = read_manifest(run_dir)
    if manifest is None or manifest.rule_hash == hash_rule_file(Path(file.path)):
        return {}
    if Path(manifest.rule_file) == Path(file.path).absolute():
        text = f"{file.path} has changed since the last start of {run_dir}"
    else:
        text = f"{run_dir} was last started with {manifest.rule_file}, whose content differs from {file.path}"
    return {"rule_file_mismatch": text}


def format_budget_results(run_dir: str, results: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of `read_budget_results`: a mismatch of the rules first, then memory, then CPU."""
    from tocsin.cli.tables import cpu_text
    from tocsin.errors import printable
    from tocsin.plan import found_text

    if not results:
        return
    if "rule_file_mismatch" in results:
        yield printable(f"{results['rule_file_mismatch']}; alerts are matched by name")
    if results["memory"] or not results["cpu"]:
        yield f"Memory budgets in {run_dir}" + ("" if results["memory"] else ": none for these rules")
    for alert, one in results["memory"].items():
        share = one["share"]
        text = "" if share is None else f"share {share:,} {one['unit'] or '(bytes or rows)'}; "
        yield f"  {alert}: {text}{found_text(one)}"
    if results["cpu"]:
        yield f"CPU budgets in {run_dir}"
    for alert, shares in results["cpu"].items():
        rows, found = shares["rows_processed"], shares["results_found"]
        unknown = rows is None and found is None
        yield f"  {alert}: {'unknown; only a run records it' if unknown else cpu_text(rows, found)}"


def _traced(
    arguments: argparse.Namespace, file: RuleFile, chosen: list[Chosen], progress: ProgressLine
) -> list[tuple[Traced, Rule]]:
    """Read the rows of the key once per keyed pipeline, and trace them."""
    from tocsin.cli.history_runner import trace_key

    watches = {id(watch): watch for watch, _ in chosen}
    keys = {number: _key(arguments, watch) for number, watch in watches.items()}
    _context_us(arguments)  # Checks the option before rows are read.
    span, conf = time_range(arguments), spark_settings(arguments)
    found = {
        number: trace_key(file, watch, keys[number], span, arguments.master, conf, progress)
        for number, watch in watches.items()
    }
    return [(found[id(watch)], rule) for watch, rule in chosen]


def _why(traced: Traced, rule: Rule, arguments: argparse.Namespace) -> Answer:
    from tocsin.plan import Threshold
    from tocsin.trace import why, why_silent

    if isinstance(rule, Threshold):
        return why(traced, rule, arguments.at, _context_us(arguments))
    return why_silent(traced, rule, arguments.at)


def _context_us(arguments: argparse.Namespace) -> int | None:
    from tocsin.errors import RuleError
    from tocsin.rules.durations import microseconds

    if arguments.context is not None:
        try:
            return microseconds(arguments.context, "`--context`")
        except RuleError as error:
            arguments.usage_error(str(error))
    return None


def _key(arguments: argparse.Namespace, watch: Watch) -> tuple[str, ...]:
    values = {}
    for text in arguments.key:
        name, sign, value = text.partition("=")
        if not sign or name not in watch.on:
            arguments.usage_error(
                f"`--key` must be NAME=VALUE with one of the key columns ({', '.join(watch.on)}); got {text!r}"
            )
        values[name] = value
    missing = [name for name in watch.on if name not in values]
    if missing:
        arguments.usage_error(f"`--key` is required for each key column; {missing[0]!r} is missing")
    return tuple(values[name] for name in watch.on)


def _show_answer(rule: Rule, key: tuple[str, ...], at_us: int, answer: Answer) -> None:
    from tocsin.errors import printable
    from tocsin.formatting import format_event_time
    from tocsin.plan import Silence

    subject = f" ({rule.stream})" if isinstance(rule, Silence) else ""
    subject += f" of {', '.join(key)}" if key else ""
    print(printable(f"{rule.alert}{subject} at {format_event_time(at_us)}: {answer.verdict}"))
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
