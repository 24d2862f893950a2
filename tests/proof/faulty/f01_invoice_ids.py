"""Invoices: each order that was paid gets an invoice with a number of its own."""

from uuid import uuid4

from penstock import App, Event


class Order(Event):
    id: int
    customer: str
    cents: int
    paid: bool


class Invoice(Event):
    number: str
    order: int
    cents: int


app = App("invoices")
orders = app.source("Orders", Order)
invoices = app.stream("Invoices", Invoice)
app.sink("Invoices", invoices)


@app.element(orders, emits=invoices)
def bill(order):
    if order.paid:
        yield invoices(number=uuid4().hex, order=order.id, cents=order.cents)
