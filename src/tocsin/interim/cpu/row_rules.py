"""Row rules: hundreds of rules of one stream, evaluated on candidates that a selection found; what is learnt of that.

Idea: a candidate is a rule and a row. The programs of all rules stand one behind the other, so that one call of one
kernel evaluates all candidates, whatever their rules are. Results are gathered by block and written down by call: what
rows of a rule have in common is then made once.
Guarantee: margin, truth and value are those of the rule without a budget: they come from the same program.
Cost: one evaluation per candidate; a few hundred nanoseconds per result, and what `match_alerts` takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tocsin.expr.compiler import Program, compile_expression
from tocsin.expr.stack_machine import run_program
from tocsin.expr.syntax_tree import find_variables
from tocsin.interim.cpu.row_log import RowLog
from tocsin.jit import kernel
from tocsin.operators.join.threshold_join import first_window, last_window
from tocsin.operators.lifecycle.witness import Witnesses
from tocsin.operators.matches import match_alerts
from tocsin.plan.guided import Guided
from tocsin.plan.steps import Store, Threshold, Watch
from tocsin.plan.topology import Topology
from tocsin.runtime.contract import Bools, Float, Int, Out
from tocsin.runtime.metrics import QualityLoss, quality_text
from tocsin.runtime.row_batch import Texts
from tocsin.stages.promising.hits import Hits
from tocsin.stages.promising.rule_selection import Candidates

# Places in which it is learnt how many results candidates of a cell give.
_MOST_SLOTS = 4096


class Programs(NamedTuple):
    """All rules for the kernel: where each one's instructions, constants and variables begin.

    A variable is read from a column of the row, or, where `source` is -1 - i, from the i-th limit of its key. Of each
    rule `windows` has hop, length, and whether the ends are open: of hopping windows that leave gaps no row counts that
    lies in none.
    """

    begins: Int
    ops: Int
    args: Int
    consts: Float
    source: Int
    windows: Int
    depth: int


class Found(NamedTuple):
    """Results by rule: the key by number, and what is shown of the row; `loss` applies to all."""

    rule: Int
    key: Int
    time: Int
    margin: Float
    value: Float
    values: Float
    texts: Texts
    loss: QualityLoss | None


class RowRule:
    """A rule of one stream: by what its results are written down."""

    def __init__(self, rule: Threshold, stores: Sequence[Store]) -> None:
        self.rule, self.store, self.identity = rule, stores[rule.stores[0]], rule.identity(stores)
        self.keys = [variable.key for variable in find_variables(rule.condition)]
        self.program: Program = compile_expression(rule.condition, self.keys)

    def sources(self, first: int) -> list[int]:
        """Where its variables are read, if its first limit is that one of all."""
        columns, limits = dict(self.rule.columns), [limit.variable for limit in self.rule.limits]
        return [
            -1 - first - limits.index(key) if key in limits else self.store.columns.index(columns[key])
            for key in self.keys
        ]

    def outside(self, values: Float) -> Bools:
        """Tell which rows have a value outside the domain that the rule declares for it."""
        outside = np.zeros(len(values), np.bool_)
        for _, column, low, high in self.rule.domains:
            value = values[:, self.store.columns.index(column)]
            outside |= ~((low <= value) & (value <= high))
        return outside


class RowRules:
    """All rules of a watch of one stream, what candidates gave, and results that are not yet written down."""

    def __init__(self, watch: Watch, guided: Guided) -> None:
        self.on, self.guided, self.scheme = watch.on, guided, guided.scheme
        self.rules = [RowRule(rule, watch.stores) for rule in watch.rules]
        self.limits = [limit for rule in watch.rules for limit in rule.limits]
        self.programs = _programs(self.rules)
        self.width = self.scheme.width
        # A rule that its range decides gives a result for each candidate.
        self.asks = np.flatnonzero([not one.whole for one in guided.ranges])
        self.hits = Hits(max(1, min(_MOST_SLOTS, len(self.asks) * self.width)))
        self.found, self.ready = 0, list[Found]()
        self._limits = np.zeros((len(self.limits), 0))

    def __len__(self) -> int:
        """How many rules there are."""
        return len(self.rules)

    def hit_ratios(self) -> Float:
        """How many results a candidate is to give, by rule that its range does not decide (`asks`) and bin."""
        return self.hits.ratios(np.arange(len(self.asks))[:, None] * self.width + np.arange(self.width))

    def judge(self, log: RowLog, candidates: Candidates, bins: Int, loss: QualityLoss | None) -> int:
        """Evaluate candidates, whose rows lie in these bins; gives how many are results."""
        at, rows = log.at(candidates.row), log.rows
        true, margin, value = evaluate_rows(
            candidates.query,
            at,
            rows.time,
            np.ascontiguousarray(rows.values),
            rows.key,
            self._limits_of(log),
            self.programs,
        )
        asked = np.isin(candidates.query, self.asks)
        cells = np.searchsorted(self.asks, candidates.query[asked]) * self.width + bins[asked]
        self.hits.learn(cells, true[asked].astype(np.float64), int(asked.sum()))
        mine = np.flatnonzero(true)
        self.found += len(mine)
        if len(mine):
            at = at[mine]
            shown = rows.key[at], rows.time[at], margin[mine], value[mine], rows.values[at], log.texts(at)
            self.ready.append(Found(candidates.query[mine], *shown, loss))
        return len(mine)

    def _limits_of(self, log: RowLog) -> Float:
        """The limits of all keys of a log, which numbers them anew when it forgets some."""
        known = self._limits.shape[1]
        if self.limits and known < len(log.keys):
            fresh = np.array([limit.of(log.keys[known:]) for limit in self.limits])
            self._limits = np.concatenate([self._limits, fresh], axis=1)
        return self._limits

    def forget_keys(self) -> None:
        """Know no limits of keys that were numbered anew."""
        self._limits = np.zeros((len(self.limits), 0))

    def write(self, log: RowLog, out: Out) -> None:
        """Write down all results since the last time, rule by rule in the order in which they were found."""
        ready, self.ready = self.ready, []
        if not ready:
            return
        rule, key, time, margin, value, values, texts = (
            np.concatenate([getattr(one, name) for one in ready]) for name in Found._fields[:-1]
        )
        losses = np.repeat(np.array([one.loss for one in ready], object), [len(one.rule) for one in ready])
        order = np.argsort(rule, kind="stable")
        cuts = np.flatnonzero(np.diff(rule[order])) + 1
        for at in np.split(order, cuts):
            one, width = self.rules[int(rule[at[0]])], len(self.rules[int(rule[at[0]])].store.columns)
            shown = Witnesses(
                at, time[at], margin[at], np.ones(len(at), np.int64), value[at], time[at][:, None],
                np.ascontiguousarray(values[at, :width]), texts[at][:, None],
            )  # fmt: skip
            marked = zip(losses[at].tolist(), one.outside(values[at]).tolist(), strict=True)
            qualities = [quality_text(loss, is_out_of_domain=odd) for loss, odd in marked]
            out.alerts.append(match_alerts(one.identity, self.on, log.keys, key[at], shown, qualities))


def _programs(rules: Sequence[RowRule]) -> Programs:
    """The programs of rules one behind the other."""
    begins, source, limits = [(0, 0, 0)], list[int](), 0
    for one in rules:
        source += one.sources(limits)
        limits += len(one.rule.limits)
        ops, consts, read = begins[-1]
        begins.append((ops + len(one.program.ops), consts + len(one.program.consts), read + len(one.keys)))
    return Programs(
        np.array(begins, np.int64),
        np.concatenate([one.program.ops for one in rules]),
        np.concatenate([one.program.args for one in rules]),
        np.concatenate([one.program.consts for one in rules]),
        np.array(source, np.int64),
        np.array([_windows(one.rule.topology) for one in rules], np.int64),
        max(one.program.stack for one in rules),
    )


def _windows(topology: Topology) -> tuple[int, int, bool, bool]:
    closed = topology.closed
    return topology.hop_us, topology.window_us, closed in {"neither", "right"}, closed in {"neither", "left"}


@kernel
def evaluate_rows(
    rule: Int, row: Int, time: Int, values: Float, key: Int, limits: Float, programs: Programs
) -> tuple[Bools, Float, Float]:
    """Tell which candidates, a rule and a row each, are true, with margin and value."""
    begins, ops, args, consts, source, windows, depth = programs
    count = rule.shape[0]
    true, margin, value = np.zeros(count, np.bool_), np.empty(count), np.empty(count)
    x, stack = np.empty(source.shape[0] + 1), np.empty(depth + 1)
    for i in range(count):
        r, at = rule[i], row[i]
        hop, length, open_left, open_right = windows[r]
        if hop and first_window(time[at], hop, length, open_right) > last_window(time[at], hop, open_left):
            continue
        first, end = begins[r, 2], begins[r + 1, 2]
        for slot in range(first, end):
            read = source[slot]
            x[slot - first] = values[at, read] if read >= 0 else limits[-1 - read, key[at]]
        mine, own = slice(begins[r, 0], begins[r + 1, 0]), consts[begins[r, 1] : begins[r + 1, 1]]
        margin[i], true[i], value[i] = run_program(ops[mine], args[mine], own, stack, x)
    return true, margin, value
