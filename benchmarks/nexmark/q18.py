"""The last bid of each bidder on each auction."""

from model import Bid, bids

from penstock import App, ProcessingElement

SQL = """
SELECT auction, bidder, price, channel, url, extra, ts FROM bid
QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY ts DESC) = 1
"""
LAST = ("auction", "bidder")

app = App("q18")
given = bids(app)
last = app.stream("Last", Bid)
app.sink("Out", last)


@app.element(given, key=["bidder", "auction"], emits=last)
class Last(ProcessingElement):
    bid: Bid | None = None

    def on_event(self, bid):
        if self.bid is None or bid.ts >= self.bid.ts:
            self.bid = bid

    def on_batch(self):
        yield last.emit(self.bid)
