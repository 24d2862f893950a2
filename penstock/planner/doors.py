"""The doors of an adapter that runs: what it has measured of them, and their gates."""

from collections.abc import Mapping
from typing import Any, TypeVar

import httpx
import msgspec

from penstock.adapter.arrivals import Measured
from penstock.adapter.transfers import MeasuredTransfers
from penstock.errors import ConfigurationError, SourceError
from penstock.planner.door import Door
from penstock.runs.gate import Gate

TIMEOUT_S = 2.0
Told = TypeVar("Told")


class _Told(msgspec.Struct):
    """A gate as the adapter tells it, with nothing left out."""

    batch_size: int
    flush_timer_s: float


class Doors:
    """The doors of some streams, over the adapter's HTTP interface.

    Parameters
    ----------
    url: of the adapter. streams: those that are asked for.
    token: one that may operate, where the adapter asks for one.
    """

    def __init__(
        self, url: str, streams: list[str], token: str | None = None, transport: httpx.BaseTransport | None = None
    ) -> None:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._streams = streams
        try:
            self._http = httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT_S, transport=transport)
        except httpx.InvalidURL as error:
            raise ConfigurationError(f"{url!r} is no address of an adapter ({error}); write http://HOST:PORT.") from error

    def check(self) -> None:
        """See that the adapter answers, and has the streams.

        Raises
        ------
        SourceError: it does not.
        """
        for stream in self._streams:
            self.gate(stream)

    def measured(self) -> dict[str, Door]:
        """The doors that enough has come through to say something, by stream.

        Raises
        ------
        SourceError: the adapter does not answer, or refuses to.
        """
        found = {}
        for stream in self._streams:
            arrivals = self._told(stream, "arrivals", Measured)
            transfers = self._told(stream, "transfers", MeasuredTransfers)
            door = Door.of(self.gate(stream), arrivals, transfers)
            if door is not None:
                found[stream] = door
        return found

    def gate(self, stream: str) -> Gate:
        """The gate that a stream has now.

        Raises
        ------
        SourceError: the adapter does not answer, or refuses to.
        """
        now = self._told(stream, "gate", _Told)
        return Gate(now.batch_size, now.flush_timer_s)

    def keep(self, gates: Mapping[str, Gate]) -> None:
        """See to it that streams have these gates, which an adapter that was started anew does not.

        Raises
        ------
        SourceError: the adapter does not answer, or refuses to.
        """
        failed: SourceError | None = None
        for stream, gate in gates.items():
            try:
                if self.gate(stream) != gate:
                    self._asked("PUT", stream, "gate", msgspec.to_builtins(gate))
            except SourceError as error:  # which is none of the other streams'
                failed = failed or error
        if failed is not None:
            raise failed

    def _told(self, stream: str, of: str, kind: type[Told]) -> Told:
        """What the adapter says of a stream.

        Raises
        ------
        SourceError: it does not answer, refuses to, or is no adapter.
        """
        try:
            return msgspec.json.decode(self._asked("GET", stream, of), type=kind)
        except msgspec.MsgspecError as error:
            raise SourceError(f"What answers at {self._http.base_url} is no adapter of this version ({error}).") from error

    def _asked(self, method: str, stream: str, of: str, body: Any = None) -> bytes:
        try:
            answer = self._http.request(method, f"/streams/{stream}/{of}", json=body)
            answer.raise_for_status()
            return answer.content
        except httpx.HTTPStatusError as error:
            refused = error.response
            raise SourceError(
                f"The adapter at {self._http.base_url} refuses {method} of the {of} of {stream} ({refused.status_code}: "
                f"{refused.text[:200]}); give a token that may operate in PENSTOCK_TOKEN, and the address of this "
                "application's adapter."
            ) from error
        except httpx.HTTPError as error:
            raise SourceError(f"The adapter at {self._http.base_url} does not answer ({error}).") from error
