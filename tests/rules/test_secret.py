"""Secrets: what they stand for is in no output, whatever goes wrong beside them."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from rules.files import GOOD, check
from tocsin import RuleError
from tocsin.rules.secret import Secret, outside_user_info, read_url, substitute

HIDDEN = "hunter2"


def test_no_way_to_write_a_secret_shows_it() -> None:
    secret = Secret(HIDDEN)
    ways = [
        str(secret),
        repr(secret),
        f"{secret}",
        f"{secret!r:>20}",
        str([secret]),
        repr([secret]),
        repr({"a": secret}),
    ]
    assert [way for way in ways if HIDDEN in way] == []
    with pytest.raises(TypeError, match="not JSON serializable"):
        json.dumps({"password": secret})
    assert HIDDEN not in json.dumps({"password": secret}, default=str)
    assert not hasattr(secret, "__dict__")


def test_a_secret_is_given_up_when_asked_and_travels_whole() -> None:
    secret = Secret(HIDDEN, "shown")
    for other in (pickle.loads(pickle.dumps(secret)), copy.deepcopy(secret)):
        assert (other.reveal(), str(other)) == (HIDDEN, "shown")
        assert other == secret
        assert hash(other) == hash(secret)
    assert Secret("other") != secret


@pytest.mark.parametrize(
    ("text", "value"), [("${A}", "x"), ("a${A}b${B_2}c", "axbyc"), ("$A", "$A"), ("$", "$"), ("plain", "plain")]
)
def test_variables_are_put_in(text: str, value: str) -> None:
    assert substitute(text, {"A": "x", "B_2": "y"}) == value


def test_what_a_variable_holds_is_not_read_again() -> None:
    assert substitute("${A}", {"A": "${B}", "B": "x"}) == "${B}"


@pytest.mark.parametrize("text", ["${", "${}", "${A", "${1}", "${A-x}"])
def test_a_variable_without_a_name_is_refused(text: str) -> None:
    with pytest.raises(RuleError, match=r"^a variable must be written `\$\{NAME\}`"):
        substitute(text, {"A": HIDDEN})


def test_a_url_shows_all_but_its_user_info() -> None:
    url = read_url("https://${U}:${P}@host:1/x?y=z", {"U": "me", "P": "a@b/c"})
    assert (url.reveal(), str(url)) == ("https://me:a%40b%2Fc@host:1/x?y=z", "https://***@host:1/x?y=z")
    assert outside_user_info("https://host/a@b") == ("", "https://host/a@b")


# Mistakes of all kinds beside, before and inside the fields that hold the secret.
BROKEN = [
    "password: [${PASS}]", 'password: "${PASS}${NONE}"', 'password: "${PASS}${"', f'password: "{HIDDEN}", x: 1',
    "password: {a: ${PASS}}", f"password: {HIDDEN}", f'password: "{HIDDEN}\\n"',
]  # fmt: skip
URLS = [
    "https://bell:${PASS}@/x", "ftp://bell:${PASS}@host", "https://bell:${PASS}@host:port", "https:/bell:hunter2@host",
    "https://bell:hunter2/3@host", "https://bell:hunter2@host/${PASS}", "https://bell:hunter2@ho st",
]  # fmt: skip


def _everything(checked: Any) -> str:
    lines = [str(mistake) + repr(mistake) for mistake in (*checked.errors, *checked.warnings)]
    return "\n".join([*lines, repr(checked), str(asdict(checked.file)) if checked.file else ""])


@pytest.mark.parametrize("broken", BROKEN)
def test_no_message_about_a_password_shows_it(broken: str, tmp_path: Path) -> None:
    checked = check(tmp_path, GOOD.replace('password: "${PASS}"', broken), {"PASS": HIDDEN})
    assert HIDDEN not in _everything(checked)


@pytest.mark.parametrize("url", URLS)
def test_no_message_about_a_url_shows_its_user_info(url: str, tmp_path: Path) -> None:
    checked = check(tmp_path, GOOD.replace("https://bell:${PASS}@host/x", url), {"PASS": HIDDEN})
    assert checked.errors
    assert HIDDEN not in _everything(checked)


def test_no_object_of_a_good_file_shows_a_secret(tmp_path: Path) -> None:
    checked = check(tmp_path, GOOD, {"PASS": HIDDEN})
    assert checked.file is not None
    assert checked.file.sinks[1].options["headers"]["X-Key"].reveal() == HIDDEN
    assert HIDDEN not in _everything(checked)


def test_a_secret_that_would_break_a_header_is_refused(tmp_path: Path) -> None:
    checked = check(tmp_path, GOOD, {"PASS": "x\r\nX-Admin: yes"})
    messages = {mistake.sentence for mistake in checked.errors}
    assert "`headers.X-Key` must be one line of printable characters" in messages
    assert "X-Admin" not in _everything(checked)


def test_a_secret_in_the_file_gives_a_warning(tmp_path: Path) -> None:
    text = GOOD.replace('password: "${PASS}"', f"password: {HIDDEN}").replace("bell:${PASS}@", f"bell:{HIDDEN}@")
    assert [warning.sentence for warning in check(tmp_path, text).warnings] == [
        "`password` should come from the environment, as `${VAR}`; the file contains the value",
        "the user-info of `url` should come from the environment, as `${VAR}`",
    ]
