"""What each shop sells in half an hour: pieces, articles, the dearest and the cheapest sale."""

from datetime import datetime

from penstock import App, Event, Sliding, reducers


class Sale(Event):
    shop: str
    article: str
    price: float
    at: datetime


class Half(Event):
    shop: str
    start: datetime
    sales: int
    articles: int
    dearest: float
    cheapest: float


app = App("hourly")
sales = app.source("Sales", Sale, event_time="at", lateness="1 day")
halves = app.stream("Halves", Half)
app.sink("Halves", halves)
app.aggregate(
    sales,
    key="shop",
    window=Sliding("30 minutes", "10 minutes"),
    into=halves,
    sales=reducers.count(),
    articles=reducers.distinct("article"),
    dearest=reducers.max("price"),
    cheapest=reducers.min("price"),
)
