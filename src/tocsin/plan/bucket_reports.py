"""Said: what each bucket said last of what its memory finds and its processor time buys, and what holds of them all.

A bucket speaks when it is called, and most micro-batches call a few: what the others said before still holds. After a
start every bucket is called once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tocsin.runtime.contract import Found, Out


class Said:
    """The last words of each bucket, by alert."""

    def __init__(self) -> None:
        self._memory: dict[int, Mapping[str, Any]] = {}
        self._cpu: dict[int, Mapping[str, Any]] = {}

    def hear(self, bucket: int, memory: Mapping[str, Any], cpu: Mapping[str, Any]) -> None:
        """Learn what a bucket finds with memory and buys with time; of either it tells of all its alerts, or none."""
        if memory:
            self._memory[bucket] = memory
        if cpu:
            self._cpu[bucket] = cpu

    def whole(self) -> Out:
        """The worst that any bucket said."""
        out = Out()
        for one in self._memory.values():
            for alert, found in one.items():
                out.remember(alert, Found(*found))
        for one in self._cpu.values():
            for alert, shares in one.items():
                out.spend(alert, shares)
        return out
