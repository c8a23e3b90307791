"""Times far off: a stream whose newest row lies years from now was perhaps read in the wrong unit; it is said once."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from tocsin.formatting import format_event_time
from tocsin.rules.rulefile import Stream
from tocsin.run_directory import Progress
from tocsin.spark.sources.row_validation import PER_UNIT

log = logging.getLogger("tocsin.run")
# Ten years. History that old is rare; seconds read as milliseconds lie in 1970.
FAR_US = 3_652 * 86_400_000_000
# A year. A time this close to 1970 is itself a sign of a wrong unit, so no hint moves times there.
_NEAR_1970_US = 365 * 86_400_000_000


def far_off(stream: Stream, newest_us: int, now_us: int) -> str:
    """Return a warning if the newest row of a stream is more than ten years from now, else an empty text.

    The warning names another unit if that unit brings the row closest to now.

    >>> from tocsin.rules.rulefile import Source
    >>> far_off(Stream("air", Source("json"), time_unit="ms"), 1_370_000_000_000, 1_790_000_000_000_000)
    'stream `air`: its newest row is at 1970-01-16T20:33:20Z, more than ten years ago; did you mean `time_unit: s`?'
    """
    if abs(newest_us - now_us) <= FAR_US:
        return ""
    number = newest_us / PER_UNIT[stream.time_unit]
    times = {unit: number * scale for unit, scale in PER_UNIT.items()}
    units = [unit for unit, time in times.items() if unit == stream.time_unit or abs(time) > _NEAR_1970_US]
    closest = min(units, key=lambda unit: abs(times[unit] - now_us))
    side = "ago" if newest_us < now_us else "from now"
    hint = "" if closest == stream.time_unit else f"; did you mean `time_unit: {closest}`?"
    return (
        f"stream `{stream.name}`: its newest row is at {format_event_time(newest_us)}, more than ten years {side}{hint}"
    )


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
