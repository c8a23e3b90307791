"""Call counts: the cost of a function in calls, which does not depend on the machine or its load."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType


def count_calls(work: Callable[[], object]) -> int:
    """Return the number of calls of Python and compiled functions during `work`."""
    calls = 0

    def count(_frame: FrameType, event: str, _of: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls
