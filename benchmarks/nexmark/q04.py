"""The average price of what has been sold, by category."""

from winning import SQL as WINNING
from winning import winning

from penstock import App, Event, ProcessingElement

SQL = f"SELECT category, avg(price)::DOUBLE AS price FROM ({WINNING}) GROUP BY category"
LAST = ("category",)


class Average(Event):
    category: int
    price: float


app = App("q4")
averages = app.stream("Averages", Average)
app.sink("Out", averages)


@app.element(winning(app), key="category", emits=averages)
class Mean(ProcessingElement):
    total: int = 0
    sold: int = 0

    def on_event(self, won):
        self.total += won.price
        self.sold += 1

    def on_batch(self):
        yield averages(self.key, self.total / self.sold)
