"""Alerts of hot machines, at most one in ten minutes for each machine."""

import time

from penstock import App, Event, ProcessingElement

LIMIT, COOLDOWN = 80.0, 600


class Reading(Event):
    machine: str
    celsius: float
    number: int


class Alert(Event):
    machine: str
    celsius: float
    number: int


app = App("alert_cooldown")
readings = app.source("Readings", Reading)
alerts = app.stream("Alerts", Alert)
app.sink("Alerts", alerts)


@app.element(readings, key="machine", emits=alerts)
class Alerts(ProcessingElement):
    last: float = 0.0

    def on_event(self, reading):
        now = time.time()
        if reading.celsius > LIMIT and now - self.last > COOLDOWN:
            self.last = now
            yield alerts(self.key, reading.celsius, reading.number)
