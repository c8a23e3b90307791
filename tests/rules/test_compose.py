"""YAML into nodes: places, limits, and hostile files."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rules.files import GOOD, said
from tocsin.rules import compose as module
from tocsin.rules.compose import ListNode, MapNode, Node, Scalar, compose, place_in, split_lines

PARSERS = [loader for loader in (getattr(yaml, "CSafeLoader", None), yaml.SafeLoader) if loader]
TEXT = """\
a: &x "é—😀 b"
b: [1, *x, 'it''s']   # comment
"ключ": |
  line one
    two
c:
  - plain
    two
  - {k: v}
"""


def _nodes(node: Node | None) -> list[tuple[str, int, int, str]]:
    if isinstance(node, Scalar):
        return [("scalar", node.line, node.column, node.text)]
    inner = node.items if isinstance(node, ListNode) else []
    if isinstance(node, MapNode):
        inner = [part for entry in node.entries.values() for part in entry]
    assert node is not None
    return [(type(node).__name__, node.line, node.column, ""), *(part for item in inner for part in _nodes(item))]


def _composed(text: str) -> Node:
    said: list[tuple[int, int, str]] = []
    node = compose(text, lambda *mistake: said.append(mistake))
    assert said == []
    assert node is not None
    return node


@pytest.mark.parametrize("loader", PARSERS)
def test_every_node_knows_its_place_with_either_parser(loader: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOADER", loader)
    assert _nodes(_composed(TEXT)) == [
        ("MapNode", 1, 1, ""),
        ("scalar", 1, 1, "a"), ("scalar", 1, 4, "é—😀 b"),
        ("scalar", 2, 1, "b"), ("ListNode", 2, 4, ""), ("scalar", 2, 5, "1"), ("scalar", 1, 4, "é—😀 b"),
        ("scalar", 2, 12, "it's"),
        ("scalar", 3, 1, "ключ"), ("scalar", 3, 9, "line one\n  two\n"),
        ("scalar", 6, 1, "c"), ("ListNode", 7, 3, ""), ("scalar", 7, 5, "plain two"),
        ("MapNode", 9, 5, ""), ("scalar", 9, 6, "k"), ("scalar", 9, 9, "v"),
    ]  # fmt: skip


@pytest.mark.parametrize("loader", PARSERS)
def test_both_parsers_read_a_rule_file_alike(loader: type, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = _nodes(_composed(GOOD))
    monkeypatch.setattr(module, "_LOADER", loader)
    assert _nodes(_composed(GOOD)) == fast


@pytest.mark.parametrize(
    ("text", "part", "place"),
    [
        ("k: air > x", "x", (1, 10)),
        ("k: 'air > x'", "x", (1, 11)),
        ("k: 'it''s > x'", "x", (1, 13)),
        ('k: "é > x"', "x", (1, 9)),
        ('k: &a "air > x"', "x", (1, 14)),
        ("k: |\n  air >\n    x", "x", (3, 5)),
        ("k: >-\n  air > x", "x", (2, 9)),
        # Where the file writes the text otherwise, the start of the scalar is as near as it gets.
        ('k: "\\x61ir > x"', "x", (1, 4)),
        ("k: air >\n  x", "x", (1, 4)),
        ("k: >\n  air >\n  x", "x", (1, 4)),
    ],
)
def test_a_character_of_a_scalar_is_found_in_the_file(text: str, part: str, place: tuple[int, int]) -> None:
    node = _composed(text)
    assert isinstance(node, MapNode)
    scalar = node.entries["k"][1]
    assert isinstance(scalar, Scalar)
    assert place_in(scalar, scalar.text.index(part), split_lines(text)) == place


LAUGHS = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 10)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
HOSTILE: dict[str, tuple[str | bytes, str]] = {
    "nothing": ("", "1:1: rule file: a file must have `streams` and `groups`; this file is empty"),
    "a comment": ("# x\n", "1:1: rule file: a file must have `streams` and `groups`; this file is empty"),
    "a word": ("hello", "1:1: rule file: a rule file must be a mapping; got 'hello'"),
    "a list": ("- a", "1:1: rule file: a rule file must be a mapping; got a list"),
    "two documents": ("a: 1\n---\nb: 2\n",
        "2:1: rule file: a file must contain one YAML document; a second one begins here"),
    "Latin-1": ("streams:\n  é: 1".encode("latin-1"), "2:3: rule file: a file must be in UTF-8; got the byte 0xe9"),
    "UTF-16": ("streams: 1".encode("utf-16"), "1:1: rule file: a file must be in UTF-8; got the byte 0xff"),
    "a control character": ("a: é\n b: \x07",
        "2:5: rule file: a file must contain only printable characters; got U+0007"),
    "too large": ("#" * (module.MOST_BYTES + 1),
        "1:1: rule file: a file must have at most 16 MiB; this file is larger"),
    "deep lists": ("[" * 1_000_000, "1:51: rule file: a file must be nested at most 50 deep"),
    "deep mappings": ("{a: " * 100_000, "1:201: rule file: a file must be nested at most 50 deep"),
    "a billion laughs": (LAUGHS,
        "6:17: rule file: a file must have at most 500,000 nodes after the expansion of aliases"),
    "an alias inside its anchor": ("a: &a [*a]", "1:8: rule file: an alias must follow the end of its anchor; `*a`"),
    "an alias of nothing": ("a: *b",
        "1:4: rule file: an alias must follow the end of its anchor; `*b` has no anchor"),
    "an open list": ("a: [1, 2", "1:9: rule file: invalid YAML: while parsing a flow sequence, did not find"),
    "an open quote": ('a: "x', "1:6: rule file: invalid YAML: while scanning a quoted scalar, found"),
    "a tab": ("a:\n\t- b", "2:1: rule file: invalid YAML: while scanning for the next token, found character"),
    "an object": (
        "!!python/object/apply:os.system ['true']",
        "1:1: rule file: a file must not use tags; got `tag:yaml.org,2002:python/object/apply:os.system`"),
    "a merge of a thousand": ("a: &a {b: 1}\n<<: *a", "2:1: rule file: merge keys (`<<`) are not supported"),
    "a key that obeys": ('"\\e[31mred": 1', "1:1: rule file: `\\x1b[31mred` is not a key of a rule file"),
    "a long key": ("x" * 1000 + ": 1", f"1:1: rule file: `{'x' * 60}` is not a key of a rule file"),
    "a long text": ("groups: " + "x" * 10**6, f"1:9: rule file: `groups` must be a list; got '{'x' * 57}...'"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_gets_a_sentence(name: str, tmp_path: Path) -> None:
    text, message = HOSTILE[name]
    assert any(line.startswith(message) for line in said(tmp_path, text))


def test_a_file_with_countless_mistakes_is_given_up(tmp_path: Path) -> None:
    lines = said(tmp_path, "streams: {}\ngroups: [" + "a," * 5000 + "]")
    assert len(lines) == 1001
    assert lines[-1].endswith(": only the first 1,000 errors are reported; the rest of the file is not checked")


@pytest.mark.parametrize("count", [1001, 20_000])
def test_sections_are_bounded(tmp_path: Path, count: int) -> None:
    streams = "streams: {" + ",".join(f"s{i}: {{}}" for i in range(count)) + "}\ngroups: []"
    assert said(tmp_path, streams) == ["1:10: rule file: `streams` must have at most 1,000 entries"]
    labels = ",".join(f"l{i}: x" for i in range(count))
    text = GOOD.replace("{team: hvac}", f"{{{labels}}}").replace("on: [machine]\n", f"on: [{'m,' * count}]\n")
    found = "\n".join(said(tmp_path, text))
    assert f"`labels` must have at most 1,000 entries; got {count:,}" in found
    assert f"`on` must have at most 100 names; got {count:,}" in found


@given(st.text(st.sampled_from("ab:[]{}-,&*!|>'\"%@`#?~ \n\t\x00é\ud7ff\u2028"), max_size=60) | st.binary(max_size=60))
def test_no_text_raises_and_every_mistake_is_inside_the_file(text: str | bytes) -> None:
    try:
        decoded = text if isinstance(text, str) else text.decode()
    except UnicodeDecodeError:
        return
    lines = split_lines(decoded)
    mistakes: list[tuple[int, int]] = []
    node = compose(decoded, lambda line, column, *_, **hint: mistakes.append((line, column)))
    for line, column in mistakes:
        assert 1 <= line <= len(lines)
        assert 1 <= column <= len(lines[line - 1]) + 1
    assert node is None or not isinstance(node, Scalar) or isinstance(node.text, str)
