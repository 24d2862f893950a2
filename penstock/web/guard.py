"""Who may ask the adapter, or the page, for what."""

from hashlib import blake2b

from starlette.requests import HTTPConnection

from penstock.web.access import Access, Role
from penstock.web.exposure import Names
from penstock.web.problem import Problem, refusal


class Guard:
    """Refuses who may not ask.

    Parameters
    ----------
    names: by which it may be asked where there are no tokens.
    origins: web origins whose pages may use it.
    query, cookie: where a token is, of a request that brings it in no header.
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
        self._access, self._names, self._origins = access, Names(names), origins
        self._query, self._cookie = query, cookie

    def check(self, asked: HTTPConnection, role: Role | None) -> None:
        """Refuse a request whose token does not allow a role (any, if None).

        Raises
        ------
        Problem: it does not, or the request comes from, or was meant for, another site.
        """
        origin, host = asked.headers.get("origin"), asked.headers.get("host", "")
        if origin is not None and not self._is_welcome(origin, host):
            raise refusal(403, f"Pages of {origin[:80]} may not ask here; allow them with --allow-origin.")
        if self._access.open:
            if len(asked.headers.getlist("host")) < 2 and self._names.has(host):
                return
            raise refusal(
                403, "Without tokens only addresses and its own names are answered to; allow this one with --allow-host."
            )
        token = self._token_of(asked)
        if not self._access.knows(token):
            raise Problem(
                401,
                f"A token is needed: send Authorization: Bearer TOKEN, or ?{self._query}=TOKEN.",
                {"WWW-Authenticate": "Bearer"},
            )
        if role is not None and not self._access.allows(role, token):
            raise refusal(403, f"This token does not permit you to {role}: use one with that role (see --tokens).")

    def client(self, asked: HTTPConnection) -> str:
        """Whose Idempotency-Keys are one's own: those of a token."""
        token = None if self._access.open else self._token_of(asked)
        return "" if token is None else blake2b(token.encode(), digest_size=6).hexdigest()

    def _is_welcome(self, origin: str, host: str) -> bool:
        """Whether a web page may ask: any page that a browser here shows could, if its origin did not count."""
        return origin in self._origins or "*" in self._origins or origin.partition("://")[2] == host

    def _token_of(self, asked: HTTPConnection) -> str | None:
        """The token that a request brings."""
        scheme, _, token = asked.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return token
        return asked.query_params.get(self._query) or (asked.cookies.get(self._cookie) if self._cookie else None)
