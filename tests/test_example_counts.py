"""Example counts of each Hypothesis profile."""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests.example_counts import examples


@pytest.mark.parametrize(
    ("profile", "counts"), [("ci", (100, 25, 4)), ("small", (15, 15, 4)), ("nightly", (500, 500, 80))]
)
def test_examples_scale_with_the_profile_when_the_count_is_for_ci(profile: str, counts: tuple[int, ...]) -> None:
    loaded = settings.get_current_profile_name()
    try:
        settings.load_profile(profile)
        assert tuple(examples(count).max_examples for count in (100, 25, 4)) == counts
    finally:
        settings.load_profile(loaded)
