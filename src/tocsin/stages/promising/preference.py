"""What a user prefers: an order and an expression over summary estimates and raw attributes.

`count(s1.item)` is the estimate of how often the value of `item` occurs in `s1`, `s1.price` the attribute itself; all
else is as in conditions. `desc` works on what has the most of it first, `asc` on what has the least, `weighted` divides
what is worked on in the ratio of it. The fade factor makes what lies i granularities back count for its i-th power.
An order leaves nothing out: with units to spare `asc` goes on to what has much of it. `most` leaves out what has more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isnan, log
from typing import NamedTuple

import numpy as np

from tocsin.errors import ExprError
from tocsin.expr import Key, Node, Program, compile_expression, find_variables, parse_number, run_program
from tocsin.hashing import uniform
from tocsin.jit import inlined
from tocsin.runtime.contract import Float, Int

ORDERS = ("desc", "asc", "weighted")
DESC, ASC, WEIGHTED = range(3)
# Below this estimate a value is taken not to be there: counts are whole numbers.
PRESENT = 0.5

_COUNT = re.compile(r"\bcount\(( *)([A-Za-z_]\w*\.[A-Za-z_]\w*)( *)\)")
_MARK = "__count"
# How the columns begin that no expression can name.
_NAMELESS = " "


@dataclass(frozen=True)
class Preference:
    """An order, what it is an order of, how much the past fades, and with `asc` above what nothing is wanted."""

    order: str = "desc"
    expr: str = "count(s1.item) * count(s2.item)"
    fade: float = 1.0
    most: float = inf

    def __post_init__(self) -> None:
        """Refuse what orders nothing."""
        if self.order not in ORDERS:
            message = f"`order` of a preference must be one of {', '.join(ORDERS)}; got {self.order!r}"
            raise ValueError(message)
        if not 0 < self.fade <= 1:
            message = f"`fade` of a preference must be above 0 and at most 1; got {self.fade!r}"
            raise ValueError(message)
        if isnan(self.most) or (self.most != inf and self.order != "asc"):
            message = (
                f"`most` of a preference must be a number and needs the order `asc`; got {self.order} and {self.most!r}"
            )
            raise ValueError(message)
        parse_preference(self.expr)

    def program(self, streams: Mapping[str, Sequence[str]]) -> Program:
        """Compile for streams with their columns, the first of which is the one that is summarised.

        Slots: the estimate of each stream, the summarised column of each, then the further ones of each.
        """
        node = parse_preference(self.expr)
        slots: list[Key] = [(name, columns[0] + _MARK) for name, columns in streams.items()]
        slots += [(name, columns[0]) for name, columns in streams.items()]
        slots += [(name, column) for name, columns in streams.items() for column in columns[1:]]
        for variable in find_variables(node):
            if variable.key not in slots:
                raise _unknown(self.expr, variable.start, variable.stop, slots)
        return compile_expression(node, slots)


def parse_preference(text: str) -> Node:
    """Read a preference; mistakes are underlined in the text as it was written.

    >>> str(parse_preference("count(s1.item) * s1.price"))
    's1.item__count * s1.price'
    """
    if _MARK in text:
        place = text.index(_MARK)
        message = f"a column of a preference must not end in `{_MARK}`"
        raise ExprError(message, text, place, place + len(_MARK))
    # As long as what it stands for, so that places stay.
    marked = _COUNT.sub(lambda found: f"{found[1]}{found[2]}{_MARK}{found[3]}", text)
    try:
        return parse_number(marked)
    except ExprError as error:
        raise ExprError(error.message.replace("condition", "preference"), text, error.start, error.stop) from None


def _unknown(text: str, start: int, stop: int, slots: Sequence[Key]) -> ExprError:
    named = [(s, str(c)) for s, c in slots if not str(c).startswith(_NAMELESS)]
    known = [f"count({s}.{c.removesuffix(_MARK)})" if c.endswith(_MARK) else f"{s}.{c}" for s, c in named]
    return ExprError(f"`{text[start:stop]}` is not defined here; expected one of {', '.join(known)}", text, start, stop)


class Guide(NamedTuple):
    """A preference for kernels: the program and its scratch, the order, the fade factor, the seed of `weighted`.

    `share` is that of the summary's scheme; `sums` adds up the further attributes of each stream, with their number: an
    attribute that is not known yet counts as its mean. `found` is scratch of estimates.
    """

    ops: Int
    args: Int
    consts: Float
    stack: Float
    x: Float
    order: int
    fade: float
    most: float
    seed: int
    share: float
    sums: Float
    found: Int


def guide(preference: Preference, streams: Mapping[str, Sequence[str]], share: float, rows: int, seed: int) -> Guide:
    """Make a preference ready for kernels; streams with fewer columns than others are given some that have no name."""
    further = max(map(len, streams.values())) - 1
    program = preference.program(
        {
            name: [*columns, *(f"{_NAMELESS}{i}" for i in range(len(columns), further + 1))]
            for name, columns in streams.items()
        }
    )
    return Guide(
        program.ops,
        program.args,
        program.consts,
        program.scratch(),
        np.zeros(len(program.slots)),
        ORDERS.index(preference.order),
        preference.fade,
        float(preference.most),
        seed,
        share,
        np.zeros((len(streams), further + 1)),
        np.zeros(max(1, rows), np.int64),
    )


@inlined
def promise(guide: Guide, value: float, expected: float, grain: int, rank: int) -> float:
    """How early a region is worked on, the largest first: by its preference, expected results, granularity.

    `weighted` is a draw without replacement in which a region's chance is as its preference to what it is expected to
    give: then what comes out is in the ratio of the preference. A tuple has one draw for all its regions.
    """
    if isnan(value) or isnan(expected):
        return -inf
    faded = guide.fade**grain if guide.fade < 1.0 and grain > 0 else 1.0
    if guide.order == DESC:
        return value * faded if value > 0.0 else value / faded
    if guide.order == ASC:
        return -value / faded if value > 0.0 else -value * faded
    if value <= 0.0 or expected <= 0.0:
        return -inf
    return log(1.0 - uniform(guide.seed, rank, 0)) * expected / (value * faded)


@inlined
def prefer(guide: Guide) -> float:
    """Evaluate the preference on what stands in `x`."""
    _, _, value = run_program(guide.ops, guide.args, guide.consts, guide.stack, guide.x)
    return value
