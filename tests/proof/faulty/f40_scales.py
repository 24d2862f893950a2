"""Readings on scales that are classes in a set, which is in the order of their addresses."""

from penstock import App, Event


class Tenths:
    unit = 10


class Fifths:
    unit = 5


class Halves:
    unit = 2


class Wholes:
    unit = 1


SCALES = {Tenths, Fifths, Halves, Wholes}


class Reading(Event):
    meter: str
    value: int


class Scaled(Event):
    meter: str
    values: list[int]


app = App("scales")
readings = app.source("Readings", Reading)
scaled = app.stream("Scaled", Scaled)
app.sink("Scaled", scaled)


@app.element(readings, emits=scaled)
def scale(reading):
    yield scaled(reading.meter, [reading.value * scale.unit for scale in SCALES])
