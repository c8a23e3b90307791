"""Pages of the documentation are complete: they name each source, each sink and each kind of an explanation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.docs.examples import DOCS, ROOT, blocks_of, load_yaml, pages
from tocsin.delivery import make_sink
from tocsin.delivery.sinks import Sink
from tocsin.rules.schema import SOURCES

HOW_TO = DOCS / "how-to"


def yaml_of(name: str, title: str | None = None) -> Any:
    """Return the first YAML block of a how-to guide, or the one with a title."""
    blocks = [block for block in blocks_of(HOW_TO / name) if block.language == "yaml"]
    return load_yaml(next(block.text for block in blocks if title in (None, block.title)))


def test_sources_page_names_each_source() -> None:
    page = (HOW_TO / "read-sources.md").read_text("utf-8")
    assert [kind for kind in SOURCES if f"`{kind}`" not in page] == []


def test_sinks_page_has_an_example_of_each_sink() -> None:
    kinds = [next(iter(sink.items())) for sink in yaml_of("deliver-alerts.md")["sinks"]]
    assert {type(make_sink(kind, options)) for kind, options in kinds} == set(Sink.__args__)  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", [sink.kind for sink in Sink.__args__])  # type: ignore[attr-defined]
def test_sinks_page_names_the_sink_in_its_table(kind: str) -> None:
    assert f"| `{kind}` |" in (HOW_TO / "deliver-alerts.md").read_text("utf-8")


def test_debug_page_lists_each_kind_of_reason() -> None:
    code = "".join(path.read_text("utf-8") for path in (ROOT / "src/tocsin/trace").glob("*.py"))
    page = (HOW_TO / "debug-an-alert.md").read_text("utf-8")
    table = "\n".join(re.findall(r"^\| (`[^|]*) \|", page, re.MULTILINE))
    listed = set(re.findall(r"`([a-z-]+)`", table))
    assert set(re.findall(r'Reason\("([a-z-]+)"', code)) - {"not-evaluated"} <= listed
    assert all(f'"{kind}"' in code for kind in listed)


@pytest.mark.parametrize("key", ["alert", "for", "keep_firing_for", "labels"])
def test_rules_of_the_prometheus_page_have_the_same_value(key: str) -> None:
    page = "migrate-from-prometheus.md"
    files = (yaml_of(page, "prometheus-rules.yml"), yaml_of(page, "cold-store.yaml"))
    theirs, ours = (content["groups"][0]["rules"][0] for content in files)
    assert theirs[key] == ours[key]


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(DOCS)))
def test_first_line_of_a_page_names_its_readers(page: Path) -> None:
    assert re.match(r"# [^\n]+\n\n(For|This (page|tutorial) is for) ", page.read_text("utf-8"))


@pytest.mark.parametrize(
    "page", [page for page in pages() if page.parent.name in ("tutorials", "how-to")], ids=lambda page: page.name
)
def test_guide_has_an_example_before_its_first_heading(page: Path) -> None:
    introduction = page.read_text("utf-8").partition("\n## ")[0]
    assert "\n```" in introduction
