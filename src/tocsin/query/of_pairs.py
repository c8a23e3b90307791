"""A join of two streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from sqlglot import exp

from tocsin.plan import Anytime
from tocsin.query.clauses import budget_of, check_summary, clause, layout_for, prefer_of, preference_of
from tocsin.query.declare import Summary
from tocsin.query.model import BOOLEAN, KEY, TEXT, WHOLE, Budget, JoinQuery
from tocsin.query.names import Named
from tocsin.query.outputs import outputs_of, sources_of
from tocsin.query.prefer import condition_text, expression_text, plain, plain_alias
from tocsin.query.read import Script
from tocsin.query.where import Where
from tocsin.stages.promising.choose import Load, insertion
from tocsin.stages.promising.layout import Layout
from tocsin.stages.promising.preference import Preference


def resolve_join(named: Named, summaries: Sequence[Summary], where: Where) -> JoinQuery:
    """Say what a join asks."""
    script = named.script
    if len(where.keys) != 1:
        place = where.keys[1][1] if where.keys else script.select.args.get("where") or script.select
        script.refuse(
            f"a join must have exactly one equality between columns of the two streams; got {len(where.keys)}", place
        )
    keys, equality = where.keys[0]
    for alias in named.aliases:
        plain_alias(script, alias, equality)
    _check_keys(named, keys, equality)
    pairs = list(zip(named.names, keys, strict=True))
    for one in summaries:
        if one.stream in named.names and (one.stream, one.attribute) not in pairs:
            joined = " or ".join(dict.fromkeys(f"{name}({key})" for name, key in pairs))
            script.refuse(
                f"a summary must be on the join column, {joined}; a summary of another column is not used", one.node
            )
    mine = [[one for one in summaries if (one.stream, one.attribute) == pair] for pair in pairs]
    chosen = [group[0] for group in mine if group]
    if len(chosen) > 1 and chosen[0].settings != chosen[1].settings:
        script.refuse(
            "the summaries of both streams of a join must have the same settings; these differ", chosen[1].node
        )
    outputs = outputs_of(named)
    preference, preferred = _preference(named, keys, mine)
    read = [tuple(dict.fromkeys(name for at, name in where.read if at == i)) for i in range(2)]
    more = [tuple(dict.fromkeys(name for at, name in preferred if at == i and name not in read[i])) for i in range(2)]
    budget = budget_of(script)
    return JoinQuery(
        sources_of(named, [(number, one) for number, one, _ in where.filters]),
        _layout(script, chosen[0] if chosen else None, budget),
        preference,
        budget,
        outputs,
        keys,
        condition_text(script, where.conditions, script.select.args["where"]) if where.conditions else None,
        (read[0], read[1]),
        (more[0], more[1]),
        bool(chosen),
    )


def _layout(script: Script, summary: Summary | None, budget: Budget) -> Layout:
    """How streams are summarised. Where the units of a tuple cannot even pay for its summaries there are none."""
    layout = layout_for(script, summary)
    if summary is None or "variant" in summary.settings or budget.units is None:
        return layout
    # What Eq. 1 takes off the units at least: of a tuple without results, in zones as long as can be.
    costs = Anytime(0, 0).costs(rules=1, near=0.0, results=0.0)
    least = insertion(layout, Load(budget.units, inf, 0.0, matching=0.0), costs)
    return replace(layout, variant="SHJ") if budget.units <= least else layout


def _check_keys(named: Named, keys: tuple[str, str], node: exp.Expr) -> None:
    """Refuse keys of two kinds: as texts, 1 and '01' differ, and as numbers they are equal."""
    kinds = [kind for kind in (named.kind(number, key) for number, key in enumerate(keys)) if kind is not None]
    groups = {kind.group for kind in kinds}
    if len(groups) > 1 or not groups <= {WHOLE, TEXT, BOOLEAN}:
        found = " and ".join(kind.name for kind in kinds)
        named.script.refuse(f"join columns must both be strings, integers or booleans; got {found}", node)


def _preference(
    named: Named, keys: tuple[str, str], mine: Sequence[Sequence[Summary]]
) -> tuple[Preference | None, list[tuple[int, str]]]:
    """What is preferred, and which columns of either stream that reads."""
    script, prefer, read = named.script, prefer_of(named.script), list[tuple[int, str]]()
    if prefer is None:
        if (fade := clause(script, "fade")) is not None:
            script.refuse("`FADE FACTOR` needs a PREFERENCE", fade)
        return None, read

    def column(part: exp.Column) -> str:
        number, name, text = plain(named, part)
        read.append((number, name))
        return text

    def estimate(owner: exp.Expr, part: exp.Column | None) -> str:
        number, name = _own(script, owner, keys, mine) if part is None else named.find(part)
        if name != keys[number]:
            message = f"an estimate must use the join column `{keys[number]}`; got `{name}`"
            script.refuse(message, part or owner)
        # Both streams are summarised alike, so either's summary is that of both.
        check_summary(script, owner, part, [*mine[0], *mine[1]])
        return f"count({named.aliases[number]}.{KEY})"

    text = expression_text(script, prefer.this, column, estimate)
    columns = {alias: [KEY, *(name for at, name in read if at == i)] for i, alias in enumerate(named.aliases)}
    return preference_of(script, prefer, text, columns), read


def _own(script: Script, owner: exp.Expr, keys: tuple[str, str], mine: Sequence[Sequence[Summary]]) -> tuple[int, str]:
    """The stream and the column that a summary is of."""
    owned = [i for i, group in enumerate(mine) if any(one.name.lower() == owner.name.lower() for one in group)]
    if len(owned) != 1:
        script.refuse(
            "`Count()` without a column needs a summary that only one stream of the join has; add the column", owner
        )
    return owned[0], keys[owned[0]]
