"""Examples of the documentation: reads the fenced blocks of a page, and executes them in order in one directory.

| block | execution |
| --- | --- |
| `python` | executed; all blocks of a page share their names; a `text` block right after it is its output |
| `console` | lines with `$` are commands, the other lines are the expected standard output |
| `yaml` with `streams`, or a part of a rule file | checked by `tocsin check`; a part is completed by `base_file` |
| `yaml` with `tests` | run by `tocsin test` |
| `yaml` with a title that begins with `prometheus` | parsed, and checked by promtool if it is installed |
| `sql` | parsed and resolved against the CSV files of the page and `TABLES` |
| `json`, `csv`, `ini` | parsed; in a systemd unit, the command of `ExecStart` is checked |
| `drawing` | a drawing, which cannot be executed |

A block with `title="NAME"` is a file of the directory. `...` in expected output matches any text. Any other block is an
error, so a page cannot contain an example that no test executes.
"""

from __future__ import annotations

import configparser
import contextlib
import csv
import doctest
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tocsin.cli.main import main, parser

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
FOLDERS = ("tutorials", "how-to", "reference", "explanation")
FENCE = re.compile(r"^( *)```(\w+)?([^\n]*)\n(.*?)^\1```[ ]*$", re.DOTALL | re.MULTILINE)
TITLE = re.compile(r'title="([^"]+)"')
# Columns of the tables that SQL examples name and that no CSV file of the page defines.
TABLES = {name: ["ts", "item", "price", "store"] for name in ("sales", "north", "south")}
FILE_KEYS = {"streams", "limits", "groups", "sinks", "archive", "quality"}
# Commands that need no program besides `tocsin` and the tools of every Unix.
TOOLS = {"cat", "cp", "grep", "head", "ls", "mkdir", "mv", "python", "sed", "sort", "tail", "wc"}
# Commands that run until a signal. Only their arguments are checked.
ENDLESS = {"run", "dashboard", "demo"}
SPARK = {"backtest", "query", "run"}


class _Loader(yaml.SafeLoader):
    """Loader that reads `on` as text, as rule files do."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:bool" or first in "tTfF"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def load_yaml(text: str) -> Any:
    """Read a YAML document with the types of rule files."""
    return yaml.load(text, _Loader)


def pages() -> list[Path]:
    """Return the pages with examples. Decisions and the architecture page describe code and have no examples."""
    found = [page for folder in FOLDERS for page in (DOCS / folder).glob("*.md")]
    return sorted([DOCS / "index.md", *(page for page in found if page.name != "architecture.md")])


class Block(NamedTuple):
    """One fenced block of a page."""

    page: Path
    line: int
    language: str
    title: str | None
    text: str
    # Output of a `python` block: the `text` block right after it.
    shown: str = ""

    @property
    def place(self) -> str:
        """File and line of the block."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def uses_spark(self) -> bool:
        """Whether the block uses a Spark session in Python, or its commands start one."""
        if self.language == "python":
            return bool(re.search(r"\bspark\b", self.text.replace("pyspark", "spark")))
        return self.language == "console" and any(_starts_spark(command) for command, _ in commands_of(self.text))


def blocks_of(page: Path) -> list[Block]:
    """Return the fenced blocks of a page. A `text` block becomes the output of the Python block before it."""
    text = page.read_text("utf-8")
    found: list[Block] = []
    end = 0
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        title = TITLE.search(match[3])
        body = textwrap.dedent(match[4])
        is_output = match[2] == "text" and found and found[-1].language == "python"
        if is_output and not text[end : match.start()].strip() and not found[-1].shown:
            found[-1] = found[-1]._replace(shown=body)
        else:
            found.append(Block(page, line, match[2] or "", title[1] if title else None, body))
        end = match.end()
    return found


def commands_of(text: str) -> list[tuple[str, str]]:
    """Return the commands of a `console` block, each with the output shown below it."""
    lines = text.splitlines(keepends=True)
    if not lines or not lines[0].startswith("$ "):
        message = "a `console` block must begin with `$ `"
        raise ValueError(message)
    found: list[tuple[str, str]] = []
    for line in lines:
        if line.startswith("$ "):
            found.append((line[2:].rstrip(), ""))
        elif line.startswith("> "):
            found[-1] = (f"{found[-1][0]}\n{line[2:].rstrip()}", "")
        else:
            found[-1] = (found[-1][0], found[-1][1] + line)
    return found


def _words(command: str) -> list[str]:
    """Return the words of the first command of a pipeline."""
    return shlex.split(_first(command)[0], comments=True)


def _first(command: str) -> tuple[str, str]:
    """Divide a pipeline into its first command and the rest."""
    first, _, rest = command.partition(" | ")
    return first, rest


def _starts_spark(command: str) -> bool:
    words = _words(command)
    if words[0] != "tocsin" or _is_endless(words):
        return False
    return words[1] in SPARK or "--at" in words or words[1:3] in (["ranges", "list"], ["ranges", "progress"])


def _is_endless(words: Sequence[str]) -> bool:
    return words[1] in ENDLESS and "--once" not in words


def spark_languages(page: Path) -> set[str]:
    """Return the languages of the blocks of a page that use Spark."""
    return {block.language for block in blocks_of(page) if block.uses_spark}


def execute(page: Path, folder: Path, *, spark: Collection[str] = ()) -> None:
    """Execute the blocks of a page in `folder`. Of blocks that use Spark, execute the languages in `spark` only.

    After a Python block that is skipped, the later ones are skipped too, because they can need its names.
    """
    blocks = blocks_of(page)
    skipped: set[str] = set()
    for block in blocks:
        if block.title:
            path = folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, "utf-8")
    if not (folder / "examples").exists():
        (folder / "examples").symlink_to(ROOT / "examples")
    names: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.chdir(folder):
        for block in blocks:
            if block.uses_spark and block.language not in spark:
                skipped.add(block.language)
                if block.language == "console":
                    continue
            if block.language == "python" and "python" in skipped:
                continue
            try:
                _execute(block, blocks, folder, names)
            except Exception as error:
                error.add_note(f"the example is at {block.place}")
                raise


def _execute(block: Block, blocks: list[Block], folder: Path, names: dict[str, Any]) -> None:
    match block.language:
        case "python":
            with captured() as out:
                exec(compile(block.text, block.place, "exec"), names)
            compare(block.shown, out.getvalue())
        case "console":
            for command, shown in commands_of(block.text):
                compare(shown, _run(command, folder))
        case "yaml":
            _check_yaml(block, blocks, folder)
        case "sql":
            _resolve_sql(block, blocks)
        case "json":
            _read_json(block.text)
        case "csv":
            rows = list(csv.reader(io.StringIO(block.text)))
            assert len({len(row) for row in rows}) == 1, "rows of different lengths"
        case "ini":
            _check_unit(block.text)
        case "drawing":
            assert "$ " not in block.text, "a drawing has a command; use a `console` block"
        case _:
            message = f"no test executes blocks of the language {block.language or '(none)'!r}"
            raise AssertionError(message)


@contextlib.contextmanager
def captured() -> Iterator[io.StringIO]:
    """Collect standard output."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        yield out


def compare(shown: str, printed: str) -> None:
    """Raise an error unless the output is as shown; `...` matches any text."""
    wanted, printed = shown.rstrip() + "\n", printed.rstrip() + "\n"
    is_equal = doctest.OutputChecker().check_output(wanted, printed, doctest.ELLIPSIS)
    assert is_equal, f"shown:\n{wanted}\nprinted:\n{printed}"


def _run(command: str, folder: Path) -> str:
    """Run a command and return its standard output. A command that runs until a signal is only parsed."""
    words = _words(command)
    if words[0] == "pip":
        _check_extras(command)
        return ""
    if words[0] == "tocsin":
        if _is_endless(words):
            chosen = parser().parse_args(words[1:])
            assert Path(getattr(chosen, "rules", folder)).exists(), f"{command}: no such file"
            return ""
        if not _starts_spark(command) and not {"<", ">", "&&"} & set(words):
            return _run_in_process(words[1:], _first(command)[1], folder)
    elif words[0] not in TOOLS:
        message = f"no test runs the command {words[0]!r}"
        raise AssertionError(message)
    return _run_bash(command, folder)


def _run_in_process(arguments: list[str], rest: str, folder: Path) -> str:
    is_merged = "2>&1" in arguments
    arguments = [word for word in arguments if word != "2>&1"]
    with captured() as out, contextlib.redirect_stderr(out if is_merged else io.StringIO()) as errors:
        code = main(arguments)
    # A command that reports errors shows them, so its standard error is part of the example.
    assert code == 0 or is_merged, f"exit code {code}: {errors.getvalue()}"
    return _run_bash(rest, folder, out.getvalue()) if rest else out.getvalue()


def _run_bash(command: str, folder: Path, given: str = "") -> str:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-c", command],
        input=given,
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "PATH": path},
    )
    assert done.returncode == 0 or "2>&1" in command, done.stderr[-3000:]
    return done.stdout


def _check_extras(command: str) -> None:
    """Raise an error unless `pip install "tocsin[...]"` names extras of the package."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        known = tomllib.load(file)["project"]["optional-dependencies"]
    found = re.search(r"install .*\btocsin(?:\[([\w,]+)\])?", command)
    assert found, command
    unknown = set((found[1] or "local").split(",")) - set(known)
    assert not unknown, f"unknown extras: {sorted(unknown)}"


def _check_yaml(block: Block, blocks: list[Block], folder: Path) -> None:
    content = load_yaml(block.text)
    name = block.title or "example.yaml"
    (folder / name).write_text(block.text, "utf-8")
    if isinstance(content, dict) and "tests" in content:
        _run_in_process(["test", name], "", folder)
    elif name.startswith("prometheus"):
        _check_prometheus(name, content, folder)
    elif is_rule_file(content):
        _check_rules(name, folder, "--strict")
    else:
        _check_part(content, blocks, folder)


def _check_part(content: Any, blocks: list[Block], folder: Path) -> None:
    """Check a part of a rule file: complete it with the rule file of the page or of the examples."""
    base = base_file(blocks)
    rules = [content] if isinstance(content, dict) and {"alert"} & set(content) else content
    if isinstance(rules, list):
        base["groups"] = [{"name": "example", "rules": rules}]
    elif set(content) <= FILE_KEYS:
        for key, value in content.items():
            if key in {"streams", "limits"}:
                for name, fields in value.items():
                    base.setdefault(key, {}).setdefault(name, {}).update(fields or {})
            else:
                base[key] = value
    else:
        message = f"a part of a rule file must be rules, or keys of a file; got {sorted(content)}"
        raise AssertionError(message)
    (folder / "part.yaml").write_text(yaml.safe_dump(base, sort_keys=False), "utf-8")
    _check_rules("part.yaml", folder)


def is_rule_file(content: Any) -> bool:
    """Return whether a document is a complete rule file: it has rules, and each stream has a source."""
    if not isinstance(content, dict) or not {"streams", "groups"} <= set(content):
        return False
    return all("source" in (stream or {}) for stream in content["streams"].values())


def base_file(blocks: list[Block]) -> dict[str, Any]:
    """Return the first rule file of a page, or else the streams of the factory example."""
    for block in blocks:
        content = load_yaml(block.text) if block.language == "yaml" else None
        if is_rule_file(content):
            return content
    return dict(load_yaml((ROOT / "examples" / "factory.yaml").read_text("utf-8")))


def _check_rules(name: str, folder: Path, *options: str) -> None:
    errors = io.StringIO()
    variables = re.findall(r"\$\{(\w+)\}", (folder / name).read_text("utf-8"))
    before = dict(os.environ)
    os.environ |= dict.fromkeys(variables, "secret")
    try:
        with captured(), contextlib.redirect_stderr(errors):
            code = main(["check", *options, name])
    finally:
        for variable in set(variables) - set(before):
            del os.environ[variable]
    assert code == 0, errors.getvalue()


def _check_prometheus(name: str, content: dict[str, Any], folder: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        return
    kind = "rules" if "groups" in content else "config"
    done = subprocess.run([promtool, "check", kind, name], capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr


def _resolve_sql(block: Block, blocks: list[Block]) -> None:
    from tocsin.query import parse_sql, resolve

    columns = dict(TABLES)
    for other in blocks:
        if other.language == "csv" and other.title:
            columns[Path(other.title).stem] = other.text.splitlines()[0].split(",")
    assert resolve(parse_sql(block.text), columns)


def _read_json(text: str) -> None:
    try:
        json.loads(text)
    except json.JSONDecodeError:
        for line in text.splitlines():
            json.loads(line)


def _check_unit(text: str) -> None:
    """Raise an error unless the command of a systemd unit has valid arguments."""
    unit = configparser.ConfigParser(interpolation=None)
    unit.read_string(text)
    program, *arguments = shlex.split(unit["Service"]["ExecStart"])
    assert Path(program).name == "tocsin"
    parser().parse_args(arguments)
