"""A counter per key, in the event dialect."""

from penstock import App, Event, ProcessingElement


class Word(Event):
    key: int
    text: str


class Count(Event):
    key: int
    seen: int


app = App("counter")
words = app.source("Words", Word)
counts = app.stream("Counts", Count)
app.sink("Out", counts)


@app.element(words, key="key", emits=counts)
class Counter(ProcessingElement):
    seen: int = 0

    def on_event(self, word):
        self.seen += 1

    def on_batch(self):
        yield counts(self.key, self.seen)
