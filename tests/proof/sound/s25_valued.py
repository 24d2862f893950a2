"""Trades at the rate that held at their time."""

from datetime import datetime
from decimal import Decimal

from penstock import App, Event


class Trade(Event):
    id: int
    currency: str
    amount: Decimal
    at: datetime


class Rate(Event):
    currency: str
    rate: Decimal
    at: datetime


class Valued(Event):
    id: int
    francs: Decimal | None


app = App("valued")
trades = app.source("Trades", Trade, event_time="at", lateness="6 hours")
rates = app.source("Rates", Rate, event_time="at", lateness="6 hours")
valued = app.stream("Valued", Valued)
app.sink("Valued", valued)


@app.join_latest(trades, rates, key="currency", emits=valued)
def value(trade, rate):
    yield valued(trade.id, rate and trade.amount * rate.rate)
