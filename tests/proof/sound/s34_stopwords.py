"""The words of each message that mean something, once each, as they come."""

from penstock import App, Event

SILENT = frozenset({"the", "a", "of", "and", "to", "is"})


class Message(Event):
    id: int
    text: str


class Words(Event):
    id: int
    words: list[str]


app = App("stopwords")
messages = app.source("Messages", Message)
words = app.stream("Words", Words)
app.sink("Words", words)


@app.element(messages, emits=words)
def split(message):
    said = message.text.lower().split()
    yield words(message.id, list(dict.fromkeys(word for word in said if word not in SILENT)))
