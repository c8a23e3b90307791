"""The local engine: threads show nowhere but in the time taken."""

from __future__ import annotations

import numpy as np
import pytest

from tocsin import Rule, local


def _streams(rows: int, keys: int) -> dict[str, dict[str, object]]:
    rng = np.random.default_rng(7)
    streams: dict[str, dict[str, object]] = {}
    for name in ("air", "surface"):
        value = np.round(rng.normal(size=rows), 1)
        value[rng.integers(0, rows, 20)] = np.nan
        streams[name] = {
            "machine": np.array([f"m{k}" for k in rng.integers(0, keys, rows)]),
            "ts": np.sort(rng.integers(0, rows * 1000, rows)),
            "value": value,
            "site": np.array([f"site {k}" for k in rng.integers(0, 3, rows)]),
        }
    return streams


RULE = Rule(
    alert="Dew",
    expr="air - surface > 4.5",
    within="20ms",
    on=["machine"],
    shapes={"air": "increasing", "surface": "decreasing"},
)


@pytest.mark.parametrize("keys", [1, 2, 7])
def test_any_number_of_threads_gives_the_same_result(monkeypatch: pytest.MonkeyPatch, keys: int) -> None:
    streams = _streams(4000, keys)
    one = local.run(streams, RULE)
    assert one.alerts
    for threads in (2, 3, 5):
        monkeypatch.setattr(local, "ROWS_PER_THREAD", 1)
        monkeypatch.setattr(local.os, "cpu_count", lambda threads=threads: threads)
        several = local.run(streams, RULE)
        assert several.alerts == one.alerts
        assert several.counts == one.counts


def test_alerts_come_by_key_and_each_life_in_its_order() -> None:
    alerts = local.run(_streams(4000, 7), RULE).alerts
    machines = [alert["labels"]["machine"] for alert in alerts]
    assert machines == sorted(machines)
    for alert in alerts:
        life = [other["state"] for other in alerts if other["id"] == alert["id"]]
        assert life in (["firing", "resolved"], ["firing"])


def test_payload_follows_its_row_through_cuts_and_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = _streams(4000, 3)
    whole = local.run(streams, RULE).alerts
    assert {part["payload"]["site"] for alert in whole for part in alert["witness"]} <= {"site 0", "site 1", "site 2"}
    assert local.run(streams, RULE, cuts=[100, 2000, 2001]).alerts == whole
