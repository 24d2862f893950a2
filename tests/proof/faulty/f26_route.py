"""The stops of each van: what was planned in the morning, and what was driven in the end."""

from penstock import App, Event, ProcessingElement


class Order(Event):
    van: str
    stops: list[str] = []
    extra: str | None = None


class Detour(Event):
    van: str
    planned: int
    driven: int


app = App("route")
orders = app.source("Orders", Order)
detours = app.stream("Detours", Detour)
app.sink("Detours", detours, key="van")


@app.element(orders, key="van", emits=detours)
class Route(ProcessingElement):
    planned: list[str] = []
    actual: list[str] = []

    def on_event(self, order):
        if order.stops:
            self.planned = self.actual = order.stops
        if order.extra:
            self.actual.append(order.extra)
        yield detours(self.key, len(self.planned), len(self.actual))
