"""The client for programs that block."""

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any

import httpx
import msgspec
from httpx_sse import connect_sse

from penstock.client.protocol import TRY_AGAIN, Event, Patience, Post, Received, Sent, headers_of, refused, result_path


class Client:
    """Sends events to an adapter, and receives results.

    Parameters
    ----------
    url: of the adapter.
    token: where it asks for one.
    patience: seconds for which a request is tried again while the adapter does not answer, or cannot follow.
    timeout: seconds to wait for one answer.
    verify: a file of certificates to trust, or False to trust any.
    """

    def __init__(
        self, url: str, *, token: str | None = None, patience: float = 60.0, timeout: float = 40.0, verify: Any = True
    ) -> None:
        self._patience = patience
        self._http = httpx.Client(base_url=url, headers=headers_of(token), timeout=timeout, verify=verify)

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def send(
        self, stream: str, events: Iterable[Event], *, key: str | None = None, id_field: str | None = None
    ) -> Sent:
        """Send events, and return when they are durable; tries again until then.

        Parameters
        ----------
        key: names these events, so that sending them again under it does no harm; made up unless given.
        id_field: the field that holds each event's own id, in place of ``key``.

        Raises
        ------
        RefusedError: the adapter refuses them, or there is no more patience.
        """
        post = Post(stream, events, key, id_field)
        patience = Patience(self._patience, time.monotonic())
        while True:
            try:
                response = self._http.post(post.path, content=post.content, headers=post.headers, params=post.params)
                if response.status_code not in TRY_AGAIN:
                    return post.read(response, patience.retries)
                time.sleep(patience.pause(time.monotonic(), response))
            except httpx.TransportError as error:
                time.sleep(patience.pause(time.monotonic(), error))

    def producer(self, stream: str, **options: Any) -> "Producer":
        """Something to put events into one by one; see `Producer`."""
        return Producer(self, stream, **options)

    def receive(self, stream: str, offset: str | int = "latest") -> Iterator[Received]:
        """The events of a result stream as they come, for ever; after a broken connection it goes on where it was.

        Parameters
        ----------
        offset: where to begin: a number, ``"earliest"``, or ``"latest"`` (what comes from now on).

        Raises
        ------
        RefusedError: there is no such stream or offset, or there is no more patience.
        """
        position, path = str(offset), Post(stream, (), None, None).path
        patience = Patience(self._patience, time.monotonic())
        while True:
            connected = False
            try:
                timeout = httpx.Timeout(40.0, read=45.0)  # it is pinged every 15 s
                with connect_sse(self._http, "GET", path, params={"offset": position}, timeout=timeout) as source:
                    if source.response.status_code in TRY_AGAIN:
                        time.sleep(patience.pause(time.monotonic(), source.response))
                        continue
                    if source.response.status_code != 200:
                        source.response.read()
                        raise refused(source.response)
                    connected, position = True, source.response.headers["x-offset"]
                    for message in source.iter_sse():
                        position = message.id
                        yield Received(position, msgspec.json.decode(message.data))
                patience = Patience(self._patience, time.monotonic())
                time.sleep(0.05)
            except httpx.TransportError as error:
                if connected:
                    patience = Patience(self._patience, time.monotonic())
                time.sleep(patience.pause(time.monotonic(), error))

    def result(self, stream: str, *key: object) -> Any:
        """The last event of a key, or None.

        Raises
        ------
        RefusedError: the stream has no key.
        """
        response = self._http.get(result_path(stream, key))
        if response.status_code == 404:
            return None
        if response.status_code != 200:
            raise refused(response)
        return msgspec.json.decode(response.content)


class Producer:
    """Gathers events that are put one by one, and sends them in batches from a thread of its own.

    Used as a context, it sends what is left at the end of the block.

    Parameters
    ----------
    batch_size, flush_timer: a batch is sent when it has so many events, or its first has waited so long (seconds).
    waiting: how many events may wait; ``put`` blocks at that.
    id_field: see `Client.send`.
    rejected: called with each event that was rejected, and why.
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
        self._batch_size, self._flush_timer = batch_size, flush_timer
        self._rejected = rejected
        self._queue: queue.Queue[Event | None] = queue.Queue(waiting)
        self._failure: BaseException | None = None
        self.sent = Sent()
        """The sums over all batches so far; indices of ``rejected`` count from the first event."""
        self._done = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> "Producer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def put(self, event: Event) -> None:
        """Hand over an event; returns at once unless too many wait.

        Raises
        ------
        RefusedError: a batch before it could not be sent.
        """
        self._raise()
        self._queue.put(event)

    def flush(self) -> None:
        """Wait until all events are durable.

        Raises
        ------
        RefusedError: some could not be sent.
        """
        self._queue.join()
        self._raise()

    def close(self) -> None:
        """Flush, and end the thread."""
        self._queue.put(None)
        self._thread.join()
        self._raise()

    def _raise(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        last = False
        while not last:
            batch = [self._queue.get()]
            deadline = time.monotonic() + self._flush_timer
            while batch[-1] is not None and len(batch) < self._batch_size:
                try:
                    batch.append(self._queue.get(timeout=max(0.0, deadline - time.monotonic())))
                except queue.Empty:
                    break
            last = batch[-1] is None
            events = [event for event in batch if event is not None]
            if events and self._failure is None:
                try:
                    self._add(events, self._client.send(self._stream, events, id_field=self._id_field))
                except BaseException as error:
                    self._failure = error
            for _ in batch:
                self._queue.task_done()

    def _add(self, events: list[Event], sent: Sent) -> None:
        add(self.sent, sent, self._done)
        self._done += len(events)
        for rejected in sent.rejected:
            if self._rejected is not None:
                self._rejected(events[rejected.index], rejected.reason)


def add(total: Sent, sent: Sent, before: int) -> None:
    """Add a batch to a total, given how many events came before it."""
    total.accepted += sent.accepted
    total.duplicates += sent.duplicates
    total.retries += sent.retries
    total.rejected += [type(each)(before + each.index, each.reason) for each in sent.rejected]
