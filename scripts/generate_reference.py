"""Reference pages: write the parts that come from code, or check that they are up to date.

Usage: generate_reference.py [--check]

A generated part is the text between the lines `<!-- generated: NAME -->` and `<!-- end of generated part -->` of a page
in docs/reference. Each name of `parts` must be on exactly one page, so no page can lack a new command or table. With
--check, no page is written: the script lists the parts that differ from the code and then exits with 1.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path

import yaml

from tocsin import jit
from tocsin.cli.main import parser
from tocsin.diagnostic_codes import CODES
from tocsin.expr import parser as condition_parser
from tocsin.expr.syntax_tree import FUNCTIONS
from tocsin.rules import compose, context, options, values
from tocsin.rules.options import Field
from tocsin.runtime.metrics import METRICS, Metric
from tocsin.testing import options as test_options
from tocsin.testing import scenario, series_notation

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "reference"
END = "<!-- end of generated part -->"
PART = re.compile(rf"<!-- generated: (.+?) -->\n(.*?){re.escape(END)}", re.DOTALL)
# Options that several commands share, and exit codes that the head of the page describes.
SHARED_OPTIONS = ("master", "conf", "from_us", "to_us")
COMMON_EXITS = ("- Exit code 0: success", "- Exit code 2: invalid arguments")
# Modules whose public names are listed. The site also has the names of `tocsin.delivery`.
MODULES = ("tocsin", "tocsin.spark")


def listing(rows: Iterable[tuple[str, str]]) -> str:
    """Return a list of names and their meanings."""
    return "\n".join(f"- {name}: {meaning}" for name, meaning in rows)


def code(text: str) -> str:
    """Return text as inline code."""
    return f"`{text}`"


def fields(sections: Mapping[str, tuple[Field, ...]]) -> str:
    """Return the keys of a file format, each section below a heading. Sections with equal keys share a heading."""
    titles: dict[tuple[Field, ...], list[str]] = {}
    for title, section in sections.items():
        titles.setdefault(section, []).append(title)
    text = ["\n".join([f"### {', '.join(names)}", "", *map(_field, section)]) for section, names in titles.items()]
    return "\n\n".join(text)


def _field(field: Field) -> str:
    """Return a key with its type, its default and its meaning."""
    # The text of a part is the content of another section.
    facts = [] if field.kind == "part" else [options.takes(field).removeprefix("a ").removeprefix("an ")]
    if field.required:
        facts.append("*required*")
    elif field.default is not None:
        facts.append(f"default `{field.default}`")
    details = f" ({', '.join(facts)})" if facts else ""
    return f"- {code(field.name)}{details}: {field.meaning}"


def rule_file_keys() -> str:
    """Return the keys of rule files."""
    sections = {
        "file": options.FILE,
        "streams": options.STREAM,
        "values": options.VALUE,
        "no_data": options.NO_DATA,
        "limits": options.LIMITS,
        "groups": options.GROUP,
        "rules": options.RULE,
        "within": options.PAIR,
        "quality of a rule": options.QUALITY,
        "quality.model": options.MODEL,
        "quality of a file": options.RUN_QUALITY,
        "ranges": options.RANGES,
        "archive": options.ARCHIVE,
    }
    for name, kinds in (("source", options.SOURCES), ("sink", options.SINKS)):
        sections |= {f"{name} {kind.name}": kind.fields for kind in kinds.values()}
    return fields(sections)


def rule_file_limits() -> str:
    """Return the limits of a rule file."""
    rows = [
        ("size of a file", f"{compose.MOST_BYTES // 2**20} MiB"),
        ("nodes of a file, with expanded aliases", f"{compose.MOST_NODES:,}"),
        ("nesting", f"{compose.MOST_DEPTH} levels"),
        ("entries of `streams`, `limits` and other mappings", f"{values.MOST_ENTRIES:,}"),
        ("names in a list", f"{values.MOST_NAMES}"),
        ("reported errors of a file", f"{context.MOST_ERRORS:,}"),
        ("reported errors of a condition", f"{condition_parser.MAX_ERRORS}"),
        ("length of a condition", f"{condition_parser.MAX_LENGTH:,} characters"),
    ]
    return listing(rows)


def diagnostic_codes() -> str:
    """Return the codes of diagnostics with cause and remedy."""
    return listing((code(name), f"{one.cause}. Remedy: {one.remedy}") for name, one in CODES.items())


def functions() -> str:
    """Return the functions of conditions as calls with their arguments."""
    calls = []
    for name, (least, most) in FUNCTIONS.items():
        arguments = ["x", "y", "z"][:least] + ([] if most else ["..."])
        calls.append(code(f"{name}({', '.join(arguments)})"))
    return " ".join(calls)


def test_file_limits() -> str:
    """Return the limits of a test file."""
    rows = [
        ("samples of a series", f"{series_notation.MOST_SAMPLES:,}"),
        ("samples of a file", f"{scenario.MOST_SAMPLES_IN_ALL:,}"),
        ("samples with interpreted kernels", f"{jit.MOST_INTERPRETED_ROWS:,}"),
        ("the same without cached kernels", f"{jit.MOST_INTERPRETED_ROWS_UNCACHED:,}"),
    ]
    return listing(rows)


def unsupported_keys() -> str:
    """Return the keys of promtool that a test file cannot have. The error of each key names a replacement."""
    return ", ".join(code(name) for names in test_options.UNSUPPORTED.values() for name in names)


def commands() -> dict[str, tuple[argparse.ArgumentParser, str]]:
    """Return parser and summary of each command by its name. An action of `ranges` is a command of its own."""
    found: dict[str, tuple[argparse.ArgumentParser, str]] = {}
    for name, (one, summary) in _subparsers(parser()).items():
        found[name] = one, summary
        found |= {f"{name} {action}": nested for action, nested in _subparsers(one).items()}
    return found


def command(name: str) -> str:
    """Return the reference of a command: its purpose, usage, arguments, and exit codes that are not those of all."""
    one, summary = commands()[name]
    shown = [action for action in one._actions if action.help != argparse.SUPPRESS and action.dest != "help"]
    words = [_argument(action).strip("`") for action in shown if not action.option_strings or action.required]
    optional = ["[OPTION...]"] if any(action.option_strings and not action.required for action in shown) else []
    text = [f"{code(' '.join(['tocsin', name, *optional, *words]))}: {summary}.", ""]
    text += [
        f"- {_argument(action)}: {_help(one, action)}"
        for action in shown
        if not _is_subparsers(action) and action.dest not in SHARED_OPTIONS
    ]
    exits = [f"- Exit code {number}: {meaning}" for number, meaning in _exit_codes(one.epilog or "")]
    text += [line for line in exits if line not in COMMON_EXITS]
    return "\n".join(text).strip()


def shared_options() -> str:
    """Return the options that several commands share, and the commands that have each of them."""
    found = commands()
    text = []
    for dest in SHARED_OPTIONS:
        having = {name: action for name, (one, _) in found.items() for action in one._actions if action.dest == dest}
        first = next(iter(having))
        meaning = _help(found[first][0], having[first])
        text.append(f"- {_argument(having[first])}: {meaning} ({', '.join(map(code, having))})")
    return "\n".join(text)


def _subparsers(one: argparse.ArgumentParser) -> dict[str, tuple[argparse.ArgumentParser, str]]:
    """Return parser and summary of each subcommand."""
    for action in one._actions:
        if isinstance(action, argparse._SubParsersAction):
            return {choice.dest: (action.choices[choice.dest], choice.help or "") for choice in action._choices_actions}
    return {}


def _is_subparsers(action: argparse.Action) -> bool:
    return isinstance(action, argparse._SubParsersAction)


def _argument(action: argparse.Action) -> str:
    """Return an argument as the user writes it."""
    names = list(action.option_strings)
    metavar = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    if _is_subparsers(action):
        return code("ACTION")
    if action.nargs == "?":
        metavar = f"[{metavar}]"
    if not names:
        return code(metavar + ("..." if action.nargs in ("+", "*") else ""))
    if action.nargs != 0:
        names[-1] += f" {metavar}"
    return ", ".join(map(code, names))


def _help(one: argparse.ArgumentParser, action: argparse.Action) -> str:
    return " ".join(one._get_formatter()._expand_help(action).split())


def _exit_codes(epilog: str) -> Iterator[tuple[str, str]]:
    """Yield the exit codes of an epilog and their meaning."""
    _, _, rest = epilog.partition("exit codes:\n")
    for number, meaning in re.findall(r"^  (\d[\d, ]*)  (\S.*(?:\n {4,}.*)*)", rest.partition("\n\n")[0], re.MULTILINE):
        yield number, " ".join(meaning.split())


def metrics() -> str:
    """Return the metrics with their kinds, labels and places in progress records."""
    return listing(
        (f"{code(one.public_name)} ({', '.join([one.kind, *map(code, one.labels)])})", f"{one.help}{_place(one)}")
        for one in METRICS
        if one.exported
    )


def _place(metric: Metric) -> str:
    """Return the place of a metric in a progress record, as an addition to its meaning."""
    names = iter(metric.labels)
    parts = [next(names).upper() if part == "*" else part for part in metric.place.split("/")]
    return f"; {code('.'.join(parts))}" if metric.place else ""


def prometheus_rules() -> str:
    """Return the alert rules that the example for Prometheus has."""
    groups = yaml.safe_load((ROOT / "examples" / "prometheus-rules.yml").read_text("utf-8"))["groups"]
    rules = [one for group in groups for one in group["rules"]]
    return listing((code(one["alert"]), f"{code(one['expr'])} for {one['for']}") for one in rules)


def public_names(module: str) -> list[str]:
    """Return the public names of a module that no parent module has."""
    parent = module.rpartition(".")[0]
    above = import_module(parent).__all__ if parent else ()
    return [name for name in import_module(module).__all__ if name not in above]


def python_names() -> str:
    """Return the settings by name, and directives of mkdocstrings for all other public names."""
    names = [f"{module}.{name}" for module in MODULES for name in public_names(module)]
    settings = [name for name in names if name.rpartition(".")[2].isupper()]
    directives = [f"::: {name}" for name in [*(name for name in names if name not in settings), "tocsin.delivery"]]
    return "\n\n".join([f"Spark settings for local sessions: {', '.join(map(code, settings))}.", *directives])


def parts() -> dict[str, Callable[[], str]]:
    """Return the functions that write the generated parts, by name."""
    found: dict[str, Callable[[], str]] = {
        "keys of rule files": rule_file_keys,
        "limits of rule files": rule_file_limits,
        "functions": functions,
        "diagnostic codes": diagnostic_codes,
        "keys of test files": lambda: fields(test_options.TABLES),
        "limits of test files": test_file_limits,
        "unsupported keys": unsupported_keys,
        "shared options": shared_options,
        "metrics": metrics,
        "prometheus rules": prometheus_rules,
        "public names": python_names,
    }
    return found | {f"command {name}": partial(command, name) for name in commands()}


def generate(text: str, missing: dict[str, Callable[[], str]]) -> tuple[str, list[str]]:
    """Return a page with new generated parts, and the names of the changed parts. Remove its names from `missing`."""
    changed = []

    def replace(match: re.Match[str]) -> str:
        name = match[1]
        if name not in missing:
            message = f"part {name!r} is unknown, or is on two pages; known are {', '.join(parts())}"
            raise SystemExit(message)
        wanted = f"<!-- generated: {name} -->\n\n{missing.pop(name)()}\n\n{END}"
        if wanted != match[0]:
            changed.append(name)
        return wanted

    return PART.sub(replace, text), changed


def main(arguments: list[str]) -> int:
    """Write all pages, or with --check report the parts that differ; return 1 if a check fails."""
    is_check = arguments == ["--check"]
    if arguments and not is_check:
        message = f"usage: generate_reference.py [--check]; got {' '.join(arguments)}"
        raise SystemExit(message)
    missing, is_failed = parts(), False
    for page in sorted(PAGES.glob("*.md")):
        text, changed = generate(page.read_text("utf-8"), missing)
        if changed and is_check:
            is_failed = True
            print(f"{page}: out of date: {', '.join(changed)}; run scripts/generate_reference.py")
        elif changed:
            page.write_text(text, "utf-8")
            print(f"{page}: wrote {', '.join(changed)}")
    for name in missing:
        is_failed = True
        print(f"{PAGES}: no page has the part {name!r}")
    return int(is_failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
