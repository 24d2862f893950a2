"""The length of each word, by a keyless element of the event dialect."""

from penstock import App, Event


class Word(Event):
    key: int
    text: str


class Length(Event):
    key: int
    length: int


app = App("keyless")
words = app.source("Words", Word)
lengths = app.stream("Lengths", Length)
app.sink("Out", lengths)


@app.element(words, emits=lengths)
def Measure(word):
    yield lengths(word.key, len(word.text))
