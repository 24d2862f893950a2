"""Readings, each with the process that has read it."""

import os

from penstock import App, Event

READER = os.getpid()


class Reading(Event):
    meter: str
    value: int


class Read(Event):
    meter: str
    reader: int


app = App("reader")
readings = app.source("Readings", Reading)
read = app.stream("Read", Read)
app.sink("Read", read)


@app.element(readings, emits=read)
def note(reading):
    yield read(reading.meter, READER)
