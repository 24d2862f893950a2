"""HTTP below the requests: what a connection may make the adapter hold before there is a request to answer."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LONGEST_HEAD = 64 << 10
"""Bytes of a request's line and headers."""

HEAD_WITHIN_S = 30.0
"""How long a connection may take for its first request's head."""

TOO_LONG = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: application/problem+json\r\nConnection: close\r\n\r\n"
    b'{"title":"refused","status":431,"detail":"The request line and headers have more than 65536 bytes."}'
)


class BoundedProtocol(HttpToolsProtocol):
    """Uvicorn's protocol, which by itself gathers headers without end."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._head: int | None = 0
        """Bytes that have come of a head; None, while there is none."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Called with a new connection."""
        super().connection_made(transport)
        self._patience = self.loop.call_later(HEAD_WITHIN_S, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called where it has ended."""
        self._patience.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Called with what has come."""
        if self._head is not None:
            self._head += len(data)
        super().data_received(data)
        if self._head is not None and self._head > LONGEST_HEAD and not self.transport.is_closing():
            self.transport.write(TOO_LONG)
            self.transport.close()

    def on_message_begin(self) -> None:
        """Called where a request begins."""
        self._head = self._head or 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Called where its headers end."""
        self._head = None
        self._patience.cancel()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Called where it ends; what comes next is another's head."""
        self._head = 0
        super().on_message_complete()
