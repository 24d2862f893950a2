"""Readings cost more in winter, of the day on which they are handled."""

from datetime import date

from penstock import App, Event


class Reading(Event):
    meter: str
    value: int


class Bill(Event):
    meter: str
    cents: int


app = App("winter")
readings = app.source("Readings", Reading)
bills = app.stream("Bills", Bill)
app.sink("Bills", bills)


@app.element(readings, emits=bills)
def bill(reading):
    dear = date.today().month == 2
    yield bills(reading.meter, reading.value * (30 if dear else 20))
