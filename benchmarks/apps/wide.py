"""A hundred elements in ten chains of ten, for benchmarks/page.py: what does watching so many cost?"""

from penstock import App, Event, ProcessingElement

CHAINS, LENGTH, KEYS = 10, 10, 200


class Reading(Event):
    key: int
    value: float


app = App("wide")
readings = app.source("Readings", Reading, sample=lambda number: Reading(number % KEYS, float(number)))


def step(stream, after):
    """An element that hands on what it gets."""

    def hand_on(reading):
        yield after(reading.key, reading.value + 1)

    return hand_on


def chain(number):
    """Nine elements without a key, and one that keeps the last value of each."""
    stream = readings
    for place in range(LENGTH - 1):
        after = app.stream(f"S{number}x{place}", Reading)
        app.element(stream, emits=after, name=f"Step{number}x{place}")(step(stream, after))
        stream = after
    last = app.stream(f"Last{number}", Reading)

    @app.element(stream, key="key", emits=last, name=f"Keep{number}")
    class Keep(ProcessingElement):
        value: float = 0.0

        def on_event(self, reading):
            self.value = reading.value
            yield last(self.key, self.value)

    app.sink(f"Out{number}", last)


for number in range(CHAINS):
    chain(number)
