"""Windows and a join over events with a time of their own; ``--shape`` says which."""

from datetime import datetime

from penstock import App, Event, Sliding, Tumbling, reducers


class Reading(Event):
    key: int
    value: int
    at: datetime


class Setting(Event):
    key: int
    level: int
    at: datetime


class Summary(Event):
    key: int
    start: datetime
    end: datetime
    readings: int
    most: int


class Pair(Event):
    key: int
    value: int
    level: int


app = App("timed")
shape = app.parameter("shape", "tumbling", choices=("tumbling", "sliding", "join"))
readings = app.source("Words", Reading, event_time="at", lateness="5 s")
if shape == "join":
    settings = app.source("Settings", Setting, event_time="at", lateness="5 s")
    pairs = app.stream("Pairs", Pair)
    app.sink("Out", pairs)

    @app.join(readings, settings, key="key", within=("-10 s", "-5.99 s"), emits=pairs)
    def pair(reading, setting):
        yield pairs(reading.key, reading.value, setting.level)

else:
    summaries = app.stream("Summaries", Summary)
    app.sink("Out", summaries)
    app.aggregate(
        readings,
        key="key",
        window=Sliding("1 hour", "1 minute") if shape == "sliding" else Tumbling("1 minute"),
        into=summaries,
        readings=reducers.count(),
        most=reducers.max("value"),
    )
