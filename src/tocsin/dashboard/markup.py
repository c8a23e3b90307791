"""Markup: messages as HTML. A text from outside cannot become markup, because every part of it is escaped."""

from __future__ import annotations

import re

from markupsafe import Markup

# Code in a message, as in Markdown: between two backticks on one line.
_CODE = re.compile(r"`([^`\n]+)`")


def visible(text: str) -> str:
    r"""Return a text with a replacement character for each character that a page must not contain.

    >>> visible("a\x00b")
    'a\ufffdb'
    """
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def message_markup(text: str) -> Markup:
    """Return a message as HTML: escaped, and with text in backticks as `code` elements.

    >>> message_markup("`--port` must be free, <b>got</b> `<80>`; a ` alone stays")
    Markup('<code>--port</code> must be free, &lt;b&gt;got&lt;/b&gt; <code>&lt;80&gt;</code>; a ` alone stays')
    """
    parts = _CODE.split(visible(text))
    # `split` returns the texts between matches at even places and the code at odd places.
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if place % 2 else part for place, part in enumerate(parts)
    )
