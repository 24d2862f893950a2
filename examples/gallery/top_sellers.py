"""Top N: the three articles that sold best in each hour, of each shop.

Sales are summed by article first, so that the second step sees one event for each article and hour.
"""

from datetime import datetime

from penstock import App, Event, Tumbling, reducers


class Sale(Event):
    shop: str
    article: str
    pieces: int
    at: datetime


class Sold(Event):
    shop: str
    article: str
    start: datetime
    pieces: int


class Best(Event):
    shop: str
    start: datetime
    articles: list[Sold]


app = App("top_sellers")
sales = app.source("Sales", Sale, event_time="at", lateness="1 minute")
sold = app.stream("Sold", Sold)
best = app.stream("Best", Best)
app.sink("Best", best)
app.aggregate(sales, key=("shop", "article"), window=Tumbling("1 hour"), into=sold, pieces=reducers.sum("pieces"))
app.aggregate(sold, key="shop", window=Tumbling("1 hour", at="start"), into=best, articles=reducers.top(3, by="pieces"))
