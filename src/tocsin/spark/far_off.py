"""Times far off: a stream whose newest row lies years from now was perhaps read in the wrong unit; it is said once."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from tocsin.rules.rulefile import Stream
from tocsin.rundir import Progress
from tocsin.spark.usable import PER_UNIT
from tocsin.trace.words import date

log = logging.getLogger("tocsin.run")
# Ten years. History that old is rare; seconds read as milliseconds lie in 1970.
FAR_US = 3_652 * 86_400_000_000


def far_off(stream: Stream, newest_us: int, now_us: int) -> str:
    """Say that the newest row of a stream lies far from now, and which unit would bring it near; nothing if it is near.

    >>> from tocsin.rules.rulefile import Source
    >>> far_off(Stream("air", Source("json"), time_unit="ms"), 1_790_000_000_000, 1_790_000_000_000_000)
    'stream `air`: its newest row is at 1970-01-21T17:13:20Z, more than ten years from now; is `time_unit: s` meant?'
    """
    if abs(newest_us - now_us) <= FAR_US:
        return ""
    number = newest_us / PER_UNIT[stream.time_unit]
    near = [unit for unit, scale in PER_UNIT.items() if abs(number * scale - now_us) <= FAR_US]
    hint = f"; is `time_unit: {near[0]}` meant?" if near else ""
    return f"stream `{stream.name}`: its newest row is at {date(newest_us)}, more than ten years from now{hint}"


class Warner:
    """Warns of each stream once."""

    def __init__(self, streams: Mapping[str, Stream]) -> None:
        self._left = dict(streams)

    def note(self, progress: Progress) -> None:
        """Learn the newest event time of streams."""
        for name in self._left.keys() & progress.newest_us.keys():
            text = far_off(self._left.pop(name), progress.newest_us[name], round(progress.seconds * 1e6))
            if text:
                log.warning("%s", text)
