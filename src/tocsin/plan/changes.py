"""Changes: what a run that goes on with other rules keeps of its state, what it drops, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tocsin.hashing import stable_hash
from tocsin.plan.identity import has_cpu_budget, has_memory_budget
from tocsin.plan.plan import Plan
from tocsin.rules.durations import duration_text
from tocsin.runtime.state_registry import assign_groups, first_adopters

# What a plan is, in a form that JSON can hold: per key set its stores and rules, by what their state is found by.
Description = dict[str, Any]
# Beside key sets: the rules with ranges, by what their state is found by. No key column has this name.
_RANGES = "~ranges"


def describe_plan(plan: Plan) -> Description:
    """Write down what of a plan its state depends on."""
    return {
        watch.name: {
            "horizon": duration_text(watch.horizon_us),
            "stores": {store.id: str(store) for store in watch.stores if store.remember},
            "rules": {
                one.id: {
                    "name": _named(one.alert, one.labels),
                    "meaning": one.meaning,
                    "text": str(rule),
                    "limits": stable_hash([sorted(limit.numbers.items()) for limit in rule.limits]),
                }
                for rule in watch.rules
                for one in [rule.identity(watch.stores)]
            },
            "silences": {
                one.id: {"name": _named(one.alert, one.labels), "meaning": one.meaning, "text": str(silence)}
                for silence in watch.silences
                for one in [silence.identity]
            },
        }
        for watch in plan.watches
    } | ({_RANGES: {one.name: _named(one.alert, one.labels) for one in plan.ranges}} if plan.ranges else {})


def _keys(watch: str) -> str:
    """Name the keys of a watch, and what tells it from others that have them."""
    on, _, apart = watch.partition("~")
    kind = (
        " (rules with a memory budget)" if has_memory_budget(watch) else " (rules with a reorder wait)" if apart else ""
    )
    kind = " (rules with a CPU budget)" if has_cpu_budget(watch) else kind
    return (f"keys {on}" if on else "no key") + kind


def plan_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return a line for each part of the state that changes between two plans; an empty list if nothing changes."""
    said = list(_ranges(before.get(_RANGES, {}), after.get(_RANGES, {})))
    rules = [
        {name: {*plan[name]["rules"], *plan[name].get("silences", {})} for name in plan if name != _RANGES}
        for plan in (before, after)
    ]
    # A pipeline with a CPU budget has pages of its own, which only a pipeline of the same name adopts.
    apart = [{name for name in plan if has_cpu_budget(name)} for plan in rules]
    shared = [
        {name: plan[name] for name in plan if name not in names} for plan, names in zip(rules, apart, strict=True)
    ]
    taken = assign_groups(*shared) | {name: name for name in apart[0] & apart[1]}
    first = first_adopters(taken)
    now = {old: sorted(name for name in taken if taken[name] == old) for old in taken.values()}
    gone_or_taken = [(old, name) for old in before for name in now.get(old, [None])]
    for was, name in [*gone_or_taken, *((None, name) for name in after if name not in taken)]:
        if _RANGES in {was, name}:
            continue
        old, new = None if was is None else before[was], None if name is None else after[name]
        if was is not None and old is not None and name is not None:
            others = {one for other in now[was] if other != name for one in rules[1][other]}
            mine = rules[1][name] if first[was] != name else old["rules"].keys() - (others - rules[1][name])
            old = old | {"rules": {one: rule for one, rule in old["rules"].items() if one in mine}}
        keys = _keys(str(name if was is None else was))
        if new is None:
            said.append(f"{keys}: no rule uses this pipeline any more; its state is dropped")
        # What was described before there were silences has none.
        for part, start in (("rules", "with the retained rows"), ("silences", "with the next row of a key")):
            said += _rules((old or {}).get(part, {}), (new or {}).get(part, {}), start)
        if new is not None:
            said += _stores((old or {}).get("stores", {}), new["stores"], new["horizon"])
    return said


def _ranges(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    for one, rule in old.items():
        if one not in new:
            yield f"{rule}: it was removed or counts in another way; its requests are dropped"
    for one, rule in new.items():
        if one not in old:
            yield f"{rule}: it starts without requests; only new requests count"


def _rules(old: Mapping[str, Any], new: Mapping[str, Any], start: str) -> Iterator[str]:
    for one, rule in old.items():
        if one not in new:
            yield f"{rule['name']}: it was removed; its open alerts end"
        elif new[one]["meaning"] != rule["meaning"]:
            yield f"{rule['name']}: its condition has changed; its open alerts end, and the rule starts again"
        elif new[one]["text"] != rule["text"]:
            yield f"{rule['name']}: it has changed; its open alerts stay open"
        elif new[one].get("limits") != rule.get("limits"):
            yield f"{rule['name']}: its limits have changed; its open alerts stay open under the new limits"
    for one, rule in new.items():
        if one not in old:
            yield f"{rule['name']}: it is new; it starts {start}"


def _stores(old: Mapping[str, str], new: Mapping[str, str], horizon: str) -> Iterator[str]:
    for one, store in old.items():
        if one not in new:
            yield f"stream {store.partition(':')[0]}: no rule needs these rows any more; they are dropped"
        elif new[one] != store:
            yield (
                f"stream {new[one]}; before: {store.partition(': ')[2]}; omitted rows are not restored, so alerts "
                f"that need them can be missed for rows up to {horizon} old"
            )
    for one, store in new.items():
        if one not in old:
            yield f"stream {store}: its rows are retained from now on"


def _named(alert: str, labels: tuple[tuple[str, str], ...]) -> str:
    shown = ", ".join(f'{name}="{value}"' for name, value in labels)
    return f'rule "{alert}"' + (f" {{{shown}}}" if shown else "")
