"""Report English that the style guide of CONTRIBUTING.md bans, in the files of scripts/converted_files.txt.

Usage: check_language.py [PATH...]

The script reads docstrings, comments, prose strings and names of tests in Python files, and the text of Markdown and
HTML files. It prints `file:line: rule: text` for each hit in a file with too many hits, and then exits with 1.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

LIST = Path(__file__).with_name("converted_files.txt")
# Hits per 100 words that a file must stay below. Some words have a good use that no pattern can recognize.
LIMIT = 0.5
# Words per sentence that a sentence must not exceed.
MAX_WORDS = 35
RULES = {
    "what-clause": (
        r"\bwhat (is|are|was|were|has|have|had|it|its|they|their|we|you|a|an|the|one|each|some|no|nothing|all|both|any|"
        r"every|this|that|these|those|such|goes|go|comes?|came|went|stays?|stands?|lies?|fits|waits?|holds?|remains?|"
        r"happens?|changes?|changed|makes?|made|gives?|gave|needs?|reads?|does|do|did|may|can|could|must|might|would|will|"
        r"became|becomes?|there|follows?|others?|another|to|rows?|rules?|streams?|keys?|buckets?|users?|people)\b"
        r"(?![^.\n]{0,80}\?)"
    ),
    "preposition-which": (
        r"\b(of|by|from|for|to|with|behind|beside|under|at|after|before|until|among|between|through|over|around) "
        r"(which|what|whom|whose)\b"
    ),
    "those-that": r"\b(that|those) (of|that|which|who|with|behind|before|around)\b(?<!that that)",
    "fronted-of": (
        r"((^\s*|[.;:] )Of|[;:] of) "
        r"(a|an|the|each|several|those|all|one|two|rows?|keys?|streams?|rules?|alerts?|either)\b"
    ),
    "elliptical-none": (
        r"\b(is|are|was|were|has|have|makes?|gives?|finds?|takes?) none\b|\bis no (?!longer|more|such|need)\w+"
    ),
    "such": r"\bsuch\b(?! as\b)",
    "so-many": r"\bso (many|much|long|few|often|little|large|small)\b(?! that)",
    "is-to-be": (
        r"\b(is|are|was|were) to (be|find|have|give|go|know|say|tell|look|hold|stay|come|see|learn|take|end|wait)\b"
    ),
    "alone": r"\b\w+ alone\b(?=[,.;:)])",
    "as-they-are": r"\bas (it|they) (is|are|was|were|stands?|comes?|came)\b(?=[,.;:)]|$)|\bas (ever|said)\b",
    "old-phrase": (
        r"\b(anew|nought|in vain|of late|for want of|for ever|for good|all the same|at the (most|least)|but for|"
        r"be it|be they|in the midst|needs? not|none the less|as it were|by then|turn(s|ed)? round|for its sake|"
        r"how far off)\b"
    ),
    "archaic-word": (
        r"\b(foretold|foretells?|hence|whence|lest|whoever|whatever|however (many|much|long|often|late|far|few)|strewn|"
        r"seldom|bequests?|heirs?|wherein|whereby|thereof|reckon(s|ed|ing)?|unasked|hearers?|tellings?|comings|mend(s|ed)?)\b"
    ),
    "told": r"\b(told|tells?|telling)\b",
    "says": r"\b(says?|said|saying|speaks?|spoke)\b",
    "stands": r"\b(stands?|stood|standing)\b(?! (quer|range|select|request|by\b))",
    "hears": r"\b(hears?|heard|hearing)\b",
    "asks": r"\bask(s|ed|ing)?\b",
    "buys": r"\b(buys?|bought|owed?|owes|owing|pays? for|last words)\b",
    "gives": r"\b(gives?|gave|giving|given out)\b(?! up)",
    "lets": r"\blet(s|ting)? (\w+ ){0,5}(go|be|come|wait|leave|stand|stay|pass|know|begin|end)\b",
    "people": r"\b(nobody|somebody|everybody|no one|who (asks|knows|wants)|neighbours?)\b",
    "left-out": r"\b(left out|leaves? (\w+ )?out|leaving out)\b",
    "remembers": r"\b(remember|forget|forgot)\w*\b",
    "behind": r"\b(comes?|came|coming|lies?|lay|rows?|further|far|much) behind\b",
    "goes-on": r"\b(goes|go|went|going|gone) on\b",
    "goes": r"\b(rows?|tuples?|keys?|rules?|it|which|they) (goes|went|go|(is|are|was|were|has|have) gone)\b(?! on)",
    "life": r"\b(life|lives)\b",
    "excuse": r"\bexcus(e|es|ed|ing)\b",
    "in-a-sentence": r"\bin (a |one )?sentences?\b|\bin (a word|words)\b",
    "mistake": r"\bmistakes?\b",
    "processor-time": r"\bprocessor time\b",
    "by-the-clock": r"\bby the clock\b",
    "look-at": r"\blook(s|ed|ing)? at\b",
    "alike": r"\balike\b",
    "cut": r"\b(any|no) cuts?\b|\bcuts? (into|in two|of the)\b",
    "kept-whole": r"\b(kept|keeps?) whole\b|\bwhole numbers?\b",
    "refuses": r"\b(refus(e|es|ed|ing|al))\b",
}
# First words of a summary that is not an imperative sentence, or whose verb has no clear meaning.
NOT_IMPERATIVE = (
    r"^(The|A|An|What|Which|How|When|Where|Whether|Who|Whose|By|Of|All|Some|Every|Each|Those|From|With|In|On|It|No|None|"
    r"Nothing|Any|One|Two|As|Same|At|Per|To|So|There|Give|Gives|Tell|Say|Let|Take|Hear|Learn|Ask)\b"
)
# A line with this mark is not checked: quoted output of other software, or an example of bad English.
QUOTED = "language: quoted"
# Text that is not prose, and legitimate uses of words: code and its output, addresses, messages and terms of other
# software.
ALLOWED = re.compile(
    r"``[^`]*``|`[^`\n]*`|\]\([^)]*\)|https?://\S+|^\s*>>>.*(\n[^\S\n]*\S.*)*$"
    r"|\b([Nn]o such|[Cc]onnection refused|time to live|half-life)\b",
    re.MULTILINE,
)
_COMPILED = {name: re.compile(pattern, re.MULTILINE | re.IGNORECASE) for name, pattern in RULES.items()}
# "Of" begins a sentence, and None is a value of Python.
_COMPILED |= {name: re.compile(RULES[name], re.MULTILINE) for name in ("fronted-of", "elliptical-none")}
_SUMMARY = re.compile(NOT_IMPERATIVE)
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]+")
# Sentences end at a full stop, a blank line, a list item, a table cell or a gap between columns of a text.
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n\s*\n|\n\s*[-*#]|\||(?<=\S) {2,}")


class Prose(NamedTuple):
    """Text with its first line and its kind: docstring of a function, other text, string, or name of a test."""

    line: int
    text: str
    kind: str = "text"


def python_prose(source: str) -> Iterator[Prose]:
    """Yield docstrings, comments, strings and names of tests."""
    checked = set()
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if (docstring := ast.get_docstring(node, clean=False)) and isinstance(node.body[0], ast.Expr):
                checked.add(id(node.body[0].value))
                is_property = any("property" in ast.dump(one) for one in getattr(node, "decorator_list", ()))
                is_function = not isinstance(node, ast.Module | ast.ClassDef) and not is_property
                yield Prose(node.body[0].lineno, docstring, "function" if is_function else "text")
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield Prose(node.lineno, node.name.replace("_", " "), "name")
        elif isinstance(node, ast.JoinedStr):
            parts = [one for one in node.values if isinstance(one, ast.Constant)]
            checked.update(map(id, parts))
            yield from _string_prose(node.lineno, "X".join(str(one.value) for one in parts))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in checked:
            yield from _string_prose(node.lineno, node.value)
    yield from _comment_prose(source)


def _string_prose(line: int, text: str) -> Iterator[Prose]:
    r"""Yield a string of three words or more, unless it is a regular expression with `\b`."""
    if len(_WORD.findall(text)) >= 3 and r"\b" not in text:
        yield Prose(line, text, "string")


def _comment_prose(source: str) -> Iterator[Prose]:
    """Yield the comments; comments in adjacent lines are one text."""
    first, block = 0, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if token.start[0] != first + len(block):
                yield from [Prose(first, "\n".join(block))] * bool(block)
                first, block = token.start[0], []
            block.append(token.string.lstrip("#! "))
    yield from [Prose(first, "\n".join(block))] * bool(block)


def markdown_prose(source: str) -> Iterator[Prose]:
    """Yield a Markdown text without its code blocks."""
    is_code, lines = False, []
    for line in source.split("\n"):
        is_fence = line.lstrip().startswith(("```", "~~~"))
        is_code ^= is_fence
        is_prose = not is_code and not is_fence and not re.match(r"(?: {4}|\t)(?![-*\d])", line)
        lines.append(line if is_prose else "")
    yield Prose(1, "\n".join(lines))


def html_prose(source: str) -> Iterator[Prose]:
    """Yield the lines of a template without tags and expressions."""
    markup = r"\{[%#].*?[%#]\}|\{\{.*?\}\}|<(script|style).*?</\1>|<[^>]+>"
    text = re.sub(markup, lambda match: "\n" * match[0].count("\n") + " ", source, flags=re.DOTALL)
    yield from (Prose(number, line) for number, line in enumerate(text.split("\n"), 1))


READERS = {".py": python_prose, ".md": markdown_prose, ".html": html_prose}


def check(path: Path) -> tuple[int, list[tuple[int, str, str]]]:
    """Return the number of words in a file, and its hits: line, rule and text."""
    source = path.read_text("utf-8")
    quoted = {number for number, line in enumerate(source.split("\n"), 1) if QUOTED in line}
    words, hits = 0, []
    for prose in READERS[path.suffix](source):
        text = ALLOWED.sub(lambda match: "X" + "\n" * match[0].count("\n"), prose.text)
        words += len(_WORD.findall(text))
        if prose.kind == "function" and _SUMMARY.match(text):
            hits.append((prose.line, "not-imperative", text.split("\n")[0]))
        for rule, pattern in _COMPILED.items():
            for match in pattern.finditer(text):
                line = text.count("\n", 0, match.start())
                hits.append((prose.line + line, rule, text.split("\n")[line].strip()))
        # Strings can be messages, which have a fixed form, or data.
        if prose.kind in {"function", "text"}:
            hits += ((prose.line + line, rule, sentence) for line, rule, sentence in long_sentences(text))
    return words, sorted(hit for hit in hits if hit[0] not in quoted)


def long_sentences(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, rule and text of each sentence with too many words, or with two semicolons."""
    begin = 0
    for end in [*(match.start() for match in _SENTENCE_END.finditer(text)), len(text)]:
        sentence = " ".join(text[begin:end].split())
        line = text.count("\n", 0, begin + len(text[begin:end]) - len(text[begin:end].lstrip()))
        if len(_WORD.findall(sentence)) > MAX_WORDS:
            yield line, "long-sentence", sentence
        if sentence.count("; ") > 1:
            yield line, "two-semicolons", sentence
        begin = end


def files_of(paths: Iterable[str]) -> Iterator[Path]:
    """Yield the files to read: files themselves, and the readable files of directories."""
    for path in map(Path, paths):
        found = sorted(path.rglob("*")) if path.is_dir() else [path]
        yield from (one for one in found if one.suffix in READERS and one.is_file())


def main(paths: list[str]) -> int:
    """Print the hits of each file above the limit; return 1 if there is one."""
    is_failed = False
    for path in files_of(paths or LIST.read_text("utf-8").split()):
        words, hits = check(path)
        if hits and 100 * len(hits) >= LIMIT * words:
            is_failed = True
            for line, rule, text in hits:
                print(f"{path}:{line}: {rule}: {text}")
            print(f"{path}: {len(hits)} hits in {words} words; the limit is {LIMIT} per 100 words")
    return int(is_failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
