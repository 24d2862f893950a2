"""Statistics of an auction's bids, by day."""

from datetime import datetime

from model import bids

from penstock import App, Event, Tumbling, reducers

SQL = """
SELECT auction, date_trunc('day', ts) AS start, count(*) AS bids,
    count(*) FILTER (price < 10000) AS low, count(*) FILTER (price >= 10000 AND price < 1000000) AS middle,
    count(*) FILTER (price >= 1000000) AS high, min(price) AS least, max(price) AS most, avg(price)::DOUBLE AS mean,
    sum(price)::BIGINT AS total
FROM bid GROUP BY ALL
"""
LAST = ("auction", "start")


class Day(Event):
    auction: int
    start: datetime
    bids: int
    low: int
    middle: int
    high: int
    least: int
    most: int
    mean: float
    total: int


app = App("q17")
days = app.stream("Days", Day)
app.sink("Out", days)
app.aggregate(
    bids(app),
    key="auction",
    window=Tumbling("1 day"),
    into=days,
    results="updates",
    bids=reducers.count(),
    low=reducers.count().where(lambda bid: bid.price < 10_000),
    middle=reducers.count().where(lambda bid: 10_000 <= bid.price < 1_000_000),
    high=reducers.count().where(lambda bid: bid.price >= 1_000_000),
    least=reducers.min("price"),
    most=reducers.max("price"),
    mean=reducers.mean("price"),
    total=reducers.sum("price"),
)
