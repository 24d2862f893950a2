"""Dead letters replayed: an order in a currency without a rate is kept with its error, and sent again once it is mended.

`penstock letters dead_letters` says what happened, `--replay FILE` writes the events out, and a second run reads them.
"""

from penstock import App, Event

app = App("dead_letters")
rates = app.parameter("rates", "EUR=1,CHF=1.05", help="What a unit is worth in euros.")
KNOWN = {name: float(rate) for name, rate in (pair.split("=") for pair in rates.split(","))}


class Order(Event):
    number: int
    amount: float
    currency: str


class Booked(Event):
    number: int
    euros: float


orders = app.source("Orders", Order)
booked = app.stream("Booked", Booked)
app.sink("Booked", booked)


@app.element(orders, emits=booked)
def book(order):
    if order.currency not in KNOWN:
        raise ValueError(f"no rate for {order.currency}; give --rates {rates},{order.currency}=...")
    yield booked(order.number, round(order.amount * KNOWN[order.currency], 2))
