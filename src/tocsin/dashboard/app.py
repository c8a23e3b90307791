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
    FileResponse,
    HTMLResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from tocsin.dashboard import details, pages
from tocsin.dashboard.guard import Guard
from tocsin.dashboard.render import DRAWINGS, address
from tocsin.dashboard.rundata import RunData
from tocsin.dashboard.store import Store

STATIC = Path(__file__).parent / "static"
# How often a page may hear of news, and after how long it hears that the server is still there.
NEWS_S, BEAT_S = 1.0, 15.0

log = logging.getLogger("tocsin.dashboard")

Page = Callable[[Store, RunData, Request], str]


def make_app(store: Store, token: str | None = None, names: Iterable[str] = ()) -> Starlette:
    """Make the application over a store."""

    def of_run(page: Page) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            run = store.runs.get(request.path_params["run"])
            if run is None:
                raise HTTPException(404, "no such run")
            return made(lambda: page(store, run, request))

        return answer

    def made(make: Callable[[], str]) -> Response:
        """A page, or a page that says that it could not be made: what a run directory holds must not end a server."""
        try:
            return HTMLResponse(make())
        except HTTPException:
            raise
        except Exception:
            log.exception("a page could not be made")
            return HTMLResponse(pages.error_page(500, "this page could not be made"), 500)

    def runs(request: Request) -> Response:
        own = store.own_runs()
        if len(own) == 1:
            return RedirectResponse(address(own[0]))
        return made(lambda: pages.runs_page(store, request))

    def diff(request: Request) -> Response:
        return made(lambda: details.diff_page(store, request))

    def login(request: Request) -> Response:
        return HTMLResponse(pages.login_page(request))

    async def events(request: Request) -> Response:
        return StreamingResponse(_news(store, request), media_type="text/event-stream")

    def drawings(request: Request) -> Response:
        return FileResponse(DRAWINGS)

    def health(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    routes = [
        Route("/", runs),
        Route("/diff", diff),
        Route("/events", events),
        Route("/health", health),
        Route("/login", login),
        Route("/run/{run}", of_run(pages.overview_page)),
        Route("/run/{run}/alerts", of_run(pages.alerts_page)),
        Route("/run/{run}/alert/{alert}", of_run(details.alert_page)),
        Route("/run/{run}/alert/{alert}/picture", of_run(details.picture_part)),
        Route("/run/{run}/rules", of_run(pages.rules_page)),
        Route("/run/{run}/rule/{rule}", of_run(details.rule_page)),
        Route("/run/{run}/streams", of_run(pages.streams_page)),
        Route("/run/{run}/stream/{stream}", of_run(details.stream_page)),
        Route("/run/{run}/ranges", of_run(details.ranges_page)),
        Route("/run/{run}/ranges/progress", of_run(details.request_part)),
        Route("/run/{run}/plan", of_run(pages.plan_page)),
        Route("/static/drawings.css", drawings),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    guard = Middleware(Guard, token=token, names=tuple(names))
    handlers: dict[Any, Any] = {HTTPException: _not_found}
    return Starlette(routes=routes, middleware=[guard], exception_handlers=handlers, lifespan=_lifespan(store))


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


async def _not_found(request: Request, error: HTTPException) -> Response:
    return HTMLResponse(pages.error_page(error.status_code, str(error.detail)), error.status_code)
