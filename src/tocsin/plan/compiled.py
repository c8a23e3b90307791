"""Compiled: a rule beside the stores whose rows it reads, ready to be evaluated, whatever finds its combinations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tocsin.expr.column_evaluation import evaluate_number
from tocsin.expr.syntax_tree import Key, Variable
from tocsin.logic import Bools, Float
from tocsin.plan.condition import compile_rule
from tocsin.plan.steps import Store, Threshold
from tocsin.plan.witness import Witnesses


class Compiled:
    """The condition of a rule, what of it one row decides alone, and where a witness has the columns of each stream."""

    def __init__(self, rule: Threshold, stores: Sequence[Store], *, hoisting: bool = True) -> None:
        self.rule, self.stores, self.identity = rule, [stores[i] for i in rule.stores], rule.identity(stores)
        self.value_offsets = np.concatenate([[0], np.cumsum([len(store.columns) for store in self.stores])])
        self.condition, self.hoisted = compile_rule(rule, self.stores, hoisting=hoisting)

    def fill(self, slots: Float, stream: int, values: Sequence[Float], limits: Mapping[Key, Float]) -> None:
        """Write down what the program reads of rows of one stream: of their columns, and of limits of the first."""
        store = self.stores[stream]
        have = dict(zip(store.columns, values, strict=True))
        columns = {key: have[name] for key, name in self.rule.columns if key[0] == store.stream} | dict(limits)
        for slot, part in enumerate(self.hoisted[stream]):
            slots[:, slot] = columns[part.key] if isinstance(part, Variable) else evaluate_number(part, columns)

    def outside(self, shown: Witnesses) -> Bools:
        """Tell which witnesses have a value outside the domain that this rule declares for it."""
        names, outside = [store.stream for store in self.stores], np.zeros(len(shown.key), np.bool_)
        for stream, column, low, high in self.rule.domains:
            i = names.index(stream)
            value = shown.values[:, int(self.value_offsets[i]) + self.stores[i].columns.index(column)]
            outside |= ~((low <= value) & (value <= high))
        return outside
