"""What became of the rows of a store, in a run that may go on."""

from __future__ import annotations

from collections.abc import Mapping

from tocsin.report import StoreSummary


class StoreNow(StoreSummary):
    """What became of the rows of a store in a run that may go on: `now` is what it remembers at this moment."""

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


def stores_of(counts: Mapping[str, Mapping[str, int]], passing: Mapping[str, float] | None = None) -> list[StoreNow]:
    """The stores of a run by their counts, those without a name left out; `passing` is that of the manifest."""
    shares = passing or {}
    return [StoreNow(name, parts, shares.get(name, 0.0)) for name, parts in counts.items() if name]
