"""Late data: readings of a meter that come when their hour has closed correct it; those too late for that are kept aside.

An hour closes one minute after its end. For six hours more a late reading leads to a new result of its hour; what comes after
that is a dead letter, with its error.
"""

from datetime import datetime

from penstock import App, Event, ProcessingElement, Tumbling


class Reading(Event):
    meter: str
    watt_hours: float
    at: datetime


class Hour(Event):
    meter: str
    start: datetime
    watt_hours: float
    corrected: bool


app = App("late_data")
readings = app.source("Readings", Reading, event_time="at", lateness="1 minute", late="dead-letter")
hours = app.stream("Hours", Hour)
app.sink("Hours", hours)


@app.element(readings, key="meter", window=Tumbling("1 hour", allowed="6 hours"), emits=hours)
class Meter(ProcessingElement):
    watt_hours: float = 0.0

    def on_event(self, reading):
        self.watt_hours += reading.watt_hours

    def on_late(self, reading):
        self.watt_hours += reading.watt_hours
        yield hours(self.key, self.window.start, self.watt_hours, corrected=True)

    def on_close(self):
        yield hours(self.key, self.window.start, self.watt_hours, corrected=False)
