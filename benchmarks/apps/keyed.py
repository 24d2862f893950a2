"""A keyed Python element with some work an event: a counter per key, and a digest as work."""

from hashlib import blake2b

from penstock import App, Event, ProcessingElement

KEYS = 500


class Reading(Event):
    key: int
    text: str


class Count(Event):
    key: int
    seen: int


app = App("keyed")
ROUNDS = app.parameter("rounds", 150, help="Digests of an event.")
readings = app.source("Readings", Reading, sample=lambda number: Reading(number * 7919 % KEYS, f"{number:032d}"))
counts = app.stream("Counts", Count)
app.sink("Out", counts)


@app.element(readings, key="key", emits=counts)
class Counter(ProcessingElement):
    seen: int = 0

    def on_event(self, reading):
        digest = reading.text.encode()
        for _ in range(ROUNDS):
            digest = blake2b(digest).digest()
        self.seen += 1
        yield counts(self.key, self.seen)
