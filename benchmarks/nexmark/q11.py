"""User sessions: how often each bidder bids without a pause of ten seconds."""

from datetime import datetime

from model import bids

from penstock import App, Event, Session, reducers

SQL = """
WITH gaps AS (SELECT bidder, ts, coalesce(ts - lag(ts) OVER own >= INTERVAL 10 SECONDS, true) AS first
              FROM bid WINDOW own AS (PARTITION BY bidder ORDER BY ts)),
     numbered AS (SELECT bidder, ts, sum(first::INT) OVER (PARTITION BY bidder ORDER BY ts) AS number FROM gaps)
SELECT bidder, count(*) AS bids, min(ts) AS start, max(ts) + INTERVAL 10 SECONDS AS "end" FROM numbered GROUP BY bidder, number
"""


class Visit(Event):
    bidder: int
    bids: int
    start: datetime
    end: datetime


app = App("q11")
visits = app.stream("Visits", Visit)
app.aggregate(bids(app), key="bidder", window=Session("10 s"), into=visits, bids=reducers.count())
app.sink("Out", visits)
