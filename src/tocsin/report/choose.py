"""Selection of alerts for drawings: the first, the longest and the one with the largest margin of each rule."""

from __future__ import annotations

from dataclasses import dataclass

from tocsin.plan import Threshold, Watch
from tocsin.report.result import Result
from tocsin.trace.model import Life

MOST_PICTURES = 12
# Minimum time before and after an alert in its drawing.
_LEAST_US = 300_000_000


@dataclass(frozen=True)
class Pick:
    """Selected alert: the reason, and the first and the last time of its drawing."""

    life: Life
    watch: Watch
    rule: Threshold
    why: str
    from_us: int
    to_us: int

    @property
    def key(self) -> tuple[str, ...]:
        """Key of the alert, in the order of the key columns."""
        return tuple(self.life.labels[column] for column in self.watch.on)

    @property
    def read_from_us(self) -> int:
        """Time of the oldest row that affects the drawing. Older rows have expired when it starts."""
        return self.from_us - self.watch.horizon_us - 2 * self.rule.lag_us


def choose(result: Result, most: int = MOST_PICTURES) -> list[Pick]:
    """Return at most `most` alerts by rule. Rules with many alerts have priority."""
    rules = [
        (watch, rule, [life for life in lives if life.has_fired])
        for watch, rule, lives in result.by_rule
        if isinstance(rule, Threshold) and isinstance(watch, Watch)
    ]
    places = sorted(range(len(rules)), key=lambda place: (-len(rules[place][2]), place))
    ranked = [(place, life, why) for place in places for life, why in _of_rule(rules[place][2], result)][:most]
    ranked.sort(key=lambda one: one[0])
    return [pick_of(*rules[place][:2], life, why, result) for place, life, why in ranked]


def _of_rule(lives: list[Life], result: Result) -> list[tuple[Life, str]]:
    if not lives:
        return []
    found: dict[int, tuple[Life, list[str]]] = {}
    for why, life in (
        ("largest margin", max(lives, key=lambda life: life.margin)),
        ("longest", max(lives, key=lambda life: result.end_of(life) - life.start_us)),
        ("first", min(lives, key=lambda life: life.start_us)),
    ):
        found.setdefault(id(life), (life, []))[1].append(why)
    return [(life, ", ".join(reasons)) for life, reasons in found.values()]


def pick_of(watch: Watch, rule: Threshold, life: Life, why: str, result: Result) -> Pick:
    """Return a selected alert with time before and after it, within the times of the rows."""
    end = result.end_of(life)
    pad = max((end - life.start_us) // 2, 5 * rule.topology.span_us, 2 * rule.lag_us, _LEAST_US)
    first = life.start_us if result.oldest_us is None else min(result.oldest_us, life.start_us)
    last = end if result.newest_us is None else max(result.newest_us, end)
    return Pick(life, watch, rule, why, max(life.start_us - pad, first), min(end + pad, last + 1))
