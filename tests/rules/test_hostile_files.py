"""Hostile rule files: a check reports errors and raises nothing, and its time is in proportion to the file."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from rules.files import GOOD, check
from tocsin.rules.limits import read_limits

FILE = """\
streams:
  a: {source: {csv: {path: x}}, keys: [m], values: {value: {domain: [-40, 85]}, y: {domain: [1.0e+60, 1.0e+70]}}}
  b: {source: {csv: {path: y}}, keys: [m], values: {value: {domain: [0, 85]}}}
groups:
  - name: g
    rules:
      - {alert: A, on: [m], within: 5m, keep_firing_for: 1m, expr: EXPR, annotations: {s: "TEXT"}}
"""


def _file(expr: str = "a > b", text: str = "") -> str:
    return FILE.replace("EXPR", expr).replace("TEXT", text)


@pytest.mark.parametrize("actions", ["", "{{ $value }}", "{{ $nothing }} {{ $value }}", "}} {{", "{{"])
def test_annotation_is_an_error_when_it_is_too_long_and_has_actions(actions: str, tmp_path: Path) -> None:
    (mistake,) = check(tmp_path, _file(text="x" * 10_001 + actions)).errors
    assert (mistake.line, mistake.where) == (7, 'group "g": rule "A"')
    assert "a template must have at most 10,000 characters; got 10,0" in mistake.sentence


@pytest.mark.parametrize("name", ["exp", "ln", "sqrt", "tanh", "abs", "floor"])
@pytest.mark.parametrize("count", [6, 95])
def test_rule_is_right_when_a_function_is_nested(name: str, count: int, tmp_path: Path) -> None:
    checked = check(tmp_path, _file(f"{name}(" * count + "a" + ")" * count + " > b"))
    assert checked.errors == ()


@pytest.mark.parametrize("expr", ["a.y + a > b", "a.y > b or a > b", "a.y * 2 - a > 1", "-a.y - a > b"])
def test_stream_is_unreduced_when_all_its_values_are_beyond_the_largest_that_is_compared(
    expr: str, tmp_path: Path
) -> None:
    assert check(tmp_path, _file(expr)).errors == ()


@pytest.mark.parametrize("op", ["and", "or"])
@pytest.mark.parametrize("term", ["a > {}", "abs(a - {}) + b > {}"])
def test_rule_is_right_when_its_condition_has_hundreds_of_terms(op: str, term: str, tmp_path: Path) -> None:
    expr = f" {op} ".join(term.format(i, i) for i in range(360))
    assert check(tmp_path, _file(expr)).errors == ()


def _limits(path: Path) -> tuple[tuple[str, ...], list[str]]:
    messages: list[str] = []
    table = read_limits(path, ("m",), lambda line, column, message: messages.append(f"{line}:{column}: {message}"))
    return table.columns, messages


def test_limits_have_all_columns_when_there_are_a_hundred_thousand(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    names = [f"c{i}" for i in range(100_000)]
    path.write_text(f"m,{','.join(names)}\np1{',1' * len(names)}\n")
    assert _limits(path) == (tuple(names), [])
    path.write_text(f"m,{','.join(names)},c7\np1{',1' * len(names)},1\n")
    place = len(",".join(["m", *names[:7], ""])) + 1
    assert _limits(path) == ((), [f"1:{place}: columns must be unique; got 'c7' twice"])


def test_error_names_a_missing_column_when_a_table_has_a_hundred_thousand(tmp_path: Path) -> None:
    names = [f"c{i}" for i in range(100_000)]
    (tmp_path / "wide.csv").write_text(f"machine,{','.join(names)}\np1{',1' * len(names)}\n")
    text = GOOD.replace("limits.csv", "wide.csv").replace("by_machine.margin", "by_machine.margim")
    (mistake,) = check(tmp_path, text).errors
    assert mistake.sentence.startswith("`expr`: `by_machine` must name a column of its table (c0, c1, ")


@pytest.mark.parametrize("kind", ["pipe", "folder", "socket", "device", "link to itself"])
def test_limits_file_is_rejected_without_waiting_when_it_is_not_a_regular_file(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "special.csv"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
    else:
        path.symlink_to("/dev/zero" if kind == "device" else path)
    (mistake,) = check(tmp_path, GOOD.replace("limits.csv", "special.csv")).errors
    assert mistake.sentence.startswith(f"`file` cannot be read; {path}: ")


@pytest.mark.parametrize(
    "raw", [b"", b"\n\n", bytes(range(256)) * 9, "m,x\np,1\n".encode("utf-16"), b"\xff\xfe", b'"' * 9]
)
def test_limits_file_is_an_error_when_it_is_not_a_table(raw: bytes, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(raw)
    columns, messages = _limits(path)
    assert columns == ()
    assert messages
