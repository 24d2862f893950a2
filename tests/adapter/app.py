"""The application behind the adapter in these tests."""

from datetime import datetime

from penstock import App, Event


class Word(Event):
    text: str
    size: int = 0
    when: datetime | None = None


class Count(Event):
    text: str
    by: int
    seen: int


app = App("counting")
words = app.source("Words", Word)
counts = app.stream("Counts", Count)
totals = app.stream("Totals", Count)
app.sink("Output", counts, key=("text", "by"))
app.sink("Sums", totals)


@app.element(words, emits=(counts, totals))
def count(word):
    yield counts(text=word.text, by=0, seen=1)
