"""Bids with what a small table says of their auctions."""

from datetime import datetime

from model import bids

from penstock import App, Event

SQL = "SELECT auction, bidder, price, ts, 'value ' || (auction % 100) AS value FROM bid WHERE auction % 100 < 50"
TABLE = {number: f"value {number}" for number in range(50)}


class Enriched(Event):
    auction: int
    bidder: int
    price: int
    ts: datetime
    value: str


app = App("q13")
given = bids(app)
enriched = app.stream("Enriched", Enriched)
app.sink("Out", enriched)


@app.element(given, emits=enriched)
def look_up(bid):
    value = TABLE.get(bid.auction % 100)
    if value is not None:
        yield enriched(bid.auction, bid.bidder, bid.price, bid.ts, value)
