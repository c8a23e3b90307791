"""Compiled rule: the condition of a rule as a program, its time bounds, and the columns that it reads of each stream.

Algorithm: a subexpression that reads one stream only is computed once per row, before the join (`slots`). The program
computes the rest of the condition for each combination.
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
    """Compile the condition, and hoist the subexpressions that read one stream only into the slots of that stream.

    Without hoisting, the program computes the whole condition for each combination. A limit is one number per key, so
    it is a value of the first stream.
    """
    condition_with_limits = _with_limits(rule.condition, rule, stores[0].stream)
    residual, parts = hoist_subexpressions(condition_with_limits) if hoisting else (condition_with_limits, {})
    slots, hoisted, offsets = [], [], [0]
    read = [variable.key for variable in find_variables(residual)]
    for store in stores:
        own_keys = [key for key in read if key[0] == store.stream]
        hoisted.append([parts.get(key, Variable(*key)) for key in own_keys])
        slots += own_keys
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
        direction=np.array([_direction(need) for need in rule.needs], np.int64),
    )
    return condition, hoisted


def _direction(need: Store) -> int:
    """Return the direction in which the values of a stream make the condition truer, as in `Condition.direction`."""
    return (need.above_us >= 0) + 2 * (need.below_us >= 0) if len(need.by) < 2 else 0


def limit_key(stream: str, number: int) -> Key:
    """Return the variable that represents a limit among the columns of a stream. No user column has this name."""
    return stream, f" limit {number}"


def _with_limits(node: Node, rule: Threshold, stream: str) -> Node:
    if isinstance(node, Variable):
        names = [limit.variable for limit in rule.limits]
        return Variable(*limit_key(stream, names.index(node.key))) if node.key in names else node
    return replace_children(node, tuple(_with_limits(part, rule, stream) for part in child_nodes(node)))


class CompiledRule:
    """Compiled condition of a rule, its hoisted subexpressions, and the position of each stream in a witness."""

    def __init__(self, rule: Threshold, stores: Sequence[Store], *, hoisting: bool = True) -> None:
        self.rule, self.stores, self.identity = rule, [stores[i] for i in rule.stores], rule.identity(stores)
        self.value_offsets = np.concatenate([[0], np.cumsum([len(store.columns) for store in self.stores])])
        self.condition, self.hoisted = compile_rule(rule, self.stores, hoisting=hoisting)

    def fill(self, slots: Float, stream: int, values: Sequence[Float], limits: Mapping[Key, Float]) -> None:
        """Write the slots of the rows of one stream, from their columns and the limits."""
        store = self.stores[stream]
        by_name = dict(zip(store.columns, values, strict=True))
        columns = {key: by_name[name] for key, name in self.rule.columns if key[0] == store.stream} | dict(limits)
        for slot, part in enumerate(self.hoisted[stream]):
            slots[:, slot] = columns[part.key] if isinstance(part, Variable) else evaluate_number(part, columns)

    def outside(self, shown: Witnesses) -> Bools:
        """Mark the witnesses that have a value outside its declared domain."""
        names, outside = [store.stream for store in self.stores], np.zeros(len(shown.key), np.bool_)
        for stream, column, low, high in self.rule.domains:
            i = names.index(stream)
            value = shown.values[:, int(self.value_offsets[i]) + self.stores[i].columns.index(column)]
            outside |= ~((low <= value) & (value <= high))
        return outside
