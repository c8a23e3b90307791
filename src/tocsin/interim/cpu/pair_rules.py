"""Pair rules: rules evaluated on pairs of rows that an anytime join found, and what is learnt from that.

Idea: pairs are evaluated block by block, as what they give has to be known then. What is found is noted in columns,
as rows may go; it is written down once a call, the results of each rule together, which is cheaper than some at a time.
Guarantee: the results of a rule come in the order in which they were found, whatever the cut into calls.
Cost: an evaluation per rule and pair, a look at each rule per block, and what `match_alerts` takes per result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tocsin.expr.syntax_tree import Variable
from tocsin.interim.cpu.pairs import LIMIT, Rows, evaluate_pairs, split_pairs
from tocsin.interim.cpu.row_log import Key, RowLog
from tocsin.operators.join.compiled_rule import CompiledRule, limit_key
from tocsin.operators.lifecycle.witness import Witnesses
from tocsin.operators.matches import match_alerts
from tocsin.plan.steps import Threshold, Watch
from tocsin.runtime.contract import NEVER_SEEN, Float, Int, Out
from tocsin.runtime.metrics import QualityLoss, quality_text
from tocsin.runtime.row_batch import Texts
from tocsin.stages.promising.hits import Hits


class Found(NamedTuple):
    """Results: the number of the rule and of the key, margin and value; by side times, values and payload; loss."""

    rule: Int
    key: Int
    scores: Float
    times: Int
    values: Float
    texts: Texts
    loss: Texts


class PairRule(CompiledRule):
    """A rule of two streams, evaluated on pairs of their rows."""

    def __init__(self, rule: Threshold, watch: Watch) -> None:
        super().__init__(rule, watch.stores, hoisting=False)
        first, second = (watch.lanes.index(store.lane) for store in self.stores)
        self.sides = first, second
        limits = {limit_key(self.stores[0].stream, i): i for i in range(len(rule.limits))}
        names = dict(rule.columns)
        self.reads = np.array(
            [
                (LIMIT, limits[part.key]) if part.key in limits else (side, store.columns.index(names[part.key]))
                for side, store, parts in zip(self.sides, self.stores, self.hoisted, strict=True)
                for part in parts
                if isinstance(part, Variable)
            ],
            np.int64,
        ).reshape(-1, 2)

    def results(self, rows: Rows, at: Int, keys: Sequence[Key]) -> tuple[Int, Float]:
        """Which pairs are results, with margin and value; `keys` of pairs are read where a rule has limits."""
        limits = np.empty((len(at), len(self.rule.limits)))
        for i, limit in enumerate(self.rule.limits):
            limits[:, i] = limit.of(keys)
        return evaluate_pairs(at, self.sides, rows, self.reads, limits, self.condition)

    def shown(self, found: Found) -> Witnesses:
        """What is shown of results."""
        times = found.times[:, self.sides]
        lanes = zip(self.sides, self.stores, strict=True)
        values = [found.values[:, side, : len(store.columns)] for side, store in lanes]
        return Witnesses(
            found.key,
            times.max(axis=1, initial=NEVER_SEEN),
            found.scores[:, 0],
            np.ones(len(times), np.int64),
            found.scores[:, 1],
            times,
            np.concatenate(values, axis=1),
            found.texts[:, self.sides],
        )


class PairRules:
    """All rules of a watch, how often pairs of each key gave a result, and how many were found."""

    def __init__(self, watch: Watch, span_us: int) -> None:
        self.on, self.span_us = watch.on, span_us
        self.rules = [PairRule(rule, watch) for rule in watch.rules]
        self.hits, self.found = Hits(), 0
        self.has_limits = any(rule.limits for rule in watch.rules)
        # What was found and is not written down.
        self.noted: list[Found] = []

    def __len__(self) -> int:
        """How many rules there are."""
        return len(self.rules)

    def judge(self, log: RowLog, pairs: Int, loss: QualityLoss | None) -> None:
        """Evaluate all rules on pairs of numbers of rows, note results, and learn which keys give them."""
        rows = Rows(log.rows.key, log.rows.time, log.rows.values)
        keys, near, at = split_pairs(log.at(pairs), rows, self.span_us)
        names = [log.keys[k] for k in keys[near].tolist()] if self.has_limits else []
        each = [rule.results(rows, at, names) for rule in self.rules] if len(at) else []
        pair = np.concatenate([np.zeros(0, np.int64), *(found for found, _ in each)])
        self.found += len(pair)
        self.hits.learn(log.numbers[keys], np.bincount(near[pair], minlength=len(keys)).astype(np.float64), len(near))
        if len(pair):
            rule = np.repeat(np.arange(len(each)), [len(found) for found, _ in each])
            chosen, scores = at[pair], np.concatenate([scores for _, scores in each])
            raw = rows.time[chosen], rows.values[chosen], log.texts(chosen)
            losses = np.full(len(pair), loss, dtype=object)
            self.noted.append(Found(rule, rows.key[chosen[:, 0]], scores, *raw, losses))

    def write(self, log: RowLog, out: Out) -> None:
        """Write down what was noted; the keys of a log must still have the numbers that they had."""
        noted, self.noted = self.noted, []
        if not noted:
            return
        whole = Found._make(np.concatenate(columns) for columns in zip(*noted, strict=True))
        order = np.argsort(whole.rule, kind="stable")
        ends = np.cumsum(np.bincount(whole.rule, minlength=len(self.rules)))
        for rule, mine in zip(self.rules, np.split(order, ends[:-1]), strict=True):
            if len(mine):
                found = Found._make(column[mine] for column in whole)
                shown = rule.shown(found)
                marked = zip(found.loss.tolist(), rule.outside(shown).tolist(), strict=True)
                qualities = [quality_text(loss, is_out_of_domain=odd) for loss, odd in marked]
                out.alerts.append(match_alerts(rule.identity, self.on, log.keys, found.key, shown, qualities))
