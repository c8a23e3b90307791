"""Report files of the documentation site that load something from another host.

Usage: check_site.py DIRECTORY

The script reads the HTML and CSS files of the directory. It prints `file: problem` for each problem, and then exits
with 1. Each page must also have the content security policy of `scripts/site_theme/main.html`. It covers the scripts of
the theme: a browser with this policy blocks each request that they send to another host.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

POLICY = "default-src 'self' file: data: blob: 'unsafe-inline'"
# Attributes that a browser loads when it opens the page. `href` loads in `link` only.
LOADED = {"src", "srcset", "poster", "data", "background", "manifest"}
# Values of `rel` that name the page itself and load nothing.
NOT_LOADED = {"canonical", "next", "prev", "author", "license"}
REMOTE = re.compile(r"^\s*(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
CSS_URL = re.compile(r"""(?:url\(|@import)\s*["']?([^"')\s;]+)""")


class _Page(HTMLParser):
    """Reader of one page. `problems` has its remote resources; `policies` has its security policies."""

    def __init__(self) -> None:
        super().__init__()
        self.problems: list[str] = []
        self.policies: list[str | None] = []
        self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self._in_style = tag == "style"
        if tag == "meta" and (named.get("http-equiv") or "").lower() == "content-security-policy":
            self.policies.append(named.get("content"))
        loads = set(LOADED)
        if tag == "link" and not NOT_LOADED.intersection((named.get("rel") or "").split()):
            loads.add("href")
        for name, value in attrs:
            if name in loads and value and any(REMOTE.match(part) for part in value.split(",")):
                self.problems.append(f"<{tag} {name}> loads {value}")
            if name == "style" and value:
                self.problems.extend(css_problems(value))

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self.problems.extend(css_problems(data))
            self._in_style = False


def css_problems(text: str) -> Iterator[str]:
    """Yield the remote resources of a style sheet."""
    for url in CSS_URL.findall(text):
        if REMOTE.match(url):
            yield f"style sheet loads {url}"


def page_problems(text: str) -> list[str]:
    """Return the remote resources of an HTML page, and whether its policy is missing."""
    page = _Page()
    page.feed(text)
    page.close()
    if page.policies != [POLICY]:
        page.problems.append(f"must have one content security policy, {POLICY!r}; got {page.policies}")
    return page.problems


def site_problems(folder: Path) -> list[str]:
    """Return all problems of the files of a site."""
    problems = []
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".html":
            found: list[str] = page_problems(path.read_text("utf-8"))
        elif path.suffix == ".css":
            found = list(css_problems(path.read_text("utf-8")))
        else:
            continue
        problems += [f"{path}: {problem}" for problem in found]
    return problems


def main(folder: str) -> int:
    """Check a site, and return the exit code."""
    if not (Path(folder) / "index.html").is_file():
        print(f"check_site: {folder}: no index.html; run `make docs`")
        return 1
    problems = site_problems(Path(folder))
    print("\n".join(problems or [f"check_site: {folder} loads nothing from other hosts"]))
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
