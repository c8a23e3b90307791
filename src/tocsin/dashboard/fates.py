"""What became of the rows of a store, in a run that may go on."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass

from tocsin.report import StoreSummary


@dataclass(frozen=True)
class StoreNow(StoreSummary):
    """What became of the rows of a store in a run that may go on: `now` is what it remembers at this moment.

    Of requests of ranges, those that counts have as expired are `done`: they were reached or terminated.
    """

    is_requests: bool = False

    @property
    def parts(self) -> dict[str, int]:
        """What became of the rows; the numbers add up to those received."""
        found = super().parts
        return {"done" if name == "expired" and self.is_requests else name: number for name, number in found.items()}

    @property
    def now(self) -> int:
        """Rows that are remembered, or wait."""
        return self.counts.get("retained", 0) + self.counts.get("held", 0)

    @property
    def is_mixed(self) -> bool:
        """Tell whether ways that remember and ways that do not are counted together, and some rows had other fates."""
        return 0 < self.passing < 1 and any(self.counts.get(name, 0) for name in ("late", "quarantined"))

    @property
    def differs_by(self) -> int:
        """By how much what became of the rows differs from what was received: nought, or something is wrong."""
        return self.received - sum(self.parts.values())


def stores_of(
    counts: Mapping[str, Mapping[str, int]], passing: Mapping[str, float] | None = None, requests: Container[str] = ()
) -> list[StoreNow]:
    """The stores of a run by their counts, those without a name left out.

    `passing` is that of the manifest; `requests` are the streams of requests of ranges.
    """
    shares = passing or {}
    return [StoreNow(name, parts, shares.get(name, 0.0), name in requests) for name, parts in counts.items() if name]
