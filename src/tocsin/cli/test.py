"""Test rules: compare the alerts that a series of samples raises with the expected alerts. No JVM is needed.

    tocsin test cold-store-test.yaml
    tocsin test --run condensation tests/*.yaml
    tocsin test --debug cold-store-test.yaml
    tocsin test --json tests/*.yaml | jq '.files[].tests[] | select(.ok | not)'

A test file has the format of `promtool test rules`. In addition, samples can be delayed:

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

The test compares the alerts that are known at `eval_time`. Variables `${VAR}` of rule files do not need to be set.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tocsin.cli.arguments import run_command
from tocsin.cli.live import ProgressLine, Status

if TYPE_CHECKING:
    from tocsin.testing import CheckedSuite, Result

SUMMARY = "run unit tests of rules"
EPILOG = """\
exit codes:
  0  all tests passed
  1  a test failed, a file has errors, or a file cannot be read
  2  invalid arguments, or no test to run

Errors go to standard error, one line each; results go to standard output. With --json, everything goes to standard
output.
docs/reference/test-file.md describes the test file.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("files", nargs="*", metavar="FILE", help="test file; at least one")
    parser.add_argument(
        "--run",
        metavar="REGEX",
        default="",
        dest="chosen",
        help="run only tests whose name matches a regular expression",
    )
    parser.add_argument("--debug", action="store_true", help="show the series and the alert events of each test")
    parser.add_argument("--json", action="store_true", help="write one JSON object instead of text")
    parser.set_defaults(usage_error=parser.error)


def run(arguments: argparse.Namespace) -> int:
    """Run the tests; return 1 if a test fails or a file has errors, 2 without tests."""
    if not arguments.files:
        arguments.usage_error("the following arguments are required: FILE")
    return run_command("test", _test, arguments)


def _test(arguments: argparse.Namespace, progress: ProgressLine) -> int:
    try:
        is_chosen = re.compile(arguments.chosen).search
    except re.error as error:
        arguments.usage_error(f"argument --run: must be a regular expression ({error}); got {arguments.chosen!r}")
    from tocsin.testing import SuiteLoader

    loader = SuiteLoader()
    checked = []
    progress.start_phase("checking test files")
    for number, path in enumerate(arguments.files):
        progress.update(number, len(arguments.files), "files")
        checked.append(loader.check(path))
    if not arguments.json:
        _print_errors(checked)
    results = _run(checked, is_chosen, arguments, progress)
    progress.stop()
    code = _code(checked, results)
    if arguments.json:
        print(json.dumps(_object(checked, results, arguments) | {"ok": code == 0}, indent=2))
    elif not any(results) and not any(file.errors for file in checked):
        print(f"tocsin test: no test has a name that matches {arguments.chosen!r}", file=sys.stderr)
    return code


def _run(
    checked: Sequence[CheckedSuite],
    is_chosen: Callable[[str], object],
    arguments: argparse.Namespace,
    progress: ProgressLine,
) -> list[list[Result]]:
    """Run the chosen tests and return the results of each file. Print them after each file."""
    from tocsin.jit import use_interpreted_kernels
    from tocsin.testing import run_suite

    chosen = [[one for one in file.suite.scenarios if is_chosen(one.name)] if file.suite else [] for file in checked]
    results, total, done = [], sum(map(len, chosen)), 0
    progress.start_phase(Status("running tests", done, total, "tests"))
    with use_interpreted_kernels(sum(scenario.samples for scenarios in chosen for scenario in scenarios)):
        for file, scenarios in zip(checked, chosen, strict=True):
            file_results: list[Result] = []
            if file.suite and scenarios:
                for result in run_suite(file.suite, scenarios, is_debugging=arguments.debug):
                    file_results.append(result)
                    done += 1
                    progress.update(done, total, "tests")
                if not arguments.json:
                    _print(file.path, file_results, arguments)
            results.append(file_results)
    return results


def _code(checked: Sequence[CheckedSuite], results: Sequence[Sequence[Result]]) -> int:
    if any(file.errors for file in checked):
        return 1
    if not any(results):
        return 2
    return 0 if all(result.ok for file_results in results for result in file_results) else 1


def _print_errors(checked: Sequence[CheckedSuite]) -> None:
    from tocsin.cli.live import write_line

    # Several test files can name the same rule file, so its errors are printed once.
    for error in dict.fromkeys(error for file in checked for error in file.errors):
        write_line(str(error), sys.stderr, "red")


def _print(path: str, results: Sequence[Result], arguments: argparse.Namespace) -> None:
    """Print the results of one file in the format of promtool."""
    from tocsin.errors import printable
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
    from tocsin.cli.check import error_object
    from tocsin.testing.report import to_json

    files = []
    for file, file_results in zip(checked, results, strict=True):
        errors = [error_object(error) for error in file.errors]
        tests = [to_json(result, is_debugging=arguments.debug) for result in file_results]
        ok = not errors and all(result.ok for result in file_results)
        files.append({"file": file.path, "ok": ok, "errors": errors, "tests": tests})
    return {"ok": False, "files": files}
