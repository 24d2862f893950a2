"""Windows and joins, each in both dialects."""

from datetime import datetime

from pyspark.sql import functions as F

from penstock import App, Event, Sliding, Tumbling, reducers


class Bid(Event):
    item: str
    bidder: str | None
    price: int
    at: datetime


class Payment(Event):
    item: str
    amount: int
    at: datetime


class Sold(Event):
    item: str
    start: datetime
    end: datetime
    bids: int
    dear: int
    spent: int
    mean: float
    least: int
    most: int
    earliest: int
    latest: Bid
    best: list[Bid]
    bidders: int
    about: int
    prices: list[int]


class Settled(Event):
    item: str | None
    price: int | None
    amount: int | None


def _settle_events(into):
    def settle(bid, payment):
        yield into((bid or payment).item, bid and bid.price, payment and payment.amount)

    return settle


def _settle_columns(into):
    return lambda bid, payment: {"item": F.coalesce(bid.item, payment.item), "price": bid.price, "amount": payment.amount}


def both(dialect):
    """The application with its windows and joins in one dialect."""
    app = App(f"in_{dialect}")
    bids = app.source("Bids", Bid, event_time="at", lateness="5 s", late="drop")
    payments = app.source("Payments", Payment, event_time="at", lateness="5 s", late="drop")
    settle = _settle_columns if dialect == "query" else _settle_events
    for name, window in (("Tumbling", Tumbling("10 s", offset="3 s")), ("Sliding", Sliding("10 s", "4 s"))):
        sold = app.stream(name, Sold)
        app.sink(f"{name}Out", sold)
        app.aggregate(
            bids,
            key="item",
            window=window,
            into=sold,
            dialect=dialect,
            bids=reducers.count(),
            dear=reducers.count().where(lambda bid: bid.price > 500),
            spent=reducers.sum("price"),
            mean=reducers.mean("price"),
            least=reducers.min("price"),
            most=reducers.max("price"),
            earliest=reducers.first("price"),
            latest=reducers.last(),
            best=reducers.top(2, by="price"),
            bidders=reducers.distinct("bidder"),
            prices=reducers.collect("price"),
            about=reducers.approx_distinct("price"),
        )
    for how in ("inner", "left", "full"):
        settled = app.stream(f"Settled_{how}", Settled)
        app.sink(f"{how}Out", settled)
        app.join(
            bids, payments, key="item", within=("-1 s", "4 s"), how=how, emits=settled, dialect=dialect, name=f"join_{how}"
        )(settle(settled))
    return app


in_query = both("query")


one_query = App("one_query")
offers = one_query.source("Bids", Bid, event_time="at", lateness="5 s", late="drop")
money = one_query.source("Payments", Payment, event_time="at", lateness="5 s", late="drop")
paid = one_query.stream("Paid", Settled)
one_query.sink("Out", paid)
one_query.join(offers, money, key="item", within=("-1 s", "4 s"), how="left", emits=paid, dialect="query", name="settle")(
    _settle_columns(paid)
)


class Few(Event):
    item: str
    start: datetime
    bids: int
    spent: int


def alone(kind, dialect):
    """An application of one element, a window or a join, whose sources nothing else reads."""
    app = App(f"{kind}_{dialect}")
    bids = app.source("Bids", Bid, event_time="at", lateness="1 s", late="drop")
    if kind in WINDOWS:
        few = app.stream("Few", Few)
        app.sink("Out", few)
        app.aggregate(
            bids,
            key="item",
            window=WINDOWS[kind],
            into=few,
            dialect=dialect,
            bids=reducers.count(),
            spent=reducers.sum("price"),
        )
        return app
    payments = app.source("Payments", Payment, event_time="at", lateness="2 s", late="drop")
    settled = app.stream("Settled", Settled)
    app.sink("Out", settled)
    settle = (_settle_columns if dialect == "query" else _settle_events)(settled)
    app.join(bids, payments, key="item", within=("-1 s", "3 s"), how=kind, emits=settled, dialect=dialect, name="settle")(
        settle
    )
    return app


WINDOWS = {"tumbling": Tumbling("4 s", offset="1 s"), "sliding": Sliding("6 s", "2 s")}
tumbling, sliding, inner, left, full = (alone(kind, "query") for kind in (*WINDOWS, "inner", "left", "full"))
