"""Log to files: bids with their day and hour, as Parquet."""

from datetime import datetime

from model import bids

from penstock import App, Event

SQL = "SELECT auction, bidder, price, ts, strftime(ts, '%Y-%m-%d') AS day, strftime(ts, '%H:%M') AS minute FROM bid"


class Logged(Event):
    auction: int
    bidder: int
    price: int
    ts: datetime
    day: str
    minute: str


app = App("q10")
given = bids(app)
logged = app.stream("Logged", Logged)
app.sink("Out", logged, uri="parquet:nexmark-log")


@app.element(given, emits=logged)
def log(bid):
    yield logged(bid.auction, bid.bidder, bid.price, bid.ts, f"{bid.ts:%Y-%m-%d}", f"{bid.ts:%H:%M}")
