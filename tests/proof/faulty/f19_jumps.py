"""Prices that jump by more than ten percent against the one before."""

from penstock import App, Event


class Price(Event):
    share: str
    cents: int


class Jump(Event):
    share: str
    cents: int
    percent: int


app = App("jumps")
prices = app.source("Prices", Price)
jumped = app.stream("Jumps", Jump)
app.sink("Jumps", jumped)


@app.element(prices, emits=jumped)
def jumps(price, before={}):
    last = before.get(price.share, price.cents)
    before[price.share] = price.cents
    percent = round(100 * (price.cents - last) / last)
    if abs(percent) > 10:
        yield jumped(price.share, price.cents, percent)
