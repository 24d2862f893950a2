"""A chain of two groups: a keyless element that works, and a keyed one that counts, joined by a hop."""

from hashlib import blake2b

from penstock import App, Event, ProcessingElement

KEYS, ROUNDS = 500, 100


class Reading(Event):
    key: int
    text: str


class Count(Event):
    key: int
    seen: int


app = App("chain")
readings = app.source("Readings", Reading, sample=lambda number: Reading(number * 7919 % KEYS, f"{number:032d}"))
digested = app.stream("Digested", Reading)
counts = app.stream("Counts", Count)
app.sink("Out", counts)


@app.element(readings, emits=digested)
def digest(reading):
    content = reading.text.encode()
    for _ in range(ROUNDS):
        content = blake2b(content).digest()
    yield digested(reading.key, content.hex()[:32])


@app.element(digested, key="key", emits=counts)
class Counter(ProcessingElement):
    seen: int = 0

    def on_event(self, reading):
        self.seen += 1
        yield counts(self.key, self.seen)
