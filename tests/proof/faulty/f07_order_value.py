"""The value of each order, at the price of its article that holds when the order comes."""

from penstock import App, Event, ProcessingElement


class Price(Event):
    article: str
    cents: int


class Order(Event):
    id: int
    article: str
    pieces: int


class Value(Event):
    order_id: int
    cents: int


app = App("order_value")
prices = app.source("Prices", Price)
orders = app.source("Orders", Order)
value = app.stream("Values", Value)
app.sink("Values", value)


@app.element([prices, orders], key="article", emits=value)
class Valuer(ProcessingElement):
    price: int = 0

    def on_event(self, event):
        if isinstance(event, Price):
            self.price = event.cents
        else:
            yield value(order_id=event.id, cents=self.price * event.pieces)
