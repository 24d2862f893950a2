"""An application whose results go to one sink of each kind."""

from penstock import App, Event, ProcessingElement
from penstock.connectors.files.sink import DirectorySink
from penstock.errors import SinkError
from penstock.runtime.output import SinkFiles


class Word(Event):
    text: str


class Count(Event):
    text: str
    seen: int
    share: float
    twice: list[str] = []


app = App("audited")
words = app.source("Words", Word)
counts = app.stream("Counts", Count)


@app.element(words, key="text", emits=counts)
class Counter(ProcessingElement):
    seen: int = 0

    def on_event(self, word):
        if word.text == "bad":
            raise ValueError("no")
        self.seen += 1
        yield counts(word.text, self.seen, self.seen / 7, [word.text] * 2)


for name in ("Lines", "Parquet", "Sqlite", "Delta", "Iceberg", "Log", "Kafka", "Atomic", "Postgres"):
    app.sink(name, counts)
for name in ("LastSqlite", "LastDelta", "LastIceberg", "LastPostgres"):
    app.sink(name, counts, key="text")

passed = App("passed")
numbers = passed.source("Words", Word)
passed.sink("Out", numbers)


chained = App("chained")
given = chained.source("Words", Word)
louder = chained.stream("Louder", Word)
sums = chained.stream("Sums", Count)
chained.sink("Out", sums)


@chained.element(given, emits=louder)
def shout(word):
    yield louder(word.text.upper())


@chained.element(louder, key="text", emits=sums)
class Sum(ProcessingElement):
    seen: int = 0

    def on_event(self, word):
        self.seen += 1
        yield sums(word.text, self.seen, 0.5)


class Full(DirectorySink):
    """A sink of somebody's own whose disk is full until there is room."""

    room = False

    def deliver(self, group, batch, files):
        if not Full.room:
            raise SinkError("Sink Out: the disk is full.")
        super().deliver(group, batch, files)


class Place:
    """How it is bound."""

    def bind(self, declared, context):
        return Full(SinkFiles(declared.name, "jsonl", str(context.output)), declared.stream.event_type)


full = App("full")
taken = full.source("Words", Word)
full.sink("Out", taken, uri=Place())


class Number(Event):
    key: int


class Seen(Event):
    key: int = 0
    order: list[int] = []


ordered = App("ordered")
of_many = ordered.source("Numbers", Number)
at_end, orders = ordered.stream("AtEnd", Seen), ordered.stream("Orders", Seen)
ordered.sink("Out", orders)


@ordered.element(of_many, key="key", emits=at_end)
class Each(ProcessingElement):
    def on_event(self, number):
        pass

    def on_batch(self):
        yield at_end(0, [self.key])


@ordered.element(at_end, key="key", emits=orders)
class Order(ProcessingElement):
    order: list[int] = []

    def on_event(self, one):
        self.order = self.order + one.order
        yield orders(0, self.order)
