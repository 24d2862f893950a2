"""Temperatures in kelvin; what is strange or slow is noted in the log."""

import logging
import time

from penstock import App, Event

log = logging.getLogger(__name__)


class Reading(Event):
    sensor: str
    celsius: float


class Kelvin(Event):
    sensor: str
    kelvin: float


app = App("logged")
readings = app.source("Readings", Reading)
kelvins = app.stream("Kelvins", Kelvin)
app.sink("Kelvins", kelvins)


@app.element(readings, emits=kelvins)
def convert(reading):
    began = time.perf_counter()
    if reading.celsius < -100:
        print(f"{reading.sensor} says {reading.celsius}")
    yield kelvins(reading.sensor, round(reading.celsius + 273.15, 2))
    log.debug("converted in %.6f s", time.perf_counter() - began)
