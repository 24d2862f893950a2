"""The server of the adapter and the page: Granian, whose HTTP and WebSockets are hyper and tungstenite, in Rust.

What a connection may make it hold before there is a request to answer is bounded there: of a head or of trailers
64 KB and 100 lines, of pipelined requests one, of answers that are not read what the kernel takes.
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

CONNECTIONS = 12_000
"""At a time, of which most may be idle; more wait in the kernel until one ends."""
BACKLOG = 2048
LONGEST_HEAD = 64 << 10
"""Bytes of a request's line and headers."""
HEAD_WITHIN_MS = 30_000
"""How long a connection may take for a request's head, and be idle before it."""
SENT_AHEAD = 128 << 10
"""Bytes that wait in the kernel for one client to read them."""
SILENT_S, ASKED_EVERY_S, ASKED_TIMES = 60, 15, 4
"""After how long a connection without traffic is asked whether its other end is there, how often, and how many times."""


NO_LOGGING: dict[str, Any] = {"incremental": True, "handlers": {}, "loggers": {}}
"""Without it, Granian would close the handlers of the process that serves."""


@dataclass(frozen=True)
class Certificate:
    """What TLS is served with: two files in PEM."""

    certificate: Path
    private_key: Path

    @classmethod
    def of(cls, certificate: Path | None, private_key: Path | None) -> "Certificate | None":
        """From two options; None without both.

        Raises
        ------
        ConfigurationError: one is missing, or they are no certificate and its key.
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
"""By their object identifiers: keys on elliptic curves, and the curves that the server knows (it aborts at others)."""


def _is_served(pem: bytes) -> bool:
    """Whether a private key is of a kind that the server can use."""
    body = re.search(rb"-----BEGIN ([A-Z ]*)PRIVATE KEY-----(.*?)-----END", pem, re.DOTALL)
    if body is None:
        return True
    key = b64decode(re.sub(rb"\s", b"", body[2]))
    return not (body[1] == b"EC " or ELLIPTIC in key) or any(curve in key for curve in SERVED)


class Port:
    """A port of ours, at which nobody is answered before `open`: who looks whether a server is up looks for that.

    Parameters
    ----------
    number: 0 for any that is free. who: of a server, in sentences.

    Raises
    ------
    PortInUseError: the port is taken, or may not be used. ConfigurationError: there is no such host.
    """

    def __init__(self, host: str, number: int, who: str = "The adapter") -> None:
        self._asked, self._who = f"{host}:{number}", who
        try:
            family, _, _, _, address = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)[0]
        except OSError as error:
            raise ConfigurationError(
                f"{who} cannot listen on {self._asked} ({error.strerror or error}); choose another with --host."
            ) from error
        # What is set here holds for each connection as well.
        self._socket = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The kernel would gather megabytes for each consumer that does not read, and we would be busy with nothing else.
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
        """Take connections, which wait until they are served.

        Raises
        ------
        PortInUseError: somebody else has done so meanwhile.
        """
        with self._explained():
            self._socket.listen(BACKLOG)

    def close(self) -> None:
        """Give the port back."""
        self._socket.close()

    def handed_over(self) -> SocketHolder:
        """The open port, as Granian takes it; it closes what it is given."""
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
        """Serve until an event is set; returns whether all requests under way have been answered then.

        Parameters
        ----------
        leaving: awaited before no more requests are taken; it ends answers that would go on, and conversations.
        grace: seconds that those under way may take. at_once: ends the waiting for them.
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
            raise SinkError("The HTTP server has ended by itself; start again.")
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
    """Granian at a port of ours: of its own it would share one with whoever else asks for it."""

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
        """Take no more requests."""
        super().stop()  # type: ignore[no-untyped-call]

    def _init_shared_socket(self) -> None:
        self._shd: Any = self._port.handed_over()
