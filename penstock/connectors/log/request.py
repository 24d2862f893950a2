"""Idempotent requests, which a client names: a repeated one adds nothing, and another one with its name is refused.

If all events of a request were accepted, one name is noted for it, else one for each accepted event. So an event that was
rejected may be sent again, corrected, under the name of its request, and no other event may.
"""

from collections.abc import Collection, Sequence
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from penstock.connectors.log.arrays import JsonArray

CONFLICT = -1
"""Returned in place of the number of new events if a request's name stands for another request."""

WHOLE = "whole"
"""Part of the name that is noted for a request all of whose events were accepted."""


class RequestVerdict(NamedTuple):
    """Which events of a request are to be appended, and the names to note for them."""

    rows: Sequence[int]
    """The indices of the new events, among the valid ones."""
    names: Sequence[str]
    """The names to note."""


class Request(msgspec.Struct, frozen=True):
    """A client's name for a request, and the places of the request's valid events.

    Args:
        client: the namespace of the key, so that clients may use the same keys.
        key: the name, as the client gives it.
        total: the number of its events, including rejected ones.
        places: the indices of its valid events, among all.
    """

    client: str
    key: str
    total: int
    places: Sequence[int]

    @property
    def prefix(self) -> str:
        """The beginning of all names that are noted for it; keys are quoted, so that no prefix begins another."""
        return f"request {self.client}/{self.key.replace('%', '%25').replace('/', '%2F')}/"

    def names(self, payloads: Sequence[bytes]) -> list[str]:
        """Return a name for each valid event: of its place and a digest of its content."""
        pairs = zip(self.places, payloads, strict=True)
        return [f"{self.prefix}{self.total}/{place}/{_digest(payload)}" for place, payload in pairs]

    def judge(self, payloads: Sequence[bytes], known: Collection[str], *, each: bool = False) -> RequestVerdict | None:
        """Return which of its events are new; None if its name stands for another request.

        Args:
            payloads: its valid events.
            known: the names that are noted under its prefix.
            each: note a name for every event, even if all were accepted.
        """
        every = range(len(payloads))
        if not each and len(payloads) == self.total:
            text = payloads.text if isinstance(payloads, JsonArray) else b"\n".join(payloads)
            whole = f"{self.prefix}{WHOLE}/{self.total}/{_digest(text)}"
            if not known:
                return RequestVerdict(every, [whole])
            if whole in known:
                return RequestVerdict((), ())
        if not known:
            return RequestVerdict(every, self.names(payloads))
        # Names are noted by event: each of these must be in the request again, at its place and unchanged.
        noted = dict(_place_of(name) for name in known)
        if WHOLE in noted:
            return None
        names = self.names(payloads)
        new = []
        for row, (place, name) in enumerate(zip(self.places, names, strict=True)):
            if name in known:
                noted.pop(f"{self.total}/{place}")
            elif f"{self.total}/{place}" in noted:
                return None
            else:
                new.append(row)
        if noted:  # events that were accepted, and are missing now
            return None
        return RequestVerdict(new, [names[row] for row in new])


def prefix_of(name: str) -> str:
    """Return the prefix of the request for which a name is noted; see `Request.prefix`."""
    return name.rsplit("/", 3)[0] + "/"


def _place_of(name: str) -> tuple[str, str]:
    """Return the part of a noted name that says which event it stands for (or `WHOLE`), and the digest."""
    _, first, second, digest = name.rsplit("/", 3)
    return (WHOLE if first == WHOLE else f"{first}/{second}"), digest


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=12).hexdigest()
