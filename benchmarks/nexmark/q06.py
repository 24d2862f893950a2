"""The average price of a seller's last ten auctions, with each that closes."""

from winning import SQL as WINNING
from winning import winning

from penstock import App, Event, ProcessingElement

SQL = f"""
SELECT seller, id, avg(price) OVER (PARTITION BY seller ORDER BY expires, id ROWS 9 PRECEDING)::DOUBLE AS price FROM ({WINNING})
"""


class Average(Event):
    seller: int
    id: int
    price: float


app = App("q6")
averages = app.stream("Averages", Average)
app.sink("Out", averages)


@app.element(winning(app), key="seller", emits=averages, timers="event")
class LastTen(ProcessingElement):
    closed: list[tuple[float, int, int]] = []
    prices: list[int] = []

    def on_event(self, won):
        self.closed.append((won.expires.timestamp(), won.id, won.price))
        self.set_timer(at=won.expires)  # which has passed: what has closed in this micro-batch is put in order

    def on_timer(self):
        for _, auction, price in sorted(self.closed):
            self.prices = [*self.prices, price][-10:]
            yield averages(self.key, auction, sum(self.prices) / len(self.prices))
        self.closed = []
