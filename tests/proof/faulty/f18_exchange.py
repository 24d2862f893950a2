"""Payments in francs, at the rate of the day. Rates are few, so they are kept in the process."""

from functools import lru_cache

from penstock import App, Event

rates = {"EUR": 0.93, "USD": 0.80, "GBP": 1.08}


class Rate(Event):
    currency: str
    rate: float


class Payment(Event):
    id: int
    currency: str
    amount: float


class Francs(Event):
    id: int
    francs: float


app = App("exchange")
news = app.source("Rates", Rate)
payments = app.source("Payments", Payment)
francs = app.stream("Francs", Francs)
app.sink("Francs", francs, key="id")


@lru_cache
def rate_of(currency):
    return rates[currency]


@app.element(news)
def learn(rate):
    rates[rate.currency] = rate.rate


@app.element(payments, emits=francs)
def convert(payment):
    yield francs(payment.id, round(payment.amount * rate_of(payment.currency), 2))
