"""Postage by country; the table is part of the program."""

from penstock import App, Event, ProcessingElement

CENTS = {"CH": 110, "DE": 190, "FR": 190, "IT": 190}
ELSEWHERE = [250, 270, 310]


class Letter(Event):
    sender: str
    country: str
    grams: int


class Bill(Event):
    sender: str
    cents: int
    so_far: int


app = App("postage")
letters = app.source("Letters", Letter)
bills = app.stream("Bills", Bill)
app.sink("Bills", bills)


@app.element(letters, key="sender", emits=bills)
class Bills(ProcessingElement):
    so_far: int = 0

    def on_event(self, letter):
        cents = CENTS.get(letter.country, ELSEWHERE[min(letter.grams // 50, 2)])
        self.so_far += cents
        yield bills(self.key, cents, self.so_far)
