"""Calculation: a function of each bid's text and hour."""

from datetime import datetime

from model import bids

from penstock import App, Event

SQL = """
SELECT auction, bidder, 0.908 * price::DOUBLE AS price, CASE WHEN hour(ts) BETWEEN 8 AND 18 THEN 'day'
    WHEN hour(ts) <= 6 OR hour(ts) >= 20 THEN 'night' ELSE 'other' END AS time, ts,
    length(extra) - length(replace(extra, 'c', '')) AS cs
FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000
"""


class Counted(Event):
    auction: int
    bidder: int
    price: float
    time: str
    ts: datetime
    cs: int


app = App("q14")
given = bids(app)
counted = app.stream("Counted", Counted)
app.sink("Out", counted)


@app.element(given, emits=counted)
def count(bid):
    price, hour = 0.908 * bid.price, bid.ts.hour
    if 1_000_000 < price < 50_000_000:
        time = "day" if 8 <= hour <= 18 else "night" if hour <= 6 or hour >= 20 else "other"
        yield counted(bid.auction, bid.bidder, price, time, bid.ts, bid.extra.count("c"))
