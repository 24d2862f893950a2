"""Statistics of a channel's bids, by day."""

from datetime import datetime

from model import bids
from q15 import COLUMNS, STATISTICS

from penstock import App, Event, Tumbling

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
app.aggregate(bids(app), key="channel", window=Tumbling("1 day"), into=days, results="updates", **STATISTICS)
