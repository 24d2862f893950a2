"""Statistics of all bids of a day: how many, by how many bidders, on how many auctions, by price."""

from datetime import datetime

from model import bids

from penstock import App, Event, Tumbling, reducers

COLUMNS = """count(*) AS bids, count(*) FILTER (price < 10000) AS low,
    count(*) FILTER (price >= 10000 AND price < 1000000) AS middle, count(*) FILTER (price >= 1000000) AS high,
    count(DISTINCT bidder) AS bidders, count(DISTINCT bidder) FILTER (price < 10000) AS low_bidders,
    count(DISTINCT auction) AS auctions, count(DISTINCT auction) FILTER (price >= 1000000) AS high_auctions"""
SQL = f"SELECT strftime(ts, '%Y-%m-%d') AS day, {COLUMNS} FROM bid GROUP BY day"
LAST = ("day",)


class DayBid(Event):
    day: str
    auction: int
    bidder: int
    price: int
    ts: datetime


class Day(Event):
    day: str
    bids: int
    low: int
    middle: int
    high: int
    bidders: int
    low_bidders: int
    auctions: int
    high_auctions: int


STATISTICS = {
    "bids": reducers.count(),
    "low": reducers.count().where(lambda bid: bid.price < 10_000),
    "middle": reducers.count().where(lambda bid: 10_000 <= bid.price < 1_000_000),
    "high": reducers.count().where(lambda bid: bid.price >= 1_000_000),
    "bidders": reducers.distinct("bidder"),
    "low_bidders": reducers.distinct("bidder").where(lambda bid: bid.price < 10_000),
    "auctions": reducers.distinct("auction"),
    "high_auctions": reducers.distinct("auction").where(lambda bid: bid.price >= 1_000_000),
}

app = App("q15")
given = bids(app)
of_day, days = app.stream("OfDay", DayBid), app.stream("Days", Day)
app.sink("Out", days)


@app.element(given, emits=of_day)
def mark(bid):
    yield of_day(f"{bid.ts:%Y-%m-%d}", bid.auction, bid.bidder, bid.price, bid.ts)


app.aggregate(of_day, key="day", window=Tumbling("1 day", at="ts"), into=days, results="updates", **STATISTICS)
