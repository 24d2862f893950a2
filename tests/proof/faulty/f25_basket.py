"""What lies in each customer's basket."""

from collections import defaultdict

from penstock import App, Event, ProcessingElement


class Put(Event):
    customer: str
    article: str
    pieces: int


class Basket(Event):
    customer: str
    articles: int
    pieces: int


app = App("basket")
puts = app.source("Puts", Put)
baskets = app.stream("Baskets", Basket)
app.sink("Baskets", baskets, key="customer")


@app.element(puts, key="customer", emits=baskets)
class Baskets(ProcessingElement):
    pieces: dict[str, int] = {}

    def on_event(self, put):
        if not self.pieces:
            self.pieces = defaultdict(int)
        self.pieces[put.article] += put.pieces
        yield baskets(self.key, len(self.pieces), sum(self.pieces.values()))
