"""Highest bid of each ten seconds."""

from datetime import datetime

from model import Bid, bids

from penstock import App, Event, ProcessingElement, Tumbling

SQL = """
SELECT auction, bidder, price, ts, time_bucket(INTERVAL 10 SECONDS, ts) AS start FROM bid
QUALIFY price = max(price) OVER (PARTITION BY time_bucket(INTERVAL 10 SECONDS, ts))
"""


class Highest(Event):
    auction: int
    bidder: int
    price: int
    ts: datetime
    start: datetime


class Ten(Event):
    start: datetime
    bids: list[Bid]


app = App("q7")
given = bids(app)
partial, highest = app.stream("Partial", Ten), app.stream("Highest", Highest)
app.sink("Out", highest)


class Best(ProcessingElement):
    bids: list[Bid] = []

    def consider(self, bids):
        for bid in bids:
            if not self.bids or bid.price >= self.bids[0].price:
                self.bids = [other for other in self.bids if other.price == bid.price] + [bid]


@app.element(given, key="bidder", window=Tumbling("10 s"), emits=partial)
class OfBidder(Best):
    def on_event(self, bid):
        self.consider([bid])

    def on_close(self):
        yield partial(self.window.start, self.bids)


@app.element(partial, key="start", window=Tumbling("10 s", at="start"), emits=highest)
class OfAll(Best):
    def on_event(self, ten):
        self.consider(ten.bids)

    def on_close(self):
        for bid in self.bids:
            yield highest(bid.auction, bid.bidder, bid.price, bid.ts, self.window.start)
