"""Test rules: series of samples in, the alerts that should fire at some times out. No JVM is started.

    tocsin test cold-store-test.yaml
    tocsin test --run condensation tests/*.yaml
    tocsin test --debug cold-store-test.yaml
    tocsin test --json tests/*.yaml | jq '.files[].tests[] | select(.ok | not)'

A test file has the shape of promtool's (`promtool test rules`), and each sample may arrive late:

    rule_files: [cold-store.yaml]
    tests:
      - name: condensation
        interval: 1m
        input_series:
          - series: air{machine="m1"}
            values: 20+1x10          # 20 21 22 ... 30
            delay: 0s x5 30s         # the sixth sample arrives 30 s late
        alert_rule_test:
          - eval_time: 5m
            alertname: Condensation
            exp_alerts:
              - exp_labels: {severity: critical, machine: m1}

At `eval_time` there are the alerts of everything that has arrived by then. `${VAR}` in rule files need not be set.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tocsin.testing import CheckedSuite, Result

SUMMARY = "run unit tests of rules"
EPILOG = """\
exit codes:
  0  all tests passed
  1  a test failed, mistakes in a test file or a rule file, or a file that cannot be read
  2  wrong usage: no test to run, too

Mistakes go to standard error, one line each; results go to standard output, and with --json all does.
docs/reference/test-file.md describes the file.
"""

# A bar for less would be gone before it is seen.
_LONG = 50


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("files", nargs="*", metavar="FILE", help="a test file; at least one")
    parser.add_argument("--run", metavar="REGEX", default="", dest="chosen", help="run tests whose name matches")
    parser.add_argument("--debug", action="store_true", help="show the series of each test, and its alerts over time")
    parser.add_argument("--json", action="store_true", help="write one JSON object instead of lines")
    parser.set_defaults(refuse=parser.error)


def run(arguments: argparse.Namespace) -> int:
    """Run the tests; give 1 if one fails or cannot be read, 2 if there is none."""
    if not arguments.files:
        arguments.refuse("the following arguments are required: FILE")
    try:
        is_chosen = re.compile(arguments.chosen).search
    except re.error as error:
        arguments.refuse(f"argument --run: must be a regular expression; {error}: {arguments.chosen!r}")
    from tocsin.testing import SuiteLoader

    loader = SuiteLoader()
    checked = [loader.check(path) for path in arguments.files]
    if not arguments.json:
        _print_mistakes(checked)
    results = _run(checked, is_chosen, arguments)
    code = _code(checked, results)
    if arguments.json:
        print(json.dumps(_object(checked, results, arguments) | {"ok": code == 0}, indent=2))
    elif not any(results) and not any(file.mistakes for file in checked):
        print(f"tocsin test: no test has a name that matches {arguments.chosen!r}", file=sys.stderr)
    return code


def _run(
    checked: Sequence[CheckedSuite], is_chosen: Callable[[str], object], arguments: argparse.Namespace
) -> list[list[Result]]:
    """Run the chosen tests of each file; results are printed file by file."""
    from tocsin.jit import plain_kernels
    from tocsin.testing import run_suite

    chosen = [[one for one in file.suite.scenarios if is_chosen(one.name)] if file.suite else [] for file in checked]
    results = []
    with plain_kernels(sum(scenario.samples for scenarios in chosen for scenario in scenarios)):
        for file, scenarios in zip(checked, chosen, strict=True):
            found: list[Result] = []
            if file.suite and scenarios:
                running = run_suite(file.suite, scenarios, is_debugging=arguments.debug)
                found = list(_with_bar(running, len(scenarios), arguments))
                if not arguments.json:
                    _print(file.path, found, arguments)
            results.append(found)
    return results


def _with_bar(running: Iterable[Result], count: int, arguments: argparse.Namespace) -> Iterable[Result]:
    """Show how far the tests are, if somebody looks and it takes a while."""
    if arguments.json or count < _LONG or not sys.stderr.isatty():
        return running
    # Only a terminal pays for the import.
    from rich.console import Console
    from rich.progress import track

    return track(running, "testing", total=count, console=Console(stderr=True), transient=True)


def _code(checked: Sequence[CheckedSuite], results: Sequence[Sequence[Result]]) -> int:
    if any(file.mistakes for file in checked):
        return 1
    if not any(results):
        return 2
    return 0 if all(result.ok for found in results for result in found) else 1


def _print_mistakes(checked: Sequence[CheckedSuite]) -> None:
    from tocsin.cli.terminal import write_line

    # A rule file with mistakes may stand behind several test files; once is enough.
    for mistake in dict.fromkeys(mistake for file in checked for mistake in file.mistakes):
        write_line(str(mistake), sys.stderr, "red")


def _print(path: str, results: Sequence[Result], arguments: argparse.Namespace) -> None:
    """Write the results of one file, as promtool does."""
    from tocsin.rules.mistakes import printable
    from tocsin.testing.report import lines

    ok = all(result.ok for result in results)
    _write(f"Unit Testing: {printable(path)}", "bold")
    for line in lines(results, is_debugging=arguments.debug):
        is_verdict = line.startswith(("  SUCCESS", "  FAILED"))
        _write(line, ("green" if ok else "red") if is_verdict else "")
    _write("", "")


def _write(line: str, style: str) -> None:
    if not style or not sys.stdout.isatty():
        print(line)
        return
    from rich.console import Console
    from rich.text import Text

    Console(file=sys.stdout, soft_wrap=True).print(Text(line, style))


def _object(
    checked: Sequence[CheckedSuite], results: Sequence[Sequence[Result]], arguments: argparse.Namespace
) -> dict[str, Any]:
    from tocsin.cli.check import place
    from tocsin.testing.report import as_object

    files = []
    for file, found in zip(checked, results, strict=True):
        mistakes = [place(mistake) for mistake in file.mistakes]
        tests = [as_object(result, is_debugging=arguments.debug) for result in found]
        ok = not mistakes and all(result.ok for result in found)
        files.append({"file": file.path, "ok": ok, "mistakes": mistakes, "tests": tests})
    return {"ok": False, "files": files}
