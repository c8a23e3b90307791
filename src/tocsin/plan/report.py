"""Report: what a rule says, as rows of output; and the last words of a rule that is gone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from tocsin.operators.lifecycle import alert_state_machine as alert
from tocsin.operators.lifecycle.witness import Witnesses
from tocsin.operators.no_data import NOT_YET
from tocsin.plan.identity import Identity, Lane
from tocsin.runtime.contract import Bools, Out
from tocsin.runtime.metrics import RowOutcome
from tocsin.runtime.payload import shown_payload

Arrays = Mapping[str, NDArray[Any]]
Key = tuple[str, ...]
# Of output, with the public names.
Row = dict[str, Any]
# Equal for what is equal, whatever the order of its parts.
encode = json.JSONEncoder(sort_keys=True).encode


class AlertTimes(NamedTuple):
    """Times of an alert in microseconds: its start, the end of `for`, and its end.

    `fires` is None before the alert fires, and `ends` is None while the alert is open.
    """

    starts: int
    fires: int | None
    ends: int | None


def alert_row(
    rule: Identity,
    key: Mapping[str, str],
    state: str,
    times: AlertTimes,
    shown: Witnesses,
    quality: str,
    *,
    late: bool = False,
    sequence: int = 0,
) -> Row:
    """One output row; times are microseconds, which the engine turns into its own kind."""
    labels = labels_of(rule, key)
    numbers = float(shown.value[0]), float(shown.margin[0])
    witness = [part for (part,) in witnesses(rule, key, shown)]
    mark = mark_of(rule.alert, labels, times.starts, late, sequence)
    return output_row(rule.alert, mark, labels, state, times, numbers, witness, quality)


def labels_of(rule: Identity, key: Mapping[str, str]) -> dict[str, str]:
    """The labels of a rule's alerts for a key."""
    return {**dict(rule.labels), **key}


def with_doubts(qualities: Sequence[str], outside: Bools) -> list[str]:
    """Say of witnesses with a value outside its domain that they have one."""
    return [f"{one} out-of-domain" if odd else one for one, odd in zip(qualities, outside.tolist(), strict=True)]


def witnesses(rule: Identity, on: Collection[str], shown: Witnesses) -> Iterator[list[Row]]:
    """What stands in the witnesses of each stream."""
    begin = 0
    for i, (stream, columns) in enumerate(rule.lanes):
        values = shown.values[:, begin : begin + len(columns)].tolist()
        begin += len(columns)
        texts = _payloads(shown.payload[:, i].tolist(), {*columns, *on})
        yield [
            {"stream": stream, "time": time, "values": dict(zip(columns, numbers, strict=True)), "payload": text}
            for time, numbers, text in zip(shown.times[:, i].tolist(), values, texts, strict=True)
        ]


def _payloads(texts: list[str | None], read: Collection[str]) -> Iterable[dict[str, str | None] | None]:
    """What is shown of payloads; each text, which many matches may have, is read once."""
    known = {text: shown_payload(text, read) for text in set(texts)}
    return (None if (one := known[text]) is None else one.copy() for text in texts)


def mark_of(alert_name: str, labels: Mapping[str, str], start: int, *more: object) -> str:
    """Hash the identity of an alert: its name, labels and start, and the parts that distinguish equal starts."""
    return hashlib.sha256(encode([alert_name, sorted(labels.items()), start, *more]).encode()).hexdigest()[:16]


def output_row(
    alert_name: str,
    mark: str,
    labels: dict[str, str],
    state: str,
    times: AlertTimes,
    numbers: tuple[float, float],
    witness: Sequence[Row],
    quality: str,
) -> Row:
    """Return one output row; `numbers` are value and margin."""
    return {
        "alert": alert_name,
        "id": mark,
        "state": state,
        "labels": labels,
        "startsAt": times.starts,
        "firesAt": times.fires,
        "endsAt": times.ends,
        "value": numbers[0],
        "margin": numbers[1],
        "witness": list(witness),
        "quality": quality,
    }


def silence_row(rule: Identity, key: Mapping[str, str], times: tuple[int, int | None, int], quality: str) -> Row:
    """One output row of a silence with this start, end, and last row before it."""
    start, end, last = times
    until = start if end is None else end
    shown = Witnesses.none(1, 1, 0)
    shown.times[0, 0], shown.value[0], shown.margin[0] = last, (until - last) / 1_000_000, (until - start) / 1_000_000
    state = "firing" if end is None else "resolved"
    return alert_row(rule, key, state, AlertTimes(start, start, end), shown, quality)


def last_words(
    arrays: Arrays,
    facts: Mapping[str, Any],
    on: Sequence[str],
    stay: Iterable[Identity] = (),
    stores: Iterable[str] = (),
    lanes: Collection[Lane] = (),
) -> Out:
    """End the open lives on a page of all rules but those that stay: at their last evaluation, or event time.

    What was remembered in other than these stores, or waits in other lanes, is forgotten, and counted so.
    """
    keys, kept = [tuple(key) for key in facts["keys"]], set(stay)
    gone = [one for one in map(Identity.of_json, facts["rules"]) if one not in kept]
    words = [row for one in gone for machine in (0, 1) for row in _ends(one, machine, arrays, on, keys)]
    quiet = [one for one in map(Identity.of_json, facts.get("silences", ())) if one not in kept]
    out = Out(words + [row for one in quiet for row in _ends_of_silence(one, arrays, on, keys)])
    kept_stores = set(stores)
    for store, name in facts.get("stores", {}).items():
        rows = 0 if store in kept_stores else len(arrays.get(f"s{store}.time", ()))
        if rows:
            out.metrics.count_rows(name, {RowOutcome.RETAINED: -rows, RowOutcome.EXPIRED: rows})
    for i, (stream, columns) in enumerate(facts.get("lanes", ())):
        rows = 0 if (stream, tuple(columns)) in lanes else int((arrays["hold.lane"] == i).sum())
        for name in facts["counted"][i] if rows else ():
            out.metrics.count_rows(name, {RowOutcome.BUFFERED: -rows, RowOutcome.EXPIRED: rows})
    return out


def _ends(rule: Identity, machine: int, arrays: Arrays, on: Sequence[str], keys: Sequence[Key]) -> Iterable[Row]:
    if f"r{rule.id}.life{machine}.0" not in arrays:  # It emitted all.
        return
    lives = alert.stored_lives(arrays, f"r{rule.id}.life{machine}")
    best = Witnesses(*(arrays[f"r{rule.id}.best{machine}.{i}"] for i in range(8)))
    for k in (lives.phase != alert.NONE).nonzero()[0].tolist():
        phase = int(lives.phase[k])
        end = lives.since if phase == alert.KEEPING else lives.last
        state = "inactive" if phase == alert.PENDING else "resolved"
        key, quality = dict(zip(on, keys[k], strict=True)), f"exact{' late' * machine} rule-changed"
        times = AlertTimes(int(lives.start[k]), None if phase == alert.PENDING else int(lives.fires[k]), int(end[k]))
        sequence = int(lives.sequence[k])
        yield alert_row(rule, key, state, times, best.take([k]), quality, late=machine == 1, sequence=sequence)


def _ends_of_silence(rule: Identity, arrays: Arrays, on: Sequence[str], keys: Sequence[Key]) -> Iterable[Row]:
    start, last = arrays[f"n{rule.id}.start"], arrays[f"n{rule.id}.last"]
    for k in (start != NOT_YET).nonzero()[0].tolist():
        times = int(start[k]), int(max(start[k], arrays["silence.front"][k])), int(last[k])
        yield silence_row(rule, dict(zip(on, keys[k], strict=True)), times, "exact rule-changed")
