"""Local item suggestion: who sells in some states, in one category."""

from model import Auction, Person, auctions, persons

from penstock import App, Event, ProcessingElement

SQL = """
SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
"""


class Offer(Event):
    seller: int
    auction: int


class Seller(Event):
    seller: int
    name: str
    city: str
    state: str


class Suggestion(Event):
    name: str
    city: str
    state: str
    id: int


app = App("q3")
people, offered = persons(app), auctions(app)
offers, sellers = app.stream("Offers", Offer), app.stream("Sellers", Seller)
suggestions = app.stream("Suggestions", Suggestion)
app.sink("Out", suggestions)


@app.element([people, offered], emits=[offers, sellers])
def by_seller(event):
    if isinstance(event, Person) and event.state in ("OR", "ID", "CA"):
        yield sellers(event.id, event.name, event.city, event.state)
    if isinstance(event, Auction) and event.category == 10:
        yield offers(event.seller, event.id)


@app.element([offers, sellers], key="seller", emits=suggestions)
class Join(ProcessingElement):
    seller: Seller | None = None
    waiting: list[int] = []

    def on_event(self, event):
        if isinstance(event, Seller):
            self.seller = event
        else:
            self.waiting.append(event.auction)
        if self.seller is not None:
            for auction in self.waiting:
                yield suggestions(self.seller.name, self.seller.city, self.seller.state, auction)
            self.waiting = []
