"""Currency conversion."""

from datetime import datetime

from model import bids

from penstock import App, Event

SQL = "SELECT auction, bidder, 0.908 * price::DOUBLE AS price, ts FROM bid"


class Converted(Event):
    auction: int
    bidder: int
    price: float
    ts: datetime


app = App("q1")
given = bids(app)
converted = app.stream("Converted", Converted)
app.sink("Out", converted)


@app.element(given, emits=converted)
def convert(bid):
    yield converted(bid.auction, bid.bidder, 0.908 * bid.price, bid.ts)
