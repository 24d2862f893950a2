"""Where a server may be asked from, and by which names."""

import socket
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import ip_address
from urllib.parse import urlsplit

from penstock.errors import ConfigurationError

LOOPBACK = "127.0.0.1"
REMEMBERED = 16
"""Headers whose answer is kept: honest clients send few, and to find one out takes as long as all else of a check."""


class Names:
    """By which names a server may be asked: the page of another site can have its own name lead here.

    >>> names = Names(("events.example",))
    >>> [names.has(host) for host in ("events.example:8470", "[::1]:8470", "localhost", "evil.example", "[::1")]
    [True, True, True, False, False]

    Parameters
    ----------
    names: besides localhost and addresses.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = {"localhost", *(name.lower() for name in names)}
        self._seen: dict[str, bool] = {}

    def has(self, host: str) -> bool:
        """Whether what a request says in its header ``Host`` is one of them; no browser leaves it out."""
        known = self._seen.get(host)
        if known is None:
            known = self._find(host)
            if len(self._seen) < REMEMBERED:
                self._seen[host] = known
        return known

    def _find(self, host: str) -> bool:
        with suppress(ValueError):
            name = urlsplit(f"//{host}").hostname or ""
            return not host or name in self._names or bool(ip_address(name))
        return False


def check_exposure(who: str, host: str, *, tokens: bool, secret: bool) -> None:
    """Refuse to serve others than this machine's users without tokens, and what keeps those secret.

    Parameters
    ----------
    tokens: whether any are asked for.
    secret: whether what is sent cannot be read on its way: there is TLS, or a proxy that has it.

    Raises
    ------
    ConfigurationError: it would be served so.
    """
    if is_loopback(host) or (tokens and secret):
        return
    mend = [] if tokens else ["say who may ask with --tokens FILE"]
    if not secret:
        mend.append("serve TLS with --certificate and --private-key (or say --behind-proxy, where a proxy does)")
    raise ConfigurationError(f"--host {host} opens {who} to other machines: {' and '.join(mend)}, or leave out --host.")


def is_loopback(host: str) -> bool:
    """Whether a host is reached from this machine alone; also where it does not exist."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return True
    return all(ip_address(str(address[0]).partition("%")[0]).is_loopback for *_, address in found)
