"""The results of a backtest as tables of text, and as one object for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tocsin.cli.remarks import remarks
from tocsin.report import Difference, Limited, Result, RuleSummary
from tocsin.report.compare import moved_text
from tocsin.report.recall import MOST_PERIODS, Recall, recall_text, share_text
from tocsin.report.result import RARE
from tocsin.rules.mistakes import printable
from tocsin.testing.model import labels_text
from tocsin.trace.model import Life
from tocsin.trace.words import counted, date, rounded, size_text

_MOST = 20
PLAIN = "a plain join keeps"


def lines_of(results: Sequence[Result], difference: Difference | None, summary: Mapping[str, Any]) -> Iterator[str]:
    """Write all that was found."""
    for result in results:
        yield from _result(result)
        yield ""
    if difference is not None:
        yield from _difference(results, difference)
        yield ""
    yield from _dead(results[0])
    if "elsewhere" in summary:
        oldest, newest = (date(summary["elsewhere"][name]) for name in ("oldest_us", "newest_us"))
        yield f"no row lies between --from and --to; the sources have rows from {oldest} to {newest}"
    yield "; ".join([f"{counted(summary['rows'], 'row')} in {summary['seconds']:.1f} s", *_remarks(results[0])])
    for name in ("report", "run_dir"):
        if name in summary:
            yield f"{name.replace('_', ' ')}: {printable(str(_path(summary[name])))}"


def _remarks(result: Result) -> Iterator[str]:
    reasons = [(row.stream, row.reason) for row in result.dead]
    counts = {store.name: store.counts for store in result.stores}
    yield from remarks(sum(row.count for row in result.dead), reasons, counts)


def _path(value: Any) -> Any:
    return value["path"] if isinstance(value, Mapping) else value


def _result(result: Result) -> Iterator[str]:
    span = "no rows"
    if result.oldest_us is not None and result.newest_us is not None:
        span = f"{date(result.oldest_us)} to {date(result.newest_us)}"
    yield printable(f"{result.path}: {span}")
    yield ""
    yield from table(
        ["rule", "alerts", "keys", "firing", "longest", "late", "not ended", "delay", "longest delay"],
        [_rule(rule) for rule in result.rules],
    )
    yield ""
    yield from _recalls(result.recalls)
    yield from _limited(result.limited)
    told = [(name, words) for name, words in RARE.items() if any(store.counts.get(name) for store in result.stores)]
    names = ["omitted", "late", "quarantined", *(name for name, _ in told)]
    yield from table(
        ["stream", "received", "kept", "omitted", "late", "not usable", *(words for _, words in told), PLAIN],
        [
            [store.name, *_numbers(store.received, store.kept), *_counts(store.counts, names), f"{store.plain:,}"]
            for store in result.stores
        ],
    )
    yield ""
    yield "; ".join([f"state left at the end: {size_text(result.state_bytes)}", *_alive(result)])


def _alive(result: Result) -> Iterator[str]:
    """Tell how many requests of rules with ranges are alive; each rule keeps those of its stream by itself."""
    asking = dict.fromkeys(ranges.requests for ranges in result.plan.ranges)
    for store in result.stores:
        if store.name in asking:
            number = store.counts.get("retained", 0)
            yield f"{counted(number, 'request')} of `{store.name}` {'is' if number == 1 else 'are'} alive"


def _rule(rule: RuleSummary) -> list[str]:
    times = [rounded(rule.firing_us), rounded(rule.longest_us)]
    delays = ["-" if us is None else rounded(us) for us in (rule.delay_us, rule.longest_delay_us)]
    return [rule.alert, *_numbers(rule.alerts, rule.keys), *times, *_numbers(rule.late, rule.open), *delays]


def _recalls(recalls: Sequence[Recall]) -> Iterator[str]:
    """Tell of rules whose rows wait how much came in order."""
    if not recalls:
        return
    head = ["rule whose rows wait", "asked", "recall", "lowest", "reached", "periods", "wait", "longest wait"]
    yield from table(head, [_recall(recall) for recall in recalls], words=2)
    blind = [recall.alert for recall in recalls if not recall.by_arrival]
    if blind:
        yield printable(
            f"no stream of {', '.join(blind)} has `arrival`: rows came in order of time, and nothing was late"
        )
    yield ""


def _limited(limited: Sequence[Limited]) -> Iterator[str]:
    """Tell of rules whose memory is limited what it found."""
    if limited:
        head = ["rule with limited memory", "memory", "recall predicted", "reached", "error predicted", "reached"]
        rows = [[one.alert, one.memory, *("-" if n is None else f"{n:.3g}" for n in one.found)] for one in limited]
        yield from table(head, rows, words=2)
        yield ""


def _recall(recall: Recall) -> list[str]:
    shares = [recall_text(recall.whole), recall_text(recall.lowest), share_text(recall.reached)]
    waits = [rounded(recall.wait_us), rounded(recall.longest_us)]
    return [recall.alert, recall.asked_text, *shares, *_numbers(len(recall.periods)), *waits]


def _numbers(*numbers: int) -> list[str]:
    return [f"{number:,}" for number in numbers]


def _counts(counts: Mapping[str, int], names: Sequence[str]) -> list[str]:
    return _numbers(*(counts.get(name, 0) for name in names))


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, words: int = 1) -> Iterator[str]:
    """Align columns: the first ones, which hold words, to the left, the others to the right."""
    shown = [[printable(cell) for cell in row] for row in [head, *rows]]
    widths = [max(len(row[i]) for row in shown) for i in range(len(head))]
    for row in shown:
        cells = [cell.ljust(widths[i]) if i < words else cell.rjust(widths[i]) for i, cell in enumerate(row)]
        yield "  ".join(cells).rstrip()


def _difference(results: Sequence[Result], difference: Difference) -> Iterator[str]:
    first, second = (printable(result.path) for result in results)
    yield f"only in {first}: {len(difference.only_first):,} alerts"
    yield from _lives(difference.only_first)
    yield f"only in {second}: {len(difference.only_second):,} alerts"
    yield from _lives(difference.only_second)
    yield f"in both: {len(difference.both):,} alerts, of which {len(difference.moved):,} moved"
    for one, other in difference.moved[:_MOST]:
        start, end = moved_text(one.start_us, other.start_us), moved_text(one.end_us, other.end_us)
        yield printable(f"  {one.alert} {labels_text(one.labels)} {date(one.start_us)}: start {start}, end {end}")
    if len(difference.moved) > _MOST:
        yield f"  and {len(difference.moved) - _MOST:,} more"


def _lives(lives: Sequence[Life]) -> Iterator[str]:
    for life in lives[:_MOST]:
        end = "not ended" if life.end_us is None else date(life.end_us)
        yield printable(f"  {life.alert} {labels_text(life.labels)} {date(life.start_us)} to {end}")
    if len(lives) > _MOST:
        yield f"  and {len(lives) - _MOST:,} more"


def _dead(result: Result) -> Iterator[str]:
    if not result.dead:
        return
    yield f"rows that could not be used: {sum(row.count for row in result.dead):,}"
    for row in result.dead[:_MOST]:
        sample = f"; such as {row.samples[0][:120]}" if row.samples else ""
        yield printable(f"  {row.count:,} of {row.stream}: {row.reason}{sample}")
    if len(result.dead) > _MOST:
        yield f"  and {len(result.dead) - _MOST:,} more reasons"
    yield ""


def object_of(results: Sequence[Result], difference: Difference | None, seconds: float) -> dict[str, Any]:
    """All numbers, for programs."""
    first = _object(results[0])
    whole = {"ok": True, **first, "rows": results[0].rows, "seconds": round(seconds, 3)}
    if difference is not None:
        whole["against"] = _object(results[1])
        whole["difference"] = {
            "only_first": [_life(life) for life in difference.only_first],
            "only_second": [_life(life) for life in difference.only_second],
            "both": len(difference.both),
            "moved": [[_life(one), _life(other)] for one, other in difference.moved],
        }
    return whole


def _object(result: Result) -> dict[str, Any]:
    return {
        "file": result.path,
        "oldest_us": result.oldest_us,
        "newest_us": result.newest_us,
        "rules": [{**asdict(rule), "labels": dict(rule.labels)} for rule in result.rules],
        "recall": [_recall_object(recall) for recall in result.recalls],
        "memory": [{"alert": one.alert, "memory": one.memory, **one.found._asdict()} for one in result.limited],
        "streams": {
            store.name: {**store.counts, "kept": store.kept, "plain_join": store.plain} for store in result.stores
        },
        "state_bytes": result.state_bytes,
        "changes": result.changes,
        "dead": [asdict(row) for row in result.dead],
    }


def _recall_object(recall: Recall) -> dict[str, Any]:
    told = [stretch.lowest for stretch in recall.stretches(MOST_PERIODS)]
    whole, lowest = recall.whole, recall.lowest
    return {
        "alert": recall.alert,
        "asked": recall.asked_text,
        "asked_recall": recall.asked,
        "over_us": recall.waiting.over_us,
        "by_arrival": recall.by_arrival,
        "recall": None if whole is None else whole.recall,
        "lowest": None if lowest is None else lowest.recall,
        "reached": recall.reached,
        "in_order": 0 if whole is None else whole.in_order,
        "true": 0 if whole is None else whole.true,
        "wait_us": recall.wait_us,
        "longest_wait_us": recall.longest_us,
        "periods": len(recall.periods),
        "each": [{**asdict(period), "recall": period.recall} for period in told],
    }


def _life(life: Life) -> dict[str, Any]:
    return {
        "alert": life.alert,
        "id": life.id,
        "labels": dict(life.labels),
        "startsAt_us": life.start_us,
        "firesAt_us": life.fires_us,
        "endsAt_us": life.end_us,
        "margin": life.margin,
    }
