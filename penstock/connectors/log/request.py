"""Requests that a client names: sent again they do no harm, and another request of the same name is refused.

What is noted of a request is one name if all of its events were taken, or else one name for each that was. So an event
that was rejected may come again, mended, under the name of its request, and nothing else may.
"""

from collections.abc import Collection, Sequence
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from penstock.connectors.log.arrays import JsonArray

CONFLICT = -1
"""In place of a number of new events: the request's name stands for another request."""

WHOLE = "whole"


class Verdict(NamedTuple):
    """What becomes of a request's events."""

    rows: Sequence[int]
    """The places, among the events that fit, of those that are new."""
    names: Sequence[str]
    """What is to be noted."""


class Request(msgspec.Struct, frozen=True):
    """The name of a request, and what it holds.

    Parameters
    ----------
    client: tells clients apart whose names are their own.
    key: as the client gives it.
    total: how many events it has, those that were rejected included.
    places: of the events that fit.
    """

    client: str
    key: str
    total: int
    places: Sequence[int]

    @property
    def prefix(self) -> str:
        """What all that is noted of it begins with; keys are quoted, so that none begins another."""
        return f"request {self.client}/{self.key.replace('%', '%25').replace('/', '%2F')}/"

    def names(self, payloads: Sequence[bytes]) -> list[str]:
        """For each event that fits a name of its own."""
        pairs = zip(self.places, payloads, strict=True)
        return [f"{self.prefix}{self.total}/{place}/{_digest(payload)}" for place, payload in pairs]

    def judge(self, payloads: Sequence[bytes], known: Collection[str], *, each: bool = False) -> Verdict | None:
        """What is new of it, given what is noted under its prefix; None, if that is of another request.

        Parameters
        ----------
        each: note every event by itself, even if all were taken.
        """
        every = range(len(payloads))
        if not each and len(payloads) == self.total:
            text = payloads.text if isinstance(payloads, JsonArray) else b"\n".join(payloads)
            whole = f"{self.prefix}{WHOLE}/{self.total}/{_digest(text)}"
            if not known:
                return Verdict(every, [whole])
            if whole in known:
                return Verdict((), ())
        if not known:
            return Verdict(every, self.names(payloads))
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
        if noted:  # events that were taken, and are not in it now
            return None
        return Verdict(new, [names[row] for row in new])


def prefix_of(name: str) -> str:
    """The prefix of the request that a name is noted for."""
    return name.rsplit("/", 3)[0] + "/"


def _place_of(name: str) -> tuple[str, str]:
    _, first, second, digest = name.rsplit("/", 3)
    return (WHOLE if first == WHOLE else f"{first}/{second}"), digest


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=12).hexdigest()
