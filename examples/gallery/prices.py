"""A stream with a versioned table: each trade is valued at the rate that held when it was made.

The rates are a stream of their own; the latest one at the trade's time counts, also when it comes after the trade.
"""

from datetime import datetime

from penstock import App, Event


class Trade(Event):
    id: int
    currency: str
    amount: float
    at: datetime


class Rate(Event):
    currency: str
    euros: float
    at: datetime


class Valued(Event):
    id: int
    euros: float | None


app = App("prices")
trades = app.source("Trades", Trade, event_time="at", lateness="10 s")
rates = app.source("Rates", Rate, event_time="at", lateness="10 s")
valued = app.stream("Valued", Valued)
app.sink("Valued", valued)


@app.join_latest(trades, rates, key="currency", emits=valued)
def value(trade, rate):
    yield valued(trade.id, None if rate is None else round(trade.amount * rate.euros, 2))
