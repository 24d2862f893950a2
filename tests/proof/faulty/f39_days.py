"""The days on which meters were read, by the clock on the wall of whoever runs this."""

from datetime import datetime

from penstock import App, Event


class Reading(Event):
    meter: str
    at: int


class Day(Event):
    meter: str
    day: str


app = App("days")
readings = app.source("Readings", Reading)
days = app.stream("Days", Day)
app.sink("Days", days)


@app.element(readings, emits=days)
def dated(reading):
    yield days(reading.meter, str(datetime.fromtimestamp(reading.at).date()))
