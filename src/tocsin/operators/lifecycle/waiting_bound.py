"""Waiting bound: an upper bound for the buffered evaluations of rules with alerts, after each row of a slice.

Algorithm: an evaluation is buffered until the watermark of its key passes it, and only times and streams determine
the watermark. A row has an evaluation only if each other stream of the rule has a row at most `span` before it. The
bound counts each of these rows, and removes the rows of a key when the watermark reaches the newest of them. After a
decision of the memory pool the bound begins again with the buffered evaluations that exist.

Guarantees: no more evaluations are buffered than the bound counts. The bound follows from the rows in order of arrival,
so its state between two slices is stored.

Complexity: a few steps per row and rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tocsin.jit import kernel
from tocsin.operators.join.operator import advance_watermark
from tocsin.runtime.contract import NEVER_SEEN, Bools, Int

# Bytes of a key with evaluations since the last decision: its entry in the state of the bound.
ENTRY_BYTES = 32


class WaitingRules(NamedTuple):
    """Parameters of the rules with alerts.

    Attributes
    ----------
        stream: Stream of the rule by lane, or -1; one row per rule.
        idle_timeout, span: Idle timeout, and largest distance of the rows of a combination.
        size, texts: Bytes of an evaluation without texts, and its number of texts.
    """

    stream: Int
    idle_timeout: Int
    span: Int
    size: Int
    texts: Int


class WaitingKeys(NamedTuple):
    """State of the keys.

    Attributes
    ----------
        newest, watermark: Newest time by rule, key and stream; watermark by rule and key.
        rows, until: Number of buffered evaluations, and their newest time, by rule and key.
        is_noted: Whether the key had an evaluation since the last decision, by rule and key.
    """

    newest: Int
    watermark: Int
    rows: Int
    until: Int
    is_noted: Bools


@kernel
def bound_waiting(rules: WaitingRules, keys: WaitingKeys, lane: Int, key: Int, time: Int, text: Int) -> Int:
    """Return the bytes of the bound after each row, and update the state of the keys.

    `text` is the size of the longest text up to each row.
    """
    charge = np.zeros(lane.shape[0], np.int64)
    for rule in range(rules.size.shape[0]):
        newest, watermark, rows = keys.newest[rule], keys.watermark[rule], keys.rows[rule]
        size, texts, span = rules.size[rule], rules.texts[rule], rules.span[rule]
        waiting, noted = 0, 0
        for k in range(rows.shape[0]):
            waiting += rows[k]
            noted += keys.is_noted[rule, k]
        for i in range(lane.shape[0]):
            stream, k = rules.stream[rule, lane[i]], key[i]
            if stream >= 0:
                newest[k, stream] = max(newest[k, stream], time[i])
                has_partners = True
                for other in range(newest.shape[1]):
                    has_partners = has_partners and newest[k, other] >= time[i] - span
                advance_watermark(k, newest, watermark, rules.idle_timeout[rule])
                if rows[k] and watermark[k] >= keys.until[rule, k]:
                    waiting -= rows[k]
                    rows[k] = 0
                if has_partners and time[i] > watermark[k]:
                    rows[k] += 1
                    waiting += 1
                    keys.until[rule, k] = max(keys.until[rule, k], time[i])
                if has_partners and not keys.is_noted[rule, k]:
                    keys.is_noted[rule, k] = True
                    noted += 1
            charge[i] += waiting * (size + texts * text[i]) + noted * (ENTRY_BYTES + texts * text[i])
    return charge


def no_waiting_keys(rules: WaitingRules, keys: int, streams: int) -> WaitingKeys:
    """Return the state of keys without rows."""
    count = len(rules.size)
    return WaitingKeys(
        np.full((count, keys, streams), NEVER_SEEN),
        np.full((count, keys), NEVER_SEEN),
        np.zeros((count, keys), np.int64),
        np.full((count, keys), NEVER_SEEN),
        np.zeros((count, keys), np.bool_),
    )


def written_entries(keys: WaitingKeys, number: Int) -> Int:
    """Return the state that other operators do not have: number of the key, rule, rows, newest time, and its mark."""
    rule, key = np.nonzero(keys.is_noted | (keys.rows > 0))
    columns = number[key], rule, keys.rows[rule, key], keys.until[rule, key], keys.is_noted[rule, key]
    return np.array(columns, np.int64).reshape(5, -1)


def read_entries(keys: WaitingKeys, number: Int, entries: Int) -> None:
    """Restore the state of the keys from entries. Entries of other keys are ignored."""
    if not entries.size or not len(number):
        return
    order = np.argsort(number)
    at = order[np.searchsorted(number, entries[0], sorter=order) % len(order)]
    known = number[at] == entries[0]
    _, rule, rows, until, is_noted = entries[:, known]
    keys.rows[rule, at[known]], keys.until[rule, at[known]] = rows, until
    keys.is_noted[rule, at[known]] = is_noted > 0


def waiting_rules(
    streams: Sequence[Sequence[int]],
    idle_timeouts: Sequence[int],
    spans: Sequence[int],
    values: Sequence[int],
    lanes: int,
) -> WaitingRules:
    """Return the parameters of rules: the lane of each stream, idle timeouts, spans, and numbers of witness values."""
    stream = np.full((len(streams), lanes + 1), -1)
    for rule, mine in enumerate(streams):
        for number, lane in enumerate(mine):
            stream[rule, lane] = number
    counts = np.array([len(mine) for mine in streams], np.int64)
    return WaitingRules(
        stream,
        np.array(idle_timeouts, np.int64),
        np.array(spans, np.int64),
        40 + 8 * counts + 8 * np.array(values, np.int64),
        counts,
    )
