"""The door of a stream: the external queue of the paper, from which transfers take events to the store."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from penstock.adapter.store import Store
from penstock.adapter.transfers import Transfer
from penstock.connectors.log import CONFLICT, Parcel
from penstock.connectors.log.arrays import size_of
from penstock.errors import SinkError
from penstock.runs.gate import TransferGate


class KeyReused(Exception):
    """Raised where an Idempotency-Key was used before with another body."""

    def __str__(self) -> str:
        return (
            "This Idempotency-Key was used before with another body; nothing was accepted. Send other events with another key: "
            "only events that were rejected may be sent again, corrected, with the same key."
        )


class _Waiting(NamedTuple):
    parcel: Parcel
    size: int
    since: float
    answer: "asyncio.Future[int]"


class Door:
    """Queues the parcels of one stream and transfers them to its store, one transfer at a time.

    Args:
        note: called with every successful transfer.
        patience: seconds after which a request fails because the store has not answered.
        memory: the most bytes of events that may wait.
    """

    def __init__(
        self, store: Store, gate: TransferGate, note: Callable[[Transfer], None], patience: float, memory: int
    ) -> None:
        self.gate = gate
        self._patience, self._memory = patience, memory
        self._bytes = 0
        self._busy = False
        self._unanswered: deque[tuple[float, asyncio.Future[int]]] = deque()
        self._store, self._note = store, note
        self._queue: deque[_Waiting] = deque()
        self._waiting = 0
        self._changed = asyncio.Event()
        self._writer = ThreadPoolExecutor(1)
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._run()), loop.create_task(self._be_patient())]

    @property
    def waiting(self) -> int:
        """The number of events in the external queue."""
        return self._waiting

    def set_gate(self, gate: TransferGate) -> None:
        """Change the gate; it applies at once, also to waiting events."""
        self.gate = gate
        self._changed.set()

    async def deliver(self, parcel: Parcel) -> int:
        """Queue a parcel and wait until it is durable; returns how many of its events are new.

        Its events are born now, unless it has their births: the wait at the door is part of their latency. The parcel stays
        queued if its request is cancelled, or fails after too long a wait.

        Raises:
            SinkError: the store cannot be written or has not answered in time, or too many bytes wait for it.
            KeyReused: the parcel's Idempotency-Key was used before with another body.
        """
        size = size_of(parcel.payloads)
        if self._bytes + size > self._memory:
            raise SinkError(f"More than {self._memory} bytes of events wait for the store.")
        now = time.monotonic()
        if parcel.born is None:
            parcel.born = [time.time_ns() // 1000] * len(parcel.payloads)
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._queue.append(_Waiting(parcel, size, now, answer))
        self._unanswered.append((now, answer))
        self._waiting += len(parcel.payloads)
        self._bytes += size
        self._changed.set()
        return await answer

    def give_up(self, why: str) -> None:
        """Fail all waiting requests; their events stay queued, and may still be stored."""
        while self._unanswered:
            _settle(self._unanswered.popleft()[1], SinkError(why))

    async def close(self, patience: float) -> None:
        """Transfer all waiting events, if the store takes them within some seconds, then stop."""
        self.set_gate(TransferGate(self.gate.batch_size))
        deadline = time.monotonic() + patience
        while self._queue or self._busy:
            if time.monotonic() > deadline:
                self._store.stop()
            await asyncio.sleep(0.01)
        for task in self._tasks:
            task.cancel()
        await asyncio.to_thread(self._writer.shutdown)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._until_due()
            taken = self._take()
            self._busy = True
            began = time.monotonic()
            events = sum(len(waiting.parcel.payloads) for waiting in taken)
            try:
                finish = self._store.begin([waiting.parcel for waiting in taken])
                counts = await loop.run_in_executor(self._writer, finish)
            except SinkError as error:
                for waiting in taken:
                    _settle(waiting.answer, error)
            except Exception as error:
                for waiting in taken:
                    _settle(waiting.answer, SinkError(f"The store failed: {type(error).__name__}: {error}."))
            else:
                for waiting, count in zip(taken, counts, strict=True):
                    _settle(waiting.answer, KeyReused() if count == CONFLICT else count)
                self._note(Transfer(events, time.monotonic() - began))
            self._bytes -= sum(waiting.size for waiting in taken)
            self._busy = False

    async def _be_patient(self) -> None:
        """Fail requests that have waited too long; one task for all is cheaper than a timer for each."""
        while True:
            await asyncio.sleep(min(1.0, self._patience / 10))
            now = time.monotonic()
            while self._unanswered and (self._unanswered[0][1].done() or now - self._unanswered[0][0] > self._patience):
                answer = self._unanswered.popleft()[1]
                if not answer.done():
                    _settle(answer, SinkError(f"The store has not answered within {self._patience:g} s."))

    async def _until_due(self) -> None:
        while True:
            self._changed.clear()
            wait_s = self._queue[0].since + self.gate.flush_timer - time.monotonic() if self._queue else None
            if self._queue and ((wait_s or 0) <= 0 or self._waiting >= self.gate.batch_size):
                return
            try:
                await asyncio.wait_for(self._changed.wait(), wait_s)
            except TimeoutError:
                continue

    def _take(self) -> list[_Waiting]:
        taken = [self._queue.popleft()]
        events = len(taken[0].parcel.payloads)
        while self._queue and events + len(self._queue[0].parcel.payloads) <= self.gate.batch_size:
            taken.append(self._queue.popleft())
            events += len(taken[-1].parcel.payloads)
        self._waiting -= events
        return taken


def _settle(answer: "asyncio.Future[int]", outcome: int | Exception) -> None:
    if answer.done():
        return
    if isinstance(outcome, int):
        answer.set_result(outcome)
    else:
        answer.set_exception(outcome)
        answer.exception()  # marks it as retrieved, as the request may be gone
