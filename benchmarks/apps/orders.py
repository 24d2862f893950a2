"""Orders passed on as they are, and their sums by customer: what a topic whose schema evolves is tried with."""

from penstock import App, Event, ProcessingElement


class Order(Event):
    number: int
    customer: int
    amount: int
    discount: int = 0
    note: str | None = None


class Sum(Event):
    customer: int
    orders: int
    amount: int


app = App("orders")
orders = app.source("Orders", Order)
passed = app.stream("Passed", Order)
sums = app.stream("Sums", Sum)
app.sink("Passed", passed)
app.sink("Sums", sums, key="customer")


@app.element(orders, emits=passed)
def pass_on(order):
    yield passed(order.number, order.customer, order.amount, order.discount, order.note)


@app.element(passed, key="customer", emits=sums)
class Adds(ProcessingElement):
    """What a customer has ordered, said once a micro-batch."""

    orders: int = 0
    amount: int = 0

    def on_event(self, order):
        self.orders += 1
        self.amount += order.amount - order.discount

    def on_batch(self):
        yield sums(self.key, self.orders, self.amount)
