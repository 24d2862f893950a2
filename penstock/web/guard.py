"""The check of each request to the adapter or the page: origin, host and token."""

import re
from hashlib import blake2b

from starlette.requests import HTTPConnection

from penstock.errors import ConfigurationError
from penstock.web.access import Access, Role
from penstock.web.exposure import HostNames
from penstock.web.problem import RequestProblem, refusal

ORIGIN = re.compile(r"null|(?!http://[^/]*:80$|https://[^/]*:443$)[a-z][a-z0-9+.-]*://[a-z0-9._:\[\]-]+")
"""An origin as browsers send it."""


class Guard:
    """Refuses requests that are not allowed.

    Args:
        names: host names by which the server may be addressed if there are no tokens.
        origins: web origins whose pages may use the server.
        query, cookie: the query parameter and the cookie that hold the token, if no header does.
    """

    def __init__(
        self,
        access: Access,
        names: tuple[str, ...] = (),
        origins: tuple[str, ...] = (),
        *,
        query: str = "access_token",
        cookie: str | None = None,
    ) -> None:
        self._access, self._names, self._origins = access, HostNames(names), origins
        self.query, self._cookie = query, cookie
        wrong = next((origin for origin in origins if origin != "*" and not ORIGIN.fullmatch(origin)), None)
        if wrong is not None:
            raise ConfigurationError(
                f"--allow-origin {wrong}: write it as browsers send it, scheme and host in small letters, without a path and "
                "the usual port, as https://shop.example."
            )

    @property
    def is_open(self) -> bool:
        """Whether no token is asked for."""
        return self._access.open

    def check(self, asked: HTTPConnection, role: Role | None) -> None:
        """Refuse a request whose token does not allow a role (any role, if None).

        Raises:
            Problem: the token does not allow the role, or the request comes from, or was meant for, another site.
        """
        origin, host = asked.headers.get("origin"), asked.headers.get("host", "")
        if origin is not None and not self._is_welcome(origin, host):
            raise refusal(403, f"Pages of {origin[:80]} may not send requests here; allow them with --allow-origin.")
        if self._access.open:
            if len(asked.headers.getlist("host")) < 2 and self._names.has(host):
                return
            raise refusal(
                403,
                "A server without tokens answers only to an IP address, localhost, or a name that --allow-host gives it, and "
                f"not to {host[:80]!r}: start it with --allow-host and that name, or with --tokens.",
            )
        token = self._token_of(asked)
        if not self._access.knows(token):
            what = "This token is not known" if token else "A token is needed"
            raise RequestProblem(
                401, f"{what}: send Authorization: Bearer TOKEN, or ?{self.query}=TOKEN.", {"WWW-Authenticate": "Bearer"}
            )
        if role is not None and not self._access.allows(role, token):
            raise refusal(403, f"This token does not permit you to {role}: use one with that role (see --tokens).")

    def client(self, asked: HTTPConnection) -> str:
        """Return a name for the client by its token, so that each client has its own Idempotency-Keys; empty without tokens."""
        token = None if self._access.open else self._token_of(asked)
        return "" if token is None else blake2b(token.encode(), digest_size=6).hexdigest()

    def _is_welcome(self, origin: str, host: str) -> bool:
        """Whether pages of an origin may send requests; without this check, any page in a browser on this machine could."""
        return origin in self._origins or "*" in self._origins or origin.partition("://")[2] == host

    def _token_of(self, asked: HTTPConnection) -> str | None:
        """Return the token of a request: from the header, the query or the cookie."""
        scheme, _, token = asked.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return token
        return asked.query_params.get(self.query) or (asked.cookies.get(self._cookie) if self._cookie else None)
