"""The server of the adapter and the page: Granian, whose HTTP and WebSockets are hyper and tungstenite, in Rust.

Granian bounds the memory of each connection: a head or trailers may have 64 KB and 100 lines, one pipelined request is
buffered, and of responses that the client does not read only as much as the kernel takes.
"""

import asyncio
import os
import re
import socket
import ssl
import sys
from base64 import b64decode
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from granian.constants import HTTPModes, Interfaces, SSLProtocols
from granian.http import HTTP1Settings
from granian.net import SocketHolder  # type: ignore[attr-defined]
from granian.server.embed import Server as Granian
from starlette.types import ASGIApp

from penstock.errors import ConfigurationError, PortInUseError, SinkError
from penstock.web.exposure import addresses_of

CONNECTIONS = 12_000
"""The greatest number of connections at a time, idle ones included; more wait in the kernel until one ends."""
BACKLOG = 2048
LONGEST_HEAD = 64 << 10
"""The greatest size of a request line with its headers, in bytes."""
HEAD_WITHIN_MS = 30_000
"""How long a connection may take to send a request's head, idle time before it included."""
SENT_AHEAD = 128 << 10
"""The kernel's send buffer for one client, in bytes."""
SILENT_S, ASKED_EVERY_S, ASKED_TIMES = 60, 15, 4
"""TCP keep-alive: seconds without traffic before the first probe, seconds between probes, and the number of probes."""


NO_LOGGING: dict[str, Any] = {"incremental": True, "handlers": {}, "loggers": {}}
"""A logging configuration that changes nothing: by default, Granian would close the handlers of this process."""


@dataclass(frozen=True)
class Certificate:
    """A TLS certificate and its private key, as two PEM files."""

    certificate: Path
    private_key: Path

    @classmethod
    def of(cls, certificate: Path | None, private_key: Path | None) -> "Certificate | None":
        """Return the certificate of two options; None if both are missing.

        Raises:
            ConfigurationError: one is missing, or the files are not a certificate and its key.
        """
        if (certificate is None) != (private_key is None):
            raise ConfigurationError("TLS needs both --certificate and --private-key.")
        if certificate is None or private_key is None:
            return None
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, private_key, lambda: "")
            if not _is_served(private_key.read_bytes()):
                raise ssl.SSLError("its elliptic curve is none of P-256 and P-384")
        except (OSError, ssl.SSLError, ValueError) as error:
            raise ConfigurationError(
                f"The certificate {certificate} and key {private_key} cannot be used: {error}; both must be PEM files without "
                "a passphrase, and belong together."
            ) from error
        return cls(certificate, private_key)


ELLIPTIC, SERVED = bytes.fromhex("2a8648ce3d0201"), (bytes.fromhex("2a8648ce3d030107"), bytes.fromhex("2b81040022"))
"""Object identifiers of elliptic-curve keys, and of the curves that the server supports (it aborts on others)."""


def _is_served(pem: bytes) -> bool:
    """Whether the server can use a private key."""
    body = re.search(rb"-----BEGIN ([A-Z ]*)PRIVATE KEY-----(.*?)-----END", pem, re.DOTALL)
    if body is None:
        return True
    key = b64decode(re.sub(rb"\s", b"", body[2]))
    return not (body[1] == b"EC " or ELLIPTIC in key) or any(curve in key for curve in SERVED)


def url_of(host: str, port: int, tls: Certificate | None) -> str:
    """Return the URL of a server."""
    shown = f"[{host}]" if ":" in host else host
    return f"{'http' if tls is None else 'https'}://{shown}:{port}"


class Port:
    """A bound port that takes no connections before `open`, since callers probe it to see whether the server is up.

    Args:
        number: the port, or 0 for any free one.
        who: the server's name in messages.

    Raises:
        PortInUseError: the port is taken, or may not be used.
        ConfigurationError: there is no such host.
    """

    def __init__(self, host: str, number: int, who: str = "The adapter") -> None:
        self._asked, self._who = f"{host}:{number}", who
        family, _, _, _, address = addresses_of(host, number)[0]
        # Accepted connections inherit these options.
        self._socket = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # By default, the kernel would buffer megabytes for each consumer that does not read, which would keep the server busy.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SENT_AHEAD)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if sys.platform == "linux":
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SILENT_S)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, ASKED_EVERY_S)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, ASKED_TIMES)
        with self._explained():
            self._socket.bind(address)
        self.number = int(self._socket.getsockname()[1])

    def open(self) -> None:
        """Begin to accept connections, which wait until they are served.

        Raises:
            PortInUseError: another process listens on the port meanwhile.
        """
        with self._explained():
            self._socket.listen(BACKLOG)

    def close(self) -> None:
        """Release the port."""
        self._socket.close()

    def handed_over(self) -> SocketHolder:
        """Return a duplicate of the open socket for Granian, which closes it, and close this one."""
        backlog = (BACKLOG,) if sys.platform == "linux" else ()
        holder = SocketHolder(os.dup(self._socket.fileno()), False, *backlog)  # type: ignore[call-arg]
        self._socket.close()
        return holder

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._socket.close()
            raise PortInUseError(
                f"{self._who} cannot listen on {self._asked} ({error.strerror or error}); stop what does, or choose another "
                "with --host and --port."
            ) from error


class Server:
    """Serves an ASGI application at a port until it is told to stop."""

    def __init__(self, application: ASGIApp, port: Port, tls: Certificate | None = None) -> None:
        self._application, self._port, self._tls = application, port, tls

    async def serve(
        self, stop: asyncio.Event, leaving: Callable[[], Awaitable[None]], grace: float, at_once: asyncio.Event | None = None
    ) -> bool:
        """Serve until ``stop`` is set; returns whether all requests in progress were answered after that.

        Args:
            leaving: awaited before the server stops accepting requests; it ends endless responses and WebSocket sessions.
            grace: seconds that requests in progress may take.
            at_once: if set, ends the waiting for them.
        """
        self._port.open()
        tls = {} if self._tls is None else {"ssl_cert": self._tls.certificate, "ssl_key": self._tls.private_key}
        server = _AtPort(self._application, self._port, **tls)
        serving = asyncio.create_task(server.serve())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not stopping.done():
            stopping.cancel()
            serving.result()
            raise SinkError("The HTTP server has ended unexpectedly; start again.")
        hurry = asyncio.create_task((at_once or asyncio.Event()).wait())
        ending = asyncio.create_task(self._end(server, serving, leaving))
        done, _ = await asyncio.wait({ending, hurry}, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        if ending not in done:
            server.stop()
            return False
        ending.result()
        return True

    async def _end(self, server: "_AtPort", serving: "asyncio.Task[None]", leaving: Callable[[], Awaitable[None]]) -> None:
        await leaving()
        server.stop()
        await serving


class _AtPort(Granian):
    """Granian on a port that is already bound: by itself it would share the port with any other process that binds it."""

    def __init__(self, application: ASGIApp, port: Port, **tls: Any) -> None:
        super().__init__(
            application,
            interface=Interfaces.ASGINL,
            http=HTTPModes.http1,
            backpressure=CONNECTIONS,
            backlog=BACKLOG,
            http1_settings=HTTP1Settings(header_read_timeout=HEAD_WITHIN_MS, max_buffer_size=LONGEST_HEAD),
            log_enabled=False,
            log_dictconfig=NO_LOGGING,
            ssl_protocol_min=SSLProtocols.tls12,
            **tls,
        )
        self._port = port

    def stop(self) -> None:
        """Stop accepting requests."""
        super().stop()  # type: ignore[no-untyped-call]

    def _init_shared_socket(self) -> None:
        self._shd: Any = self._port.handed_over()
