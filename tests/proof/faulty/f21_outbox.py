"""Stock of each article. The mailer thread sends what lies in the outbox to whoever orders goods."""

from penstock import App, Event, ProcessingElement

outbox = []


class Move(Event):
    article: str
    pieces: int


class Stock(Event):
    article: str
    pieces: int


app = App("outbox")
moves = app.source("Moves", Move)
stocks = app.stream("Stocks", Stock)
app.sink("Stocks", stocks, key="article")


@app.element(moves, key="article", emits=stocks, name="Stock")
class Shelf(ProcessingElement):
    pieces: int = 10

    def on_event(self, move):
        self.pieces += move.pieces
        if self.pieces < 5:
            outbox.append((self.key, self.pieces))

    def on_batch(self):
        yield stocks(self.key, self.pieces)
