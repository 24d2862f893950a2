"""The application of benchmarks/faults.py: each order is counted under its customer, and leaves with its number."""

from penstock import App, Event, ProcessingElement


class Order(Event):
    id: int
    customer: int


class Handled(Event):
    id: int
    customer: int
    nth: int


app = App("orders")
orders = app.source("Orders", Order)
handled = app.stream("Handled", Handled)
app.sink("Out", handled)


@app.element(orders, key="customer", emits=handled)
class Customer(ProcessingElement):
    seen: int = 0

    def on_event(self, order):
        self.seen += 1
        yield handled(id=order.id, customer=order.customer, nth=self.seen)
