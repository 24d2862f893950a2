"""Who may ask the adapter for what."""

from hashlib import blake2b

from starlette.requests import HTTPConnection

from penstock.adapter.problem import Problem, refusal
from penstock.web.access import Access, Role
from penstock.web.exposure import Names


class Guard:
    """Refuses who may not ask.

    Parameters
    ----------
    origins: web origins whose pages may use it.
    names: by which it may be asked where there are no tokens.
    """

    def __init__(self, access: Access, origins: tuple[str, ...] = (), names: tuple[str, ...] = ()) -> None:
        self._access, self._origins, self._names = access, origins, Names(names)

    def check(self, asked: HTTPConnection, role: Role | None) -> None:
        """Refuse a request whose token does not allow a role (any, if None).

        Raises
        ------
        Problem: it does not, or the request comes from, or was meant for, another site.
        """
        origin, host = asked.headers.get("origin"), asked.headers.get("host", "")
        if origin is not None and not self._is_welcome(origin, host):
            raise refusal(403, f"Pages of {origin[:80]} may not use this adapter; allow them with --allow-origin.")
        if self._access.open:
            if len(asked.headers.getlist("host")) < 2 and self._names.has(host):
                return
            raise refusal(
                403,
                "Without tokens the adapter answers only to addresses and its own names; allow this one with --allow-host.",
            )
        token = _token_of(asked)
        if not self._access.knows(token):
            raise Problem(401, "A token is needed: send Authorization: Bearer TOKEN.", {"WWW-Authenticate": "Bearer"})
        if role is not None and not self._access.allows(role, token):
            raise refusal(403, f"This token does not permit you to {role}: use one with that role (see --tokens).")

    def client(self, asked: HTTPConnection) -> str:
        """Whose Idempotency-Keys are one's own: those of a token."""
        token = None if self._access.open else _token_of(asked)
        return "" if token is None else blake2b(token.encode(), digest_size=6).hexdigest()

    def _is_welcome(self, origin: str, host: str) -> bool:
        """Whether a web page may ask: any page that a browser here shows could, if its origin did not count."""
        return origin in self._origins or "*" in self._origins or origin.partition("://")[2] == host


def _token_of(asked: HTTPConnection) -> str | None:
    """The token that a request brings."""
    scheme, _, token = asked.headers.get("authorization", "").partition(" ")
    return token if scheme.lower() == "bearer" else asked.query_params.get("access_token")
