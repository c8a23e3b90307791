import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tocsin.stages.ranges.cuts import distinct


@given(st.lists(st.floats(allow_nan=False)))
@example([0.0, -0.0, 5e-324, -5e-324, np.inf, -np.inf, 1.7e308, -1.7e308])
@example([3.0, 3.0])
def test_numbers_are_sorted_and_come_once(numbers: list[float]) -> None:
    assert distinct(np.array(numbers)).tolist() == sorted(set(numbers))


@pytest.mark.parametrize("domain", [1, 50, 1 << 40])
def test_many_numbers_are_sorted(domain: int) -> None:
    rng = np.random.default_rng(domain)
    numbers = np.nextafter(rng.integers(-domain, domain, 20_000) / 7, np.inf)
    assert np.array_equal(distinct(numbers), np.unique(numbers))
