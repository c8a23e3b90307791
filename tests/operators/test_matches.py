"""Rows of matches: what they show, and by what they are told apart."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tocsin.operators.lifecycle.witness import Witnesses
from tocsin.operators.matches import match_alerts
from tocsin.plan.identity import Identity

RULE = Identity("Near", (("team", "b"),), (("air", ("temp",)), ("surface", ("temp", "wet"))), "m")
WET = json.dumps({"temp": 1.0, "note": "wet"})


def shown(times: list[list[int]], values: list[list[float]], payload: list[list[str | None]]) -> Witnesses:
    """Matches with these rows; their number is 7, by 2."""
    count = len(times)
    texts = np.array(payload, dtype=object)
    same = np.zeros(count, np.int64)
    return Witnesses(
        same, same, np.full(count, 2.0), same, np.full(count, 7.0), np.array(times), np.array(values), texts
    )


def rows_of(rule: Identity, keys: list[tuple[str, ...]], matches: Witnesses) -> list[dict[str, Any]]:
    return match_alerts(rule, ["machine"], keys, np.arange(len(keys)), matches, ["exact"] * len(keys)).rows()


def test_a_row_shows_labels_span_number_and_the_rows_of_its_combination() -> None:
    (row,) = rows_of(RULE, [("m1",)], shown([[20, 10]], [[1.0, 2.0, 0.0]], [[WET, None]]))
    assert row.pop("id")
    assert row == {
        "alert": "Near",
        "state": "match",
        "labels": {"team": "b", "machine": "m1"},
        "startsAt": 10,
        "firesAt": 10,
        "endsAt": 20,
        "value": 7.0,
        "margin": 2.0,
        "witness": [
            {"stream": "air", "time": 20, "values": {"temp": 1.0}, "payload": {"note": "wet"}},
            {"stream": "surface", "time": 10, "values": {"temp": 2.0, "wet": 0.0}, "payload": None},
        ],
        "quality": "exact",
    }


def test_rows_have_dicts_of_their_own() -> None:
    one, two = rows_of(RULE, [("m1",)] * 2, shown([[20, 10]] * 2, [[1.0, 2.0, 0.0]] * 2, [[WET, None]] * 2))
    assert one == two
    one["labels"]["team"] = one["witness"][0]["payload"]["note"] = one["witness"][0]["values"]["temp"] = "changed"
    assert "changed" not in json.dumps(two)


@pytest.mark.parametrize(
    "other",
    [
        {"key": ("m2",)},
        {"times": [[20, 11]]},
        {"times": [[10, 20]]},
        {"values": [[1.0, 2.0, 1.0]]},
        {"values": [[2.0, 1.0, 0.0]]},
        {"payload": [[None, None]]},
        {"payload": [[None, WET]]},
        {"rule": replace(RULE, alert="Far")},
        {"rule": replace(RULE, labels=(("team", "c"),))},
        {"rule": replace(RULE, lanes=(("air", ("heat",)), RULE.lanes[1]))},
    ],
)
def test_whatever_differs_in_a_combination_makes_it_another(other: dict[str, Any]) -> None:
    same = {"key": ("m1",), "times": [[20, 10]], "values": [[1.0, 2.0, 0.0]], "payload": [[WET, None]], "rule": RULE}
    ids = [
        rows_of(one["rule"], [one["key"]], shown(one["times"], one["values"], one["payload"]))[0]["id"]
        for one in (same, same | other)
    ]
    assert ids[0] != ids[1]


def test_the_identity_does_not_depend_on_what_else_is_written_nor_on_columns_that_are_read() -> None:
    read = json.dumps({"temp": 3.0, "note": "wet"})
    many = shown([[5, 5], [20, 10]], [[0.0, 0.0, 0.0], [1.0, 2.0, 0.0]], [[None, None], [read, None]])
    (alone,) = rows_of(RULE, [("m1",)], shown([[20, 10]], [[1.0, 2.0, 0.0]], [[WET, None]]))
    assert rows_of(RULE, [("m9",), ("m1",)], many)[1] == alone
