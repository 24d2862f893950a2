"""Eight elements with unequal work: two keyed, a slow branch and quick ones, each to a sink of its own."""

from hashlib import blake2b

from penstock import App, Event, ProcessingElement

KEYS = 50


class Reading(Event):
    key: int
    text: str


class Seen(Event):
    key: int
    seen: int
    text: str


def work(text, rounds):
    digest = text.encode()
    for _ in range(rounds):
        digest = blake2b(digest).digest()
    return digest.hex()[:16]


app = App("placement")
readings = app.source("Readings", Reading, sample=lambda number: Reading(number * 7919 % KEYS, f"{number:032d}"))
parsed = app.stream("Parsed", Reading)
counted = app.stream("Counted", Seen)
quick = app.stream("Quick", Reading)
heavy = app.stream("Heavy", Reading)
heavier = app.stream("Heavier", Reading)
ranked = app.stream("Ranked", Seen)
alerts = app.stream("Alerts", Seen)
labelled = app.stream("Labelled", Reading)
app.sink("Alerts", alerts)
app.sink("Quick", labelled)
app.sink("Slow", ranked)


@app.element(readings, emits=parsed)
def parse(reading):
    yield parsed.emit(Reading(reading.key, work(reading.text, 20)))


@app.element(parsed, key="key", emits=counted)
class Counts(ProcessingElement):
    seen: int = 0

    def on_event(self, reading):
        self.seen += 1
        yield counted(self.key, self.seen, work(reading.text, 20))


@app.element(counted, emits=alerts)
def alert(seen):
    if seen.seen % 10 == 0:
        yield alerts.emit(Seen(seen.key, seen.seen, work(seen.text, 40)))


@app.element(parsed, emits=quick)
def pick(reading):
    yield quick.emit(Reading(reading.key, work(reading.text, 10)))


@app.element(quick, emits=labelled)
def tag(reading):
    yield labelled.emit(Reading(reading.key, work(reading.text, 30)))


@app.element(parsed, emits=heavy)
def digest(reading):
    yield heavy.emit(Reading(reading.key, work(reading.text, 600)))


@app.element(heavy, emits=heavier)
def enrich(reading):
    yield heavier.emit(Reading(reading.key, work(reading.text, 300)))


@app.element(heavier, key="key", emits=ranked)
class Ranks(ProcessingElement):
    best: str = ""
    seen: int = 0

    def on_event(self, reading):
        self.seen += 1
        self.best = max(self.best, reading.text)
        if self.seen % 10 == 0:
            yield ranked(self.key, self.seen, self.best)
