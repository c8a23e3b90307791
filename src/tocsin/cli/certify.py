"""Certify conditions: prove the shape of a condition along each variable, or find a counterexample.

    tocsin certify "ln(h/100) + 18.678*air/(257.14+air) > 2" -d h=1..100 -d air=-40..60
    tocsin certify "abs(a.temp - b.temp) > 3" --json
    tocsin certify -f cold-store.yaml Condensation

The function f is the margin of a condition (left side minus right side of `>`), or the value of a numeric expression.
Along one variable, with all others fixed, f can be:

  increasing, decreasing, constant  proved
  quasiconvex                       proved: f falls, then rises
  refuted                           three points show that f rises and then falls
  undecided                         neither proved nor refuted; the output shows where the proof failed

If all variables of a stream have a proved shape, Tocsin can omit rows that no alarm needs.

A proof holds on the domains of the variables. -d h=0..100 declares a domain. An open end is 1e50, and a variable
without -d has two open ends. With -f, the conditions of a rule file are certified on the domains that its streams
declare; -d replaces a domain. A column of a limits table ranges from its smallest to its largest number. The output
then also shows how the plan treats each stream, as in `tocsin explain`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

from tocsin.cli.arguments import CommandError, read_file, run_command, unknown_rule_error
from tocsin.cli.live import ProgressLine

if TYPE_CHECKING:
    from tocsin.expr.certify import Certificate
    from tocsin.expr.syntax_tree import Node, Variable
    from tocsin.plan import Threshold, Watch
    from tocsin.rules.model import Rule
    from tocsin.rules.rulefile import RuleFile

Domain = tuple[float, float]

SUMMARY = "prove the shapes of conditions, or find counterexamples"
EPILOG = """\
exit codes:
  0  every variable is proved
  1  a variable is refuted or undecided, errors in the rule file, or an unknown rule
  2  invalid arguments: an option, a domain or a condition that cannot be read

Variables of limits tables need no proof, because their rows are never omitted. Counterexamples and some proofs need
tocsin[prove], which is part of tocsin[local] and tocsin[spark]. Write -- before a condition that begins with a minus
sign and has no spaces.
"""

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_COLOURS = {"refuted": "red", "undecided": "yellow"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument(
        "expr",
        nargs="?",
        metavar="EXPR | RULE",
        help="condition or numeric expression; with -f, name of an alert (default: all)",
    )
    parser.add_argument(
        "-d",
        "--domain",
        action="append",
        default=[],
        metavar="NAME=LOW..HIGH",
        help="domain of a variable, such as -d h=0..100, -d pos.x=-1e3.. or -d t=..60; repeatable",
    )
    parser.add_argument("-f", "--file", metavar="RULES.yaml", help="rule file with the conditions")
    parser.add_argument("--json", action="store_true", help="write one JSON object instead of tables")
    parser.set_defaults(usage_error=parser.error)


def run(arguments: argparse.Namespace) -> int:
    """Certify conditions; return 1 if a variable is not proved."""
    if arguments.file is None and arguments.expr is None:
        arguments.usage_error("EXPR or -f RULES.yaml is required")
    if arguments.file is None and (arguments.expr.endswith((".yaml", ".yml")) or os.path.isfile(arguments.expr)):
        arguments.usage_error(
            f"EXPR must be a condition; got the file {arguments.expr!r}; did you mean `-f {arguments.expr}`?"
        )
    return run_command("certify", _certify_text if arguments.file is None else _certify_file, arguments)


def _certify_text(arguments: argparse.Namespace, progress: ProgressLine) -> int:
    from tocsin.expr.certify import certify

    tree, errors = _parse(arguments.expr)
    # The variables of a condition with errors are unknown, so the names in -d are not checked.
    domains = _domains(arguments.domain, None if tree is None or errors else _names(tree), errors)
    if tree is None or errors:
        _report_usage_errors(arguments, errors)
    progress.start_phase("proving the condition")
    cert = certify(tree, domains)
    progress.stop()
    proved = _proved(cert) == len(cert)
    if arguments.json:
        print(json.dumps({"ok": proved, **cert.to_dict()}, indent=2))
    else:
        _show(tree, cert)
    return 0 if proved else 1


def _certify_file(arguments: argparse.Namespace, progress: ProgressLine) -> int:
    from tocsin.errors import printable
    from tocsin.expr.parser import parse_condition

    file = read_file(arguments.file, progress, as_json=arguments.json)
    rules = _chosen(file.rules, arguments.expr)
    errors: list[str] = []
    names = [name for rule in rules for name in _names(parse_condition(rule.expr))]
    domains = _domains(arguments.domain, names, errors, _condition_names(file, rules))
    if errors:
        _report_usage_errors(arguments, errors)
    trees, certs, plans = [], [], _planned(file, rules, domains)
    progress.start_phase("proving conditions")
    for number, rule in enumerate(rules):
        progress.update(number, len(rules), "rules")
        tree, cert = _certified(rule, domains)
        trees.append(tree)
        certs.append(cert)
    progress.stop()
    if not arguments.json:
        for rule, tree, cert, (watch, threshold) in zip(rules, trees, certs, plans, strict=True):
            print(printable(f"{rule.alert}: {cert.expr}"))
            _show(tree, cert)
            print("plan:", *map(printable, _plan_lines(watch, threshold)), sep="\n  ", end="\n\n")
    proved, total = sum(map(_proved, certs)), sum(map(len, certs))
    if arguments.json:
        objects = [
            {"alert": rule.alert, "labels": dict(rule.labels), **cert.to_dict(), "plan": _plan_lines(*plan)}
            for rule, cert, plan in zip(rules, certs, plans, strict=True)
        ]
        print(json.dumps({"ok": proved == total, "file": file.path, "rules": objects}, indent=2))
    else:
        print(printable(f"{file.path}: {proved} of {total} variables proved; {_unreduced_streams(plans)}"))
    return 0 if proved == total else 1


def _planned(file: RuleFile, chosen: Sequence[Rule], domains: Mapping[str, Domain]) -> list[tuple[Watch, Threshold]]:
    """Plan the rules of a file with the domains of -d; return the plans of the chosen rules."""
    from tocsin.errors import TocsinError
    from tocsin.plan import plan_file

    rules = [replace(rule, domains=_merge_domains(rule, domains)) for rule in file.rules]
    try:
        plan = plan_file(file, [*rules, *file.no_data])
    except TocsinError as error:
        raise CommandError(str(error)) from None
    found = {(watch.on, one.alert, one.labels): (watch, one) for watch in plan.watches for one in watch.rules}
    return [found[tuple(rule.on), rule.alert, tuple(sorted(rule.labels.items()))] for rule in chosen]


def _merge_domains(rule: Rule, domains: Mapping[str, Domain]) -> dict[str, Domain]:
    """Return the domains of a rule. Domains of -d replace declared domains."""
    read = map(str, _stream_variables(rule))
    return {**rule.domains, **{name: domains[name] for name in read if name in domains}}


def _stream_variables(rule: Rule) -> list[Variable]:
    from tocsin.expr.parser import parse_condition
    from tocsin.expr.syntax_tree import find_variables

    return [variable for variable in find_variables(parse_condition(rule.expr)) if variable.stream not in rule.limits]


def _plan_lines(watch: Watch, threshold: Threshold) -> list[str]:
    """Return the lines of `tocsin explain` for a rule: which rows of each stream are retained, and why."""
    return watch.store_lines(sorted(threshold.stores)) + threshold.lines[1:]


def _unreduced_streams(plans: Sequence[tuple[Watch, Threshold]]) -> str:
    stores = [watch.stores[i] for watch, threshold in plans for i in threshold.stores]
    names = dict.fromkeys(store.stream for store in stores if store.remember and store.whole)
    return f"unreduced streams: {', '.join(names) or 'none'}"


def _proved(cert: Certificate) -> int:
    return sum(verdict.proved for verdict in cert.values())


def _parse(text: str) -> tuple[Node | None, list[str]]:
    """Return the tree of a condition or a numeric expression, and its errors."""
    from tocsin.errors import ExprError
    from tocsin.expr.parser import parse_condition_with_errors, parse_number

    result = parse_condition_with_errors(text)
    if result.condition is not None:
        return result.condition, [str(error) for error in result.errors]
    try:
        return parse_number(text), []
    except ExprError as error:
        return None, [str(error)]


def _names(tree: Node) -> list[str]:
    from tocsin.expr.syntax_tree import find_variables

    return [str(variable) for variable in find_variables(tree)]


def _report_usage_errors(arguments: argparse.Namespace, errors: Sequence[str]) -> NoReturn:
    arguments.usage_error("\ntocsin certify: error: ".join(errors))
    raise AssertionError


def _condition_names(file: RuleFile, rules: Sequence[Rule]) -> dict[str, str]:
    """Return the name that conditions use for each `stream.column`, if it differs."""
    read = [variable for rule in rules for variable in _stream_variables(rule)]
    written = {str(variable) for variable in read}
    named = {f"{v.stream}.{file.streams[v.stream].column(v.column)}": str(v) for v in read}
    return {name: short for name, short in named.items() if name not in written}


def _domains(
    texts: Sequence[str],
    names: Sequence[str] | None,
    errors: list[str],
    condition_names: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Domain]:
    """Parse the domains of -d and append to `errors`. Names are checked unless `names` is None."""
    from tocsin.rules.suggestions import nearest_clause

    found: dict[str, Domain] = {}
    for text in texts:
        name, sign, ends = (part.strip() for part in text.partition("="))
        name = condition_names.get(name, name)
        domain = _ends(ends) if name and sign else None
        if domain is None:
            errors.append(f"`-d` must be NAME=LOW..HIGH with finite numbers, or with an open end; got {text!r}")
        elif name in found:
            errors.append(f"`-d` must declare a variable once; got {name!r} twice")
        elif domain[0] > domain[1]:
            errors.append(f"`-d {name}` must have low <= high; got {ends!r}")
        elif names is not None and name not in names:
            known = ", ".join(dict.fromkeys(names)) or "none"
            errors.append(
                f"`-d` must be a variable of the condition ({known}); got {name!r}{nearest_clause(name, names)}"
            )
        if name and domain:
            found[name] = domain
    return found


def _ends(text: str) -> Domain | None:
    """Parse LOW..HIGH; a missing end is infinite. Return None if the text is invalid.

    >>> _ends("-1e3..2.5"), _ends("0.."), _ends("0...5"), _ends("5")
    ((-1000.0, 2.5), (0.0, inf), (0.0, 0.5), None)
    """
    low, dots, high = (part.strip() for part in text.partition(".."))
    if not dots or not all(_NUMBER.fullmatch(end) and math.isfinite(float(end)) for end in (low, high) if end):
        return None
    return float(low or -math.inf), float(high or math.inf)


def _chosen(rules: Sequence[Rule], name: str | None) -> list[Rule]:
    """Return the rules of an alert, or all rules. Rules of one alert have different labels."""
    mine = [rule for rule in rules if name in (None, rule.alert)]
    if name is not None and not mine:
        raise unknown_rule_error(name, [rule.alert for rule in rules])
    return mine


def _certified(rule: Rule, given: Mapping[str, Domain]) -> tuple[Node, Certificate]:
    """Certify the condition of a rule on its declared domains, or on the domains of -d."""
    from tocsin.expr.certify import certify
    from tocsin.expr.parser import parse_condition
    from tocsin.expr.syntax_tree import find_variables

    tree = parse_condition(rule.expr)
    domains, read = dict(rule.domains), []
    for variable in find_variables(tree):
        table = rule.limits.get(variable.stream)
        if table is None:
            read.append(str(variable))
        else:
            numbers = table.column(str(variable.column))
            domains[str(variable)] = min(numbers), max(numbers)
    domains |= {name: domain for name, domain in given.items() if name in _names(tree)}
    return tree, certify(tree, domains, only=read)


def _show(tree: Node, cert: Certificate) -> None:
    """Print the table of verdicts, then counterexamples and hints."""
    from tocsin.cli.live import write_table
    from tocsin.errors import printable

    if not cert:
        print("no variables: nothing to prove")
        return
    rows = [[name, one.verdict, _span(cert.domains[name]), one.proof] for name, one in cert.items()]
    colours = [_COLOURS.get(one.verdict, "green") for one in cert.values()]
    write_table(["variable", "verdict", "domain", "proof"], rows, sys.stdout, 1, colours)
    for name, verdict in cert.items():
        if verdict.counterexample is not None:
            for line in _counterexample(tree, name, verdict.counterexample):
                print(printable(line))
        if verdict.help:
            print(printable(f"help for {name}: {verdict.help}"))


def _counterexample(tree: Node, name: str, found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a counterexample: three points and the values of f."""
    import numpy as np

    from tocsin.expr.certify import build_margin
    from tocsin.expr.column_evaluation import evaluate_number_with_numpy
    from tocsin.expr.syntax_tree import find_variables

    margin, xs = build_margin(tree), found["x"]
    columns = {v.key: np.array(xs if str(v) == name else [found["at"][str(v)]] * 3) for v in find_variables(margin)}
    values = _distinct_digits(evaluate_number_with_numpy(margin, columns).tolist())
    others = ", ".join(f"{other} = {_plain(value)}" for other, value in found["at"].items())
    yield f"counterexample for {name}{', with ' * bool(others)}{others}:"
    shown = [f"{name} = {_plain(x)}" for x in xs]
    width = max(len(text) for text in shown)
    for text, value in zip(shown, values, strict=True):
        yield f"  {text:<{width}}  f = {value}"


def _distinct_digits(values: Sequence[float]) -> list[str]:
    """Return three numbers with at least six digits, and enough digits to show that the middle one is the largest.

    >>> _distinct_digits([0.0, 1 / 3, 0.1]), _distinct_digits([0.33333333, 1 / 3, 0.1])
    (['0', '0.333333', '0.1'], ['0.33333333', '0.333333333', '0.1'])
    """
    texts: list[str] = []
    for digits in range(6, 18):
        texts = [f"{value:.{digits}g}" for value in values]
        low, top, high = map(float, texts)
        if top > max(low, high):
            break
    return texts


def _span(domain: Domain) -> str:
    return "..".join("" if math.isinf(end) else _plain(end) for end in domain)


def _plain(value: float) -> str:
    """Return the shortest text that reads back as the same number."""
    return repr(float(value)).removesuffix(".0")
