"""An adapter in memory, for tests of programs that use the client: only the client's transport is replaced."""

from typing import Any
from urllib.parse import unquote

import httpx
import msgspec


class MemoryTransport(httpx.MockTransport):
    """Stores the events that a client sends, and returns results that a test has provided; for `Client` and `AsyncClient`.

    It does not check event types, as the real adapter does.

    >>> from penstock.client import Client
    >>> adapter = MemoryTransport()
    >>> client = Client("http://adapter", transport=adapter)
    >>> client.send("Words", [{"text": "gate"}]).accepted
    1
    >>> adapter.events["Words"]
    [{'text': 'gate'}]
    >>> adapter.results["Counts", "gate"] = {"text": "gate", "seen": 1}
    >>> client.result("Counts", "gate")["seen"]
    1
    """

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.events: dict[str, list[Any]] = {}
        """The events received, by stream."""
        self.results: dict[tuple[str, ...], Any] = {}
        """The results to return, by stream and key."""
        self.streams: dict[str, list[Any]] = {}
        """The events that consumers receive, by stream; after the last one the connection closes."""
        self._keys: set[str] = set()

    def _answer(self, request: httpx.Request) -> httpx.Response:
        kind, *path = [unquote(part) for part in request.url.raw_path.decode().partition("?")[0].split("/")[1:]]
        if request.method == "POST" and kind == "streams":
            return self._take(path[0], request)
        if request.method == "GET" and kind == "results" and tuple(path) in self.results:
            return httpx.Response(200, content=msgspec.json.encode(self.results[tuple(path)]))
        if request.method == "GET" and kind == "streams" and path[0] in self.streams:
            return self._hand_out(path[0], request.url.params.get("offset", "latest"))
        return httpx.Response(404, json={"title": "refused", "status": 404, "detail": "There is nothing of this name."})

    def _take(self, stream: str, request: httpx.Request) -> httpx.Response:
        events, key = msgspec.json.decode(request.content), request.headers.get("idempotency-key")
        is_repeated = key is not None and key in self._keys
        if key is not None:
            self._keys.add(key)
        if not is_repeated:
            self.events.setdefault(stream, []).extend(events)
        count = len(events)
        return httpx.Response(
            200, json={"accepted": 0 if is_repeated else count, "duplicates": count if is_repeated else 0, "rejected": []}
        )

    def _hand_out(self, stream: str, offset: str) -> httpx.Response:
        events = self.streams[stream]
        start = {"earliest": 0, "latest": len(events)}.get(offset) if not offset.isdigit() else int(offset)
        start = start or 0
        lines = [
            f"id: {number + 1}\ndata: {msgspec.json.encode(event).decode()}\n\n"
            for number, event in enumerate(events[start:], start)
        ]
        headers = {"content-type": "text/event-stream", "x-offset": str(start)}
        return httpx.Response(200, headers=headers, content="".join(lines).encode())
