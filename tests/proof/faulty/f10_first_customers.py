"""Coupons for the first three new customers of each shop."""

from penstock import App, Event, ProcessingElement


class Purchase(Event):
    customer: str
    shop: str
    cents: int


class Welcome(Event):
    customer: str
    shop: str


app = App("first_customers")
purchases = app.source("Purchases", Purchase)
welcomes = app.stream("Welcomes", Welcome)
coupons = app.stream("Coupons", Welcome)
app.sink("Coupons", coupons)


@app.element(purchases, key="customer", emits=welcomes)
class Newcomers(ProcessingElement):
    known: bool = False

    def on_event(self, purchase):
        if not self.known:
            self.known = True
            yield welcomes(self.key, purchase.shop)


@app.element(welcomes, key="shop", emits=coupons)
class Coupons(ProcessingElement):
    customers: list[str] = []

    def on_event(self, welcome):
        if len(self.customers) < 3 and welcome.customer not in self.customers:
            self.customers.append(welcome.customer)
            yield coupons(welcome.customer, self.key)
