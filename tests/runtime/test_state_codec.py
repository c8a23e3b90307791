"""State pages: values survive encoding, and foreign, damaged or unsupported pages raise an error."""

from __future__ import annotations

import contextlib
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin import RunError
from tocsin.runtime.state_codec import MAGIC, VERSION, arrays_size, pack, packed_size, unpack

SHAPES = st.one_of(st.tuples(st.integers(0, 5)), st.tuples(st.integers(0, 3), st.integers(0, 3)))
CELLS: dict[Any, st.SearchStrategy[Any]] = {
    np.int64: st.integers(-(2**63), 2**63 - 1),
    np.float64: st.floats(allow_nan=True),
    np.bool_: st.booleans(),
    object: st.one_of(st.none(), st.text(max_size=5)),
}
FACTS = st.dictionaries(
    st.from_regex("[a-z]{1,5}", fullmatch=True),
    st.one_of(st.none(), st.integers(), st.text(max_size=4), st.lists(st.text(max_size=3))),
)


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    kind = draw(st.sampled_from(list(CELLS)))
    shape = draw(SHAPES)
    count = int(np.prod(shape))
    array = np.empty(count, dtype=kind)
    array[:] = draw(st.lists(CELLS[kind], min_size=count, max_size=count))
    return array.reshape(shape)


NAMED = st.dictionaries(st.text(max_size=6), arrays(), max_size=4)


@given(NAMED, FACTS)
def test_unpack_returns_the_arrays_and_facts_that_were_packed(
    named: dict[str, np.ndarray], facts: dict[str, Any]
) -> None:
    read, read_facts = unpack(pack(named, **facts))
    assert read_facts == facts
    assert list(read) == list(named)
    for name, array in named.items():
        assert (read[name].dtype, read[name].shape) == (array.dtype, array.shape)
        if array.dtype == object:
            assert read[name].tolist() == array.tolist()
        else:
            assert read[name].tobytes() == array.tobytes()  # NaN and -0.0 too
        assert read[name].flags.writeable


def test_unpack_returns_copies_and_pack_ignores_the_memory_layout() -> None:
    table = np.arange(6).reshape(2, 3)
    assert pack({"x": np.asfortranarray(table)}) == pack({"x": table})
    page = pack({"x": table})
    unpack(page)[0]["x"][:] = 0
    assert unpack(page)[0]["x"].tolist() == table.tolist()


PAGE = pack(
    {"time": np.arange(3), "text": np.array(["é", None], dtype=object), "v": np.ones((2, 2))}, keys=[["a"], ["b"]]
)


@pytest.mark.parametrize(
    "data", [b"", b"PAR1....", pickle.dumps({"time": [1]}), b"tocsin" + PAGE[6:], PAGE[:6], PAGE[1:]]
)
def test_page_is_rejected_when_tocsin_did_not_write_it(data: bytes) -> None:
    with pytest.raises(RunError, match=r"^state page is damaged or was not written by Tocsin"):
        unpack(data)


def of_version(version: int) -> bytes:
    """Return the page with another version in its header."""
    return PAGE[: len(MAGIC)] + version.to_bytes(2, "little") + PAGE[len(MAGIC) + 2 :]


def test_page_is_rejected_when_its_version_is_too_new() -> None:
    message = f"^state page must have state format {VERSION}; got {VERSION + 1}: use the newer Tocsin"
    with pytest.raises(RunError, match=message):
        unpack(of_version(VERSION + 1))


@pytest.mark.parametrize("version", range(1, VERSION))
def test_page_is_rejected_when_its_version_is_too_old(version: int) -> None:
    message = (
        f"^state page must have state format {VERSION}; got {version}, which an older Tocsin wrote: start without state"
        ".*`tocsin run RULES --run-dir NEW` or with a new checkpoint"
    )
    with pytest.raises(RunError, match=message):
        unpack(of_version(version))


@pytest.mark.parametrize("length", range(len(MAGIC), len(PAGE)))
def test_page_is_rejected_when_it_is_truncated(length: int) -> None:
    with pytest.raises(RunError, match=r"^state page is damaged: "):
        unpack(PAGE[:length])


@given(st.integers(len(MAGIC), len(PAGE) - 1), st.integers(1, 255))
def test_unpack_returns_or_raises_a_run_error_when_one_byte_is_wrong(position: int, flip: int) -> None:
    damaged = bytearray(PAGE)
    damaged[position] ^= flip
    # Any other error fails the test.
    with contextlib.suppress(RunError):
        unpack(bytes(damaged))


def test_page_never_contains_a_pickle() -> None:
    class Loud:
        def __reduce__(self) -> tuple[Any, ...]:
            return pytest.fail, ("a page was unpickled",)

    # Objects that are not text cannot be packed, and a pickle in place of an array is not read.
    with pytest.raises(TypeError, match="not JSON serializable"):
        pack({"x": np.array([Loud()], dtype=object)})
    head = b'{"facts": {}, "arrays": [["x", "|O", [1], %d]]}'
    bomb = pickle.dumps(Loud())
    text = head % len(bomb)
    page = MAGIC + VERSION.to_bytes(2, "little") + len(text).to_bytes(8, "little") + text + bomb
    with pytest.raises(RunError, match="damaged"):
        unpack(page)


@pytest.mark.parametrize("largest", [0, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, -(2**62), 2**63 - 1])
@pytest.mark.parametrize("smallest", [0, -7, 2**40, -(2**63)])
def test_integers_have_the_shortest_type_that_represents_their_differences(largest: int, smallest: int) -> None:
    numbers = np.full(1000, smallest)
    numbers[-1] = largest
    page = pack({"a": numbers})
    assert unpack(page)[0]["a"].tolist() == numbers.tolist()
    width = next((size for size in (1, 2, 4) if abs(largest - smallest) < 2 ** (8 * size)), 8)
    assert 0 <= len(page) - 1000 * width < 128


SPARSE_CELLS: dict[Any, tuple[Any, list[Any]]] = {
    np.int64: (-5, [0, -(2**63), 2**63 - 1, -5]),
    np.float64: (0.0, [-0.0, float("nan"), 1.5, 0.0]),
    np.bool_: (False, [True]),
    object: (None, ["", "é", "null"]),
}


@pytest.mark.parametrize("kind", SPARSE_CELLS)
@given(st.integers(0, 600), st.lists(st.integers(0, 599), max_size=60), st.booleans())
def test_a_sparse_array_is_read_back_and_is_not_larger_than_its_bound(
    kind: Any, count: int, at: list[int], is_table: bool
) -> None:
    default, values = SPARSE_CELLS[kind]
    array = np.full(count, default, dtype=kind)
    for number, position in enumerate(at):
        if position < count:
            array[position] = values[number % len(values)]
    array = array.reshape(-1, 2) if is_table and count % 2 == 0 else array
    page = pack({"a": array}, {"a": default})
    (read,) = unpack(page)[0].values()
    assert (read.dtype, read.shape) == (array.dtype, array.shape)
    assert read.tolist() == array.tolist() if kind is object else read.tobytes() == array.tobytes()
    assert len(page) <= packed_size({"a": array})


@given(NAMED, FACTS)
def test_pages_are_not_larger_than_their_bound(named: dict[str, np.ndarray], facts: dict[str, Any]) -> None:
    assert len(pack(named, **facts)) <= packed_size(named, **facts)
    assert arrays_size(named) == sum(arrays_size({name: array}) for name, array in named.items())


def test_an_array_equal_to_its_default_takes_no_bytes_per_cell() -> None:
    sizes = [len(pack({"a": np.zeros(count), "b": np.full((count, 2), None)}, {"a": 0.0})) for count in (100, 100_000)]
    assert sizes[1] - sizes[0] < 20
