"""Pair rules: rules evaluated on pairs of rows that an anytime join found, and what is learnt from that."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tocsin.logic import NEVER_SEEN, Float, Int, Out
from tocsin.plan.compiled import Compiled
from tocsin.plan.condition import limit_key
from tocsin.plan.matches import match_rows
from tocsin.plan.report import with_doubts
from tocsin.plan.row_log import Key, RowLog
from tocsin.plan.steps import Threshold, Watch
from tocsin.plan.witness import Witnesses
from tocsin.stages.pairs import evaluate_pairs
from tocsin.stages.promising.hits import Hits


class Pairs:
    """Pairs of rows of a log, by place: their times and values, by side, which all rules read alike."""

    def __init__(self, log: RowLog, at: Int) -> None:
        self.log, self.at = log, at
        self.time = [log.rows.time[at[:, side]] for side in (0, 1)]
        self.values = [list(np.ascontiguousarray(log.rows.values[at[:, side]].T)) for side in (0, 1)]


class PairRule(Compiled):
    """A rule of two streams, evaluated on pairs of their rows."""

    def __init__(self, rule: Threshold, watch: Watch) -> None:
        super().__init__(rule, watch.stores)
        self.sides = [watch.lanes.index(store.lane) for store in self.stores]

    def results(self, pairs: Pairs, keys: Sequence[Key]) -> Witnesses:
        """The pairs that are results, with what is shown of them; `key` is the number of the pair."""
        time, count = np.stack([pairs.time[side] for side in self.sides]), len(pairs.at)
        lanes = zip(self.sides, self.stores, strict=True)
        values = [pairs.values[side][: len(store.columns)] for side, store in lanes]
        first, slots = self.stores[0].stream, []
        limits = {limit_key(first, i): np.array(limit.of(keys)) for i, limit in enumerate(self.rule.limits)}
        for i, width in enumerate(np.diff(self.condition.slot_offsets).tolist()):
            slots.append(np.empty((count, width)))
            self.fill(slots[i], i, values[i], limits if i == 0 else {})
        true, margin, value = evaluate_pairs(time, (slots[0], slots[1]), self.condition)
        found = np.flatnonzero(true)
        shown = [column[found] for i in (0, 1) for column in values[i]]
        texts = np.stack([pairs.log.texts(pairs.at[found, side]) for side in self.sides], axis=1)
        times = time[:, found].T
        return Witnesses(
            found,
            times.max(axis=1, initial=NEVER_SEEN),
            margin[found],
            np.ones(len(found), np.int64),
            value[found],
            times,
            np.stack(shown, axis=1) if shown else np.zeros((len(found), 0)),
            texts,
        )


class PairRules:
    """All rules of a watch, how often pairs of each key gave a result, and how many were found."""

    def __init__(self, watch: Watch, span_us: int) -> None:
        self.on, self.span_us = watch.on, span_us
        self.rules = [PairRule(rule, watch) for rule in watch.rules]
        self.hits, self.found = Hits(), 0

    def __len__(self) -> int:
        """How many rules there are."""
        return len(self.rules)

    def judge(self, log: RowLog, pairs: Int, quality: str, out: Out) -> None:
        """Evaluate all rules on pairs of numbers of rows, and learn which keys give results."""
        at, key, time = log.at(pairs), log.rows.key, log.rows.time
        # Numbers of keys may be equal though keys are not.
        at = at[key[at[:, 0]] == key[at[:, 1]]]
        near = np.abs(time[at[:, 0]] - time[at[:, 1]]) <= self.span_us
        given = np.zeros(len(at))
        if near.any():
            given[near] = self._results(log, at[near], quality, out)
        self.found += int(given.sum())
        self.hits.learn(log.numbers[key[at[:, 0]]], given, int(near.sum()))

    def _results(self, log: RowLog, at: Int, quality: str, out: Out) -> Float:
        """Write down the results of pairs whose rows are near enough; gives how many each has."""
        key, given = log.rows.key[at[:, 0]], np.zeros(len(at))
        names = [log.keys[k] for k in key.tolist()] if any(rule.rule.limits for rule in self.rules) else []
        pairs = Pairs(log, at)
        for rule in self.rules:
            shown = rule.results(pairs, names)
            given += np.bincount(shown.key, minlength=len(at))
            if len(shown.key):
                keys = [log.keys[k] for k in key[shown.key].tolist()]
                qualities = with_doubts([quality] * len(keys), rule.outside(shown))
                out.alerts += match_rows(rule.identity, self.on, keys, shown, qualities)
        return given
