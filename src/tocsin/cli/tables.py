"""Tables and summary lines: the results of runs and backtests as text, and backtests as JSON.

`tocsin run` and `tocsin backtest` end with one line of notes about rows that a user may expect in the results.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tocsin.errors import printable
from tocsin.formatting import format_count, format_duration, format_event_time, format_labels, format_share, format_size

if TYPE_CHECKING:
    from tocsin.report import Difference, Limited, Result, RuleSummary
    from tocsin.report.recall import Recall
    from tocsin.trace.model import Life

# Rows of a list that a table shows.
_MOST = 20
FULL_JOIN_COLUMN = "full join retains"
_LATE = "dropped as late (beyond `allowed_lateness`)"
# Row outcomes that a summary mentions, in this order.
_OUTCOME_NOTES = {
    "out_of_domain": "outside the domain",
    "without_limits": "without a row in a limits table",
    "behind": "evaluated out of order (delayed longer than the reorder wait)",
    "shed": "evicted because the memory budget was exceeded",
    "unprocessed": "evicted before they were fully processed (CPU budget too small)",
    "held": "in the reorder buffer; the next run continues with them",
}


def unusable_lines(streams: Iterable[str], reasons: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Return a line for each stream without a valid row; `reasons` are streams and reasons, the most frequent first.

    >>> list(unusable_lines(["air"], [("oil", "no"), ("air", "time `ts` is missing"), ("air", "no")]))
    ['stream `air` has no valid row (time `ts` is missing; and other reasons)']
    >>> list(unusable_lines(["air"], []))
    ['stream `air` has no valid row']
    """
    for stream in streams:
        mine = [reason for name, reason in reasons if name == stream]
        more = "; and other reasons" if len(mine) > 1 else ""
        yield printable(f"stream `{stream}` has no valid row{f' ({mine[0]}{more})' if mine else ''}")


def unreadable_lines(files: Mapping[str, int]) -> Iterator[str]:
    """Return a line for each stream with damaged files.

    >>> list(unreadable_lines({"air": 2}))
    ['2 files of `air` skipped from the damaged place on']
    """
    for stream, number in files.items():
        yield f"{format_count(number, 'file')} of `{stream}` skipped from the damaged place on"


def summary_notes(
    invalid: int, reasons: Sequence[tuple[str, str]], counts: Mapping[str, Mapping[str, int]], late: str = _LATE
) -> Iterator[str]:
    """Yield notes on rows that were not used, or used under a restriction.

    `reasons` has the streams and reasons of invalid rows, the most frequent first. `counts` has the row outcomes of
    each stream. `late` describes late rows.

    >>> list(summary_notes(0, [], {"air": {"received": 5, "late": 2}}))
    ['2 rows of `air` dropped as late (beyond `allowed_lateness`)']
    """
    if invalid:
        stream, reason = reasons[0] if reasons else ("", "")
        more = "; and other reasons" if len(reasons) > 1 else ""
        why = f" (stream `{stream}`: {reason}{more})" if reasons else ""
        yield f"{format_count(invalid, 'invalid row')}{printable(why)}"
    for outcome, note in {"late": late, **_OUTCOME_NOTES}.items():
        for stream, numbers in counts.items():
            if numbers.get(outcome):
                yield f"{format_count(numbers[outcome], 'row')} of `{stream}` {note}"


def cpu_notes(shares: Mapping[str, Mapping[str, float | None]]) -> Iterator[str]:
    """Yield a note for each alert that the CPU budget keeps from a complete result.

    `shares` has the share of processed rows (`rows`) and the share of results found (`results`) by alert.

    >>> list(cpu_notes({"Near": {"rows": 0.5, "results": 0.714}, "Far": {"rows": 1.0, "results": 1.0}}))
    ['`Near` processed 50% of its rows and found about 71.4% of its results recently']
    >>> list(cpu_notes({"Near": {"rows": 0.9986, "results": 1.0}}))
    ['`Near` processed 99.9% of its rows and found about 100% of its results recently']
    """
    for alert, share in shares.items():
        rows, results = share.get("rows"), share.get("results")
        if (rows is not None and rows < 1) or (results is not None and results < 1):
            yield f"`{alert}` {cpu_text(rows, results)}"


def memory_notes(memory: Mapping[str, Mapping[str, float | None]]) -> Iterator[str]:
    """Yield a note for each alert whose recall under its memory budget is known.

    >>> list(memory_notes({"Near": {"reached": 0.061}, "New": {"reached": None}}))
    ['`Near` found about 6.1% of its results within its memory budget recently']
    >>> list(memory_notes({"Far": {"reached": 1.0}}))
    ['`Far` found about 100% of its results within its memory budget recently']
    """
    for alert, found in memory.items():
        reached = found.get("reached")
        if reached is not None:
            share = format_share(reached, "about ")
            yield f"`{alert}` found {share} of its results within its memory budget recently"


def cpu_text(rows: float | None, results: float | None) -> str:
    """Return the text for the shares of rows processed and of results found within a CPU budget."""
    processed = "an unknown share" if rows is None else format_share(rows)
    found = "an unknown share" if results is None else format_share(results, "about ")
    return f"processed {processed} of its rows and found {found} of its results recently"


def lines_of(results: Sequence[Result], difference: Difference | None, summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a backtest: tables of all versions, their difference, and notes."""
    for result in results:
        yield from _result(result)
        yield ""
    if difference is not None:
        yield from _difference(results, difference)
        yield ""
    yield from _invalid_rows(results[0])
    if "available_range" in summary:
        oldest, newest = (format_event_time(summary["available_range"][name]) for name in ("oldest_us", "newest_us"))
        yield f"no rows between --from and --to; the sources have rows from {oldest} to {newest}"
    took = format_duration(summary["seconds"] * 1e6)
    yield "; ".join([f"{format_count(summary['rows'], 'row')} in {took}", *_notes(results[0])])
    for name in ("report", "run_dir"):
        if name in summary:
            yield f"{name.replace('_', ' ')}: {printable(str(_path(summary[name])))}"


def _notes(result: Result) -> Iterator[str]:
    reasons = [(row.stream, row.reason) for row in result.dead]
    counts = {store.name: store.counts for store in result.stores}
    yield from summary_notes(sum(row.count for row in result.dead), reasons, counts)


def _path(value: Any) -> Any:
    return value["path"] if isinstance(value, Mapping) else value


def _result(result: Result) -> Iterator[str]:
    from tocsin.report.result import RARE

    span = "no rows"
    if result.oldest_us is not None and result.newest_us is not None:
        span = f"{format_event_time(result.oldest_us)} to {format_event_time(result.newest_us)}"
    yield printable(f"{result.path}: {span}")
    yield ""
    yield from table(
        ["rule", "alerts", "keys", "time firing", "longest", "late", "open", "median delay", "longest delay"],
        [_rule(rule) for rule in result.rules],
    )
    yield ""
    yield from _recalls(result.recalls)
    yield from _memory(result.limited)
    rare = [(name, title) for name, title in RARE.items() if any(store.counts.get(name) for store in result.stores)]
    names = ["omitted", "late", "quarantined", *(name for name, _ in rare)]
    yield from table(
        [
            "stream",
            "received",
            "retained",
            "omitted",
            "late",
            "invalid",
            *(title for _, title in rare),
            FULL_JOIN_COLUMN,
        ],
        [
            [store.name, *_numbers(store.received, store.kept), *_counts(store.counts, names), f"{store.plain:,}"]
            for store in result.stores
        ],
    )
    yield ""
    yield "; ".join([f"state at the end: {format_size(result.state_bytes)}", *_active_requests(result)])


def _active_requests(result: Result) -> Iterator[str]:
    """Yield the number of active requests per stream of requests."""
    streams = dict.fromkeys(ranges.requests for ranges in result.plan.ranges)
    for store in result.stores:
        if store.name in streams:
            yield f"{format_count(store.counts.get('retained', 0), 'active request')} of `{store.name}`"


def _rule(rule: RuleSummary) -> list[str]:
    times = [format_duration(rule.firing_us), format_duration(rule.longest_us)]
    delays = ["-" if us is None else format_duration(us) for us in (rule.delay_us, rule.longest_delay_us)]
    return [rule.alert, *_numbers(rule.alerts, rule.keys), *times, *_numbers(rule.late, rule.open), *delays]


def _recalls(recalls: Sequence[Recall]) -> Iterator[str]:
    """Yield the table of in-order recall for rules with a reorder wait."""
    if not recalls:
        return
    head = ["rule with a reorder wait", "requested", "recall", "lowest", "reached", "periods", "wait", "longest wait"]
    yield from table(head, [_recall(recall) for recall in recalls], words=2)
    ordered = [recall.alert for recall in recalls if not recall.by_arrival]
    if ordered:
        names = ", ".join(ordered)
        yield printable(
            f"no stream of {names} declares `arrival`: rows were read in event-time order, and none was late"
        )
    yield ""


def _memory(limited: Sequence[Limited]) -> Iterator[str]:
    """Yield the table of recall and error for rules with a memory budget."""
    if limited:
        head = ["rule with a memory budget", "memory", "recall predicted", "measured", "error predicted", "measured"]
        rows = [
            [one.alert, one.memory, *("-" if n is None else f"{n:.3g}" for n in one.found.values())] for one in limited
        ]
        yield from table(head, rows, words=2)
        yield ""


def _recall(recall: Recall) -> list[str]:
    from tocsin.report.recall import recall_text

    reached = "-" if recall.reached is None else format_share(recall.reached)
    shares = [recall_text(recall.whole), recall_text(recall.lowest), reached]
    waits = [format_duration(recall.wait_us), format_duration(recall.longest_us)]
    return [recall.alert, recall.asked_text, *shares, *_numbers(len(recall.periods)), *waits]


def _numbers(*numbers: int) -> list[str]:
    return [f"{number:,}" for number in numbers]


def _counts(counts: Mapping[str, int], names: Sequence[str]) -> list[str]:
    return _numbers(*(counts.get(name, 0) for name in names))


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, words: int = 1) -> Iterator[str]:
    """Yield the lines of a table. The first `words` columns are aligned to the left, the others to the right."""
    shown = [[printable(cell) for cell in row] for row in [head, *rows]]
    widths = [max(len(row[i]) for row in shown) for i in range(len(head))]
    for row in shown:
        cells = [cell.ljust(widths[i]) if i < words else cell.rjust(widths[i]) for i, cell in enumerate(row)]
        yield "  ".join(cells).rstrip()


def _difference(results: Sequence[Result], difference: Difference) -> Iterator[str]:
    from tocsin.report.compare import moved_text

    first, second = (printable(result.path) for result in results)
    yield f"only in {first}: {len(difference.only_first):,} alerts"
    yield from _alerts(difference.only_first)
    yield f"only in {second}: {len(difference.only_second):,} alerts"
    yield from _alerts(difference.only_second)
    yield f"in both: {len(difference.both):,} alerts, {len(difference.moved):,} of them at different times"
    for one, other in difference.moved[:_MOST]:
        start, end = moved_text(one.start_us, other.start_us), moved_text(one.end_us, other.end_us)
        yield printable(
            f"  {one.alert} {format_labels(one.labels)} {format_event_time(one.start_us)}: start {start}, end {end}"
        )
    if len(difference.moved) > _MOST:
        yield f"  and {len(difference.moved) - _MOST:,} more"


def _alerts(alerts: Sequence[Life]) -> Iterator[str]:
    for alert in alerts[:_MOST]:
        end = "still open" if alert.end_us is None else format_event_time(alert.end_us)
        yield printable(f"  {alert.alert} {format_labels(alert.labels)} {format_event_time(alert.start_us)} to {end}")
    if len(alerts) > _MOST:
        yield f"  and {len(alerts) - _MOST:,} more"


def _invalid_rows(result: Result) -> Iterator[str]:
    if not result.dead:
        return
    yield f"invalid rows: {sum(row.count for row in result.dead):,}"
    for row in result.dead[:_MOST]:
        sample = f"; for example {row.samples[0][:120]}" if row.samples else ""
        yield printable(f"  {row.count:,} of {row.stream}: {row.reason}{sample}")
    if len(result.dead) > _MOST:
        yield f"  and {len(result.dead) - _MOST:,} more reasons"
    yield ""


def object_of(results: Sequence[Result], difference: Difference | None, seconds: float) -> dict[str, Any]:
    """Return the results of a backtest as one JSON object."""
    first = _object(results[0])
    summary = {"ok": True, **first, "rows": results[0].rows, "seconds": round(seconds, 3)}
    if difference is not None:
        summary["against"] = _object(results[1])
        summary["difference"] = {
            "only_first": [_alert(alert) for alert in difference.only_first],
            "only_second": [_alert(alert) for alert in difference.only_second],
            "both": len(difference.both),
            "moved": [[_alert(one), _alert(other)] for one, other in difference.moved],
        }
    return summary


def _object(result: Result) -> dict[str, Any]:
    return {
        "file": result.path,
        "oldest_us": result.oldest_us,
        "newest_us": result.newest_us,
        "rules": [{**asdict(rule), "labels": dict(rule.labels)} for rule in result.rules],
        "recall": [_recall_object(recall) for recall in result.recalls],
        "memory": [{"alert": one.alert, "memory": one.memory, **one.found} for one in result.limited],
        "streams": {
            store.name: {**store.counts, "kept": store.kept, "plain_join": store.plain} for store in result.stores
        },
        "state_bytes": result.state_bytes,
        "changes": result.changes,
        "dead": [asdict(row) for row in result.dead],
    }


def _recall_object(recall: Recall) -> dict[str, Any]:
    from tocsin.report.recall import MOST_PERIODS

    periods = [stretch.lowest for stretch in recall.stretches(MOST_PERIODS)]
    whole, lowest = recall.whole, recall.lowest
    return {
        "alert": recall.alert,
        "requested": recall.asked_text,
        "requested_recall": recall.asked,
        "period_us": recall.waiting.period_us,
        "by_arrival": recall.by_arrival,
        "recall": None if whole is None else whole.recall,
        "lowest": None if lowest is None else lowest.recall,
        "reached": recall.reached,
        "in_order": 0 if whole is None else whole.in_order,
        "true": 0 if whole is None else whole.true,
        "wait_us": recall.wait_us,
        "longest_wait_us": recall.longest_us,
        "periods": len(recall.periods),
        "each": [{**asdict(period), "recall": period.recall} for period in periods],
    }


def _alert(alert: Life) -> dict[str, Any]:
    return {
        "alert": alert.alert,
        "id": alert.id,
        "labels": dict(alert.labels),
        "startsAt_us": alert.start_us,
        "firesAt_us": alert.fires_us,
        "endsAt_us": alert.end_us,
        "margin": alert.margin,
    }
