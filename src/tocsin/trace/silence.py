"""Why a key was or was not silent: what a trace says of one NoData at one time, in words."""

from __future__ import annotations

from tocsin.formatting import format_event_time
from tocsin.plan import Silence
from tocsin.rules.durations import duration_text
from tocsin.trace import words
from tocsin.trace.answer import Answer, Reason, life_facts
from tocsin.trace.model import Life, Traced


def why_silent(traced: Traced, silence: Silence, at_us: int) -> Answer:
    """Say whether a key was silent at a time, and why."""
    lives = [life for life in traced.lives(silence) if life.covers(at_us)]
    if lives:
        return Answer("firing", (_fired(silence, lives[-1]),))
    return Answer("not firing", (_not_silent(traced, silence, at_us),))


def _fired(silence: Silence, life: Life) -> Reason:
    last_us = int(life.witness[0]["time"])
    end = "and is still open at the last row" if life.end_us is None else f"until {format_event_time(life.end_us)}"
    text = f"it fired: alert {life.id} from {format_event_time(life.start_us)} {end}"
    text += f"; the last row of `{silence.stream}` before it is at {format_event_time(last_us)}"
    return Reason("fired", f"{text}, and `for` is {duration_text(silence.for_us)}", life_facts(life))


def _not_silent(traced: Traced, silence: Silence, at_us: int) -> Reason:
    """Tell of the last row that was heard, and of what is missing to call the key silent."""
    name, wait = silence.stream, f"`for` is {duration_text(silence.for_us)}"
    times = traced.rows[name].time
    if not len(times):
        text = f"no row of `{name}` for this key: `no_data` begins with the first row of a key"
        return Reason("missing", text, {"stream": name})
    if not (times <= at_us).any():
        first = int(times.min())
        text = (
            f"the first row of `{name}` is {words.distance(at_us, first)}: `no_data` begins with the first row of a key"
        )
        return Reason("missing", text, {"stream": name, "nearest": first})
    last = int(times[times <= at_us].max())
    facts = {"stream": name, "last": last, "silent_us": at_us - last, "for_us": silence.for_us}
    text = f"the last row of `{name}` is at {format_event_time(last)}, {words.distance(at_us, last)}"
    if at_us - last <= silence.for_us:
        return Reason("row-received", f"{text}; {wait}", facts)
    front = max(int(rows.time.max()) for rows in traced.rows.values() if len(rows))
    text += f"; {wait}, but the last row of the key in any stream is at {format_event_time(front)}"
    text += ", and only rows advance event time"
    return Reason("not-passed", f"{text} here; a running query also uses its clock", facts | {"newest": front})
