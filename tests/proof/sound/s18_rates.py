"""Payments with the rate of their currency, which a service is asked for, patiently."""

import asyncio
import random

from penstock import App, Event

RATES = {"EUR": 93, "USD": 80, "GBP": 108}


class Payment(Event):
    id: int
    currency: str
    cents: int


class Francs(Event):
    id: int
    cents: int


app = App("rates")
payments = app.source("Payments", Payment)
francs = app.stream("Francs", Francs)
app.sink("Francs", francs)


async def rate(currency):
    await asyncio.sleep(random.random() / 1000)  # so that not all come at once
    return RATES[currency]


@app.element(payments, emits=francs, concurrency=10, timeout="5 s")
async def convert(payment):
    yield francs(payment.id, payment.cents * await rate(payment.currency) // 100)
