"""The documentation site: its check reports resources of other hosts, and its search works without a server."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from dashboard.browser import browsing, until
from scripts.check_site import POLICY, css_problems, page_problems, site_problems

ROOT = Path(__file__).resolve().parents[2]
HEAD = f'<head><meta http-equiv="Content-Security-Policy" content="{POLICY}">'
# Each of these loads something from another host.
REMOTE = [
    '<script src="https://cdn.example/x.js"></script>',
    '<script src="//cdn.example/x.js"></script>',
    '<link rel="stylesheet" href="https://fonts.example/css">',
    '<link rel="preconnect" href="https://fonts.example">',
    '<img src="http://badge.example/x.svg">',
    '<img srcset="a.png 1x, https://cdn.example/a.png 2x">',
    "<style>@font-face { src: url('https://fonts.example/x.woff2') }</style>",
    '<p style="background: url(//cdn.example/x.png)">',
    '<iframe src="https://video.example/1"></iframe>',
]


@pytest.mark.parametrize("tag", REMOTE)
def test_page_has_one_problem_when_a_tag_loads_from_another_host(tag: str) -> None:
    assert len(page_problems(HEAD + tag)) == 1


def test_page_has_no_problem_when_it_only_links_to_another_host() -> None:
    text = HEAD + '<link rel="canonical" href="https://a.example/"><a href="https://b.example">b</a><img src="x.png">'
    assert page_problems(text) == []


def test_page_has_a_problem_when_its_policy_is_missing() -> None:
    assert "must have one content security policy" in page_problems("<head></head>")[0]


def test_style_sheet_has_a_problem_when_it_imports_from_another_host() -> None:
    assert list(css_problems('@import "https://fonts.example/css"; a { background: url(data:x) }')) == [
        "style sheet loads https://fonts.example/css"
    ]


def test_site_names_the_file_when_it_has_a_problem(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text("a { background: url(//b.example/c.png) }")
    (tmp_path / "index.html").write_text(HEAD)
    assert site_problems(tmp_path) == [f"{tmp_path / 'a.css'}: style sheet loads //b.example/c.png"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site, and return its directory."""
    folder = tmp_path_factory.mktemp("site")
    mkdocs = Path(sys.executable).with_name("mkdocs")
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    subprocess.run([mkdocs, "build", "--site-dir", folder], cwd=ROOT, env=environment, check=True)
    return folder


def results_of(browser: Any, words: str) -> str:
    """Search in the open page, and return the text of the results."""
    browser.execute_script("document.querySelector('#__search').click()")
    browser.find_element("css selector", "input.md-search__input").send_keys(words)
    until(lambda: browser.find_elements("css selector", ".md-search-result__item"))
    return str(browser.find_element("css selector", ".md-search-result__list").text)


@pytest.mark.slow
def test_search_finds_a_page_when_the_site_is_opened_from_a_disk(site: Path, tmp_path: Path) -> None:
    with browsing(tmp_path / "profile") as browser:
        browser.get(f"{site.as_uri()}/index.html")
        assert "Write a rule" in results_of(browser, "hysteresis")


@pytest.mark.slow
def test_pages_load_from_their_server_only_when_a_browser_opens_them(site: Path, tmp_path: Path) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(site)))
    address = f"http://127.0.0.1:{server.server_port}/"
    with server, browsing(tmp_path / "profile") as browser:
        threading.Thread(target=server.serve_forever).start()
        try:
            for page in ("index.html", "how-to/monitor-a-run.html", "reference/python-api.html"):
                browser.get(address + page)
                assert results_of(browser, "hysteresis")
                loaded = browser.execute_script("return performance.getEntriesByType('resource').map(e => e.name)")
                assert f"{address}search/search_index.json" in loaded
                assert [name for name in loaded if not name.startswith((address, "data:", "blob:"))] == []
                assert [entry for entry in browser.get_log("browser") if "Content Security" in entry["message"]] == []
        finally:
            server.shutdown()
