"""Examples of the documentation that use Spark: Python in the shared session, and commands in their own processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.docs.examples import DOCS, execute, pages, spark_languages

pytestmark = pytest.mark.spark


def _pages(language: str) -> Any:
    """Parametrize a test with the pages that use Spark in a language."""
    found = [page for page in pages() if language in spark_languages(page)]
    return pytest.mark.parametrize("page", found, ids=[str(page.relative_to(DOCS)) for page in found])


@_pages("python")
def test_python_of_a_page_prints_the_shown_output_on_spark(page: Path, spark: Any, tmp_path: Path) -> None:
    execute(page, tmp_path, spark={"python"})


@pytest.mark.slow
@_pages("console")
def test_commands_of_a_page_print_the_shown_output_on_spark(page: Path, spark: Any, tmp_path: Path) -> None:
    execute(page, tmp_path, spark={"python", "console"})
