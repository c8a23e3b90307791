"""Bound: the numbers of a stream with which a rule cannot hold, whatever its partners are inside their domains.

Rows with such numbers decide nothing, so any of them may stand for another: they count as equal (`Store.hopeless`).
That they were there still counts, because an evaluation that is false ends an alert.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tocsin.expr.certify import build_margin
from tocsin.expr.certify.certify_variable import compute_range
from tocsin.expr.certify.domain_boxes import UNBOUNDED
from tocsin.expr.certify.unreachable_values import find_unreachable_values
from tocsin.expr.syntax_tree import (
    Compare,
    Condition,
    Key,
    Node,
    Number,
    Unary,
    Variable,
    child_nodes,
    find_variables,
    replace_children,
)
from tocsin.plan.prove import Domain, domains_of, named_by_column, shape_of
from tocsin.plan.steps import Limit, Store
from tocsin.rules.model import Rule


def hopeless_numbers(
    rule: Rule, condition: Condition, read: Mapping[Key, str], limits: Sequence[Limit], store: Store
) -> Domain | None:
    """The numbers, from and to, that rows of a store may have without any chance to be part of an alarm."""
    if store.whole or len(store.by) > 1:
        return None
    domains = domains_of(rule, read, limits)
    tree, compared = by_numbers(named_by_column(_lasting(rule, condition), read), [store]), compared_as(store).key
    if store.by:
        low, high = compute_range(store.by[0], domains)
        domains[compared] = max(low, -UNBOUNDED), min(high, UNBOUNDED)
    keys = [variable.key for variable in find_variables(tree)]
    known = {key: domains[key] for key in keys}
    verdicts = {key: shape_of(tree, key, known) for key in keys}
    return find_unreachable_values(build_margin(tree), compared, known, verdicts) if verdicts[compared].proved else None


def compared_as(store: Store) -> Variable:
    """What stands for the number that the rows of a store are compared by."""
    return Variable(store.stream, " compared") if store.by else Variable(store.stream, store.columns[0])


def by_numbers(node: Node, stores: Sequence[Store]) -> Node:
    """Put variables where a condition has the numbers that rows are compared by."""
    for store in stores:
        if len(store.by) == 1 and node == store.by[0]:
            return compared_as(store)
    return replace_children(node, tuple(by_numbers(part, stores) for part in child_nodes(node)))


def _lasting(rule: Rule, condition: Condition) -> Condition:
    """What keeps an alert firing: the condition, with the threshold of recovery if there is one."""
    if rule.recovery is None or not isinstance(condition, Compare):
        return condition
    number = Number(abs(float(rule.recovery)))
    return replace(condition, right=Unary(number) if rule.recovery < 0 else number)
