"""A good file, changed at a random place: never an exception, and every mistake inside the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rules.files import GOOD, check
from tocsin.rules.compose import split_lines

WORDS = [
    "",
    "~",
    "x",
    "5",
    "-1",
    "10s",
    "-5s",
    "air",
    "machine",
    "{{ $value }}",
    "${PASS}",
    "${NONE}",
    "air > 0",
    ".inf",
    "\x1b",
]
JUNK: list[Any] = [*WORDS, None, 7, 1.5, True, [], {}, ["air"], {"air": 1}, [[]], {"a": {"b": ["c"]}}]


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a tree of mappings and lists."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, part in inner for found in _paths(part, (*path, key)))]


def _copy() -> Any:
    """The good file, loaded without types, so that `on` stays a word; what is empty is nothing."""
    return json.loads(json.dumps(yaml.load(GOOD, Loader=yaml.BaseLoader)).replace('""', "null"))


TREE = _copy()
PLACES = _paths(TREE)[1:]


def _at(tree: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        tree = tree[key]
    return tree


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rules")


def _check(folder: Path, tree: Any) -> list[str]:
    """Check a tree written as JSON, which is YAML too."""
    text = json.dumps(tree, indent=1)
    lines = split_lines(text)
    checked = check(folder, text)
    for mistake in (*checked.errors, *checked.warnings):
        assert 1 <= mistake.line <= len(lines)
        assert 1 <= mistake.column <= len(lines[mistake.line - 1]) + 1
        assert str(mistake).isprintable()
    assert (checked.file is None) == bool(checked.errors)
    return [mistake.sentence for mistake in checked.errors]


def test_the_file_written_anew_is_good(folder: Path) -> None:
    assert _check(folder, _copy()) == []


@given(st.lists(st.tuples(st.sampled_from(PLACES), st.sampled_from(JUNK)), min_size=1, max_size=3))
def test_any_value_anywhere(folder: Path, changes: list[tuple[tuple[Any, ...], Any]]) -> None:
    tree = _copy()
    for path, junk in changes:
        try:
            _at(tree, path[:-1])[path[-1]] = junk
        except (KeyError, IndexError, TypeError):
            continue  # An earlier change took the place away.
    _check(folder, tree)


@given(st.sampled_from(PLACES))
def test_anything_may_be_missing(folder: Path, path: tuple[Any, ...]) -> None:
    tree = _copy()
    del _at(tree, path[:-1])[path[-1]]
    _check(folder, tree)


MAPPINGS = [path for path in PLACES if isinstance(_at(TREE, path), dict)]
# These hold names of the user's choice, so any key is right there.
FREE = {"labels", "annotations", "headers", "values", "streams", "limits", "shapes"}


@given(st.sampled_from([path for path in MAPPINGS if path[-1] not in FREE]))
def test_an_unknown_key_is_always_a_mistake(folder: Path, path: tuple[Any, ...]) -> None:
    tree = _copy()
    _at(tree, path)["zebra"] = "x"
    assert any("zebra" in message for message in _check(folder, tree))


@given(st.sampled_from([path for path in PLACES if isinstance(_at(TREE, path), str)]))
def test_a_tree_in_the_place_of_a_text_is_always_a_mistake(folder: Path, path: tuple[Any, ...]) -> None:
    tree = _copy()
    _at(tree, path[:-1])[path[-1]] = {"zebra": {}}
    assert _check(folder, tree)


@given(
    st.integers(0, len(GOOD) - 1),
    st.integers(0, 3),
    st.sampled_from([*WORDS, ":", "- ", "\n", "  ", "'", '"', "[", "}", "&a ", "*a"]),
)
def test_any_text_anywhere(folder: Path, place: int, cut: int, text: str) -> None:
    changed = GOOD[:place] + text + GOOD[place + cut :]
    lines = split_lines(changed)
    for mistake in check(folder, changed).errors:
        if mistake.file.endswith("rules.yaml"):
            assert 1 <= mistake.line <= len(lines)
            assert 1 <= mistake.column <= len(lines[mistake.line - 1]) + 1
