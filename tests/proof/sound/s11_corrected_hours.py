"""Watt-hours of each meter in each hour, corrected when readings come late, as a table."""

from datetime import datetime

from penstock import App, Event, ProcessingElement, Tumbling


class Reading(Event):
    meter: str
    watt_hours: int
    at: datetime


class Hour(Event):
    meter: str
    start: datetime
    watt_hours: int


app = App("corrected_hours")
readings = app.source("Readings", Reading, event_time="at", lateness="1 minute", late="dead-letter")
hours = app.stream("Hours", Hour)
app.sink("Hours", hours, key=("meter", "start"))


@app.element(readings, key="meter", window=Tumbling("1 hour", allowed="7 days"), emits=hours)
class Meter(ProcessingElement):
    watt_hours: int = 0

    def on_event(self, reading):
        self.watt_hours += reading.watt_hours

    def on_close(self):
        yield hours(self.key, self.window.start, self.watt_hours)
