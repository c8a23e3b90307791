"""Condition: what the join evaluates for a rule, compiled: its bounds, its program, and what one row decides alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tocsin.expr.nodes import Variable, variables
from tocsin.expr.program import compile_condition, hoist
from tocsin.plan.steps import Store, Threshold
from tocsin.stages.join import Condition


def compile_rule(rule: Threshold, stores: Sequence[Store]) -> tuple[Condition, list[list[Any]]]:
    """Compile the condition; what reads one stream only is computed once per row, in the slots of that stream."""
    residual, parts = hoist(rule.condition)
    slots, hoisted, offsets = [], [], [0]
    read = [variable.key for variable in variables(residual)]
    for store in stores:
        mine = [key for key in read if key[0] == store.stream]
        hoisted.append([parts.get(key, Variable(*key)) for key in mine])
        slots += mine
        offsets.append(len(slots))
    program = compile_condition(residual, slots)  # type: ignore[arg-type]
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
    )
    return condition, hoisted
