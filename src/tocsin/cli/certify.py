"""Certify conditions: prove what they do along each variable, or show that they do not.

    tocsin certify "ln(h/100) + 18.678*air/(257.14+air) > 2" -d h=1..100 -d air=-40..60
    tocsin certify "abs(a.temp - b.temp) > 3" --json
    tocsin certify -f cold-store.yaml Condensation

Per variable, while the others stand, a condition is `increasing`, `decreasing`, `quasiconvex` (it falls, then rises) or
`constant`: that is proved, and rows that cannot decide an alarm may be left out. Or it is `refuted`, by three points of
which the middle one is highest; or `undecided`, and it is said where. What moves is f: of a condition the margin by
which it holds (left less right side of `>`), of an expression that is a number the number itself.

A proof holds on the domains of the variables. -d h=0..100 states one; either end may be left out, which stands for
1e50, and so may the whole option. With -f the conditions of a rule file are certified, on the domains that its streams
declare; a column of a table of limits has its least and its largest number; -d replaces one, to try what it would do.
Below each stands what the plan of the file does with its streams, as `tocsin explain` says it: a stream whose variables
are not proved may still be compared by a number made of them, and one that is read by two may be kept whole.
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

from tocsin.cli.given import GivenUpError, attempt, no_such_rule, read_file

if TYPE_CHECKING:
    from tocsin.expr.certify import Certificate
    from tocsin.expr.nodes import Node, Variable
    from tocsin.plan import Threshold, Watch
    from tocsin.rules.model import Rule
    from tocsin.rules.rulefile import RuleFile

Domain = tuple[float, float]

SUMMARY = "prove what conditions do along each variable, or show that they do not"
EPILOG = """\
exit codes:
  0  every variable is proved; what the plan makes of it does not count
  1  one is refuted or undecided, mistakes in the rule file, or no such rule
  2  wrong usage: an option, a domain or a condition that cannot be read

Nothing is left out of limits, so nothing is asked of them. Counterexamples and some proofs need tocsin[prove], which
tocsin[local] and tocsin[spark] have. A condition that begins with a minus and has no spaces goes behind --.
docs/concepts/proofs.md says how proofs are found and what they promise.
"""

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_COLOURS = {"refuted": "red", "undecided": "yellow"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument(
        "expr",
        nargs="?",
        metavar="EXPR | RULE",
        help="a condition, or a number; with -f the name of an alert, all of them without it",
    )
    parser.add_argument(
        "-d",
        "--domain",
        action="append",
        default=[],
        metavar="NAME=LOW..HIGH",
        help="the values that a variable can have; once per variable, such as -d h=0..100 -d pos.x=-1e3.. -d t=..60",
    )
    parser.add_argument("-f", "--file", metavar="RULES.yaml", help="certify the conditions of a rule file")
    parser.add_argument("--json", action="store_true", help="write one JSON object instead of tables")
    parser.set_defaults(refuse=parser.error)


def run(arguments: argparse.Namespace) -> int:
    """Certify; give 1 if a variable is not proved."""
    if arguments.file is None and arguments.expr is None:
        arguments.refuse("EXPR or -f RULES.yaml must be given; got neither")
    if arguments.file is None and (arguments.expr.endswith((".yaml", ".yml")) or os.path.isfile(arguments.expr)):
        arguments.refuse(
            f"EXPR must be a condition; got the file {arguments.expr!r}; did you mean `-f {arguments.expr}`?"
        )
    return attempt("certify", _of_text if arguments.file is None else _of_file, arguments)


def _of_text(arguments: argparse.Namespace) -> int:
    from tocsin.expr.certify import certify

    tree, mistakes = _read(arguments.expr)
    # Of what cannot be read it is not known which variables it has.
    given = _domains(arguments.domain, None if tree is None or mistakes else _names(tree), mistakes)
    if tree is None or mistakes:
        _refuse(arguments, mistakes)
    cert = certify(tree, given)
    proved = _proved(cert) == len(cert)
    if arguments.json:
        print(json.dumps({"ok": proved, **cert.to_dict()}, indent=2))
    else:
        _show(tree, cert)
    return 0 if proved else 1


def _of_file(arguments: argparse.Namespace) -> int:
    from tocsin.expr.parse import parse_condition
    from tocsin.rules.mistakes import printable

    file = read_file(arguments.file, as_json=arguments.json)
    rules = _chosen(file.rules, arguments.expr)
    mistakes: list[str] = []
    names = [name for rule in rules for name in _names(parse_condition(rule.expr))]
    given = _domains(arguments.domain, names, mistakes, _own_names(file, rules))
    if mistakes:
        _refuse(arguments, mistakes)
    certs, plans = [], _planned(file, rules, given)
    for rule, (watch, threshold) in zip(rules, plans, strict=True):
        tree, cert = _certified(rule, given)
        certs.append(cert)
        if not arguments.json:
            print(printable(f"{rule.alert}: {cert.expr}"))
            _show(tree, cert)
            print("plan:", *map(printable, _plan_lines(watch, threshold)), sep="\n  ", end="\n\n")
    proved, of = sum(map(_proved, certs)), sum(map(len, certs))
    if arguments.json:
        found = [
            {"alert": rule.alert, "labels": dict(rule.labels), **cert.to_dict(), "plan": _plan_lines(*plan)}
            for rule, cert, plan in zip(rules, certs, plans, strict=True)
        ]
        print(json.dumps({"ok": proved == of, "file": file.path, "rules": found}, indent=2))
    else:
        print(printable(f"{file.path}: {proved} of {of} variables proved; {_kept_whole(plans)}"))
    return 0 if proved == of else 1


def _planned(file: RuleFile, chosen: Sequence[Rule], given: Mapping[str, Domain]) -> list[tuple[Watch, Threshold]]:
    """What becomes of some rules among all of the file, with the domains that are tried."""
    from tocsin.errors import TocsinError
    from tocsin.plan.file import plan_file

    rules = [replace(rule, domains=_tried(rule, given)) for rule in file.rules]
    try:
        plan = plan_file(file, [*rules, *file.no_data])
    except TocsinError as error:
        raise GivenUpError(str(error)) from None
    found = {(watch.on, one.alert, one.labels): (watch, one) for watch in plan.watches for one in watch.rules}
    return [found[tuple(rule.on), rule.alert, tuple(sorted(rule.labels.items()))] for rule in chosen]


def _tried(rule: Rule, given: Mapping[str, Domain]) -> dict[str, Domain]:
    """The domains of what a rule reads of streams."""
    read = map(str, _read_of_streams(rule))
    return {**rule.domains, **{name: given[name] for name in read if name in given}}


def _read_of_streams(rule: Rule) -> list[Variable]:
    from tocsin.expr.nodes import variables
    from tocsin.expr.parse import parse_condition

    return [variable for variable in variables(parse_condition(rule.expr)) if variable.stream not in rule.limits]


def _plan_lines(watch: Watch, threshold: Threshold) -> list[str]:
    """What is remembered of each stream, and why that is enough; as `tocsin explain` says it."""
    return watch.store_lines(sorted(threshold.stores)) + threshold.lines[1:]


def _kept_whole(plans: Sequence[tuple[Watch, Threshold]]) -> str:
    stores = [watch.stores[i] for watch, threshold in plans for i in threshold.stores]
    names = dict.fromkeys(store.stream for store in stores if store.remember and store.whole)
    return f"kept whole: {', '.join(names)}" if names else "no stream is kept whole"


def _proved(cert: Certificate) -> int:
    return sum(verdict.proved for verdict in cert.values())


def _read(text: str) -> tuple[Node | None, list[str]]:
    """The tree of a number or a condition, or the mistakes: all that a condition has, or the first of a number."""
    from tocsin.errors import ExprError
    from tocsin.expr.parse import draft_condition, parse_number

    draft = draft_condition(text)
    if draft.condition is not None:
        return draft.condition, [str(error) for error in draft.mistakes]
    try:
        return parse_number(text), []
    except ExprError as error:
        return None, [str(error)]


def _names(tree: Node) -> list[str]:
    from tocsin.expr.nodes import variables

    return [str(variable) for variable in variables(tree)]


def _refuse(arguments: argparse.Namespace, mistakes: Sequence[str]) -> NoReturn:
    arguments.refuse("\ntocsin certify: error: ".join(mistakes))
    raise AssertionError


def _own_names(file: RuleFile, rules: Sequence[Rule]) -> dict[str, str]:
    """How conditions name what is also named by stream and column, as a plan does it."""
    read = [variable for rule in rules for variable in _read_of_streams(rule)]
    written = {str(variable) for variable in read}
    named = {f"{v.stream}.{file.streams[v.stream].column(v.column)}": str(v) for v in read}
    return {name: own for name, own in named.items() if name not in written}


def _domains(
    texts: Sequence[str],
    names: Sequence[str] | None,
    mistakes: list[str],
    own: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Domain]:
    """Read domains of variables; what is wrong with them is added to the mistakes. No names: any may be meant."""
    from tocsin.rules.nearest import nearest

    found: dict[str, Domain] = {}
    for text in texts:
        name, sign, ends = (part.strip() for part in text.partition("="))
        name = own.get(name, name)
        domain = _ends(ends) if name and sign else None
        if domain is None:
            mistakes.append(f"`-d` must be NAME=LOW..HIGH, with finite numbers or nothing as ends; got {text!r}")
        elif name in found:
            mistakes.append(f"`-d` must name a variable once; {name!r} stands twice")
        elif domain[0] > domain[1]:
            mistakes.append(f"`-d {name}` must have low <= high; got {ends!r}")
        elif names is not None and name not in names:
            known = ", ".join(dict.fromkeys(names)) or "none"
            mistakes.append(f"`-d` must name a variable of the condition ({known}); got {name!r}{nearest(name, names)}")
        if name and domain:
            found[name] = domain
    return found


def _ends(text: str) -> Domain | None:
    """Read LOW..HIGH; an end that is not there is infinite.

    >>> _ends("-1e3..2.5"), _ends("0.."), _ends("0...5"), _ends("5")
    ((-1000.0, 2.5), (0.0, inf), (0.0, 0.5), None)
    """
    low, dots, high = (part.strip() for part in text.partition(".."))
    if not dots or not all(_NUMBER.fullmatch(end) and math.isfinite(float(end)) for end in (low, high) if end):
        return None
    return float(low or -math.inf), float(high or math.inf)


def _chosen(rules: Sequence[Rule], name: str | None) -> list[Rule]:
    """The rules of a name, which may differ in labels."""
    mine = [rule for rule in rules if name in (None, rule.alert)]
    if name is not None and not mine:
        raise no_such_rule(name, [rule.alert for rule in rules])
    return mine


def _certified(rule: Rule, given: Mapping[str, Domain]) -> tuple[Node, Certificate]:
    """Certify the condition of a rule, which has the domains of its streams; a limit lies between its numbers."""
    from tocsin.expr.certify import certify
    from tocsin.expr.nodes import variables
    from tocsin.expr.parse import parse_condition

    tree = parse_condition(rule.expr)
    domains, read = dict(rule.domains), []
    for variable in variables(tree):
        table = rule.limits.get(variable.stream)
        if table is None:
            read.append(str(variable))
        else:
            numbers = table.column(str(variable.column))
            domains[str(variable)] = min(numbers), max(numbers)
    domains |= {name: domain for name, domain in given.items() if name in _names(tree)}
    return tree, certify(tree, domains, only=read)


def _show(tree: Node, cert: Certificate) -> None:
    """Write the table of verdicts, and below it what can be said of those that are no proof."""
    from tocsin.cli.terminal import write_table
    from tocsin.rules.mistakes import printable

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
    """Three points and what f is there."""
    import numpy as np

    from tocsin.expr.certify import margin_of
    from tocsin.expr.columns import number_on_arrays
    from tocsin.expr.nodes import variables

    margin, xs = margin_of(tree), found["x"]
    columns = {v.key: np.array(xs if str(v) == name else [found["at"][str(v)]] * 3) for v in variables(margin)}
    values = _told_apart(number_on_arrays(margin, columns).tolist())
    others = ", ".join(f"{other} = {_plain(value)}" for other, value in found["at"].items())
    yield f"counterexample for {name}{', with ' * bool(others)}{others}:"
    shown = [f"{name} = {_plain(x)}" for x in xs]
    width = max(len(text) for text in shown)
    for text, value in zip(shown, values, strict=True):
        yield f"  {text:<{width}}  f = {value}"


def _told_apart(values: Sequence[float]) -> list[str]:
    """Three numbers with as many digits as show that the middle one is the largest, and at least six.

    >>> _told_apart([0.0, 1 / 3, 0.1]), _told_apart([0.33333333, 1 / 3, 0.1])
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
    """A number as it would be typed, to the last digit."""
    return repr(float(value)).removesuffix(".0")
