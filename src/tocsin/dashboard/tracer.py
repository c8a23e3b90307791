"""Why an alert fired, out of the rows that its run archived: a process of its own, asked and answering in JSON.

`range_progress.py` and `margin_line.py` answer there, too: how far requests of ranges have come, and the margin of a
key over time.

Idea: the rows of one key go through the run's own plan (`tocsin.trace`), so the answer is the engine's; the archive has
times and numbers as the engine read them, so nothing is converted anew. A process apart keeps kernels and large tables
out of the server, ends by itself, and may fail alone.
Guarantee: the rule file must be the very one that runs, by its hash, else nothing is traced.
Cost: some seconds; at most the rows and files per stream that `archive.py` reads.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tocsin.formatting import format_duration
from tocsin.jit import use_interpreted_kernels

if TYPE_CHECKING:
    from tocsin.plan import Plan, Silence, Threshold, Watch
    from tocsin.report import Pick
    from tocsin.rules.rulefile import RuleFile
    from tocsin.trace import KeyRows, Life, Traced

MOST_SECONDS, MOST_WAITING = 120, 8
_MOST_LOGGED = 4000
_MOST_SAID = 12

log = logging.getLogger("tocsin.dashboard")

Asked = Mapping[str, Any]
Answer = dict[str, Any]


class Tracer:
    """Asks the process, one question at a time; answers are kept.

    Few may wait: each that waits holds a thread of the server, which has few, and pages need them.
    """

    def __init__(self, most: int = 64) -> None:
        self._one_at_a_time, self._known, self._most = threading.Lock(), dict[str, Answer](), most
        self._places = threading.BoundedSemaphore(MOST_WAITING)

    def ask(self, asked: Asked) -> Answer:
        """Give the answer to a question; what goes wrong is a sentence under `error`, and is asked again."""
        name = json.dumps(asked, sort_keys=True)
        known = self._known.get(name)
        if known is not None:
            return known
        if not self._places.acquire(blocking=False):
            return {"error": "too many requests at once; reload the page in a moment"}
        try:
            with self._one_at_a_time:
                return self._answer(name)
        finally:
            self._places.release()

    def _answer(self, name: str) -> Answer:
        answer = self._known.get(name) or _asked(name)
        if "error" not in answer:
            self._known[name] = answer
            while len(self._known) > self._most:
                del self._known[next(iter(self._known))]
        return answer


def _asked(question: str) -> Answer:
    try:
        done = subprocess.run(
            # Without -P it would import what lies in the folder that this was started in.
            [sys.executable, "-P", "-m", "tocsin.dashboard.tracer"],
            input=question.encode("utf-8", "surrogatepass"),
            capture_output=True,
            check=False,
            timeout=MOST_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"tracing took more than {format_duration(MOST_SECONDS * 1_000_000)}"}
    except OSError as error:
        log.warning("tracing could not be started: %s", error)
        return {"error": "tracing failed; see the log of the dashboard"}
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        answer = None
    if isinstance(answer, dict):
        return answer
    said = done.stderr[-_MOST_LOGGED:].decode("utf-8", "replace").strip()
    log.warning("tracing failed with exit code %d: %s", done.returncode, said)
    return {"error": "tracing failed; see the log of the dashboard"}


class CannotTraceError(Exception):
    """Nothing can be traced; the sentence says why."""


def main() -> None:
    """Answer one question: read from standard input, write to standard output."""
    # The module that others import is another than the one that runs as a process.
    from tocsin.dashboard.tracer import CannotTraceError, answered
    from tocsin.errors import TocsinError

    try:
        answer = answered(json.load(sys.stdin))
    except (CannotTraceError, TocsinError) as error:
        answer = {"error": str(error)}
    sys.stdout.write(json.dumps(answer))


def answered(asked: Asked) -> Answer:
    """Answer a question about an alert, about requests of a range, or about the margin of a key."""
    if asked["kind"] in ("request", "alive"):
        from tocsin.dashboard.range_progress import alive_now, progress_of

        return progress_of(asked) if asked["kind"] == "request" else alive_now(asked)
    if asked["kind"] == "margin":
        from tocsin.dashboard.margin_line import margin_lines

        return margin_lines(asked)
    return traced(asked)


def traced(asked: Asked) -> Answer:
    """Trace the key of an alert around it: a drawing, and why in sentences."""
    from tocsin.dashboard.charts.picture import column_units, picture
    from tocsin.plan import Threshold, plan_file
    from tocsin.report.choose import pick_of
    from tocsin.report.result import Result
    from tocsin.trace import why_silent

    file = rule_file(asked)
    life = _life(asked)
    plan = plan_file(file)
    watch, rule = _rule_of(plan, life)
    key = [life.labels[column] for column in watch.on]
    newest = max(life.start_us, asked["newest_us"] or life.start_us)
    whole = Result("", plan, (), (), (life,), oldest_us=None, newest_us=newest)
    last_us = newest if life.end_us is None else life.end_us
    if not isinstance(rule, Threshold):
        pad = 2 * rule.for_us + watch.horizon_us
        rows = rows_of(asked, file, watch, key, (life.start_us - pad, min(newest, last_us + pad)))
        answer = why_silent(trace_rows(watch, key, rows), rule, last_us)
        return {"svg": "", "said": [[one.kind, one.text] for one in answer.reasons]}
    pick = _whole_span(pick_of(watch, rule, life, "", whole), asked)
    rows = rows_of(asked, file, watch, key, (pick.read_from_us, pick.to_us))
    with use_interpreted_kernels(_samples(rows)):
        found = trace_rows(watch, key, rows)
        drawn = picture(found, pick, whole.end_of(life), column_units(file))
        return {"svg": str(drawn), "said": _said(found, rule, life, last_us)}


def _said(found: Traced, rule: Threshold, life: Life, last_us: int) -> list[list[str]]:
    """What became of the alert, by its end; and of the rows around its largest margin, which say most."""
    from tocsin.trace import why

    peak_us = max((part["time"] for part in life.witness), default=life.start_us)
    reasons = list(why(found, rule, last_us, is_late=life.is_late).reasons[:1])
    around = why(found, rule, peak_us if life.covers(peak_us) else life.start_us).reasons
    reasons += [one for one in around if one.kind not in {"fired", "pending"}]
    return [[one.kind, one.text] for one in reasons[:_MOST_SAID]]


def _whole_span(pick: Pick, asked: Asked) -> Pick:
    """Where an alert is in the future of its first row, nothing is cut off before it."""
    from dataclasses import replace

    pad = max(300_000_000, 5 * pick.rule.topology.span_us, 2 * pick.rule.lag_us)
    return replace(pick, from_us=min(pick.from_us, pick.life.start_us - pad))


def rule_file(asked: Asked) -> RuleFile:
    """The rule file of a run; one that was changed since is refused."""
    from tocsin.plan import plan_rules
    from tocsin.rules.load import load_rule_file
    from tocsin.run_directory.manifest import hash_rule_file

    path = Path(asked["rule_file"])
    try:
        found = hash_rule_file(path)
    except OSError as error:
        message = f"cannot read the rule file {path}: {(error.strerror or str(error)).lower()}"
        raise CannotTraceError(message) from None
    if found != asked["rule_hash"]:
        message = f"the rule file {path} has changed since the run started"
        raise CannotTraceError(message)
    # Sinks are not made: nothing is sent from here.
    return load_rule_file(path, partial(plan_rules, bounded=False), os.environ)


def _life(asked: Asked) -> Life:
    from tocsin.trace.model import Life

    late = {"is_late": bool(asked["late"]), "has_fired": True}
    ends = (asked["start_us"], asked["fires_us"], asked["end_us"])
    numbers = (asked["value"] or 0.0, asked["margin"] or 0.0)
    return Life(asked["alert"], asked["id"], "", asked["labels"], *ends, *numbers, tuple(asked["witness"]), **late)


def _rule_of(plan: Plan, life: Life) -> tuple[Watch, Threshold | Silence]:
    from tocsin.trace.model import is_of

    for watch in plan.watches:
        steps: tuple[Threshold | Silence, ...] = (*watch.rules, *watch.silences)
        for rule in steps:
            if is_of(watch, rule, life.alert, life.labels):
                return watch, rule
    message = "rules with ranges cannot be traced; `tocsin ranges progress` shows one request"
    raise CannotTraceError(message)


def trace_rows(watch: Watch, key: Sequence[str], rows: Mapping[str, KeyRows]) -> Traced:
    """Take the rows of a key through its watch."""
    from tocsin.trace import trace

    with use_interpreted_kernels(_samples(rows)):
        return trace(watch, list(key), rows)


def _samples(rows: Mapping[str, KeyRows]) -> int:
    return sum(len(one.time) for one in rows.values())


def rows_of(
    asked: Asked, file: RuleFile, watch: Watch, key: Sequence[str], span: tuple[int, int]
) -> dict[str, KeyRows]:
    """Rows of one key in a span of event time, by stream."""
    from tocsin.dashboard.archive import (
        PAYLOAD,
        between,
        files_around,
        files_of,
        of_key,
        payloads_of,
        read_rows,
        times_of,
        values_of,
    )
    from tocsin.trace import KeyRows

    found = {}
    for name in watch.streams:
        stream, mine = file.streams[name], of_key(watch.on, key)
        files = files_around(files_of(asked, name), tuple(asked["batches"]), span, stream)
        wanted = between(stream, span) if mine is None else between(stream, span) & mine
        table = read_rows(files, stream, watch.columns(name), wanted)
        payload = payloads_of(table) if PAYLOAD in table.column_names else None
        found[name] = KeyRows(*times_of(table, stream), values_of(table, watch.columns(name)), payload)
    if not any(len(rows) for rows in found.values()):
        message = "the archive has no rows of this key in this period"
        raise CannotTraceError(message)
    return found


if __name__ == "__main__":
    main()
