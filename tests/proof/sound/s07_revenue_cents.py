"""The revenue of each day in cents, from the tills and from the web."""

from penstock import App, Event, ProcessingElement


class Sale(Event):
    day: str
    cents: int


class Day(Event):
    day: str
    sales: int
    cents: int


app = App("revenue_cents")
tills = app.source("Tills", Sale)
web = app.source("Web", Sale)
days = app.stream("Days", Day)
app.sink("Days", days, key="day")


@app.element([tills, web], key="day", emits=days)
class Revenue(ProcessingElement):
    sales: int = 0
    cents: int = 0

    def on_event(self, sale):
        self.sales += 1
        self.cents += sale.cents
        yield days(self.key, self.sales, self.cents)
