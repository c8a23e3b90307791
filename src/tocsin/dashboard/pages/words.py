"""How pages read what runs wrote, and write numbers, lags and waits."""

from __future__ import annotations

from typing import Any, TypeGuard

from tocsin.dashboard.microbatch import MOST_NUMBER
from tocsin.rules.durations import duration_text
from tocsin.trace.words import rounded


def is_number(given: Any) -> TypeGuard[float]:
    """Tell whether something that was read is a number that can be reckoned with.

    >>> is_number(2.5), is_number(float("nan")), is_number(10**400), is_number("2")
    (True, False, False, False)
    """
    return isinstance(given, int | float) and abs(given) <= MOST_NUMBER


def objects_in(given: Any) -> list[dict[str, Any]]:
    """The objects of a list that was read; none where it is no list."""
    return [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []


def lag_text(seconds: float) -> str:
    """A lag for people; one that is below nought is a clock that runs ahead."""
    if seconds < 0:
        return f"{rounded(round(-seconds * 1e6))} ahead"
    return rounded(round(seconds * 1e6)) if seconds < 1e9 else "very long"


def lag_tick(seconds: float) -> str:
    """A lag beside an axis: two units are enough.

    >>> lag_tick(50_001.0), lag_tick(9_740_820.0), lag_tick(-0.5)
    ('13h53m', '16w', '500ms ahead')
    """
    for most, step in ((100.0, 0.001), (36_000.0, 1.0), (864_000.0, 60.0), (6_048_000.0, 3600.0)):
        if abs(seconds) < most:
            return lag_text(round(seconds / step) * step)
    return lag_text(round(seconds / 604_800) * 604_800.0)


def short_number(value: float) -> str:
    """A number beside an axis.

    >>> short_number(1500), short_number(2_500_000), short_number(0.5)
    ('1.5k', '2.5M', '0.5')
    """
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def share_text(share: float, about: str = "") -> str:
    """A share in per cent; one that is not all is never called so, and one that is something never nothing.

    >>> share_text(0.0392, "about "), share_text(0.714), share_text(0.9999), share_text(1.0), share_text(2e-7)
    ('about 3.9 %', '71.4 %', 'more than 99.9 %', '100.0 %', 'less than 0.1 %')
    """
    if 0.999 < share < 1:
        return "more than 99.9 %"
    return "less than 0.1 %" if 0 < share < 0.001 else f"{about}{100 * share:.1f} %"


def wait_text(wait_us: int) -> str:
    """How long rows wait."""
    return duration_text(wait_us) if wait_us < 1_000 else rounded(wait_us)
