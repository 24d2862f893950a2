"""The revenue of each day, from the tills and from the shop on the web."""

from penstock import App, Event, ProcessingElement


class Sale(Event):
    day: str
    amount: float


class Day(Event):
    day: str
    sales: int
    total: float


app = App("revenue")
tills = app.source("Tills", Sale)
web = app.source("Web", Sale)
days = app.stream("Days", Day)
app.sink("Days", days, key="day")


@app.element([tills, web], key="day", emits=days)
class Revenue(ProcessingElement):
    sales: int = 0
    total: float = 0.0

    def on_event(self, sale):
        self.sales += 1
        self.total += sale.amount

    def on_batch(self):
        yield days(self.key, self.sales, self.total)
