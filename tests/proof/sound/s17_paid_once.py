"""Payments that are sent again within a day count once."""

from datetime import datetime

from penstock import App, Event


class Payment(Event):
    id: str
    cents: int
    at: datetime


app = App("paid_once")
payments = app.source("Payments", Payment, event_time="at", lateness="1 day")
once = app.stream("Once", Payment)
app.sink("Once", once)
app.distinct(payments, key="id", within="1 day", into=once)
