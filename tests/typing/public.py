"""What a user's type checker makes of the public API; checked by mypy, never run."""

from collections.abc import Iterator
from typing import assert_type

from penstock import App, Emission, Event, ProcessingElement, Sink, Source, Stream
from penstock.client import Client, Sent
from penstock.connectors import Memory
from penstock.queueing import MicroBatchServer, Model, SteadyState, StreamServer, solve
from penstock.testing import TopologyDriver


class Word(Event):
    text: str
    size: int = 0


class Count(Event):
    text: str
    seen: int


word = Word("gate", size=4)
assert_type(word.text, str)

app = App("typed")
level = app.parameter("level", 3)
assert_type(level, int)
words = app.source("Words", Word, uri="jsonl:input")
assert_type(words, Source[Word])
counts = app.stream("Counts", Count)
assert_type(counts, Stream[Count])
sink = app.sink("Out", counts, uri=Memory(), key="text")
assert_type(sink, Sink)


@app.element(words, key="text", emits=counts)
class Counter(ProcessingElement):
    seen: int = 0

    def on_event(self, event: Word) -> None:
        self.seen += 1

    def on_batch(self) -> Iterator[Emission]:
        yield counts(text=self.key, seen=self.seen)


@app.element(words, emits=counts)
def shout(event: Word) -> Emission:
    return counts(event.text.upper(), 1)


models: list[type[Model]] = [StreamServer, MicroBatchServer]
driver = TopologyDriver(app)
driver.batch({"Words": [word, b'{"text": "lock"}']})
assert_type(solve(StreamServer(750, 1000, 25, 600)), SteadyState)
assert_type(Client("http://127.0.0.1:8470").send("Words", [word]), Sent)
