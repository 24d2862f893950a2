"""What several queries begin with: each auction's highest bid, once the auction has closed."""

from datetime import datetime

from model import Auction, Bid, auctions, bids

from penstock import App, Event, ProcessingElement

SQL = """
SELECT a.id, a.seller, a.category, b.bidder, b.price, b.ts, a.expires FROM auction a JOIN bid b ON b.auction = a.id
AND b.ts BETWEEN a.ts AND a.expires QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.ts) = 1
"""


class Opened(Event):
    auction: int
    seller: int
    category: int
    ts: datetime
    expires: datetime


class Won(Event):
    id: int
    seller: int
    category: int
    bidder: int
    price: int
    ts: datetime
    expires: datetime


def winning(app: App):
    """The stream of winning bids."""
    opened, won = app.stream("Opened", Opened), app.stream("Won", Won)
    offered, offers = auctions(app), bids(app)

    @app.element(offered, emits=opened)
    def open_auction(auction: Auction):
        yield opened(auction.id, auction.seller, auction.category, auction.ts, auction.expires)

    @app.element([opened, offers], key="auction", emits=won, timers="event")
    class Winner(ProcessingElement):
        auction: Opened | None = None
        early: list[Bid] = []
        best: Bid | None = None

        def on_event(self, event):
            if isinstance(event, Opened):
                self.auction = event
                self.set_timer(at=event.expires)
                for bid in self.early:
                    self.consider(bid)
                self.early = []
            elif self.auction is None:
                self.early.append(event)
            else:
                self.consider(event)

        def consider(self, bid):
            within = self.auction.ts <= bid.ts <= self.auction.expires
            if within and (self.best is None or (-bid.price, bid.ts) < (-self.best.price, self.best.ts)):
                self.best = bid

        def on_timer(self):
            if self.best is not None:
                auction, bid = self.auction, self.best
                yield won(self.key, auction.seller, auction.category, bid.bidder, bid.price, bid.ts, auction.expires)

    return won
