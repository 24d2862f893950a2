"""Calls at night cost less. Whether it is night, the time of the call says, in its own zone."""

from datetime import datetime
from zoneinfo import ZoneInfo

from penstock import App, Event

ZONE = ZoneInfo("Europe/Zurich")


class Call(Event):
    caller: str
    seconds: int
    at: datetime


class Cost(Event):
    caller: str
    at: datetime
    cents: int


app = App("night_calls")
calls = app.source("Calls", Call)
costs = app.stream("Costs", Cost)
app.sink("Costs", costs)


@app.element(calls, emits=costs)
def price(call):
    hour = call.at.astimezone(ZONE).hour
    yield costs(call.caller, call.at, call.seconds * (1 if hour < 7 or hour >= 20 else 3))
