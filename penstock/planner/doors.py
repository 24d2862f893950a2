"""The doors of a running adapter, over HTTP: their measurements and their gates."""

from collections.abc import Mapping
from typing import Any, TypeVar

import httpx
import msgspec

from penstock.adapter.arrivals import Measured
from penstock.adapter.transfers import MeasuredTransfers
from penstock.client.protocol import headers_of
from penstock.errors import ConfigurationError, SourceError
from penstock.planner.door import MeasuredDoor
from penstock.runs.gate import TransferGate

TIMEOUT_S = 2.0
Told = TypeVar("Told")


class _Told(msgspec.Struct):
    """A gate as the adapter reports it, with all fields."""

    batch_size: int
    flush_timer_s: float


class Doors:
    """The doors of some streams, over the adapter's HTTP interface.

    Args:
        url: of the adapter.
        streams: the names of the streams.
        token: of the role that may operate, if the adapter requires one.
    """

    def __init__(
        self, url: str, streams: list[str], token: str | None = None, transport: httpx.BaseTransport | None = None
    ) -> None:
        headers, self._streams = headers_of(token), streams
        try:
            self._http = httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT_S, transport=transport)
        except httpx.InvalidURL as error:
            raise ConfigurationError(f"{url!r} is no address of an adapter ({error}); write http://HOST:PORT.") from error

    def check(self) -> None:
        """Check that the adapter answers, and has the streams.

        Raises:
            SourceError: the adapter does not answer, or lacks a stream.
        """
        for stream in self._streams:
            self.gate(stream)

    def measured(self) -> dict[str, MeasuredDoor]:
        """The doors by stream, without those that too little has come through to measure.

        Raises:
            SourceError: the adapter does not answer, or refuses to.
        """
        doors = {}
        for stream in self._streams:
            arrivals = self._told(stream, "arrivals", Measured)
            transfers = self._told(stream, "transfers", MeasuredTransfers)
            door = MeasuredDoor.of(self.gate(stream), arrivals, transfers)
            if door is not None:
                doors[stream] = door
        return doors

    def gate(self, stream: str) -> TransferGate:
        """The present gate of a stream.

        Raises:
            SourceError: the adapter does not answer, or refuses to.
        """
        now = self._told(stream, "gate", _Told)
        return TransferGate(now.batch_size, now.flush_timer_s)

    def keep(self, gates: Mapping[str, TransferGate]) -> bool:
        """Set the gates of the streams where they differ, as after a restart of the adapter; whether any differed.

        Raises:
            SourceError: the adapter does not answer, or refuses to.
        """
        differed, failed = False, None
        for stream, gate in gates.items():
            try:
                if self.gate(stream) != gate:
                    differed = True
                    self._asked("PUT", stream, "gate", msgspec.to_builtins(gate))
            except SourceError as error:  # the other streams are set all the same
                failed = failed or error
        if failed is not None:
            raise failed
        return differed

    def _told(self, stream: str, of: str, kind: type[Told]) -> Told:
        """Ask the adapter for a resource of a stream, decoded.

        Raises:
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
            response = error.response
            raise SourceError(
                f"The adapter at {self._http.base_url} refuses {method} of the {of} of {stream} ({response.status_code}: "
                f"{response.text[:200]}); give a token that may operate in PENSTOCK_TOKEN, and the address of this "
                "application's adapter."
            ) from error
        except httpx.HTTPError as error:
            raise SourceError(f"The adapter at {self._http.base_url} does not answer ({error}).") from error
