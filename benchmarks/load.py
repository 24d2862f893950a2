"""Load on an HTTP door from a process of its own: as many requests as its connections allow, each timed.

    python benchmarks/load.py URL --connections 8 --events 100 --bytes 200 --seconds 5

prints one JSON object. Requests are made beforehand but for their keys, and answers are read no
further than their status, so that the generator takes little of the machine.
"""

import argparse
import asyncio
import json
import time
import uuid
from urllib.parse import urlsplit

import httptools
import msgspec
import uvloop


class Load(msgspec.Struct):
    """What came of a load. All figures are measured, warm-up left out."""

    events_per_s: float
    requests: int
    failed: int
    p50_ms: float
    p99_ms: float
    max_ms: float


def body(events: int, size: int) -> bytes:
    """A request of some events of about so many bytes."""
    text = "x" * max(1, size - len('{"text":"","size":1234567}'))
    event = json.dumps({"text": text, "size": 1_234_567}, separators=(",", ":"))
    return (event if events == 1 else "[" + ",".join([event] * events) + "]").encode()


class _Connection(asyncio.Protocol):
    """Sends a request, waits for its answer, and sends the next, until it is time."""

    def __init__(self, head: bytes, content: bytes, until: float, pause: float) -> None:
        self._head, self._content, self._until, self._pause = head, content, until, pause
        self._parser = httptools.HttpResponseParser(self)
        self.times: list[tuple[float, float]] = []
        self.failed = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._send()

    def _send(self) -> None:
        self._began = time.perf_counter()
        key = f"Idempotency-Key: {uuid.uuid4().hex}\r\n\r\n".encode()
        self._transport.write(self._head + key + self._content)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        """Called by the parser."""
        now = time.perf_counter()
        if self._parser.get_status_code() == 200:
            self.times.append((now, now - self._began))
        else:
            self.failed += 1
        self._parser = httptools.HttpResponseParser(self)
        if now < self._until:
            left = self._began + self._pause - now
            if left > 0:
                asyncio.get_running_loop().call_later(left, self._send)
            else:
                self._send()
        else:
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)


async def load(url: str, connections: int, events: int, size: int, seconds: float, warm_up: float, rate: float = 0.0) -> Load:
    """Load a door; times in seconds.

    Args:
        rate: events per second at most, of all connections; 0 for as many as can be.
    """
    pause = connections * events / rate if rate else 0.0
    place, content = urlsplit(url), body(events, size)
    head = (
        f"POST {place.path} HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n"
    ).encode()
    loop, began = asyncio.get_running_loop(), time.perf_counter()
    host, port = place.hostname or "127.0.0.1", place.port or 80
    end = began + warm_up + seconds
    made = [
        (await loop.create_connection(lambda: _Connection(head, content, end, pause), host, port))[1]
        for _ in range(connections)
    ]
    await asyncio.gather(*(connection.done for connection in made))
    counted = sorted(took for connection in made for answered, took in connection.times if began + warm_up <= answered <= end)
    if not counted:
        counted = [float("nan")]
    p50, p99 = (counted[int(len(counted) * share)] * 1e3 for share in (0.5, 0.99))
    failed = sum(connection.failed for connection in made)
    return Load(len(counted) * events / seconds, len(counted), failed, p50, p99, counted[-1] * 1e3)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--events", type=int, default=100, help="in a request")
    parser.add_argument("--bytes", type=int, default=200, help="of an event")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--warm-up", type=float, default=2.0)
    parser.add_argument("--rate", type=float, default=0.0, help="events per second at most; 0 for as many as can be")
    options = parser.parse_args()
    made = load(options.url, options.connections, options.events, options.bytes, options.seconds, options.warm_up, options.rate)
    print(json.dumps(msgspec.to_builtins(uvloop.run(made))))


if __name__ == "__main__":
    main()
