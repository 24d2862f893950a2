"""A sequence of events: who put something in the cart, looked at it again within half an hour, and had not paid by then.

A pattern is an event, then another, within a time, and without a third in between, for each customer.
"""

from datetime import datetime
from typing import Literal

from penstock import App, Event


class Step(Event):
    customer: str
    did: Literal["add", "look", "pay"]
    at: datetime


class Reminder(Event):
    customer: str
    since: datetime


app = App("abandoned_carts")
steps = app.source("Steps", Step, event_time="at", lateness="10 s")
reminders = app.stream("Reminders", Reminder)
app.sink("Reminders", reminders)


@app.pattern(
    steps,
    key="customer",
    within="30 minutes",
    emits=reminders,
    then=[lambda step: step.did == "add", lambda step: step.did == "look"],
    without=lambda step: step.did == "pay",
)
def remind(added, looked):
    yield reminders(added.customer, added.at)
