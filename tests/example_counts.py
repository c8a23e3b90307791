"""Example counts of property tests, relative to the active Hypothesis profile.

A test that states `max_examples` itself would draw the same few examples in every profile. `examples` scales the count
that a test draws in CI, so that the nightly profile multiplies it. Import this module in test modules only: it reads
the profile, which pytest loads after `conftest.py`.
"""

from __future__ import annotations

from hypothesis import settings

NIGHTLY = "nightly"
# Examples in CI of a test that plans and runs rules. At night it draws as many as any other test.
_ENGINE_COUNT = 25


def examples(count: int) -> settings:
    """Return settings that draw `count` examples in CI, and at night 20 times more, at most the number of the profile.

    >>> examples(25).max_examples <= settings().max_examples
    True
    """
    most = settings().max_examples
    times = most // _ENGINE_COUNT if settings.get_current_profile_name() == NIGHTLY else 1
    return settings(max_examples=min(count * times, most))


ENGINE = examples(_ENGINE_COUNT)
