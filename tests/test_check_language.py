"""`scripts/check_language.py`: it finds each banned pattern, and allows code, addresses and marked lines."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
_spec = importlib.util.spec_from_file_location("check_language", ROOT / "scripts" / "check_language.py")
assert _spec is not None
assert _spec.loader is not None
check_language = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(check_language)

HITS = {
    "what-clause": "Store what is retained.",
    "preposition-which": "The row by which an alert ends.",
    "those-that": "Keep the rows, drop those that expire.",
    "fronted-of": "Of several rows, one is kept.",
    "elliptical-none": "There is none.",
    "such": "Such a row is dropped.",
    "so-many": "Keep so many rows.",
    "is-to-be": "The file is to be read.",
    "alone": "Read the file alone.",
    "as-they-are": "Return the rows as they are.",
    "old-phrase": "The row waits in vain.",
    "archaic-word": "Whoever reads the file.",
    "told": "The sink is told.",
    "says": "The rule says no.",
    "stands": "The value stands in the file.",
    "hears": "The bucket hears of it.",
    "asks": "The caller asks again.",
    "buys": "The budget buys recall.",
    "gives": "The function gives a row.",
    "lets": "Let the caller wait.",
    "people": "Nobody reads the file.",
    "left-out": "The row is left out.",
    "remembers": "The join remembers rows.",
    "behind": "The row comes behind.",
    "goes-on": "The run goes on.",
    "goes": "Later the row is gone.",
    "life": "The life of an alert.",
    "excuse": "Two rows excuse the third.",
    "in-a-sentence": "Print the error in a sentence.",
    "mistake": "The file has a mistake.",
    "processor-time": "Limit the processor time.",
    "by-the-clock": "Wait by the clock.",
    "look-at": "The join looks at each row.",
    "alike": "Both rules wait alike.",
    "cut": "The result is equal for any cut.",
    "kept-whole": "The stream is kept whole.",
    "refuses": "The planner refuses the rule.",
}


def rules_of(path: Path, text: str) -> list[str]:
    path.write_text(text, encoding="utf-8")
    return [rule for _, rule, _ in check_language.check(path)[1]]


def test_table_has_an_example_for_each_rule() -> None:
    assert HITS.keys() == check_language.RULES.keys()


@pytest.mark.parametrize("rule", HITS)
@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("a.md", "{}\n"),
        ("a.html", "<p>{}</p>\n"),
        ("a.py", '"""{}"""\n'),
        ("a.py", "# {}\n"),
        ("a.py", 'message = "{}"\n'),
        ("a.py", 'message = f"{} {{1}}"\n'),
    ],
)
def test_check_finds_each_banned_pattern(rule: str, name: str, form: str, tmp_path: Path) -> None:
    assert rules_of(tmp_path / name, form.format(HITS[rule])) == [rule]


def test_check_finds_a_summary_that_is_not_imperative(tmp_path: Path) -> None:
    functions = 'def a():\n    """The rows."""\n\n\ndef b():\n    """Return the rows."""\n'
    assert rules_of(tmp_path / "a.py", functions) == ["not-imperative"]
    prop = 'class A:\n    """A row."""\n\n    @property\n    def a(self):\n        """The rows."""\n'
    assert rules_of(tmp_path / "a.py", prop) == []


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ("what-clause", "Return what each bucket retains."),
        ("preposition-which", "The time at which a row ends."),
        ("fronted-of", "Keep one row; of two rows, keep the older."),
        ("elliptical-none", "The call takes none."),
        ("is-to-be", "The rows are to wait."),
        ("old-phrase", "The row needs not wait."),
        ("archaic-word", "However many rows wait."),
        ("stands", "The rows are standing."),
        ("buys", "The first row pays for the key."),
        ("people", "No one reads the file."),
        ("behind", "Rows behind the watermark."),
        ("goes-on", "Later alerts go on."),
        ("goes", "The rows that it is, and the tuples were gone."),
        ("long-sentence", "The planner reads " + "one row and " * 12 + "stops."),
        ("two-semicolons", "Read one row; read the next row; stop."),
    ],
)
def test_check_finds_other_forms_of_banned_patterns(rule: str, sentence: str, tmp_path: Path) -> None:
    assert rules_of(tmp_path / "a.md", f"{sentence}\n") == [rule]
    comment = f"# Read a row.\n# {sentence}\n"
    assert rules_of(tmp_path / "a.py", comment) == [rule]


def test_check_finds_a_pattern_across_the_parts_of_an_f_string(tmp_path: Path) -> None:
    assert rules_of(tmp_path / "a.py", 'message = f"{a} is told {b} again"\n') == ["told"]


def test_long_sentences_are_allowed_in_strings_tables_and_lists(tmp_path: Path) -> None:
    text = "read one row " * 9
    assert rules_of(tmp_path / "a.py", f'message = "{text * 2}"\n') == []
    assert rules_of(tmp_path / "a.md", f"| {text} | {text} |\n\n- {text}\n- {text}\n") == []


def test_check_finds_banned_patterns_in_names_of_tests(tmp_path: Path) -> None:
    assert rules_of(tmp_path / "a.py", "def test_a_row_is_left_out(): ...\n") == ["left-out"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.md", "Read `what is told`, https://host/what/says/asked or [a page](life.md#told).\n"),
        ("a.md", "    $ tocsin told\n\n```\nthe file says\n```\n"),
        ("a.md", "The server said no. <!-- language: quoted -->\n"),
        ("a.html", "<p class='life'>{{ told }} rows</p>\n"),
        ("a.py", "# tar: cannot open: No such file or directory\n"),
        ("a.py", 'says = asked["told"]\n'),
        ("a.py", 'pattern = r"\\b(told|says|asked) (what|is)"\n'),
        ("a.py", 'reply = "the server said no"  # language: quoted\n'),
        ("a.py", '"""Return None, such as `x is none`, if the value is None."""\n'),
        ("a.py", '"""Show a row.\n\n    >>> show(1)\n    the file says no\n"""\n'),
    ],
)
def test_check_allows_code_addresses_and_marked_lines(name: str, text: str, tmp_path: Path) -> None:
    assert rules_of(tmp_path / name, text) == []


def test_main_fails_only_when_a_file_reaches_the_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text("The file says no.\n" + "Read one row. " * 66)
    assert check_language.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == ""
    page.write_text("Read one row.\nThe file says no.\n")
    assert check_language.main([str(tmp_path)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{page}:2: says: The file says no.",
        f"{page}: 1 hits in 7 words; the limit is 0.5 per 100 words",
    ]


def test_listed_files_exist() -> None:
    listed = check_language.LIST.read_text("utf-8").split()
    assert [name for name in listed if not (ROOT / name).exists()] == []
    assert listed == sorted(set(listed))
