"""CREATE SUMMARY as settings of a `Layout`: each is checked by itself, with its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from sqlglot import exp

from tocsin.query.dialect import UNITS, CreateSummary, Setting
from tocsin.query.names import Streams, literal_number
from tocsin.query.read import Script
from tocsin.rules.durations import MOST_US
from tocsin.stages.promising.count_sketch import CountSketch
from tocsin.stages.promising.exact_counter import ExactCounter
from tocsin.stages.promising.histogram import Histogram
from tocsin.stages.promising.layout import VARIANTS, Layout

# The largest summary that one statement may ask for, in places of one table, and the most of all else that is counted.
MOST_PLACES, MOST = 1 << 20, 10_000
_SCHEMES = ("SKETCH", "HISTOGRAM", "EXACT")


@dataclass(frozen=True)
class Summary:
    """A summary as it was declared."""

    name: str
    stream: str
    attribute: str
    settings: Mapping[str, Any]
    node: CreateSummary


def layout_of(settings: Mapping[str, Any], window_us: int | None) -> Layout:
    """Bring declared settings and the window of a query together; the newest granularity is as long, unless said."""
    length = {"granularity_us": window_us} if window_us else {}
    return Layout(**{**length, **settings, "window_us": window_us})


def declared(script: Script, streams: Streams) -> list[Summary]:
    """Read all summaries of a script."""
    found: list[Summary] = []
    for node in script.summaries:
        name = node.this.name
        if name.upper() == "SUMMARY" or any(name.lower() == other.name.lower() for other in found):
            script.refuse(f"names of summaries must be unique and not SUMMARY; got `{name}`", node.this)
        stream = streams.stream(script, node.args["stream"])
        attribute = streams.column_of(script, stream, node.args["attribute"])
        found.append(Summary(name, stream, attribute, _settings(script, node), node))
    return found


def _settings(script: Script, node: CreateSummary) -> dict[str, Any]:
    found: dict[str, Any] = {}
    seen: list[str] = []
    for setting in node.args.get("settings") or []:
        word = setting.this
        if word in seen:
            script.refuse(f"`{word}` must be set once; this is the second time", setting)
        if word in _SCHEMES and any(other in seen for other in _SCHEMES):
            script.refuse(f"a summary must have only one of {', '.join(_SCHEMES)}; this is the second", setting)
        seen.append(word)
        found |= READERS[word](script, setting)
    return found


def duration_us(script: Script, node: Setting) -> int:
    """Read a number and its unit of time as whole microseconds."""
    number = node.expressions[0]
    # A double first: as a fraction, a number such as 1e999999999 would take all memory.
    near = literal_number(number) * UNITS[node.args["unit"]]
    micros = Fraction(number.this) * UNITS[node.args["unit"]] if 1 <= near <= MOST_US + 1 else Fraction(-1)
    if micros.denominator != 1 or not 1 <= micros <= MOST_US:
        script.refuse(
            f"`{node.this}` must be an integer number of microseconds, from 1 to 3,000 years; "
            f"got {node.expressions[0].sql()} {node.args['unit']}",
            node,
        )
    return int(micros)


def _whole(script: Script, node: exp.Expr, word: str, most: int = MOST) -> int:
    number = literal_number(node)
    if not isinstance(number, int) or not 1 <= number <= most:
        script.refuse(f"`{word}` must be an integer from 1 to {most:,}; got {node.sql()}", node)
    return number


def _listed(script: Script, node: Setting, names: tuple[str, ...]) -> list[exp.Expr]:
    if len(node.expressions) != len(names):
        script.refuse(f"`{node.this}` must have {len(names)} numbers: {', '.join(names)}", node)
    return list(node.expressions)


def _collapse(script: Script, node: Setting) -> dict[str, Any]:
    rate, depth = _listed(script, node, ("rate", "depth"))
    return {"rate": _whole(script, rate, "rate", 1000), "depth": _whole(script, depth, "depth", 30)}


def _sketch(script: Script, node: Setting) -> dict[str, Any]:
    names = ("rows", "width")
    rows, width = (_whole(script, one, name) for one, name in zip(_listed(script, node, names), names, strict=True))
    return {"scheme": _scheme(script, node, lambda: CountSketch(rows, width))}


def _histogram(script: Script, node: Setting) -> dict[str, Any]:
    low, high, bins = _listed(script, node, ("low", "high", "bins"))
    ends = float(literal_number(low)), float(literal_number(high))
    number = _whole(script, bins, "bins", MOST_PLACES)
    return {"scheme": _scheme(script, node, lambda: Histogram(*ends, number))}


def _scheme(script: Script, node: Setting, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except ValueError as error:
        script.refuse(str(error), node)


def _theta(script: Script, node: Setting) -> dict[str, Any]:
    theta = float(literal_number(node.expressions[0]))
    if not 0 <= theta <= 1:
        script.refuse(f"`THETA` is a confidence: it must be from 0 to 1; got {theta:g}", node)
    return {"theta": theta}


def _variant(script: Script, node: Setting) -> dict[str, Any]:
    variant = node.expressions[0].name.upper()
    if variant not in VARIANTS:
        script.refuse(f"`VARIANT` must be one of {', '.join(VARIANTS)}; got `{variant}`", node)
    return {"variant": variant}


READERS: Mapping[str, Callable[[Script, Setting], dict[str, Any]]] = {
    "GRANULARITY": lambda script, node: {"granularity_us": duration_us(script, node)},
    "COLLAPSE": _collapse,
    "BUCKETS": lambda script, node: {"buckets": _whole(script, node.expressions[0], "BUCKETS")},
    "ZONES": lambda script, node: {"zones": _whole(script, node.expressions[0], "ZONES")},
    "SKETCH": _sketch,
    "HISTOGRAM": _histogram,
    "EXACT": lambda _script, _node: {"scheme": ExactCounter()},
    "THETA": _theta,
    "MAXLENGTH": lambda script, node: {"max_length_us": duration_us(script, node)},
    "VARIANT": _variant,
    "MEMORY": lambda script, node: {"memory": _whole(script, node.expressions[0], "MEMORY", 10**9)},
}
