"""Hot items: the auctions with the most bids of the last ten seconds, each two seconds."""

from datetime import datetime

from model import bids

from penstock import App, Event, ProcessingElement, Sliding, Tumbling, reducers

SQL = """
WITH counted AS (
    SELECT auction, start, count(*) AS bids FROM bid, LATERAL (SELECT unnest(range(
        time_bucket(INTERVAL 2 SECONDS, ts) - INTERVAL 8 SECONDS, ts + INTERVAL 1 MICROSECOND, INTERVAL 2 SECONDS
    )) AS start) GROUP BY auction, start)
SELECT auction, start, bids FROM counted QUALIFY bids = max(bids) OVER (PARTITION BY start)
"""


class Counted(Event):
    auction: int
    start: datetime
    end: datetime
    bids: int


class Hot(Event):
    auction: int
    start: datetime
    bids: int


app = App("q5")
given = bids(app)
counted, hot = app.stream("Counted", Counted), app.stream("Hot", Hot)
app.sink("Out", hot)
app.aggregate(given, key="auction", window=Sliding("10 s", "2 s"), into=counted, bids=reducers.count())


@app.element(counted, key="start", window=Tumbling("2 s", at="end"), emits=hot)
class Hottest(ProcessingElement):
    most: list[Counted] = []

    def on_event(self, one):
        if not self.most or one.bids >= self.most[0].bids:
            self.most = [other for other in self.most if other.bids == one.bids] + [one]

    def on_close(self):
        for one in self.most:
            yield hot(one.auction, one.start, one.bids)
