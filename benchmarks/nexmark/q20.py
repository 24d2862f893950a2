"""Bids with their auctions, of one category; each bid within a day of its auction."""

from datetime import datetime

from model import Auction, auctions, bids

from penstock import App, Event

SQL = """
SELECT b.auction, b.bidder, b.price, b.ts, a.item, a.category FROM bid b JOIN auction a ON b.auction = a.id
AND b.ts BETWEEN a.ts - INTERVAL 1 DAY AND a.ts + INTERVAL 1 DAY WHERE a.category = 10
"""


class Opened(Event):
    auction: int
    item: str
    category: int
    ts: datetime


class Expanded(Event):
    auction: int
    bidder: int
    price: int
    ts: datetime
    item: str
    category: int


app = App("q20")
offered, given = auctions(app), bids(app)
opened, expanded = app.stream("Opened", Opened), app.stream("Expanded", Expanded)
app.sink("Out", expanded)


@app.element(offered, emits=opened)
def of_category(auction: Auction):
    if auction.category == 10:
        yield opened(auction.id, auction.item, auction.category, auction.ts)


@app.join(opened, given, key="auction", within=("-1 day", "1 day"), emits=expanded, at=("ts", "ts"))
def expand(auction, bid):
    yield expanded(bid.auction, bid.bidder, bid.price, bid.ts, auction.item, auction.category)
