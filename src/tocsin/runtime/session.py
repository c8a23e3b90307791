"""Session: execution of one plan over rows and time, the only entry for engines, tests, `tocsin test` and traces.

An engine creates a session from a plan and the state pages of an earlier session. It pushes rows, reports processing
time and stores the pages that changed. It needs no other part of the plan.

Guarantees:
    - A call returns a complete `Out`, or raises an error. After an error from `push`, `advance`, `control` or `end`
      the session must be discarded: the stored pages remain valid.
    - A session that continues from stored pages returns the same rows as a session without interruption.
    - Rows, control rows and pages are checked here, before a pipeline reads them.
    - The batch boundaries of `push` do not change the alerts (tests/laws/test_laws.py).

Complexity: each call costs its rows, and one check of each key number.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tocsin.errors import RunError
from tocsin.runtime.contract import Batch, Listener, Out, Step
from tocsin.runtime.state_codec import check_version


class Session:
    """Execution of one plan over rows and time. Not thread-safe.

    Attributes
    ----------
        pipelines: Pipelines of the plan in processing order. Only tests of a pipeline read them.
    """

    def __init__(self, plan: Step, pages: Mapping[str, bytes] = {}, listener: Listener | None = None) -> None:
        """Continue from `pages`, or begin without state.

        `listener` receives row outcomes and evaluations. It identifies rows by their positions in one push. A session
        with a listener therefore begins without state and accepts one push.
        """
        if listener is not None and pages:
            message = f"`pages` must be empty if there is a listener; got {len(pages)} pages"
            raise RunError(message)
        for name, page in pages.items():
            check_version(page, name)
        self._plan = plan
        self.pipelines = tuple(plan.build_pipelines(pages, listener))
        self._inputs: dict[tuple[int, str], set[str]] = {}
        for pipeline in self.pipelines:
            for place, columns in pipeline.inputs.items():
                self._inputs.setdefault(place, set()).update(columns)
        self._has_listener, self._pushed, self._ended = listener is not None, False, False

    def push(self, batches: Sequence[Batch], now_us: int | None = None) -> Out:
        """Process the rows of one call.

        Parameters
        ----------
        batches
            Rows of any inputs of the plan, in any order. `arrival` orders the rows of all batches of this call.
            The session keeps no reference to the arrays.
        now_us
            Processing time in microseconds, or None if the caller has no clock.
        """
        self._check_open("push")
        if self._has_listener and self._pushed:
            message = "`Session.push` must be called once if there is a listener; push all rows in one call"
            raise RunError(message)
        self._pushed = True
        for number, batch in enumerate(batches):
            self._check_batch(number, batch)
        out = Out()
        with _paused_garbage_collection():
            for pipeline in self.pipelines:
                mine = [batch for batch in batches if (batch.key_set, batch.stream) in pipeline.inputs]
                pipeline.on_data(mine, now_us, out)
        return out

    def advance(self, now_us: int) -> Out:
        """Report that processing time has reached `now_us` without rows."""
        self._check_open("advance")
        out = Out()
        for pipeline in self.pipelines:
            pipeline.on_time(now_us, out)
        return out

    def control(self, rows: Sequence[Mapping[str, Any]]) -> Out:
        """Apply control rows of the coordinator.

        All rows are checked before the first row is applied. A row for a pipeline that the plan does not have changes
        nothing, because a coordinator can send it before it learns of a new plan.
        """
        self._check_open("control")
        messages = [self._plan.read_control(row) for row in rows]
        out = Out()
        for message in messages:
            for pipeline in self.pipelines:
                pipeline.on_control(message, out)
        return out

    def end(self) -> Out:
        """Process everything that waits, because a bounded input has ended. No other input may follow."""
        self._check_open("end")
        out = Out()
        for pipeline in self.pipelines:
            pipeline.on_end(out)
        self._ended = True
        return out

    def next_timer(self) -> int | None:
        """Return the processing time of the next necessary call of `advance`, or None. Rows can change it."""
        if self._ended:
            return None
        timers = (pipeline.next_timer() for pipeline in self.pipelines)
        return min((timer for timer in timers if timer is not None), default=None)

    def changed_pages(self) -> dict[str, bytes | None]:
        """Return the pages that changed since the last call of this method. None marks a removed page."""
        changed: dict[str, bytes | None] = {}
        for pipeline in self.pipelines:
            changed |= pipeline.changed_pages()
        return changed

    def _check_open(self, call: str) -> None:
        if self._ended:
            message = f"`Session.{call}` must be called before `Session.end`; create a session from the stored pages"
            raise RunError(message)

    def _check_batch(self, number: int, batch: Batch) -> None:
        """Raise an error if a batch is not rows of an input of the plan. A wrong key number would be another key."""
        place = f"batch {number}, key set {batch.key_set}, stream `{batch.stream}`"
        columns = self._inputs.get((batch.key_set, batch.stream))
        if columns is None:
            known = ", ".join(f"{key_set}/{stream}" for key_set, stream in sorted(self._inputs)) or "no input"
            message = f"{place}: the batch must be of an input of the plan; the plan reads {known}"
            raise RunError(message)
        missing = sorted(columns - batch.values.keys())
        if missing:
            message = f"{place}: `values` must have every column that the plan reads; add {', '.join(missing)}"
            raise RunError(message)
        count = len(batch.time)
        arrays = {"key": batch.key, "time": batch.time, "arrival": batch.arrival}
        for name, array in (arrays | {f"values[{column!r}]": batch.values[column] for column in columns}).items():
            kind = np.int64 if name in arrays else np.float64
            if array.dtype != kind or array.shape != (count,):
                found = f"{array.dtype} of shape {array.shape}"
                message = f"{place}: `{name}` must be {count} numbers of type {np.dtype(kind)}; got {found}"
                raise RunError(message)
        if count and not (0 <= int(batch.key.min()) and int(batch.key.max()) < len(batch.keys)):
            message = (
                f"{place}: `key` must number the {len(batch.keys)} keys from 0; "
                f"got {batch.key.min()} to {batch.key.max()}"
            )
            raise RunError(message)


def store_pages(pages: dict[str, bytes], changed: Mapping[str, bytes | None]) -> None:
    """Update stored pages with the pages that `Session.changed_pages` returned."""
    for name, page in changed.items():
        if page is None:
            pages.pop(name, None)
        else:
            pages[name] = page


@contextmanager
def _paused_garbage_collection() -> Iterator[None]:
    """Pause the cycle collector: rows have no cycles, and each collection would traverse all rows of the call again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
