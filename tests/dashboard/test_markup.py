"""Messages as HTML: code in backticks, and no markup from outside."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.dashboard.markup import message_markup, visible

HOSTILE = (
    "<script>alert(1)</script>",
    "</code><img src=x onerror=alert(1)>",
    '" onload="alert(1)',
    "&lt;b&gt;",
    "\x00",
)


class Tags(HTMLParser):
    """The elements and the text that a browser would read."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, int]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, len(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def read(markup: str) -> Tags:
    tags = Tags()
    tags.feed(str(markup))
    tags.close()
    return tags


@pytest.mark.parametrize("text", HOSTILE)
def test_message_has_no_element_but_code_when_its_text_is_hostile(text: str) -> None:
    for message, codes in ((text, 0), (f"`{text}`", 1), (f"a `{text}` b `{text}`", 2), (f"` {text}", 0)):
        tags = read(message_markup(message))
        assert tags.tags == [("code", 0)] * codes
        assert tags.text == visible(message.replace("`", "") if codes else message)


@given(st.text(st.sampled_from('`<>&"\n ab\x00'), max_size=40))
def test_message_keeps_every_character_when_backticks_are_in_any_place(text: str) -> None:
    markup = str(message_markup(text))
    assert unescape(re.sub(r"</?code>", "`", markup)) == visible(text)
    assert set(re.findall(r"<[^>]*>", markup)) <= {"<code>", "</code>"}
    assert markup.count("<code>") == markup.count("</code>")
