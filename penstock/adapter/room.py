"""The memory that requests may take: that of their bodies, and that of the whole process."""

from types import TracebackType

from penstock.web.memory import Memory
from penstock.web.problem import refusal


class Room:
    """Counts the bytes of all requests that are being received, or wait for the store.

    Parameters
    ----------
    limit: bytes that they may have together.
    memory: of the process.
    """

    def __init__(self, limit: int, memory: Memory) -> None:
        self.limit, self.memory, self.held = limit, memory, 0

    def check(self) -> None:
        """Refuse what would take more.

        Raises
        ------
        Problem: the process has all the memory that it may have.
        """
        if self.memory.is_full:
            raise refusal(503, f"The adapter has {self.memory.resident >> 20} MB, more than --max-memory; try again later.")


class Hold:
    """The bytes that one request has in memory; as a context, it gives them back."""

    def __init__(self, room: Room) -> None:
        self._room, self._mine = room, 0

    def add(self, size: int) -> None:
        """Hold so many more.

        Raises
        ------
        Problem: there is no room for them.
        """
        room = self._room
        room.check()
        if room.held + size > room.limit:
            raise refusal(503, f"More than {room.limit} bytes of events wait to be written; try again later.")
        self._mine += size
        room.held += size

    def __enter__(self) -> "Hold":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._room.held -= self._mine
