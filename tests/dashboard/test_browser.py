"""The dashboard in a real Chromium, used as a person would; its screenshots are the pictures of the documentation.

`SCREENSHOTS=1 .venv/bin/pytest tests/dashboard/test_browser.py -k readable` renews the pictures in docs/pictures.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from dashboard.asked import evil_run, served
from dashboard.browser import browsing, dashboard, follow, look, shoot, until
from dashboard.plant import RULES, Plant, backtest, copied, ranges_run
from tocsin.dashboard import app
from tocsin.dashboard.store import Store
from tocsin.run_directory.layout import LOCK

ROOT = Path(__file__).resolve().parents[2]
SCREENSHOTS = os.environ.get("SCREENSHOTS")
# Script, which a page must pass: nothing is wider than the screen, no text of a drawing covers another or is cut off.
CROSSED = """
const wrong = [];
if (document.documentElement.scrollWidth > window.innerWidth) wrong.push("the page is wider than the screen");
for (const drawing of document.querySelectorAll("svg[role=img]")) {
  const texts = [...drawing.querySelectorAll("text")].map((one) => [one.textContent, one.getBoundingClientRect()]);
  const whole = drawing.getBoundingClientRect();
  for (const [words, box] of texts) {
    const is_cut = box.left < whole.left - 14 || box.right > whole.right + 18 || box.bottom > whole.bottom + 6;
    if (is_cut) wrong.push("cut: " + words);
  }
  for (let i = 0; i < texts.length; i++) for (let j = i + 1; j < texts.length; j++) {
    const [a, b] = [texts[i][1], texts[j][1]];
    const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (across > 1 && down > 4) wrong.push(texts[i][0] + " covers " + texts[j][0]);
  }
}
for (const one of document.querySelectorAll("h1, h2, h3, p, td, th, dd, dt, li, b, small, a, label")) {
  const style = getComputedStyle(one);
  if (style.overflow === "hidden" && one.scrollWidth > one.clientWidth + 1) wrong.push("clipped: " + one.textContent);
}
return wrong.slice(0, 10);
"""
# The least contrast of any text with what lies behind it, and that text.
CONTRAST = """
const colour = (text) => { const n = text.match(/[\\d.]+/g).map(Number); return n.length > 3 ? n : [...n, 1]; };
const linear = (v) => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
const light = (c) => { const [r, g, b] = c.map((v) => linear(v / 255)); return .2126 * r + .7152 * g + .0722 * b; };
const behind = (one) => { const layers = [];
  for (let at = one; at; at = at.parentElement) {
    const c = colour(getComputedStyle(at).backgroundColor);
    if (c[3]) layers.unshift(c);
    if (c[3] === 1) break;
  }
  return layers.reduce((under, c) => under.map((v, i) => c[i] * c[3] + v * (1 - c[3])), [255, 255, 255]); };
let least = [99, ""];
for (const one of document.querySelectorAll("body *")) {
  const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
  const box = one.getBoundingClientRect();
  if (!own || !box.width || box.right < 0 || one.closest("[aria-hidden]") || one.classList.contains("inside")) continue;
  const style = getComputedStyle(one), back = behind(one);
  const front = colour(one.closest("svg") ? style.fill : style.color).slice(0, 3);
  const [a, b] = [light(front), light(back)].sort((x, y) => y - x);
  const found = (a + .05) / (b + .05);
  if (found < least[0]) least = [found, one.outerHTML.slice(0, 200)];
}
return least;
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with browsing(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(scope="module")
def shown(plant: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A dashboard of four directories: a plant, a backtest of two versions of its rules, ranges, one full of evil."""
    folder = tmp_path_factory.mktemp("shown")
    other = RULES.replace("for: 3s", "for: 8s").replace("keep_firing_for: 10s", "keep_firing_for: 5s")
    strict = Plant(folder / "strict", rules=other.replace("> 3\n", "> 3.05\n"))
    strict.step(7)
    january = backtest(folder / "january", plant / "run", strict.run.folder)
    desk = ranges_run(folder / "desk", ROOT / "examples" / "ranges.yaml")
    evil = evil_run(folder / "evil")
    with dashboard(plant / "run", january, desk, evil) as address:
        yield address


def find(browser: Any, path: str) -> Any:
    return browser.find_element("css selector", path)


def every(browser: Any, path: str) -> list[Any]:
    return list(browser.find_elements("css selector", path))


def text(browser: Any) -> str:
    return str(find(browser, "main").text)


def open_page(browser: Any, address: str, *, width: int = 1440, dark: bool = False) -> None:
    look(browser, width=width, dark=dark)
    browser.get(address)
    until(lambda: "reading the run directory" not in text(browser) or not browser.refresh())


def complaints(browser: Any) -> list[str]:
    """What the browser has to complain of: failures of script, and what the policy forbade."""
    return [str(one["message"]) for one in browser.get_log("browser") if one["level"] == "SEVERE"]


def test_a_person_opens_filters_clicks_an_alert_and_sees_its_witness(browser: Any, shown: str) -> None:
    open_page(browser, f"{shown}/run/run")
    assert find(browser, "h1").text == "Overview"
    follow(browser, browser.find_element("link text", "Alerts"))
    find(browser, "#q").send_keys("condensation")
    find(browser, "#state").send_keys("resolved")
    follow(browser, find(browser, "form.filter button"))
    rows = every(browser, "table.alerts tbody tr")
    assert rows
    assert all("Condensation" in row.text and "resolved" in row.text for row in rows)
    assert "q=condensation" in browser.current_url
    assert "state=resolved" in browser.current_url
    follow(browser, find(browser, "a.to-alert"))
    assert "/alert/" in browser.current_url
    streams = {row.text.split()[0] for row in every(browser, "table.witness-rows tbody tr")}
    assert streams == {"humidity", "air", "surface"}
    assert "connection refused" in text(browser) or "delivered" in text(browser)
    # The rows around it come from the archive, through the run's own plan.
    browser.execute_script("document.querySelector('[data-part]').scrollIntoView()")
    until(lambda: every(browser, "[data-part] svg"), 150)
    said = find(browser, "[data-part] .said").text
    assert "it fired at 2026-01-01T00:03:21" in said
    assert "omitted: the row of" in said
    assert "it is between rows at least as" in said
    assert complaints(browser) == []


@pytest.mark.slow
def test_a_live_run_changes_on_the_page_without_a_reload(browser: Any, tmp_path: Path) -> None:
    plant = Plant(tmp_path / "live")
    plant.step(1)
    (plant.run.folder / LOCK).write_text(str(os.getpid()))
    with dashboard(plant.run.folder) as address:
        open_page(browser, f"{address}/run/run")
        until(lambda: find(browser, "#live-text").text == "live")
        browser.execute_script("window.stays = 'the same page'")
        before = find(browser, "#tiles").text
        assert "micro-batch 0" in text(browser)
        plant.step(1)
        until(lambda: "micro-batch 1" in text(browser))
        assert find(browser, "#tiles").text != before
        plant.step(2)
        until(lambda: "micro-batch 3" in text(browser))
        (plant.run.folder / LOCK).unlink()
        until(lambda: find(browser, "#live-text").text == "not running")
        assert browser.execute_script("return window.stays") == "the same page"
    until(lambda: "connection lost" in find(browser, "#live-text").text)
    browser.get("about:blank")
    browser.get_log("browser")


@pytest.mark.slow
def test_news_that_come_before_the_first_word_of_the_server_are_shown(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant, go_on, told = Plant(tmp_path / "live"), threading.Event(), app._news
    plant.step(1)

    async def later(store: Store, request: Request) -> AsyncIterator[str]:
        while not go_on.is_set():
            await asyncio.sleep(0.05)
        async for news in told(store, request):
            yield news

    monkeypatch.setattr(app, "_news", later)
    with served(plant.run.folder) as server:
        open_page(browser, f"http://127.0.0.1:{server.port}/run/run")
        assert "micro-batch 0" in text(browser)
        plant.step(1)
        until(lambda: "micro-batch 1" in server.get("/run/run").text)
        go_on.set()
        until(lambda: "micro-batch 1" in text(browser))
        browser.get("about:blank")
    browser.get_log("browser")


@pytest.mark.slow
def test_hostile_texts_do_nothing_in_a_browser(browser: Any, shown: str) -> None:
    open_page(browser, f"{shown}/run/evil")
    seen, wanted = set[str](), [f"{shown}/run/evil"]
    while wanted and len(seen) < 40:
        page = wanted.pop(0)
        if page in seen or "/evil" not in page:
            continue
        seen.add(page)
        browser.get(page)
        assert browser.execute_script("return typeof window.evil") == "undefined", page
        assert every(browser, "img, iframe, object, embed") == []
        wanted += [str(one.get_attribute("href")) for one in every(browser, "main a, nav a")]
    assert len(seen) > 30
    assert complaints(browser) == []
    browser.get(f"{shown}/run/evil/alerts")
    assert "<script>window.evil=1</script>" in text(browser)


@pytest.mark.slow
def test_pages_are_used_by_keyboard_alone_and_everything_has_a_name(browser: Any, shown: str) -> None:
    from selenium.webdriver.common.keys import Keys

    open_page(browser, f"{shown}/run/run/alerts")
    find(browser, "body").send_keys("/")
    assert browser.switch_to.active_element.get_attribute("id") == "q"
    browser.switch_to.active_element.send_keys("m0002", Keys.ENTER)
    until(lambda: "q=m0002" in browser.current_url)
    find(browser, "body").send_keys(Keys.TAB)
    assert browser.switch_to.active_element.text == "Skip to the content"
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    for _ in range(30):
        if "to-alert" in (browser.switch_to.active_element.get_attribute("class") or ""):
            break
        browser.switch_to.active_element.send_keys(Keys.TAB)
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    until(lambda: "/alert/" in browser.current_url)
    for path in ("/run/run", "/run/run/alerts", "/diff", "/run/desk/ranges"):
        browser.get(shown + path)
        nodes = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        roles = ("link", "button", "textbox", "searchbox", "combobox", "img", "region", "table", "navigation", "search")
        used = [one for one in nodes if one.get("role", {}).get("value") in roles and not one.get("ignored")]
        bare = {"table", "search"}
        nameless = [one["role"]["value"] for one in used if not one.get("name", {}).get("value")]
        assert set(nameless) <= bare, path
        assert any(one["role"]["value"] == "link" for one in used)


@pytest.mark.slow
def test_requests_of_ranges_are_looked_up_by_their_id(browser: Any, shown: str) -> None:
    open_page(browser, f"{shown}/run/desk/ranges")
    assert "28\nactive requests" in text(browser)
    assert "12\nmatured so far" in text(browser)
    find(browser, "#id").send_keys("anna-3")
    follow(browser, find(browser, "form.filter button"))
    assert "Matured 1 time." in text(browser)
    browser.get(f"{shown}/run/desk/ranges?id=bert-1")
    assert "Not matured so far" in text(browser)
    assert "tocsin ranges progress" in text(browser)


@pytest.mark.slow
def test_two_versions_are_compared(browser: Any, shown: str) -> None:
    open_page(browser, f"{shown}/run/january")
    follow(browser, browser.find_element("link text", "Compare"))
    tiles = [one.text.split("\n") for one in every(browser, ".tile")]
    numbers = {words: int(number.replace(",", "")) for number, words in tiles}
    assert numbers["alerts only in A"] > 0
    assert numbers["alerts in both"] > 0
    follow(browser, browser.find_element("partial link text", "only in A"))
    assert len(every(browser, "tbody tr")) == min(numbers["alerts only in A"], 50)
    assert "Only in A, january" in text(browser)


@pytest.mark.parametrize("path", ["/diff?a=january&b=january~against&part=both", "/run/run/streams"])
@pytest.mark.slow
def test_a_table_that_is_cut_off_says_so(browser: Any, shown: str, path: str) -> None:
    open_page(browser, shown + path, width=390)
    until(lambda: every(browser, ".wide.is-cut > table"))
    open_page(browser, shown + path, width=1440)
    until(lambda: find(browser, "#live-text").text == "not running")
    assert not every(browser, ".wide.is-cut")


@pytest.mark.slow
def test_a_browser_gives_the_token_once(browser: Any, plant: Path, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a-token-that-nobody-guesses\n")
    with dashboard(plant / "run", options=("--token-file", str(token))) as address:
        browser.get(f"{address}/run/run/alerts")
        assert find(browser, "h1").text == "Tocsin"
        find(browser, "#token").send_keys("wrong")
        follow(browser, find(browser, "button"))
        assert "Wrong token." in text(browser)
        find(browser, "#token").send_keys("a-token-that-nobody-guesses")
        follow(browser, find(browser, "button"))
        until(lambda: browser.current_url == f"{address}/run/run/alerts")
        browser.get(f"{address}/run/run")
        assert find(browser, "h1").text == "Overview"
        browser.delete_all_cookies()
    browser.get("about:blank")
    browser.get_log("browser")


@pytest.mark.slow
def test_a_page_asks_for_the_token_again_when_its_server_was_started_anew(
    browser: Any, plant: Path, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("a-token-that-nobody-guesses\n")
    options = ("--token-file", str(token))
    with dashboard(plant / "run", options=options) as address:
        browser.get(f"{address}/run/run/alerts")
        find(browser, "#token").send_keys("a-token-that-nobody-guesses")
        follow(browser, find(browser, "button"))
        until(lambda: find(browser, "#live-text").text == "not running")
    until(lambda: "connection lost" in find(browser, "#live-text").text)
    with dashboard(plant / "run", options=(*options, "--port", address.rpartition(":")[2])):
        until(lambda: every(browser, "#token"), 120)
        assert "back=/run/run/alerts" in browser.current_url
        browser.delete_all_cookies()
        browser.get("about:blank")
    browser.get_log("browser")


@pytest.mark.slow
def test_a_page_that_may_not_listen_still_follows_a_run(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "MOST_LISTENERS", 0)
    plant = Plant(tmp_path / "live")
    plant.step(1)
    with served(plant.run.folder) as server:
        open_page(browser, f"http://127.0.0.1:{server.port}/run/run")
        assert "micro-batch 0" in text(browser)
        plant.step(1)
        until(lambda: "micro-batch 1" in text(browser), 60)
        browser.get("about:blank")
    browser.get_log("browser")


# What the documents show: a name, a page of the shown runs, and a link to follow from there.
PICTURES = {
    "overview": ("/run/run", ""),
    "rule": ("/run/run/rules", "Condensation"),
    "alert": ("/run/run/alerts?q=condensation&state=resolved", ".to-alert"),
    "alerts": ("/run/run/alerts", ""),
    "stream": ("/run/run/streams", "humidity"),
    "ranges": ("/run/desk/ranges", ""),
    "one micro-batch": ("/run/desk", ""),
    "compare": ("/diff?a=january&b=january~against&part=only_first", ""),
    "runs": ("/", ""),
}


@pytest.mark.parametrize("name", PICTURES)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.slow
def test_a_page_is_readable_wide_and_narrow_light_and_dark(
    browser: Any, shown: str, name: str, width: int, tmp_path: Path, *, dark: bool
) -> None:
    path, link = PICTURES[name]
    open_page(browser, shown + path, width=width, dark=dark)
    if link:
        by = ("css selector", link) if link.startswith(".") else ("link text", link)
        follow(browser, browser.find_element(*by))
    for part in every(browser, "[data-part]"):
        browser.execute_script("arguments[0].scrollIntoView()", part)
        until(lambda: every(browser, "[data-part] svg"), 150)
        browser.execute_script("window.scrollTo(0, 0)")
    until(lambda: find(browser, "#live-text").text in {"not running", "finished backtest"})
    file = f"{name}-{width}-{'dark' if dark else 'light'}.png"
    picture = ROOT / "docs" / "pictures" / file
    shoot(browser, picture if SCREENSHOTS and picture.exists() else tmp_path / file)
    assert browser.execute_script(CROSSED) == []
    least, where = browser.execute_script(CONTRAST)
    assert least >= 4.5, where
    assert complaints(browser) == []


@pytest.mark.slow
def test_a_run_directory_that_is_gone_while_it_is_shown_breaks_no_page(
    browser: Any, plant: Path, tmp_path: Path
) -> None:
    import shutil

    folder = copied(plant / "run", tmp_path / "gone")
    with dashboard(folder) as address:
        open_page(browser, f"{address}/run/gone")
        shutil.rmtree(folder)
        for page in ("", "/alerts", "/rules", "/streams", "/plan"):
            browser.get(f"{address}/run/gone{page}")
            assert every(browser, "h1")
            assert "could not be rendered" not in text(browser)


@pytest.mark.slow
def test_a_page_whose_alert_is_gone_does_not_say_that_it_is_live(browser: Any, plant: Path, tmp_path: Path) -> None:
    folder = copied(plant / "run", tmp_path / "run")
    with dashboard(folder) as address:
        open_page(browser, f"{address}/run/run/alerts")
        follow(browser, find(browser, "tbody a[href*='/alert/']"))
        until(lambda: find(browser, "#live-text").text not in {"", "removed; this is the last state"})
        for path in (folder / "alerts").iterdir():
            path.unlink()
        until(lambda: find(browser, "#live-text").text == "removed; this is the last state")
        assert "is-live" not in str(find(browser, "#live").get_attribute("class"))
