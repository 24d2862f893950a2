"""Statistics of a channel's bids, by day."""

from datetime import datetime

from model import bids
from q15 import COLUMNS

from penstock import App, Event, Tumbling, reducers

SQL = f"SELECT channel, date_trunc('day', ts) AS start, {COLUMNS} FROM bid GROUP BY channel, start"
LAST = ("channel", "start")


class Day(Event):
    channel: str
    start: datetime
    bids: int
    low: int
    middle: int
    high: int
    bidders: int
    low_bidders: int
    auctions: int
    high_auctions: int


app = App("q16")
days = app.stream("Days", Day)
app.sink("Out", days)
app.aggregate(
    bids(app), key="channel", window=Tumbling("1 day"), into=days, results="updates", bids=reducers.count(),
    low=reducers.count().where(lambda bid: bid.price < 10_000),
    middle=reducers.count().where(lambda bid: 10_000 <= bid.price < 1_000_000),
    high=reducers.count().where(lambda bid: bid.price >= 1_000_000),
    bidders=reducers.distinct("bidder"), low_bidders=reducers.distinct("bidder").where(lambda bid: bid.price < 10_000),
    auctions=reducers.distinct("auction"), high_auctions=reducers.distinct("auction").where(lambda bid: bid.price >= 1_000_000),
)  # fmt: skip
