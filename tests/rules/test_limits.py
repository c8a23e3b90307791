"""Tables of limits: what is read, and the place of every mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from rules.files import GOOD, check, marked, write_tables
from tocsin.plan import plan_rules
from tocsin.rules.limits import MOST_BYTES, read_limits
from tocsin.rules.load import check_rule_file


def _read(folder: Path, text: str | bytes, on: tuple[str, ...] = ("m",)) -> tuple[object, list[str]]:
    path, said = folder / "t.csv", list[str]()
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    limits = read_limits(path, on, lambda line, column, message: said.append(f"{line}:{column}: {message}"))
    return limits.rows, said


def test_rows_are_numbers_by_key(tmp_path: Path) -> None:
    text = '\ufeffhigh,m, low ,s\r\n3,"a,1",-1e3,x\r\n\r\n4.5,b,0,"y ""z"""\r\n'
    rows, said = _read(tmp_path, text, ("s", "m"))
    assert said == []
    assert rows == {("x", "a,1"): (3.0, -1000.0), ('y "z"', "b"): (4.5, 0.0)}


REFUSED = {
    "no header": ("»", "a header must have the key columns m; got nothing"),
    "no key column": ("»x,y\n1,2\n", "a header must have the key columns m; got x, y"),
    "no number": ("»m\na\n", "a table must have a column of numbers besides m; got no other column"),
    "no row": ("»m,x\n", "a table must have at least one row below its header; got no row"),
    "a column twice": ("m,»x,x\n", "columns must be unique; got 'x' twice"),
    "a short row": ("m,x\n»a\n", "a row must have 2 cells like the header; got 1"),
    "a long row": ("m,x\na,1\n»a,1,2\n", "a row must have 2 cells like the header; got 3"),
    "a word": ("m,x,y\na,1,»two\n", "column 'y' must contain finite numbers; got 'two'"),
    "an empty cell": ("m,x,y\na,»,2\n", "column 'x' must contain finite numbers; got ''"),
    "an endless number": ("m,x\na,»inf\n", "column 'x' must contain finite numbers; got 'inf'"),
    "a key twice": ("x,m\n1,a\n2,»a\n", "keys must be unique; 'a' is in an earlier row"),
    "quotes before the mistake": ('m,x\n»"a",two\n', "column 'x' must contain finite numbers; got 'two'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, tmp_path: Path) -> None:
    text, place = marked(REFUSED[name][0])
    assert _read(tmp_path, text)[1] == [f"{place}: {REFUSED[name][1]}"]


def test_all_mistakes_are_said_up_to_twenty(tmp_path: Path) -> None:
    said = _read(tmp_path, "m,x\n" + "".join(f"k{i},no\n" for i in range(30)))[1]
    assert len(said) == 21
    assert said[-1] == "22:1: this table has more than 20 errors; the rest is not checked"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"m,x\n\xff,1\n", "2:1: a table must be in UTF-8; a byte of this line is invalid"),
        (b"m,x\n" + b"y" * MOST_BYTES, "1:1: a table must have at most 16 MiB; this table is larger"),
        (b"m,x\n" + b"y" * 200_000, "1:1: invalid CSV: field larger than field limit (131072)"),
        (b"m,x\n\0,1\n\0,1\n", "3:1: keys must be unique; '\\x00' is in an earlier row"),
    ],
)
def test_a_hostile_table_gets_a_sentence(text: bytes, message: str, tmp_path: Path) -> None:
    assert _read(tmp_path, text)[1] == [message]


def test_mistakes_of_a_table_follow_those_of_the_file_under_the_name_of_the_table(tmp_path: Path) -> None:
    write_tables(tmp_path)
    (tmp_path / "limits.csv").write_text("machine,margin\np1,high\n")
    (tmp_path / "rules.yaml").write_text(GOOD.replace("archive:", "archiv:"))
    checked = check_rule_file(tmp_path / "rules.yaml", plan_rules, {"PASS": "x"})
    first, second = checked.errors
    assert first.file == str(tmp_path / "rules.yaml")
    assert str(second) == (
        f"{tmp_path / 'limits.csv'}:2:4: limits \"by_machine\": column 'margin' must contain finite numbers; got 'high'"
    )


@pytest.mark.parametrize("path", ["/dev/zero", ".", "/proc/self/mem"])
def test_what_is_no_file_is_refused_at_once(path: str, tmp_path: Path) -> None:
    (mistake,) = check(tmp_path, GOOD.replace("limits.csv", path)).errors
    assert mistake.sentence.startswith("`file` cannot be read; ")
