"""Readings; high ones are also put into an outbox, which a thread elsewhere empties."""

from queue import SimpleQueue

from penstock import App, Event

outbox = SimpleQueue()


class Reading(Event):
    meter: str
    value: int


app = App("outbox")
readings = app.source("Readings", Reading)
high = app.stream("High", Reading)
app.sink("High", high)


@app.element(readings, emits=high)
def watch(reading):
    if reading.value > 7:
        outbox.put(reading.meter)
        yield high(reading.meter, reading.value)
