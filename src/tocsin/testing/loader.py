"""Load test files: parse and check a file, and report all errors in it and in its rule files."""

from __future__ import annotations

import contextlib
import glob
import re
from dataclasses import dataclass, field
from pathlib import Path

from tocsin.errors import Diagnostic
from tocsin.plan import plan_rules
from tocsin.rules.compose import MOST_BYTES, Node, Scalar
from tocsin.rules.context import Context, FileDiagnostics, TooManyErrors, found
from tocsin.rules.fields import Fields, read_fields
from tocsin.rules.load import Checked, check_rule_file, compose_file
from tocsin.rules.rulefile import RuleFile
from tocsin.rules.values import MOST_NAMES, default_value
from tocsin.testing.model import Suite
from tocsin.testing.name_check import Names
from tocsin.testing.nodes import list_items, without
from tocsin.testing.options import FILE, UNSUPPORTED
from tocsin.testing.scenario import ScenarioReader

WHERE = "test file"

_VARIABLE = re.compile(rb"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True)
class CheckedSuite:
    """Result of checking a test file: the suite, or the errors of the file and then of its rule files."""

    path: str
    suite: Suite | None
    errors: tuple[Diagnostic, ...]


@dataclass
class SuiteLoader:
    """Loader of test files. A rule file that several test files name is read once."""

    _read: dict[Path, Checked] = field(default_factory=dict)

    def check(self, path: str | Path) -> CheckedSuite:
        """Read a test file and report all its errors."""
        diagnostics = FileDiagnostics(str(path))
        context = Context(diagnostics, Path(path).parent, {})
        suite, files = None, list[Checked]()
        with contextlib.suppress(TooManyErrors):
            node = compose_file(context, Path(path), WHERE, "`rule_files` and `tests`")
            fields = None
            if node is not None:
                node = without(context, node, UNSUPPORTED["file"], WHERE)
                fields = read_fields(context, node, FILE, WHERE, "a test file")
            if fields is not None:
                files = self._rule_files(context, fields)
                suite = _suite(context, fields, files)
        errors = [*diagnostics.sorted(), *(error for file in files for error in file.errors)]
        return CheckedSuite(str(path), None if errors else suite, tuple(errors))

    def _rule_files(self, context: Context, fields: Fields) -> list[Checked]:
        """Read the rule files, each one once."""
        node = fields.nodes.get("rule_files")
        single = isinstance(node, Scalar) and not node.is_nothing
        items = [node] if single and node else list_items(context, node, WHERE, "rule_files", least="one file")
        paths: dict[Path, None] = {}
        for item in items:
            for path in _matching(context, item):
                paths.setdefault(path)
        if len(paths) > MOST_NAMES:
            assert node is not None
            message = f"`rule_files` must have at most {MOST_NAMES} files"
            context.report(node, WHERE, "too-many-entries", message, f"{len(paths):,}")
            return []
        return [self._rule_file(path) for path in paths]

    def _rule_file(self, path: Path) -> Checked:
        """Read a rule file. Tests connect to no source, so unset environment variables are replaced by a text."""
        if path not in self._read:
            self._read[path] = check_rule_file(path, plan_rules, dict.fromkeys(_variables(path), "unset"))
        return self._read[path]


def _variables(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            return [name.decode() for name in _VARIABLE.findall(file.read(MOST_BYTES))]
    except (OSError, ValueError):
        return []


def _matching(context: Context, node: Node) -> list[Path]:
    """Return the files that an entry of `rule_files` matches, relative to the directory of the test file."""
    if not isinstance(node, Scalar) or node.is_nothing or "\0" in node.text:
        context.report(node, WHERE, "wrong-type", "`rule_files` must contain paths of rule files", found(node))
        return []
    if not glob.has_magic(node.text):
        return [context.folder / node.text]
    paths = sorted(context.folder / name for name in glob.glob(node.text, root_dir=context.folder))
    if not paths:
        context.report(node, WHERE, "unreadable-file", "`rule_files` must match existing files", found(node))
    return paths


def _suite(context: Context, fields: Fields, files: list[Checked]) -> Suite:
    read: list[RuleFile] = [checked.file for checked in files if checked.file is not None]
    names = Names(read, len(read) == len(files) > 0)
    reader = ScenarioReader(context, names, fields["evaluation_interval"] or default_value(FILE[1]))
    items = list_items(context, fields.nodes.get("tests"), WHERE, "tests", least="one test")
    scenarios = [reader.read(item, number) for number, item in enumerate(items, 1)]
    known = tuple(scenario for scenario in scenarios if scenario is not None)
    return Suite(context.diagnostics.file, tuple(read), known, fields["fuzzy_compare"] == "true")
