"""Rolling columns are lists at whose end rows come and at whose front they go."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tocsin.plan.rolling import Rolling

Moves = list[tuple[int, bool, int]]


@given(st.lists(st.tuples(st.integers(0, 90), st.booleans(), st.integers(0, 90)), max_size=12))
def test_rows_are_those_of_a_list(moves: Moves) -> None:
    rolling, numbers, texts = Rolling({"number": np.zeros(0, np.int64), "pair": np.zeros((0, 2))}), [], []
    for at, (more, named, fewer) in enumerate(moves):
        new = [1_000 * at + i for i in range(more)]
        columns = {"number": np.array(new, np.int64), "pair": np.array([[n, -n] for n in new]).reshape(-1, 2)}
        names = np.array([str(n) for n in new], dtype=object)
        rolling.add(columns | ({"text": names} if named else {}))
        numbers, texts = numbers + new, texts + [str(n) if named else None for n in new]
        gone = min(fewer, len(numbers))
        rolling.drop(gone)
        numbers, texts = numbers[gone:], texts[gone:]
        assert len(rolling) == len(numbers)
        assert rolling["number"].tolist() == numbers
        assert rolling["pair"].tolist() == [[n, -n] for n in numbers]
        if "text" in rolling:
            assert rolling["text"].tolist() == texts


def test_what_is_written_to_a_column_stays() -> None:
    rolling = Rolling({"number": np.zeros(0, np.int64)})
    rolling.add({"number": np.arange(3)})
    rolling["number"][1] = 7
    rolling.add({"number": np.arange(100)})
    assert rolling["number"][:4].tolist() == [0, 7, 2, 0]


def test_room_is_no_more_than_eight_times_what_rows_need() -> None:
    rolling = Rolling({"number": np.zeros(0, np.int64)})
    for more, fewer in [(100_000, 1_000), (100, 99_000), (100, 50), (700, 720), (0, 130)]:
        rolling.add({"number": np.arange(more)})
        rolling.drop(fewer)
        assert len(rolling._room["number"]) <= 8 * max(len(rolling), 64)
    assert len(rolling) == 0
