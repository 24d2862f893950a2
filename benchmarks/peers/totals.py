"""The topic of totals, followed: what a contender has counted so far, and when that was known."""

import json
import threading
import time
from bisect import bisect_left
from types import TracebackType


class Totals:
    """A context in which the topic is read; sums over all parts, as they change."""

    def __init__(self, brokers: str, topic: str) -> None:
        self._settings = {
            "bootstrap.servers": brokers,
            "group.id": f"{topic}-reader",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
        }
        self._topic = topic
        self._counts: dict[tuple[str, str], int] = {}
        self.times: list[float] = []
        self.sums: list[int] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow)

    def __enter__(self) -> "Totals":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()

    def of(self, by: str) -> int:
        """The newest count."""
        return sum(count for (what, _), count in list(self._counts.items()) if what == by)

    @property
    def sum(self) -> int:
        """Of both counts."""
        return self.sums[-1] if self.sums else 0

    def reached(self, count: float) -> float:
        """When the sum was first so large; for good only while it does not fall, as it does after a restart from nothing."""
        place = bisect_left(self.sums, count)
        return self.times[place] if place < len(self.times) else float("inf")

    def _follow(self) -> None:
        from confluent_kafka import Consumer

        consumer = Consumer(self._settings)
        consumer.subscribe([self._topic])
        while not self._ended.is_set():
            messages = consumer.consume(5000, timeout=0.02)
            now = time.time()
            for message in messages:
                if message.error() is None:
                    total = json.loads(message.value())
                    self._counts[total["by"], str(total.get("part", ""))] = int(total["count"])
            if messages:
                self.times.append(now)
                self.sums.append(sum(self._counts.values()))
        consumer.close()
