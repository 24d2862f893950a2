"""Applications whose runs are moved: sums of two levels, with timers that are pending."""

from datetime import UTC, datetime, timedelta

import numpy as np

from penstock import App, Event, ProcessingElement, Tumbling


class Sale(Event):
    shop: str
    item: int
    amount: int
    at: datetime


class Total(Event):
    shop: str
    amount: int
    sales: int
    closed: bool = False


class PerItem(Event):
    item: int
    sales: int
    closed: bool = False


app = App("moving")
ITEMS = app.parameter("items", 40, help="Different items.")
SHOPS = app.parameter("shops", 7, help="Different shops.")
START = datetime(2026, 1, 1, tzinfo=UTC)

sales = app.source(
    "Sales",
    Sale,
    event_time="at",
    sample=lambda number: Sale(
        f"shop {number * 31 % SHOPS}", number * 7 % ITEMS, number % 10, START + timedelta(seconds=number)
    ),
)
items = app.stream("Items", PerItem)
closed = app.stream("Closed", PerItem)
totals = app.stream("Totals", Total)
app.sink("Totals", totals)
app.sink("Closed", closed)


@app.element(sales, key="item", emits=[items, closed], timers="event")
class CountsItems(ProcessingElement):
    """Counts the sales of an item, and says so once when event time has passed a year after the first."""

    sales: int = 0

    def on_event(self, sale):
        self.sales += 1
        if self.sales == 1:
            self.set_timer(at=sale.at + timedelta(days=365))
        yield items(self.key, self.sales)

    def on_timer(self):
        yield closed(self.key, self.sales, True)


class Sums(Event):
    amount: int = 0
    sales: int = 0


def close(shops):
    """Say the sums once more."""
    return said(shops, closed=True)


def said(shops, closed=False):
    return {"shop": shops.keys["shop"], "amount": shops.amount, "sales": shops.sales, "closed": np.full(len(shops), closed)}


@app.batch(sales, key="shop", state=Sums, emits=totals, on_timer=close, timers="event", name="SumsShops")
def sums_shops(batch, at, shops):
    """The sum of a shop's sales, and how many they were; said once more when event time has passed a year after the first."""
    first = np.full(len(shops), np.datetime64("2100-01-01", "us"))
    np.minimum.at(first, at, batch["at"].to_numpy())
    shops.due = np.where(shops.sales == 0, first + np.timedelta64(365, "D"), shops.due)
    np.add.at(shops.amount, at, batch["amount"].to_numpy())
    shops.sales += np.bincount(at, minlength=len(shops))
    return said(shops)


class Item(Event):
    item: int
    most: int


most = app.stream("Most", Item)
app.sink("Most", most)


@app.element(items, key="item", emits=most)
class KeepsMost(ProcessingElement):
    """The greatest count of an item: what has arrived in order is always the last."""

    most: int = 0
    disorder: int = 0

    def on_event(self, one):
        self.disorder += one.sales != self.most + 1
        self.most = max(self.most, one.sales)

    def on_batch(self):
        yield most(self.key, self.most if not self.disorder else -1)


# --- windows, and an element behind a group that lets nothing through at first -----------------------

windows = App("windows")
window_sales = windows.source("Sales", Sale, event_time="at")
per_minute = windows.stream("PerMinute", PerItem)
rare = windows.stream("Rare", Sale)
kept = windows.stream("Kept", PerItem)
windows.sink("PerMinute", per_minute)
windows.sink("Kept", kept)


@windows.element(window_sales, key="item", window=Tumbling("1 minute"), emits=per_minute)
class Minute(ProcessingElement):
    """The sales of an item in a minute, once it is over."""

    sales: int = 0

    def on_event(self, sale):
        self.sales += 1

    def on_close(self):
        yield per_minute(self.key, self.sales)


@windows.element(window_sales, emits=rare)
def dear(sale):
    if sale.amount > 1000:
        yield rare.emit(sale)


@windows.element(rare, key="item", emits=kept)
class KeepsRare(ProcessingElement):
    sales: int = 0

    def on_event(self, sale):
        self.sales += 1
        yield kept(self.key, self.sales)


# --- a name that ends like a number -----------------------------------------------------------------


class Text(Event):
    text: str


dotted = App("dotted")
dotted_words = dotted.source("Words.1", Text)
same = dotted.stream("Same", Text)
dotted.sink("Out", same)


@dotted.query(dotted_words, emits=same)
def pass_on(frame):
    return frame


@dotted.query(dotted_words, emits=dotted.stream("Again", Text))  # so that the source is a query of its own
def pass_on_again(frame):
    return frame
