"""Rules and the columns of streams become a plan: what is read, what is remembered, and what is refused."""

from __future__ import annotations

import re
from typing import Any

import pytest

import tocsin
from tocsin import ExprError, PlanError, Rule, RuleError
from tocsin.plan import Plan, Store, make_plan

COLUMNS = {
    "air": ["ts", "site", "temp", "humidity"],
    "surface": ["ts", "site", "temp"],
    "wall": ["ts", "site", "value", "note"],
    "bare": ["ts", "site"],
    "keyless": ["ts", "temp"],
    "timeless": ["site", "temp"],
}
SHAPED = {"surface": "decreasing", "wall": "increasing"}


def plan(*rules: Rule, **options: Any) -> Plan:
    return make_plan(rules, COLUMNS, **options)


def rule(expr: str, **settings: Any) -> Rule:
    return Rule(**{"alert": "x", "expr": expr, "within": "5s", "on": "site"} | settings)


def stores(*rules: Rule) -> dict[str, Store]:
    """Give the stores of a plan with one key set, by stream."""
    (watch,) = plan(*rules).watches
    assert len({store.stream for store in watch.stores}) == len(watch.stores)
    return {store.stream: store for store in watch.stores}


PLACE = 'rule "x": '
REFUSED: dict[str, tuple[Rule, str]] = {
    "an unknown stream": (
        rule("smoke > 0"), "`expr`: `smoke` must be one of the streams air, surface, wall, bare, keyless, timeless"),
    "a stream whose name is nearly right": (
        rule("surfaces > 0"),
        "`expr`: `surfaces` must be one of the streams air, surface, wall, bare, keyless, timeless; "
        "did you mean `surface`?"),
    "an unknown column": (
        rule("air.pressure > 0"),
        "`expr`: stream `air` must have the value column 'pressure'; its value columns are temp, humidity"),
    "the time as a value": (
        rule("air.ts > 0"),
        "`expr`: stream `air` must have the value column 'ts'; its value columns are temp, humidity"),
    "a key as a value": (
        rule("air.site > 0"),
        "`expr`: stream `air` must have the value column 'site'; its value columns are temp, humidity"),
    "a stream of several columns without a name": (
        rule("air > 0"), "`expr`: `air` must name its column, for example `air.temp`; "
        "the value columns of the stream are temp, humidity"),
    "a stream without value columns": (
        rule("bare > 0"),
        "`expr`: `bare` must name its column, for example `bare.value`; the stream has no value column"),
    "a stream without the key": (
        rule("keyless > 0"),
        "stream `keyless` must have the column 'site'; its columns are ts, temp"),
    "a stream without the time": (
        rule("timeless > 0"),
        "stream `timeless` must have the column 'ts'; its columns are site, temp"),
    "a condition that reads nothing": (rule("1 > 0"), "`expr` must read 1 to 8 streams; got 0"),
    "a shape of a variable that is not read": (
        rule("surface > 0", shapes={"wall": "increasing"}),
        "`shapes` must name variables of `expr` (surface); got 'wall'"),
    "a shape under another name of the variable": (
        rule("surface.temp + wall > 0", shapes={"surface": "increasing"}),
        "`shapes` must name variables of `expr` (surface.temp, wall); got 'surface'"),
    "a domain of a variable that is not read": (
        rule("surface > 0", domains={"air.temp": (0, 1)}),
        "`domains` must name variables of `expr` (surface); got 'air.temp'"),
    "streams without bounds": (rule("surface - wall > 0", within=None), "`within` is needed to join surface, wall"),
    "bounds of a stream that is not read": (
        rule("surface - wall > 0", within={("surface", "air"): ("0s", "1s")}),
        "`within` must name streams of `expr` (surface, wall); got 'air'"),
    "a join graph in two parts": (
        rule("surface + wall + air.temp > 0", within={("surface", "wall"): ("0s", "1s")}),
        "`within` must connect all streams; no bound connects 'surface' and 'air'"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_rule_that_does_not_fit_the_streams_is_refused(name: str) -> None:
    given, message = REFUSED[name]
    with pytest.raises(RuleError, match="^" + re.escape(PLACE)) as caught:
        plan(given)
    assert str(caught.value).split("\n")[0] == PLACE + message


def test_a_condition_that_cannot_be_read_is_underlined() -> None:
    with pytest.raises(tocsin.ExprError, match=r"surface > > 0\n +\^"):
        plan(rule("surface > > 0"))


def test_nine_streams_are_refused_and_eight_are_not() -> None:
    names = [f"s{i}" for i in range(9)]
    columns = {name: ["ts", "value"] for name in names}
    with pytest.raises(RuleError, match="`expr` must read 1 to 8 streams; got 9"):
        make_plan(Rule("x", " + ".join(names) + " > 0", within="5us"), columns)
    (watch,) = make_plan(Rule("x", " + ".join(names[:8]) + " > 0", within="5us"), columns).watches
    assert watch.streams == tuple(names[:8])


def test_no_rules_are_refused() -> None:
    with pytest.raises(PlanError, match=r"^`rules` must contain at least one rule; it is empty$"):
        plan()


def test_two_rules_of_one_name_and_the_same_labels_are_refused() -> None:
    with pytest.raises(PlanError, match=r'^rules must differ in `alert` or `labels`; "x" has a duplicate$'):
        plan(rule("surface > 0"), rule("wall > 0"))
    assert plan(rule("surface > 0"), rule("wall > 0", labels={"team": "b"}))


@pytest.mark.parametrize("given", [3, "x", {"alert": "x"}, [rule("surface > 0"), None]])
def test_what_is_no_rule_is_refused(given: Any) -> None:
    with pytest.raises(PlanError, match=r"^`rules` must contain only rules; got (int|str|NoneType)$"):
        make_plan(given, COLUMNS)


def test_a_mistake_in_a_condition_names_its_rule() -> None:
    with pytest.raises(ExprError, match=r'^rule "x": `expr`: '):
        plan(rule("surface >"))


def test_a_negative_time_to_live_is_refused() -> None:
    with pytest.raises(RuleError, match=r"^`key_ttl` must not be negative; got '-1s'$"):
        plan(rule("surface > 0"), key_ttl="-1s")
    with pytest.raises(RuleError, match=r"^`key_ttl` must be a duration .*; got 60, a number without a unit"):
        plan(rule("surface > 0"), key_ttl=60)


READ = {"wall": ("wall", "value"), "surface": ("surface", "temp"), "air.humidity": ("air", "humidity")}


@pytest.mark.parametrize("variable", READ)
def test_a_variable_reads_the_named_column_or_value_or_the_only_one(variable: str) -> None:
    ((stream, store),) = stores(rule(f"{variable} > 0")).items()
    assert (stream, store.columns) == (READ[variable][0], (READ[variable][1],))


def test_the_arrival_column_is_no_value() -> None:
    columns = {"air": ["ts", "came", "temp"]}
    (watch,) = make_plan(Rule("x", "air > 0"), columns, arrival="came").watches
    assert watch.stores[0].columns == ("temp",)


EVERY_ROW = {
    "no shape": (rule("wall > 0"), ""),
    "no `within`": (rule("wall > 0", shapes={"wall": "increasing"}, within=None), "the interval is 0"),
    "a `within` of nothing": (rule("wall > 0", shapes={"wall": "increasing"}, within=0), "the interval is 0"),
    "a `within` that open ends leave nothing of": (
        rule("wall > 0", shapes={"wall": "increasing"}, within="1us", closed="neither"), "the interval is 0"),
    "every true row asked for": (rule("wall > 0", shapes={"wall": "increasing"}, emit="all"), "`emit: all` needs them"),
    "two values": (rule("wall.value + wall.note > 0", shapes={"wall.value": "increasing"}),
                   "the condition reads several columns"),
    "`for`": (rule("wall > 0", shapes={"wall": "increasing"}, for_="1s"), "`for` needs them"),
}  # fmt: skip


@pytest.mark.parametrize("reason", EVERY_ROW)
def test_a_rule_of_one_stream_evaluates_every_row_and_remembers_none_because_of(reason: str) -> None:
    given, said = EVERY_ROW[reason]
    ((threshold,),) = [watch.rules for watch in plan(given).watches]
    assert not stores(given)["wall"].remember
    assert threshold.lag_us == 0
    assert str(threshold).endswith(f"; no row is omitted: {said}" if said else ")")


def test_a_rule_of_one_stream_is_reduced_with_within_as_its_interval() -> None:
    exprs = {"increasing": "wall > 0", "decreasing": "wall < 0", "quasiconvex": "abs(wall) > 0"}

    def found(shape: str, **settings: Any) -> tuple[int, int, int, int]:
        (watch,) = plan(rule(exprs[shape], shapes={"wall": shape}, **settings)).watches
        ((store,), (threshold,)) = (watch.stores, watch.rules)
        return store.above_us, store.below_us, threshold.lag_us, threshold.stale_us

    assert found("increasing") == (5_000_000, -1, 5_000_000, 10_000_000)
    assert found("decreasing") == (-1, 5_000_000, 5_000_000, 10_000_000)
    assert found("quasiconvex", stale="7s") == (5_000_000, 5_000_000, 5_000_000, 7_000_000)
    assert found("increasing", closed="left") == (5_000_000, -1, 5_000_000, 10_000_000)
    assert found("increasing", closed="neither") == (4_999_999, -1, 4_999_999, 10_000_000)
    # The windows of `hop` say themselves which of their ends belong.
    assert found("increasing", closed="neither", hop="2s") == (5_000_000, -1, 5_000_001, 10_000_000)


def test_a_reduced_rule_of_one_stream_shares_its_store_with_its_like_and_with_rules_that_remember_nothing() -> None:
    increasing = {"shapes": {"wall": "increasing"}}
    one, same = rule("wall > 0", alert="one", **increasing), rule("wall > 3", alert="same", **increasing)
    lasting = rule("wall > 3", alert="lasting", for_="1m", **increasing)
    for order in ([one, same, lasting], [lasting, same, one]):
        (watch,) = plan(*order).watches
        assert watch.stores == (Store("wall", ("value",), above_us=5_000_000, alone=True),)
        assert [threshold.stores for threshold in watch.rules] == [(0,), (0,), (0,)]
    # What it evaluates must not depend on what others remember.
    longer = rule("wall > 0", alert="longer", within="9s", **increasing)
    bounded = rule("wall > 0", alert="bounded", domains={"wall": (0, 1)}, **increasing)
    joined = rule("wall - surface > 0", alert="joined", shapes=SHAPED, within="2s")
    for other in (longer, bounded, joined):
        (watch,) = plan(one, other).watches
        assert [store.stream for store in watch.stores].count("wall") == 2
        assert watch.stores[0] == Store("wall", ("value",), above_us=5_000_000, alone=True)


def test_each_shape_keeps_the_side_that_it_needs() -> None:
    shapes = {"surface.temp": "quasiconvex", "wall": "increasing", "air.temp": "decreasing"}
    found = stores(rule("abs(surface.temp) + wall - air.temp > 0", shapes=shapes))
    sides = {name: (store.above_us, store.below_us) for name, store in found.items()}
    assert sides == {"surface": (5_000_000, 5_000_000), "wall": (5_000_000, -1), "air": (-1, 5_000_000)}


WHOLE = {
    "the user says so": rule("wall - surface > 0", shapes={"wall": None, "surface": "decreasing"}),
    "a counterexample": rule("surface - (wall - surface) ** 2 > 0"),
    "every combination asked for": rule("wall - surface > 0", shapes=SHAPED, emit="all"),
    "two columns, of which one turns": rule("wall.value * surface - (wall.note - surface) ** 2 > 0"),
    "the centre of a star": rule("wall - surface + air.temp > 0", shapes=SHAPED,
                                 within={("wall", "surface"): ("-1us", "1us"), ("wall", "air"): ("-1us", "1us")}),
}  # fmt: skip


@pytest.mark.parametrize("reason", WHOLE)
def test_a_stream_is_kept_whole_because_of(reason: str) -> None:
    assert stores(WHOLE[reason])["wall"].whole


def test_rules_share_a_store_with_the_shorter_interval_of_each_side() -> None:
    long = rule("wall - surface > 0", alert="long", within="9s", shapes=SHAPED)
    short = rule("wall - surface > 3", alert="short", within="2s", shapes=SHAPED)
    falling = rule("surface - wall > 3", alert="falling", within="4s", shapes={"wall": "decreasing", "surface": None})
    # A pair within w leaves each of its streams a window of 2w.
    assert stores(long)["wall"] == Store("wall", ("value",), above_us=18_000_000)
    for order in ([long, short], [short, long]):
        assert stores(*order)["wall"] == Store("wall", ("value",), above_us=4_000_000)
    assert stores(long, falling)["wall"] == Store("wall", ("value",), above_us=18_000_000, below_us=8_000_000)
    assert stores(long, falling)["surface"].whole


def test_a_rule_that_needs_a_stream_whole_wins() -> None:
    shaped = rule("wall - surface > 0", alert="shaped", shapes=SHAPED)
    every = rule("wall - surface > 0", alert="every", emit="all")
    alone = rule("wall > 0", alert="alone")
    for order in ([shaped, every, alone], [alone, every, shaped], [every, shaped, alone]):
        assert stores(*order)["wall"] == Store("wall", ("value",))
    assert (
        stores(alone, shaped)["wall"] == stores(shaped, alone)["wall"] == Store("wall", ("value",), above_us=10_000_000)
    )


def test_shared_domains_are_those_on_which_every_shape_holds() -> None:
    one = rule("wall - surface > 0", alert="one", shapes=SHAPED, domains={"wall": (0, 10)})
    two = rule("wall - surface > 1", alert="two", shapes=SHAPED, domains={"wall": (-5, 7)})
    free = rule("wall - surface > 2", alert="free", shapes=SHAPED)
    assert stores(one, two)["wall"].domains == ((0.0, 7.0),)
    assert stores(one, free)["wall"].domains == stores(free, one)["wall"].domains == ((0.0, 10.0),)


def test_windows_of_different_kinds_do_not_share_a_store() -> None:
    sliding = rule("wall - surface > 0", alert="sliding", shapes=SHAPED)
    hopping = rule("wall - surface > 0", alert="hopping", shapes=SHAPED, hop="1s")
    (watch,) = plan(sliding, hopping).watches
    assert [(store.stream, store.hop_us) for store in watch.stores] == [
        ("wall", 0), ("surface", 0), ("wall", 1_000_000), ("surface", 1_000_000)]  # fmt: skip


def test_rules_are_watched_together_by_their_key_columns() -> None:
    keyed, other = rule("wall > 0", alert="keyed"), rule("surface > 0", alert="other")
    loose = rule("keyless > 0", alert="loose", on=())
    assert [(watch.on, len(watch.rules)) for watch in plan(keyed, loose, other).watches] == [(("site",), 2), ((), 1)]


def test_the_plan_says_what_is_remembered_and_joined() -> None:
    given = Rule("dew", "air.humidity + air.temp - surface.temp + wall > 10", within="5s", on="site", for_="1m",
                 shapes={"surface.temp": "decreasing", "wall": "quasiconvex"}, allowed_lateness="2h")  # fmt: skip
    loose = Rule("loose", "keyless > 0", labels={"team": "b"})
    streams = {name: {column: [] for column in columns} for name, columns in COLUMNS.items()}
    lines = str(tocsin.explain(streams, [given, loose])).split("\n")
    assert lines[0] == "Pipeline keyed by site; allowed lateness 2h"
    assert lines[1:4] == [
        "  Retention air(humidity, temp): keep the maximum of air.humidity + air.temp in every 5s window (about 2 "
        "rows)",
        "  Retention surface(temp): keep the minimum in every 5s window (about 2 rows)",
        "  Retention wall(value): keep the maximum in every 5s window and the minimum in every 5s window (about 4 "
        "rows)",
    ]
    assert re.fullmatch(r'  Rule "dew" if .*air\.humidity.* within 5s \(for 1m, stale 5s\)', lines[4])
    delay = "events are emitted up to 5s later if a stream is slow; set `idle_timeout` of the streams to change this"
    assert [re.split(": |, ", line)[:2] for line in lines[5:9]] == [
        ["    Delay", delay],
        ["    air.humidity + air.temp", "increasing"],
        ["    surface.temp", "decreasing"],
        ["    wall.value", "increasing"],
    ]
    assert lines[9:11] == [
        "Pipeline without a key (one bucket processes all rows); allowed lateness 1h",
        "  Retention keyless(temp): stateless",
    ]
    assert re.fullmatch(r'  Rule "loose" if .*keyless.* \(stale 5m\)', lines[11])


def test_plan_shows_recovery_and_unreduced_streams_when_a_rule_has_them() -> None:
    text = str(plan(rule("wall - surface > 3", shapes={"wall": "unreduced"}, within="5s", recovery=2)))
    assert "\n  Retention wall(value): unreduced\n" in text
    assert re.search(r"\n  Rule \"x\" if .* \(stale 5s, recovery 2\)\n", text)


def test_the_plan_says_what_a_rule_of_one_stream_keeps() -> None:
    lines = str(plan(rule("wall > 3", shapes={"wall": "increasing"}, within="10m"))).split("\n")
    assert lines[1] == "  Retention wall(value): keep the maximum in every 10m window (about 2 rows)"
    assert re.fullmatch(r'  Rule "x" if .*wall.* on retained rows, delayed by 10m \(stale 20m\)', lines[2])


def test_the_fingerprint_of_a_plan_tells_it_from_others() -> None:
    one, same, other = plan(rule("wall > 0")), plan(rule("wall > 0")), plan(rule("wall > 1"))
    assert one.fingerprint == same.fingerprint != other.fingerprint


def test_stores_are_counted_under_names_of_their_own() -> None:
    joined = rule("wall - surface > 0", alert="joined", shapes=SHAPED, within="2s")
    alone = rule("wall > 0", alert="alone", shapes={"wall": "increasing"})
    (watch,) = plan(joined, alone).watches
    assert sorted(watch.store_names) == [
        "surface",
        "wall(value): keep the maximum in every 4s window",
        "wall(value): keep the maximum in every 5s window",
    ]
