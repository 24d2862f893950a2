"""The client for synchronous programs."""

import atexit
import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any
from weakref import WeakSet

import httpx
from httpx_sse import connect_sse

from penstock.client.protocol import (
    LOG,
    Event,
    Flow,
    Gathering,
    PerProcess,
    Post,
    Received,
    Sent,
    Subscription,
    Trouble,
    Waiting,
    closed,
    looking_up,
    payload_of,
    sending,
)


class Client:
    """Sends events to an adapter, and receives results.

    Args:
        url: the address of the adapter.
        token: the token to send, if the adapter asks for one.
        patience: seconds for which a request is retried while the adapter does not respond, or is overloaded.
        timeout: seconds to wait for one response.
        verify: a file of trusted certificates, or False to trust any.
        transport: a replacement for the network, such as `MemoryTransport` for tests without a server.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        patience: float = 60.0,
        timeout: float = 40.0,
        verify: Any = True,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._patience = patience
        self._connections = PerProcess(httpx.Client, url, token, timeout=timeout, verify=verify, transport=transport)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._connections.get().close()

    def send(self, stream: str, events: Iterable[Event], *, key: str | None = None, id_field: str | None = None) -> Sent:
        """Send events, with retries, and return when the adapter has stored them durably.

        Args:
            key: identifies these events, so that sending them again with it has no effect; random unless given.
            id_field: the field that holds each event's own id, in place of ``key``.

        Raises:
            RefusedError: the adapter refuses the request, or the patience is used up.
        """
        return self._deliver(Post(stream, events, key, id_field))

    def _deliver(self, post: Post) -> Sent:
        sent: Sent = self._drive(sending(post, self._patience))
        return sent

    def producer(self, stream: str, **options: Any) -> "Producer":
        """Return a `Producer` for a stream, which takes events one by one."""
        return Producer(self, stream, **options)

    def receive(self, stream: str, offset: str | int = "latest") -> Iterator[Received]:
        """Yield the events of a result stream as they come, without end; after a broken connection it resumes where it was.

        Args:
            offset: where to begin: a number, ``"earliest"``, or ``"latest"`` (only new events).

        Raises:
            RefusedError: there is no such stream or offset, or the patience is used up.
        """
        subscription = Subscription(stream, offset, self._patience)
        while True:
            trouble: Trouble | None
            try:
                query = {"offset": subscription.position}
                with connect_sse(
                    self._connections.get(), "GET", subscription.path, params=query, **subscription.options
                ) as source:
                    if source.response.status_code != 200:
                        source.response.read()
                    trouble = subscription.opened(source.response)
                    for message in () if trouble else source.iter_sse():
                        yield subscription.received(message.id, message.data)
            except httpx.TransportError as error:
                trouble = error
            time.sleep(subscription.pause(trouble))

    def result(self, stream: str, *key: object) -> Any:
        """Return the last event of a key in a result stream, or None.

        Raises:
            RefusedError: the stream has no key, or one of more or fewer values; or the patience is used up.
        """
        return self._drive(looking_up(stream, key, self._patience))

    def _drive(self, flow: Flow) -> Any:
        """Run a flow: make its requests and do its waits; returns its result."""
        answer: Any = None
        while True:
            try:
                step = flow.send(answer)
            except StopIteration as done:
                return done.value
            if isinstance(step, float):
                time.sleep(step)
                continue
            try:
                answer = self._connections.get().request(step.method, step.path, **step.options)
            except httpx.TransportError as error:
                answer = error


class Producer:
    """Collects single events, and sends them in batches from a thread of its own.

    As a context manager, it sends the remaining events at the end of the block; one that is not closed does at the end of the
    program.

    Args:
        batch_size, flush_timer: a batch is sent when it has so many events, or a megabyte of them, or its first has waited so
            long (seconds).
        waiting: how many events may wait in the queue; ``put`` blocks when it is full.
        id_field: see `Client.send`.
        rejected: called with each event that was rejected, and the reason; it may put the event again, mended.
    """

    def __init__(
        self,
        client: Client,
        stream: str,
        *,
        batch_size: int = 500,
        flush_timer: float = 0.05,
        waiting: int = 10_000,
        id_field: str | None = None,
        rejected: Callable[[Event, str], None] | None = None,
    ) -> None:
        self._client, self._stream, self._id_field = client, stream, id_field
        self._gathering = Gathering(batch_size, flush_timer, rejected)
        self._queue: queue.Queue[Waiting | None] = queue.Queue(waiting)
        self._putting, self._is_closed, self._turn = 0, False, threading.Condition()
        self._again: list[Waiting] = []
        """What ``rejected`` has put, which must not wait for room that only its own thread makes."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        _OPEN.add(self)

    @property
    def sent(self) -> Sent:
        """The totals of all batches so far; indices of ``rejected`` count from the first event that was put."""
        return self._gathering.sent

    def __enter__(self) -> "Producer":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def put(self, event: Event) -> None:
        """Add an event to the queue; blocks only while the queue is full.

        Raises:
            RefusedError: an earlier batch could not be sent, or the producer is closed.
            ValueError: the event cannot be sent, see `payload_of`.
        """
        self._gathering.check()
        waiting = Waiting(event, payload_of(event))
        if threading.current_thread() is self._thread:
            self._again.append(waiting)
            return
        with self._turn:
            if self._is_closed:
                raise closed()
            self._putting += 1
        try:
            self._queue.put(waiting)
        finally:
            with self._turn:
                self._putting -= 1
                self._turn.notify_all()

    def flush(self) -> None:
        """Wait until the adapter has stored all events durably.

        Raises:
            RefusedError: some events could not be sent.
            Exception: the first that ``rejected`` has raised.
        """
        self._gathering.check_process()
        self._queue.join()
        self._gathering.end()

    def close(self) -> None:
        """Send all remaining events, those that other threads are putting included, and end the thread.

        Raises:
            RefusedError: some events could not be sent.
            Exception: the first that ``rejected`` has raised.
        """
        self._gathering.check_process()
        with self._turn:
            was_closed, self._is_closed = self._is_closed, True
            self._turn.wait_for(lambda: not self._putting)
        if not was_closed:
            self._queue.put(None)
        self._thread.join()
        _OPEN.discard(self)
        self._gathering.end()

    def _run(self) -> None:
        last = False
        while not last:
            batch = self._gathered()
            last = batch[-1] is None
            self._send([event for event in batch if event is not None])
            while self._again:
                again, self._again = self._again, []
                self._send(again)
            for _ in batch:
                self._queue.task_done()

    def _gathered(self) -> list[Waiting | None]:
        """Wait for a batch; None at its end says that no more events come."""
        batch = [self._queue.get()]
        deadline, size = time.monotonic() + self._gathering.flush_timer, 0
        while (newest := batch[-1]) is not None:
            size += len(newest.payload)
            if not self._gathering.takes(len(batch), size):
                break
            try:
                batch.append(self._queue.get(timeout=max(0.0, deadline - time.monotonic())))
            except queue.Empty:
                break
        return batch

    def _send(self, events: list[Waiting]) -> None:
        if events and not self._gathering.failed:
            try:
                post = Post(self._stream, [event.payload for event in events], None, self._id_field)
                self._gathering.add(events, self._client._deliver(post))
            except BaseException as error:
                self._gathering.fail(error)

    def _end(self) -> None:
        """Send what is left at the end of the program."""
        try:
            self.close()
        except Exception as error:
            LOG.error("Not all events that were put for %s were sent: %s", self._stream, error)


_OPEN: "WeakSet[Producer]" = WeakSet()
_PROCESS = os.getpid()


@atexit.register
def _end_all() -> None:
    if os.getpid() == _PROCESS:
        for producer in list(_OPEN):
            producer._end()
