"""The application of benchmarks/causes.py: a counter per key, with one fault that a parameter plants."""

import time
from datetime import UTC, datetime, timedelta
from hashlib import blake2b

from penstock import App, Event, ProcessingElement

KEYS = 500


class Reading(Event):
    number: int
    key: int
    at: datetime
    text: str


class Count(Event):
    key: int
    seen: int


app = App("planted")
FAULT = app.parameter("fault", "none", help="What is wrong.")
ROUNDS = app.parameter("rounds", 50, help="Digests of an event.")
SIZE = app.parameter("size", 32, help="Characters of an event.")


def reading(number: int) -> Reading:
    """The n-th event, with what is wrong with it."""
    key, at = number * 7919 % KEYS, datetime.now(UTC)
    if FAULT == "skewed key" and number % 10:
        key = 7
    if FAULT == "state growing":
        key = number
    if FAULT == "late events" and number > 2000 and number % 20 == 0:
        at -= timedelta(hours=1)
    return Reading(number, key, at, f"{number:0{SIZE}d}")


readings = app.source("Readings", Reading, sample=reading, event_time="at", lateness="10 s")
counts = app.stream("Counts", Count)
app.sink("Out", counts, key="key")


@app.element(readings, key="key", emits=counts)
class Counter(ProcessingElement):
    seen: int = 0

    def on_event(self, reading):
        if FAULT == "dead letters" and reading.number % 50 == 0:
            raise ValueError("a reading that the element cannot take")
        if FAULT == "silent" and reading.number == 20_000:
            time.sleep(3600)
        digest = reading.text.encode()
        for _ in range(ROUNDS):
            digest = blake2b(digest).digest()
        self.seen += 1
        yield counts(self.key, self.seen)
