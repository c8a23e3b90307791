"""Large expressions: common parts are found correctly, and trees beyond the search limit stay undecided."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from tocsin.expr.certify import certify
from tocsin.expr.certify.simplify import find_common_part, replace_part
from tocsin.expr.parser import parse_number
from tocsin.expr.syntax_tree import Binary, Call, Key, Node, Number, Unary, is_independent_of, walk_nodes


def _grown(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        parts.map("abs({})".format),
        parts.map("-({})".format),
        parts.map("({0} + {0} * 2)".format),
        st.tuples(parts, st.sampled_from("+-*/"), parts).map("({0[0]} {0[1]} {0[2]})".format),
        st.tuples(parts, parts, parts).map("max({0[0]}, {0[1]}, {0[2]}, {0[0]})".format),
        st.tuples(parts, parts, parts).map("where({0[0]} > {0[1]}, {0[2]}, {0[0]})".format),
    )


def _common_part_by_removal(tree: Node, along: Key) -> Node | None:
    """Return the first part whose removal removes the variable: the definition of a common part."""
    for node in walk_nodes(tree):
        if node != tree and isinstance(node, Unary | Binary | Call) and not is_independent_of(node, along):
            if is_independent_of(replace_part(tree, node, Number(0.0)), along):
                return node
    return None


@given(st.recursive(st.sampled_from(["x", "x", "y", "1"]), _grown, max_leaves=12))
def test_common_part_is_first_part_that_contains_all_occurrences(text: str) -> None:
    assume(len(text) < 5_000)
    tree, along = parse_number(text), ("x", None)
    found, expected = find_common_part(tree, along), _common_part_by_removal(tree, along)
    assert found == expected
    assert found is None or expected is None or found.start == expected.start


def test_certificate_is_undecided_when_the_condition_is_too_large_for_a_search() -> None:
    text = " and ".join(f"abs(a - {i}) + b > {i}" for i in range(100))
    verdict = certify(text, {"a": (-40, 85), "b": (0, 85)})["a"]
    assert (verdict.verdict, verdict.help) == ("undecided", "split the condition into several rules")
    largest = certify(text.replace(" and ", " or "), {"a": (-40, 85), "b": (0, 85)})
    assert {name: found.verdict for name, found in largest.items()} == {"a": "quasiconvex", "b": "increasing"}


def test_certificate_names_the_limit_when_neither_a_proof_nor_a_counterexample_is_found() -> None:
    text = " + ".join(f"(x + {i} * y)" for i in range(170)) + " + x * y * (x - y) * 1e-9"
    verdict = certify(f"{text} > 0", {"x": (0, 1), "y": (0, 1)})["x"]
    assert verdict.verdict == "undecided"
    assert "operations, but the proof search is limited to 500" in verdict.proof
