"""Limits on the exposure of a server: which hosts it may listen on, and by which names it may be addressed."""

import re
import socket
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import ip_address
from typing import Any

from penstock.errors import ConfigurationError

LOOPBACK = "127.0.0.1"
REMEMBERED = 16
"""The number of Host headers cached: honest clients send few, and parsing one takes as long as the rest of a check."""


NAME = re.compile(r"[A-Za-z0-9._-]+")
HEADER = re.compile(r"(\[[^\]@/]+\]|[A-Za-z0-9._-]+)(?::\d*)?")
"""A ``Host`` header: a name or an address, and maybe a port; no user, which browsers do not send."""


class HostNames:
    """The names by which a server may be addressed. The check defends against DNS rebinding by pages of other sites.

    >>> names = HostNames(("events.example",))
    >>> [names.has(host) for host in ("events.example:8470", "[::1]:8470", "localhost", "evil.example", "[::1")]
    [True, True, True, False, False]

    Args:
        names: allowed names besides localhost and IP addresses.
    """

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._names = {"localhost", *(name.lower() for name in names)}
        wrong = next((name for name in names if not (NAME.fullmatch(name) or _is_address(name))), None)
        if wrong is not None:
            raise ConfigurationError(
                f"--allow-host {wrong}: give a host's name as browsers send it, without a scheme, a port or *."
            )
        self._seen: dict[str, bool] = {}

    def has(self, host: str) -> bool:
        """Whether a ``Host`` header has an allowed name; a missing one is allowed, as it cannot come from a browser."""
        known = self._seen.get(host)
        if known is None:
            known = self._find(host)
            if len(self._seen) < REMEMBERED:
                self._seen[host] = known
        return known

    def _find(self, host: str) -> bool:
        header = HEADER.fullmatch(host)
        if header is None:
            return not host
        name = header[1].strip("[]").lower()
        with suppress(ValueError):
            return name in self._names or bool(ip_address(name))
        return False


def _is_address(name: str) -> bool:
    with suppress(ValueError):
        return bool(ip_address(name.strip("[]")))
    return False


def check_exposure(who: str, host: str, *, tokens: bool, secret: bool) -> None:
    """Refuse to serve other machines without both tokens and encryption, which keeps the tokens secret.

    Args:
        who: the server's name in the message.
        tokens: whether requests need a token.
        secret: whether traffic is encrypted, by TLS here or at a proxy.

    Raises:
        ConfigurationError: the host is reachable from other machines, and tokens or encryption are missing.
    """
    if is_loopback(host) or (tokens and secret):
        return
    mend = [] if tokens else ["say who may ask with --tokens FILE"]
    if not secret:
        mend.append("serve TLS with --certificate and --private-key (or say --behind-proxy, where a proxy does)")
    raise ConfigurationError(f"--host {host} opens {who} to other machines: {' and '.join(mend)}, or leave out --host.")


def is_loopback(host: str) -> bool:
    """Whether a host is reachable from this machine only.

    Raises:
        ConfigurationError: there is no such host.
    """
    return all(ip_address(str(address[0]).partition("%")[0]).is_loopback for *_, address in addresses_of(host))


def addresses_of(host: str, port: int | None = None) -> list[Any]:
    """Return what `socket.getaddrinfo` finds for a host to listen on.

    Raises:
        ConfigurationError: there is no such host.
    """
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigurationError(f"Penstock cannot listen on {host} ({reason}); choose another with --host.") from error
