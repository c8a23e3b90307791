"""Random changes of a valid test file never raise an exception; errors have positions inside of the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.testing.files import check
from tests.testing.test_loader import GOOD
from tocsin.jit import use_interpreted_kernels
from tocsin.rules.compose import split_lines
from tocsin.testing import run_suite
from tocsin.testing.report import lines, to_json

WORDS = ["", "~", "x", "5", "-1", "10s", "-5s", "1e300", "_", "1x3", "1+1x5", "NaN Inf 1", "air",
         'air.hum{machine="m2"}', 'door{machine="", site="s"}', "Warm", "Matches", "pending", "0s x3 1h",
         "3000y", "${NONE}", ".inf", "\x1b", "rules.yaml", "*", "1970-01-01T00:00:00Z"]  # fmt: skip
JUNK: list[Any] = [*WORDS, None, 7, 1.5, True, [], {}, ["air"], {"air": 1}, [[]], {"a": {"b": ["c"]}}]


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, part in inner for found in _paths(part, (*path, key)))]


def _copy() -> Any:
    return yaml.load(GOOD, Loader=yaml.BaseLoader)


PLACES = _paths(_copy())[1:]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tests")


def _run(folder: Path, tree: Any) -> None:
    text = json.dumps(tree, indent=1)
    checked, written = check(folder, text), split_lines(text)
    for error in checked.errors:
        if error.file.endswith("test.yaml"):
            assert 1 <= error.line <= len(written)
            assert 1 <= error.column <= len(written[error.line - 1]) + 1
        assert str(error).isprintable()
    assert (checked.suite is None) == bool(checked.errors)
    if checked.suite is not None:
        with use_interpreted_kernels(0):
            results = list(run_suite(checked.suite, checked.suite.scenarios, is_debugging=True))
        assert all(line.isprintable() for line in lines(results, is_debugging=True))
        json.dumps([to_json(result, is_debugging=True) for result in results])


@given(st.sampled_from(PLACES), st.sampled_from(JUNK), st.booleans())
def test_check_raises_no_exception_when_a_value_is_replaced(
    folder: Path, path: tuple[Any, ...], junk: Any, is_removed: bool
) -> None:
    tree = _copy()
    holder = tree
    for key in path[:-1]:
        holder = holder[key]
    if is_removed:
        del holder[path[-1]]
    else:
        holder[path[-1]] = junk
    _run(folder, tree)


@given(st.integers(0, len(GOOD)), st.integers(0, 30), st.sampled_from(WORDS))
def test_check_raises_no_exception_when_a_part_of_the_text_is_replaced(
    folder: Path, at: int, length: int, word: str
) -> None:
    check(folder, GOOD[:at] + word + GOOD[at + length :])
