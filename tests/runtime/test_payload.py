"""Payload texts: functions of many texts agree with the functions of one text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.runtime.payload import mapping_encoder, unread_columns, unread_columns_of

# Characters that JSON escapes, that separate JSON elements, and that UTF-8 cannot encode.
TEXTS = st.text(st.sampled_from([*'ab,:{}[] "\\/\0\1\n\x7f', "é", "\u2028", "\ud800"]), max_size=6)
VALUES = st.one_of(TEXTS, st.none(), st.integers(), st.floats(allow_nan=False), st.booleans(), st.lists(TEXTS))


@st.composite
def payload_texts(draw: st.DrawFn, values: st.SearchStrategy[Any]) -> list[str]:
    """Draw JSON objects as texts, with and without white space."""
    objects = draw(st.lists(st.dictionaries(TEXTS, values, max_size=3), max_size=6))
    spaces = draw(st.lists(st.sampled_from(["", "", " ", "\n"]), min_size=len(objects), max_size=len(objects)))
    return [
        space + json.dumps(one, ensure_ascii=draw(st.booleans())) for one, space in zip(objects, spaces, strict=True)
    ]


@given(st.one_of(payload_texts(TEXTS), payload_texts(VALUES)), st.lists(TEXTS, max_size=2))
def test_many_texts_have_the_columns_of_each_text(texts: list[str], read: list[str]) -> None:
    assert unread_columns_of(texts, read) == [unread_columns(text, read) for text in texts]


@pytest.mark.parametrize("texts", [["{", "}"], ['{"a": "1"}', ""], ['{"a": "1"},{"b": "2"}'], ['{"a": [1', "2]}"]])
def test_texts_that_are_no_objects_are_rejected(texts: list[str]) -> None:
    with pytest.raises(ValueError, match="line 1 column"):
        unread_columns_of(texts, ())


@given(st.lists(st.dictionaries(TEXTS, st.one_of(st.none(), TEXTS), max_size=3), max_size=6), st.booleans())
def test_mappings_have_the_texts_of_the_json_module(mappings: list[dict[str, Any]], is_sorted: bool) -> None:
    wide, narrow = mapping_encoder(", ", ": ", sort_keys=is_sorted), mapping_encoder(",", ":", ensure_ascii=False)
    assert wide(mappings) == [json.dumps(one, sort_keys=is_sorted) for one in mappings]
    assert narrow(mappings) == [json.dumps(one, separators=(",", ":"), ensure_ascii=False) for one in mappings]
