"""Sensor windows: the mean, the least and the greatest value of the last minute, every twenty seconds.

The windows overlap. They share their parts, so that a reading costs the same however many windows it is in.
"""

from datetime import datetime

from penstock import App, Event, Sliding, reducers


class Reading(Event):
    sensor: str
    celsius: float
    at: datetime


class Minute(Event):
    sensor: str
    end: datetime
    mean: float
    coldest: float
    warmest: float


app = App("sensor_windows")
readings = app.source("Readings", Reading, event_time="at", lateness="5 s", idle="1 minute")
minutes = app.stream("Minutes", Minute)
app.sink("Minutes", minutes)
app.aggregate(
    readings,
    key="sensor",
    window=Sliding("1 minute", "20 s"),
    into=minutes,
    mean=reducers.mean("celsius"),
    coldest=reducers.min("celsius"),
    warmest=reducers.max("celsius"),
)
