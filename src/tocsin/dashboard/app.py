"""Routes, and nothing else: an address, the page that answers it, and how live news reach it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from tocsin.dashboard.guard import Guard
from tocsin.dashboard.pages.alert import alert_page, picture_part
from tocsin.dashboard.pages.compare import diff_page
from tocsin.dashboard.pages.head import error_page, login_page
from tocsin.dashboard.pages.lists import alerts_page, plan_page, rules_page, streams_page
from tocsin.dashboard.pages.margin import margin_part
from tocsin.dashboard.pages.overview import overview_page, runs_page
from tocsin.dashboard.pages.ranges import alive_part, ranges_page, request_part
from tocsin.dashboard.pages.rule import rule_page
from tocsin.dashboard.pages.stream import stream_page
from tocsin.dashboard.render import address
from tocsin.dashboard.rundata import RunData
from tocsin.dashboard.store import Store

STATIC = Path(__file__).parent / "static"
# How often a page may hear of news, and after how long it hears that the server is still there.
NEWS_S, BEAT_S = 1.0, 15.0
NEWS = "text/event-stream"
# Each page that listens holds a connection; with more, there would be none left for pages.
MOST_LISTENERS = 250

log = logging.getLogger("tocsin.dashboard")

Page = Callable[[Store, RunData, Request], str]


def make_app(store: Store, token: str | None = None, names: Iterable[str] = ()) -> Starlette:
    """Make the application over a store."""
    answers = _Answers(store)
    of_run = answers.of_run
    routes = [
        Route("/", answers.runs),
        Route("/alerts/{alert}", answers.alert),
        Route("/diff", answers.diff),
        Route("/events", answers.events),
        Route("/health", _health),
        Route("/login", _login),
        Route("/run/{run}", of_run(overview_page)),
        Route("/run/{run}/alerts", of_run(alerts_page)),
        Route("/run/{run}/alerts/{alert}", answers.alert),
        Route("/run/{run}/alert/{alert}", of_run(alert_page)),
        Route("/run/{run}/alert/{alert}/picture", of_run(picture_part)),
        Route("/run/{run}/rules", of_run(rules_page)),
        Route("/run/{run}/rule/{rule}", of_run(rule_page)),
        Route("/run/{run}/rule/{rule}/margin", of_run(margin_part)),
        Route("/run/{run}/streams", of_run(streams_page)),
        Route("/run/{run}/stream/{stream}", of_run(stream_page)),
        Route("/run/{run}/ranges", of_run(ranges_page)),
        Route("/run/{run}/ranges/alive", of_run(alive_part)),
        Route("/run/{run}/ranges/progress", of_run(request_part)),
        Route("/run/{run}/plan", of_run(plan_page)),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    guard = Middleware(Guard, token=token, names=tuple(names))
    handlers: dict[Any, Any] = {HTTPException: _not_found}
    return Starlette(routes=routes, middleware=[guard], exception_handlers=handlers, lifespan=_lifespan(store))


class _Answers:
    """What is answered out of a store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.listeners: set[Response] = set()

    def of_run(self, page: Page) -> Callable[[Request], Response]:
        """Answer with a page of the run that an address names."""

        def answer(request: Request) -> Response:
            run = self.store.runs.get(request.path_params["run"])
            if run is None:
                raise HTTPException(404, "run not found")
            return _made(lambda: page(self.store, run, request))

        return answer

    def runs(self, request: Request) -> Response:
        """All runs; one that is alone is shown at once."""
        own = self.store.own_runs()
        if len(own) == 1:
            return RedirectResponse(address(own[0]))
        return _made(lambda: runs_page(self.store, request))

    def alert(self, request: Request) -> Response:
        """Where sinks link to, who know a dashboard and the id of an alert: the first run that has it."""
        name, wanted = request.path_params["alert"], request.path_params.get("run")
        for run in self.store.own_runs():
            if wanted in {None, run.name} and self.store.by_id(run, name):
                return RedirectResponse(address(run, "alert", name))
        raise HTTPException(404, "alert not found in any run")

    def diff(self, request: Request) -> Response:
        """Two runs side by side."""
        return _made(lambda: diff_page(self.store, request))

    async def events(self, request: Request) -> Response:
        """News, to as many as may listen."""
        if request.method == "HEAD":
            return Response(media_type=NEWS)
        if len(self.listeners) >= MOST_LISTENERS:
            return PlainTextResponse("too many open pages\n", 503, {"Retry-After": "15"})
        return _News(_news(self.store, request), self.listeners)


def _made(make: Callable[[], str]) -> Response:
    """A page, or a page that says that it could not be made: what a run directory holds must not end a server."""
    try:
        return HTMLResponse(make())
    except HTTPException:
        raise
    except Exception:
        log.exception("a page could not be made")
        return HTMLResponse(error_page(500, "this page could not be rendered; see the log of the dashboard"), 500)


def _login(request: Request) -> Response:
    return HTMLResponse(login_page(request))


def _health(request: Request) -> Response:
    return PlainTextResponse("ok\n")


def _lifespan(store: Store) -> Any:
    @asynccontextmanager
    async def living(app: Starlette) -> AsyncIterator[None]:
        store.start()
        yield
        store.close()

    return living


async def _news(store: Store, request: Request) -> AsyncIterator[str]:
    """Tell when something new is known; the page then asks for itself again."""
    known, silent = "", 0.0
    while not await request.is_disconnected():
        version = store.version
        if version != known or silent >= BEAT_S:
            known, silent = version, 0.0
            yield f"data: {json.dumps(version)}\n\n"
        await asyncio.sleep(NEWS_S)
        silent += NEWS_S


class _News(StreamingResponse):
    """News as long as somebody hears them, who is among the listeners from when it is made: many may ask at once."""

    def __init__(self, news: AsyncIterator[str], listeners: set[Response]) -> None:
        super().__init__(news, media_type=NEWS)
        self._listeners = listeners
        listeners.add(self)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send them."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._listeners.discard(self)


async def _not_found(request: Request, error: HTTPException) -> Response:
    return HTMLResponse(error_page(error.status_code, str(error.detail)), error.status_code)
