"""Limits memory: the bytes of all requests together, and the memory of the whole process."""

from types import TracebackType

from penstock.web.memory import MemoryLimit
from penstock.web.problem import refusal


class Room:
    """Counts the bytes of all requests that are being received or wait for the store.

    Args:
        limit: the most bytes of all requests together.
        memory: the memory of the process.
    """

    def __init__(self, limit: int, memory: MemoryLimit) -> None:
        self.limit, self.memory, self.held = limit, memory, 0

    def check(self) -> None:
        """Refuse a request if the process is out of memory.

        Raises:
            Problem: the process has reached its limit of memory.
        """
        if self.memory.is_full:
            raise refusal(503, f"The adapter has {self.memory.resident >> 20} MB, more than --max-memory; try again later.")


class Hold:
    """The bytes that one request holds in memory; a context manager that releases them."""

    def __init__(self, room: Room) -> None:
        self._room, self._mine = room, 0

    def add(self, size: int) -> None:
        """Hold more bytes.

        Raises:
            Problem: there is no room for the bytes.
        """
        room = self._room
        room.check()
        if self._mine + size > room.limit:
            raise refusal(413, f"This request alone takes more than {room.limit} bytes of memory; send fewer events at a time.")
        if room.held + size > room.limit:
            raise refusal(503, f"More than {room.limit} bytes of events wait to be written; try again later.")
        self._mine += size
        room.held += size

    def __enter__(self) -> "Hold":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._room.held -= self._mine
