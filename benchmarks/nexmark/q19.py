"""The ten highest bids of each auction."""

from model import bids

from penstock import App, Event, ProcessingElement

SQL = """
SELECT auction, list(price ORDER BY price DESC) AS prices FROM (
    SELECT auction, price FROM bid QUALIFY row_number() OVER (PARTITION BY auction ORDER BY price DESC) <= 10
) GROUP BY auction
"""
LAST = ("auction",)


class Top(Event):
    auction: int
    prices: list[int]


app = App("q19")
given = bids(app)
top = app.stream("Top", Top)
app.sink("Out", top)


@app.element(given, key="auction", emits=top)
class TopTen(ProcessingElement):
    prices: list[int] = []

    def on_event(self, bid):
        self.prices = sorted([*self.prices, bid.price], reverse=True)[:10]

    def on_batch(self):
        yield top(self.key, self.prices)
