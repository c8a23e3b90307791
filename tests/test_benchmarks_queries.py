"""The benchmark of queries runs, small, and judges what it was asked."""

from __future__ import annotations

import pytest

from benchmarks import queries

pytestmark = pytest.mark.slow


def test_budgets_and_forms_are_measured_and_judged() -> None:
    runs = queries.budgets("budgets", quick=True) + queries.forms("forms", quick=True)
    assert {row["what"] for row in runs if row["part"] == "budgets"} == {"few selected", "half selected", "aggregates"}
    assert all(row["used_percent"] > 0 for row in runs if row["part"] == "budgets")
    forms = [row for row in runs if row["part"] == "forms"]
    assert len(forms) == 2 * 3 * 3 * 3 * 5
    assert all(0 <= row["results"] <= 1 and 0 <= row["rare"] <= 1 for row in forms)
    # More units find no less.
    by_budget = [row["results"] for row in forms if (row["keys"], row["window"], row["form"]) == ("zipf", 600, "SHJ")]
    assert by_budget[0] <= by_budget[-1]
    assert {bar["asked"] for bar in queries.bars(runs)} == {"<= 1.2", "<= 0.03", "no worse"}
