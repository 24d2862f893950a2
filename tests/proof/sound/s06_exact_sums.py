"""The exact energy of each region in each hour, whatever the order in which its meters report."""

from datetime import datetime
from math import fsum

from penstock import App, Event, ProcessingElement, Tumbling


class Reading(Event):
    meter: str
    region: str
    kwh: float
    at: datetime


class Energy(Event):
    region: str
    start: datetime
    kwh: float


app = App("exact_sums")
readings = app.source("Readings", Reading, event_time="at", lateness="2 days")
energy = app.stream("Energy", Energy)
app.sink("Energy", energy)


@app.element(readings, key="region", window=Tumbling("1 hour"), emits=energy)
class Region(ProcessingElement):
    kwh: list[float] = []

    def on_event(self, reading):
        self.kwh.append(reading.kwh)

    def on_close(self):
        yield energy(self.key, self.window.start, fsum(sorted(self.kwh)))
