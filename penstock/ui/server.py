"""The web server of the page: a list of runs, a page for each run, and its figures as they change."""

import asyncio
import json
import math
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sse_starlette.sse import EventSourceResponse
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.errors import ConfigurationError, PenstockError, SourceError
from penstock.runs.follower import Follower
from penstock.runs.manifest import is_run, manifest_of
from penstock.runs.overview import overview, runs_in, state_of
from penstock.storage import durable
from penstock.storage.journal import extent
from penstock.ui.causes import silent_for
from penstock.ui.forecast import Forecast
from penstock.ui.metrics import exposition
from penstock.ui.snapshot import picture, snapshot
from penstock.ui.whatif import SliderPositions, WhatIf
from penstock.web.access import Access
from penstock.web.guard import Guard
from penstock.web.problem import RequestProblem
from penstock.web.server import Certificate, Port, Server, url_of

EVERY_S = 1.0
"""The interval at which an open page gets news, in seconds."""
COOKIE = "penstock"
GRACE_S = 3.0
WHO = "The page"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src "
    "'self'; img-src data:",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class Looked:
    """A run with open pages. It is read at most once a second, however many pages show it.

    Raises:
        SourceError: the directory is not that of a run.
    """

    def __init__(self, run: Path) -> None:
        self._run, self._lock = run, threading.Lock()
        self._at, self._shown, self._state = -math.inf, "", ("", -1, 0)
        self._begin()

    def _begin(self) -> None:
        self.follower, self.forecast = Follower(self._run), Forecast()
        self.picture = picture(self.follower)

    def look(self) -> str:
        """Read what is new of the run, and return its snapshot as JSON.

        Raises:
            SourceError: the run no longer exists.
        """
        with self._lock:
            if time.monotonic() - self._at < 0.9 * EVERY_S:
                return self._shown
            if self.follower.is_another:
                self._begin()
            news = self.follower.read()
            self.forecast.refresh(self.follower)
            state = (self.follower.state, self.forecast.fits, silent_for(self.follower))
            if news or state != self._state or not self._shown:
                figures = snapshot(self.follower, self.forecast)
                self._shown, self._state = json.dumps(figures, allow_nan=False), state
            self._at = time.monotonic()
            return self._shown


class Page:
    """The page, as an ASGI application.

    Args:
        directory: the directory of the runs.
        access: if it has tokens, requests need one that may consume.
        hosts: names, besides localhost and IP addresses, by which the page may be addressed.
        secure: whether browsers reach the page by TLS only.
    """

    def __init__(self, directory: Path, access: Access, hosts: tuple[str, ...] = (), *, secure: bool = False) -> None:
        self._directory = directory.absolute()
        self._guard = Guard(access, hosts, query="token", cookie=COOKIE)
        self.stopping, self._secure = threading.Event(), secure
        self._lock = threading.Lock()
        self._looked: dict[str, Looked] = {}
        self._glances: dict[str, tuple[Any, dict[str, Any]]] = {}

    @cached_property
    def application(self) -> ASGIApp:
        """The ASGI application for a server, which checks each request's token first."""
        routes = [
            Route("/", self._home),
            Route("/runs/{name}", self._run),
            Route("/api/runs", self._list),
            Route("/api/runs/{name}", self._figures),
            Route("/api/runs/{name}/events", self._events),
            Route("/api/runs/{name}/what-if", self._what_if),
            Route("/api/runs/{name}/plan", self._plan),
            Route("/metrics", self._metrics),
        ]
        inner = Starlette(routes=routes, exception_handlers={PenstockError: _told})

        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                return
            try:
                self._guard.check(Request(scope), "consume")
            except RequestProblem as problem:
                answer = PlainTextResponse(problem.detail, problem.status_code, {**HEADERS, **(problem.headers or {})})
                await answer(scope, receive, send)
                return
            await inner(scope, receive, send)

        return guarded

    async def stop(self) -> None:
        """End the event streams, which would go on for ever."""
        self.stopping.set()

    async def _home(self, request: Request) -> Response:
        runs = await asyncio.to_thread(self._overviews)
        return self._with_cookie(request, HTMLResponse(document({"runs": runs}), headers=HEADERS))

    async def _run(self, request: Request) -> Response:
        looked = await asyncio.to_thread(self._look_at, request.path_params["name"])
        figures = json.loads(await asyncio.to_thread(looked.look))
        content = document({"run": figures, "picture": looked.picture, "live": True})
        return self._with_cookie(request, HTMLResponse(content, headers=HEADERS))

    def _with_cookie(self, request: Request, response: Response) -> Response:
        """Store a token from the address in a cookie, so that it need not stay in the address."""
        if (token := request.query_params.get("token")) and not self._guard.is_open:
            response.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=self._secure)
        return response

    async def _list(self, request: Request) -> Response:
        return JSONResponse(await asyncio.to_thread(self._overviews), headers=HEADERS)

    async def _figures(self, request: Request) -> Response:
        looked = await asyncio.to_thread(self._look_at, request.path_params["name"])
        return Response(await asyncio.to_thread(looked.look), media_type="application/json", headers=HEADERS)

    async def _events(self, request: Request) -> Response:
        looked = await asyncio.to_thread(self._look_at, request.path_params["name"])

        async def news() -> AsyncIterator[dict[str, str]]:
            before = ""
            while not self.stopping.is_set():
                try:
                    figures = await asyncio.to_thread(looked.look)
                except PenstockError as error:
                    figures = json.dumps({"gone": str(error)})
                if figures != before:
                    yield {"data": figures}
                    before = figures
                await asyncio.sleep(EVERY_S)

        return EventSourceResponse(news(), headers=HEADERS)

    async def _what_if(self, request: Request) -> Response:
        what_if, place = await self._models(request)
        asked = place if request.query_params else None
        return JSONResponse(await asyncio.to_thread(what_if.surface, asked), headers=HEADERS)

    async def _plan(self, request: Request) -> Response:
        what_if, place = await self._models(request)
        plan = await asyncio.to_thread(what_if.plan, place, _number(request, "trigger") or 0.0)
        file = quote(f"{request.path_params['name']}-plan.json")
        disposition = {"Content-Disposition": f"attachment; filename*=UTF-8''{file}"}
        return Response(plan.text, media_type="application/json", headers={**HEADERS, **disposition})

    async def _models(self, request: Request) -> tuple[WhatIf, SliderPositions]:
        """Return a run's predictions and the positions of the page's sliders.

        Raises:
            ConfigurationError: the run has no fitted models yet, or a slider's position is not a number.
        """
        looked = await asyncio.to_thread(self._look_at, request.path_params["name"])
        forecast = looked.forecast
        if forecast.what_if is None:
            raise ConfigurationError(forecast.why_not)
        times = _number(request, "rate")
        others = {name: _number(request, name) for name in ("cores", "min_rows", "max_delay")}
        return forecast.what_if, SliderPositions(1.0 if times is None else times, **others)

    async def _metrics(self, request: Request) -> Response:
        return Response(await asyncio.to_thread(self._exposition), media_type="text/plain; version=0.0.4", headers=HEADERS)

    def _exposition(self) -> bytes:
        """Return the metrics for Prometheus: the state of each run, and the figures of the running ones."""
        states: dict[str, str] = {}
        for run in _runs(self._directory):
            with suppress(PenstockError, OSError):  # it is just being made or removed, or is not a run
                states[run.name] = state_of(run, manifest_of(run))
        snapshots = []
        for name in (name for name, state in states.items() if state == "running"):
            with suppress(PenstockError, OSError):
                snapshots.append(json.loads(self._look_at(name).look()))
        return exposition(states, snapshots)

    def _overviews(self) -> list[dict[str, Any]]:
        overviews = []
        for run in _runs(self._directory):
            with suppress(PenstockError, OSError):  # it is just being made or removed, or is not a run
                overviews.append(self._overview(run))
        return sorted(overviews, key=lambda one: -(one["last_commit"] or 0.0))

    def _overview(self, run: Path) -> dict[str, Any]:
        """Return a run's overview, which is read again only if its ledgers or its state have changed."""
        manifest = manifest_of(run)
        if manifest.is_real_time:
            return overview(run).to_json()
        sizes = sorted((path.name, extent(path)) for path in durable.matching(run, "batches-*.jsonl"))
        key = (state_of(run, manifest), tuple(sizes))
        before = self._glances.get(run.name)
        if before is None or before[0] != key:
            before = self._glances[run.name] = (key, overview(run).to_json())
        return before[1]

    def _look_at(self, name: str) -> Looked:
        known = {run.name: run for run in _runs(self._directory)}
        if name not in known:
            raise SourceError(f"There is no run {name} in {self._directory}; there are {', '.join(known) or 'none'}.")
        with self._lock:
            if name not in self._looked:
                self._looked[name] = Looked(known[name])
            return self._looked[name]


def _runs(directory: Path) -> list[Path]:
    """Return the runs in a directory, or the directory itself if it is a run; an empty list if there are none yet."""
    if is_run(directory):
        return [directory]
    try:
        return runs_in(directory)
    except SourceError:
        return []


async def _told(request: Request, error: Exception) -> Response:
    return PlainTextResponse(f"{error}\n", 404 if isinstance(error, SourceError) else 422, HEADERS)


def _number(request: Request, name: str) -> float | None:
    """Return a number of a request's query, or None if it is not given.

    Raises:
        ConfigurationError: the text is not a number.
    """
    try:
        return float(request.query_params[name]) if name in request.query_params else None
    except ValueError:
        raise ConfigurationError(f"{name}={request.query_params[name]}: a number is needed.") from None


def document(content: dict[str, Any]) -> str:
    """Return the page with its data embedded; it then requests only the news of a running run."""
    own = files("penstock.ui") / "page"
    html, style, script = ((own / name).read_text("utf-8") for name in ("page.html", "page.css", "page.js"))
    data = json.dumps(content, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return html.replace("/*STYLE*/", style).replace("/*SCRIPT*/", script).replace("/*DATA*/", data)


def saved(run: Path) -> str:
    """Return a run's page as one self-contained HTML file.

    Raises:
        SourceError: the directory is not that of a run.
    """
    follower, forecast = Follower(run), Forecast()
    forecast.refresh(follower, wait=True)
    figures = snapshot(follower, forecast)
    surface = None if forecast.what_if is None else forecast.what_if.surface()
    return document({"run": figures, "picture": picture(follower), "live": False, "surface": surface})


def serve(page: Page, host: str, port: int, ready: Callable[[str], None], tls: Certificate | None = None) -> None:
    """Serve the page until interrupted.

    Args:
        port: the port, or 0 for any free one.
        ready: called with the address once connections are accepted.

    Raises:
        PortInUseError: the port is taken.
        ConfigurationError: there is no such host.
    """
    at = Port(host, port, WHO)
    at.open()
    ready(url_of(host, at.number, tls))

    async def until_interrupted() -> None:
        stop, at_once = asyncio.Event(), asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, lambda: (at_once if stop.is_set() else stop).set())
        await Server(page.application, at, tls).serve(stop, page.stop, GRACE_S, at_once)

    asyncio.run(until_interrupted())


@contextmanager
def beside(page: Page, host: str, port: int) -> Iterator[str]:
    """Serve the page from a thread within the block; yields its address.

    Raises:
        PortInUseError: the port is taken.
        ConfigurationError: there is no such host.
    """
    at = Port(host, port, WHO)
    at.open()
    address, stop, loops = url_of(host, at.number, None), asyncio.Event(), list[asyncio.AbstractEventLoop]()

    async def until_left() -> None:
        loops.append(asyncio.get_running_loop())
        await Server(page.application, at).serve(stop, page.stop, GRACE_S)

    thread = threading.Thread(target=lambda: asyncio.run(until_left()), daemon=True)
    thread.start()
    try:
        yield address
    finally:
        while thread.is_alive() and not loops:
            time.sleep(0.01)
        for loop in loops:
            with suppress(RuntimeError):  # the loop has closed
                loop.call_soon_threadsafe(stop.set)
        thread.join(GRACE_S + 1.0)
