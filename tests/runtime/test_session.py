"""Session: the checks at its entry, the order of its calls, timers, control rows, and the completeness of its pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.driver import MINUTE, parts_of, settled, stories, table
from tocsin import NoData, Rule, RunError
from tocsin.plan import Plan, make_plan
from tocsin.runtime.contract import Batch, EvaluatedRows, Out
from tocsin.runtime.session import Session, store_pages
from tocsin.runtime.state_codec import MAGIC, VERSION, pack

JOIN = Rule("join", "a - b > 0", within="10us", on="machine", allowed_lateness="100us")
PAIRS = Rule("pairs", "a - b > 0", within="10us", on="machine", emit="all")
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "waits": {"quality": {"wait": "5us"}},
    "learns to wait": {"quality": {"recall": 0.9, "period": "50us", "adapt_every": "10us"}},
    "limited memory": {"emit": "all", "quality": {"memory": "20 rows"}},
    "limited work": {"emit": "all", "quality": {"cpu": "100%"}},
}
columns = st.lists(
    st.tuples(st.sampled_from("mn"), st.integers(0, 60), st.integers(-3, 3)), min_size=0, max_size=30
).map(lambda rows: rows or [("m", 1, 1)])


def streams_of(a: Sequence[tuple[str, int, int]], b: Sequence[tuple[str, int, int]]) -> dict[str, Any]:
    streams = {}
    for name, rows in (("a", a), ("b", b)):
        machine, ts, value = (list(column) for column in zip(*rows, strict=True))
        streams[name] = table(machine, np.array(ts, np.int64), value=np.array(value, np.float64))
        streams[name]["arrival"] = np.arange(len(rows))
    return streams


def plan(*rules: Any, **options: Any) -> Plan:
    names = ["ts", "machine", "value", "arrival"]
    return make_plan(rules or JOIN, {"a": names, "b": names}, arrival="arrival", **options)


def batch(stream: str = "a", rows: int = 2, **changes: Any) -> Batch:
    number = np.arange(rows)
    return replace(Batch(0, stream, [("m",)], number * 0, number, number, {"value": number + 1.0}), **changes)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("", "must have a name of key columns"),
        ("machine", "must have a name of key columns"),
        ("../machine/0", "must have a name of key columns"),
        ("ranges/0", "must have the name of a page of a range rule"),
        ("~promising/0", "must have the name of a page of a CPU-budgeted join"),
    ],
)
def test_session_rejects_a_page_when_its_name_is_unknown(name: str, found: str) -> None:
    with pytest.raises(RunError, match=found) as caught:
        Session(plan(), {name: pack({}, keys=[], rules=[])})
    assert f"`{name}`" in str(caught.value)


OTHER_FORMAT = f"must have state format {VERSION}; got"


@pytest.mark.parametrize(
    ("page", "found"),
    [
        (b"", "is damaged or was not written by Tocsin"),
        (b"PAR1" * 20, "is damaged or was not written by Tocsin"),
        (MAGIC + b"\x03", "is damaged: it has only 8 bytes"),
        (
            MAGIC + (VERSION - 1).to_bytes(2, "little") + bytes(40),
            f"{OTHER_FORMAT} {VERSION - 1}",
        ),
        (
            MAGIC + (VERSION + 1).to_bytes(2, "little") + bytes(40),
            f"{OTHER_FORMAT} {VERSION + 1}",
        ),
    ],
)
@pytest.mark.parametrize("name", ["machine/0", "site/0", "machine/pace", "anything"])
def test_session_rejects_a_page_when_its_version_is_another(name: str, page: bytes, found: str) -> None:
    """The page of a removed rule is rejected at the start too, not at the first call."""
    with pytest.raises(RunError, match=f"^state page `{name}` {found}"):
        Session(plan(), {name: page})


CALLS: dict[str, Callable[[Session], object]] = {
    "push": lambda session: session.push([]),
    "advance": lambda session: session.advance(1),
    "control": lambda session: session.control([]),
    "end": lambda session: session.end(),
}


@pytest.mark.parametrize("call", CALLS)
def test_session_rejects_a_call_when_the_input_has_ended(call: str) -> None:
    session = Session(plan())
    session.push([batch("a"), batch("b")], MINUTE)
    session.end()
    with pytest.raises(RunError, match=f"^`Session.{call}` must be called before `Session.end`"):
        CALLS[call](session)
    assert session.next_timer() is None
    pages: dict[str, bytes] = {}
    store_pages(pages, session.changed_pages())
    assert pages
    assert Session(plan(), pages).push([batch("a")]).counts["a"]["received"] == 2


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "key set": ({"key_set": 1}, "1, stream `a`: the batch must be of an input of the plan; .* 0/a, 0/b"),
    "stream": ({"stream": "c"}, "stream `c`: the batch must be of an input of the plan"),
    "column": ({"values": {"other": np.zeros(2)}}, "`values` must have every column that the plan reads; add value"),
    "length": ({"time": np.arange(3)}, "`key` must be 3 numbers of type int64; got int64 of shape \\(2,\\)"),
    "arrival": ({"arrival": np.arange(1)}, "`arrival` must be 2 numbers"),
    "type of time": ({"time": np.arange(2.0)}, "`time` must be 2 numbers of type int64; got float64"),
    "type of value": ({"values": {"value": np.arange(2)}}, r"`values\['value'\]` must be 2 numbers of type float64"),
    "shape": ({"values": {"value": np.zeros((2, 1))}}, r"`values\['value'\]` must be 2 numbers .* shape \(2, 1\)"),
    "large key": ({"key": np.array([0, 1])}, "`key` must number the 1 keys from 0; got 0 to 1"),
    "negative key": ({"key": np.array([0, -1])}, "`key` must number the 1 keys from 0; got -1 to 0"),
    "no keys": ({"keys": []}, "`key` must number the 0 keys from 0; got 0 to 0"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_session_rejects_a_batch_when_it_does_not_fit_the_plan(wrong: str) -> None:
    changes, found = WRONG[wrong]
    session = Session(plan())
    with pytest.raises(RunError, match=f"^batch 1, key set .*{found}"):
        session.push([batch("b"), batch(**changes)])
    assert session.changed_pages() == {}
    assert session.push([batch("a"), batch("b")]).counts["a"]["received"] == 2


def test_session_returns_no_rows_when_batches_are_empty() -> None:
    session = Session(plan())
    assert session.push([]) == Out()
    empty = [batch("a", 0), batch("b", 0, keys=[])]
    out = session.push(empty, MINUTE)
    assert (out.alert_rows(), settled(out.counts)) == ([], {"a": {}, "b": {}})
    assert Session(plan()).push([batch("a", 0, quarantined=3)]).counts["a"]["quarantined"] == 3


def test_session_processes_batches_in_any_order_when_arrival_orders_the_rows() -> None:
    a, later, b = batch("a"), batch("a", arrival=np.array([7, 8]), time=np.array([7, 8])), batch("b")
    found = []
    for batches in ([a, later, b], [b, later, a]):
        session = Session(plan())
        out = session.push(batches)
        out.add(session.end())
        found.append((stories(out.alert_rows()), settled(out.counts)))
    assert found[0] == found[1]
    assert found[0][0]


def test_session_changes_nothing_when_control_rows_are_for_unknown_pipelines() -> None:
    rows = [{"watch": "gone", "wait_us": 5, "from_us": 0}, {"watch": "gone", "share": 5, "terms": "t"}]
    session = Session(plan())
    session.push([batch("a")])
    session.changed_pages()
    assert session.control(rows) == Out()
    assert session.control([]) == Out()
    assert session.changed_pages() == {}


@pytest.mark.parametrize("row", [{}, {"wait": 5}, {"watch": "x", "wait_us": -1, "from_us": 0}, {"share": "all"}])
def test_session_applies_no_control_row_when_one_is_malformed(row: dict[str, Any]) -> None:
    made = plan(replace(JOIN, **SETTINGS["learns to wait"])).sharing()
    session = Session(made)
    with pytest.raises(RunError, match=r"^control rows must address a pipeline of the plan; no pipeline accepts"):
        session.control([{"watch": made.watches[0].name, "wait_us": 7, "from_us": 0}, row])
    assert session.changed_pages() == {}


def test_session_returns_the_earliest_timer_when_several_pipelines_have_one() -> None:
    made = plan(NoData("a", "3m", on=["machine"], alert="later"), NoData("b", "2m", alert="sooner"))
    session = Session(made)
    assert session.next_timer() is None
    session.push([batch("a"), replace(batch("b"), key_set=1, keys=[()])], MINUTE)
    timers = [session.next_timer()]
    assert timers[0] == min(filter(None, (one.next_timer() for one in session.pipelines)))
    assert session.advance(timers[0] - 1).alert_rows() == []
    fired = []
    while (timer := session.next_timer()) is not None and len(timers) < 5:
        timers.append(timer)
        fired += [row["alert"] for row in session.advance(timer).alert_rows()]
    assert fired == ["sooner", "later"]
    assert timers == sorted(timers)


@pytest.mark.parametrize("setting", SETTINGS)
@given(columns, columns, st.lists(st.integers(0, 60), max_size=4).map(sorted), st.integers(0, 4))
def test_session_equals_the_uninterrupted_session_when_it_continues_from_stored_pages(
    setting: str, a: Any, b: Any, cuts: list[int], stop: int
) -> None:
    """Only pages that `changed_pages` returned are stored, so a page that is missing there would change the rest."""
    streams = streams_of(a, b)
    made = plan(replace(JOIN, **SETTINGS[setting]), PAIRS).calibrated(100.0)
    calls = parts_of(made, streams, cuts, "arrival")
    whole, pages, out, resumed = Session(made), dict[str, bytes](), Out(), Out()
    session = Session(made)
    for number, call in enumerate(calls):
        now_us = MINUTE * (number + 1)
        out.add(whole.push(call, now_us))
        resumed.add(session.push(call, now_us))
        store_pages(pages, session.changed_pages())
        assert session.changed_pages() == {}
        if number >= stop:
            session = Session(made, pages)
            assert session.changed_pages() == {}
        assert session.next_timer() == whole.next_timer()
    out.add(whole.end())
    resumed.add(session.end())
    assert stories(resumed.alert_rows()) == stories(out.alert_rows())
    assert settled(resumed.counts) == settled(out.counts)
    written: dict[str, bytes] = {}
    store_pages(written, whole.changed_pages())
    store_pages(pages, session.changed_pages())
    assert pages == written


def test_changed_pages_mark_removed_pages_when_the_plan_lost_a_rule() -> None:
    session, pages = Session(plan(JOIN, Rule("own", "a > 0", on=()))), dict[str, bytes]()
    session.push([batch("a"), replace(batch("a"), key_set=1, keys=[()])])
    store_pages(pages, session.changed_pages())
    after = Session(plan(), pages)
    after.advance(MINUTE)
    changed = after.changed_pages()
    removed = [name for name, page in changed.items() if page is None]
    assert len(removed) == 1
    store_pages(pages, changed)
    assert pages.keys().isdisjoint(removed)
    assert Session(plan(), pages).end().alert_rows() == []


def test_store_pages_updates_and_removes_pages() -> None:
    pages = {"a": b"1", "b": b"2"}
    store_pages(pages, {"a": b"3", "b": None, "c": b"4", "never stored": None})
    assert pages == {"a": b"3", "c": b"4"}


class Recorder:
    """A listener that stores its calls."""

    def __init__(self) -> None:
        self.entered: list[Any] = []
        self.reduced: list[Any] = []
        self.evaluated: list[tuple[int, EvaluatedRows]] = []

    def on_entered(self, *call: Any) -> None:
        self.entered.append(call)

    def on_reduced(self, *call: Any) -> None:
        self.reduced.append(call)

    def on_evaluated(self, rule: int, evaluations: EvaluatedRows) -> None:
        self.evaluated.append((rule, evaluations))


@pytest.mark.parametrize("setting", ["plain", "waits"])
def test_listener_receives_every_row_and_changes_no_result(setting: str) -> None:
    streams = streams_of([("m", t, t % 3) for t in range(40)], [("m", t + 1, 1) for t in range(40)])
    made, listener = plan(replace(JOIN, **SETTINGS[setting])), Recorder()
    (call,) = parts_of(made, streams, (), "arrival")
    found = []
    for session in (Session(made), Session(made, listener=listener)):
        out = session.push(call)
        out.add(session.end())
        found.append((settled(out.counts), [(row["state"], row["startsAt"], row["value"]) for row in out.alert_rows()]))
    assert found[0] == found[1]
    for store in range(2):
        rows = np.concatenate([rows for number, rows, *_ in listener.entered if number == store])
        assert sorted(rows.tolist()) == list(range(40))
    stream_a, stream_b = (streams[name]["value"] for name in "ab")
    evaluations = [one for _, one in listener.evaluated]
    partners = np.concatenate([one.partners for one in evaluations])
    margins = np.concatenate([one.margin for one in evaluations])
    assert len(margins)
    assert (stream_a[partners[:, 0]] - stream_b[partners[:, 1]] == margins).all()


def test_session_with_a_listener_rejects_pages_and_a_second_push() -> None:
    session = Session(plan())
    session.push([batch("a")])
    pages: dict[str, bytes] = {}
    store_pages(pages, session.changed_pages())
    with pytest.raises(RunError, match=r"^`pages` must be empty if there is a listener; got 1 pages$"):
        Session(plan(), pages, Recorder())
    traced = Session(plan(), listener=Recorder())
    traced.push([batch("a")])
    with pytest.raises(RunError, match=r"^`Session.push` must be called once if there is a listener"):
        traced.push([batch("b")])
