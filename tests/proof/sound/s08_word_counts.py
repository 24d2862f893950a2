"""How often each word was said, as a table."""

from penstock import App, Event, ProcessingElement


class Word(Event):
    text: str


class Count(Event):
    text: str
    seen: int


app = App("word_counts")
words = app.source("Words", Word)
counts = app.stream("Counts", Count)
app.sink("Counts", counts, key="text")


@app.element(words, key="text", emits=counts)
class Counter(ProcessingElement):
    seen: int = 0

    def on_event(self, word):
        self.seen += 1

    def on_batch(self):
        yield counts(self.key, self.seen)
