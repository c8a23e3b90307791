"""Compiled rule: the condition of a rule as a program, its time bounds, and the columns that it reads of each stream.

A subexpression that reads one stream only is computed once per row, before the join (`slots`). The program computes the
rest for each combination.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tocsin.expr.column_evaluation import evaluate_number
from tocsin.expr.compiler import compile_expression, hoist_subexpressions
from tocsin.expr.syntax_tree import Key, Node, Variable, child_nodes, find_variables, replace_children
from tocsin.operators.join.threshold_join import Condition
from tocsin.operators.lifecycle.witness import Witnesses
from tocsin.plan.steps import Store, Threshold
from tocsin.runtime.contract import Bools, Float


def compile_rule(
    rule: Threshold, stores: Sequence[Store], *, hoisting: bool = True
) -> tuple[Condition, list[list[Any]]]:
    """Compile the condition; what reads one stream only is computed once per row, in the slots of that stream.

    Without hoisting all is computed for each combination, from the columns. A limit is one number per key, so any row
    has it: it is read as a value of the first stream.
    """
    whole = _with_limits(rule.condition, rule, stores[0].stream)
    residual, parts = hoist_subexpressions(whole) if hoisting else (whole, {})
    slots, hoisted, offsets = [], [], [0]
    read = [variable.key for variable in find_variables(residual)]
    for store in stores:
        mine = [key for key in read if key[0] == store.stream]
        hoisted.append([parts.get(key, Variable(*key)) for key in mine])
        slots += mine
        offsets.append(len(slots))
    program = compile_expression(residual, slots)
    topology = rule.topology
    condition = Condition(
        upper=np.array(topology.implied, np.int64),
        hop=topology.hop_us,
        window=topology.window_us,
        open_left=int(topology.closed in {"neither", "right"}),
        open_right=int(topology.closed in {"neither", "left"}),
        slot_offsets=np.array(offsets, np.int64),
        ops=program.ops,
        args=program.args,
        consts=program.consts,
        depth=program.stack,
        turn=np.array([_turn(need) for need in rule.needs], np.int64),
    )
    return condition, hoisted


def _turn(need: Store) -> int:
    """By which numbers of a stream a condition becomes truer, as the join wants to know it."""
    return (need.above_us >= 0) + 2 * (need.below_us >= 0) if len(need.by) < 2 else 0


def limit_key(stream: str, number: int) -> Key:
    """The variable by which the rows of a stream read a limit; no column of a user has such a name."""
    return stream, f" limit {number}"


def _with_limits(node: Node, rule: Threshold, stream: str) -> Node:
    if isinstance(node, Variable):
        names = [limit.variable for limit in rule.limits]
        return Variable(*limit_key(stream, names.index(node.key))) if node.key in names else node
    return replace_children(node, tuple(_with_limits(part, rule, stream) for part in child_nodes(node)))


class CompiledRule:
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
