"""What buckets said last: the worst of them holds, and one that is not called is not forgotten."""

from __future__ import annotations

from tests.driver import parts_of, plan_of
from tests.test_cpu import pairs
from tests.test_memory import zipf_streams
from tocsin.plan.bucket_reports import Said
from tocsin.runtime.contract import Found
from tocsin.runtime.session import Session


def test_what_a_bucket_said_holds_until_it_says_something_else() -> None:
    said = Said()
    said.hear(1, {}, {"pair": (0.5, 0.25)})
    said.hear(2, {"kept": [0.9, 0.8, None, None]}, {"pair": (0.75, None)})
    assert said.whole().cpu == {"pair": (0.5, 0.25)}
    assert said.whole().memory == {"kept": Found(0.9, 0.8)}
    said.hear(2, {"kept": [0.7, 0.9, None, None]}, {"pair": (0.25, 0.5)})
    assert said.whole().cpu == {"pair": (0.25, 0.25)}
    assert said.whole().memory == {"kept": Found(0.7, 0.9)}
    said.hear(1, {}, {"pair": (1.0, 1.0)})
    assert said.whole().cpu == {"pair": (0.25, 0.5)}
    # A call that has nothing to say of one takes nothing back.
    said.hear(2, {"kept": [0.6, 0.9, None, None]}, {})
    assert said.whole().cpu == {"pair": (0.25, 0.5)}
    assert said.whole().memory == {"kept": Found(0.6, 0.9)}


def test_a_call_without_rows_says_what_was_bought() -> None:
    streams = zipf_streams(600, 40, 5)
    plan = plan_of(streams, pairs(quality={"cpu": "2%"}), arrival="arrival")
    session = Session(plan)
    (part,) = parts_of(plan, streams, (), "arrival")
    told = session.push(part).cpu
    assert told["pair"][1] is not None
    again = Session(plan, {name: page for name, page in session.changed_pages().items() if page is not None})
    assert again.push([]).cpu == told
