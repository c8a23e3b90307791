"""The clauses behind those of SQL: what is preferred, how far back, at what cost; with the layout that follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from tocsin.errors import ExprError
from tocsin.query.declare import Summary, duration_us, layout_of
from tocsin.query.dialect import PERCENT, Prefer, Setting
from tocsin.query.model import Budget
from tocsin.query.names import literal_number
from tocsin.query.read import Script
from tocsin.stages.promising.layout import Layout
from tocsin.stages.promising.preference import Preference

# The most windows of an aggregate that are open at once; each is a query of its own.
MOST_OPEN = 1_000
# As many cores as a large machine has.
MOST_PERCENT = 100_000
# More than any tuple needs; sums of them stay exact.
MOST_UNITS = 10**15
# The most memory of the summaries of one stream, which is taken as soon as a query starts.
MOST_BYTES = 256 << 20


def clause(script: Script, name: str) -> Setting | None:
    """The clause of a name, if there is one."""
    found = script.select.args.get(f"tocsin_{name}")
    return found if isinstance(found, Setting) else None


def window_us_of(script: Script) -> int | None:
    """How far back a query looks; None: over the whole stream."""
    node = clause(script, "window")
    return None if node is None else duration_us(script, node)


def slide_us_of(script: Script) -> int | None:
    """How often a window of aggregates begins; None: where the last one ends."""
    node = slide_clause(script)
    if node is None:
        return None
    slide_us, window_us = duration_us(script, node), window_us_of(script) or 0
    if not slide_us <= window_us <= MOST_OPEN * slide_us:
        script.refuse(f"`SLIDE` must be from 1/{MOST_OPEN} of the window to the whole window", node)
    return slide_us


def slide_clause(script: Script) -> Setting | None:
    """What says how often a window begins, if anything does."""
    window = clause(script, "window")
    found = None if window is None else window.args.get("slide")
    return found if isinstance(found, Setting) else None


def fade_of(script: Script) -> float:
    """How much the past fades; 1: not at all."""
    node = clause(script, "fade")
    fade = 1.0 if node is None else float(literal_number(node.expressions[0]))
    if node is not None and not 0 < fade <= 1:
        script.refuse(f"`FADE FACTOR` must be above 0 and at most 1; got {node.expressions[0].sql()}", node)
    return fade


def budget_of(script: Script) -> Budget:
    """What a query may spend."""
    node = clause(script, "budget")
    if node is None:
        return Budget()
    number = float(literal_number(node.expressions[0]))
    if node.args["unit"] == PERCENT:
        if not 0 < number <= MOST_PERCENT:
            script.refuse(
                f"`BUDGET` must be above 0 and at most {MOST_PERCENT:,} %; got {node.expressions[0].sql()}", node
            )
        return Budget(cores=number / 100)
    if not 0 < number <= MOST_UNITS:
        script.refuse(
            f"`BUDGET` must be above 0 and at most {MOST_UNITS:,} units; got {node.expressions[0].sql()}", node
        )
    return Budget(units=number)


def prefer_of(script: Script) -> Prefer | None:
    """What is preferred, if anything is said of it."""
    found = script.select.args.get("tocsin_with")
    return found if isinstance(found, Prefer) else None


def layout_for(script: Script, summary: Summary | None) -> Layout:
    """The layout of a query; a whole stream needs a bound of memory, and is then not answered exactly."""
    window_us = window_us_of(script)
    settings = {} if summary is None else summary.settings
    if window_us is None and "memory" not in settings:
        script.refuse(
            "a query over the whole stream needs a summary WITH MEMORY n TUPLES, and its result is then not exact; "
            "add the summary or a WINDOW",
            script.select,
        )
    layout = layout_of(settings, window_us)
    if summary is not None and layout.summary_bytes > MOST_BYTES:
        script.refuse(
            f"a summary must take at most {MOST_BYTES >> 20} MB; these settings need {layout.summary_bytes >> 20:,} MB",
            summary.node,
        )
    return layout


def preference_of(script: Script, node: Prefer, text: str, streams: Mapping[str, Sequence[str]]) -> Preference:
    """Make a preference of its text; what it cannot compute is refused."""
    try:
        preference = Preference(node.args["order"].lower(), text, fade_of(script))
        preference.program(streams)
    except ExprError as error:
        script.refuse(f"invalid preference: {error.message}", node.this)
    return preference


def check_summary(script: Script, owner: exp.Expr, column: exp.Column | None, known: Sequence[Summary]) -> None:
    """Refuse an estimate by a summary that is not one of this column."""
    if owner.name.upper() == "SUMMARY" or any(owner.name.lower() == one.name.lower() for one in known):
        return
    listed = ", ".join(one.name for one in known) or "no summary is declared"
    of = "" if column is None else f" of {column.sql()}"
    script.refuse(f"`{owner.name}` must be SUMMARY or a summary{of} ({listed})", owner)
