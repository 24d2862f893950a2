"""What is asked of the adapter: an HTTP request, read off its ASGI scope in one go."""

from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

RETRY_AFTER_S = 1


class Problem(HTTPException):
    """A request that is refused, as RFC 9457 has it; ``detail`` is one sentence for a person."""


def refusal(status: int, detail: str) -> Problem:
    """A problem; where trying again later may help it says when."""
    return Problem(status, detail, {"Retry-After": str(RETRY_AFTER_S)} if status in (429, 503) else None)


class Asked:
    """A request: its headers in lower case, its query, and the parts of its path that the route names."""

    def __init__(self, scope: Scope, receive: Receive, parts: Mapping[str, str]) -> None:
        headers = reversed(scope["headers"])  # of two of one name the first counts
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
        self.query_params = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
        self.path_params: Mapping[str, Any] = parts
        self.raw_path: str = scope["raw_path"].decode("latin-1").partition("?")[0]
        self._receive = receive

    async def stream(self) -> AsyncIterator[bytes]:
        """The body, in chunks.

        Raises
        ------
        ClientDisconnect: the client has gone.
        """
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            more = message.get("more_body", False)
            yield message.get("body", b"")
