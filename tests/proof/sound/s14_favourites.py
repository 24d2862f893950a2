"""The article that each customer orders most; of those ordered as often, the first by name."""

from penstock import App, Event, ProcessingElement


class Order(Event):
    customer: str
    article: str


class Favourite(Event):
    customer: str
    article: str
    times: int


app = App("favourites")
orders = app.source("Orders", Order)
favourites = app.stream("Favourites", Favourite)
app.sink("Favourites", favourites)


@app.element(orders, key="customer", emits=favourites)
class Favourites(ProcessingElement):
    times: dict[str, int] = {}

    def on_event(self, order):
        self.times[order.article] = self.times.get(order.article, 0) + 1
        article, times = min(self.times.items(), key=lambda item: (-item[1], item[0]))
        yield favourites(self.key, article, times)
