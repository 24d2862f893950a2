"""What is being talked about: the hashtags used most in the last minute, of a stream of messages."""

import random
import re
from datetime import UTC, datetime, timedelta

from penstock import App, Event, ProcessingElement


class Message(Event):
    text: str
    at: datetime


class Mention(Event):
    topic: str
    at: datetime


class TopicCount(Event):
    topic: str
    count: int
    at: datetime
    board: str = "trending"


class Trending(Event):
    topics: list[str]
    counts: list[int]
    at: datetime


TOPICS, EXPONENT, START = 500, 1.2, datetime(2026, 1, 1, tzinfo=UTC)
WEIGHTS = [1 / rank**EXPONENT for rank in range(1, TOPICS + 1)]


def message(number: int) -> Message:
    """The n-th message: one to three hashtags, Zipf-distributed; ten messages a second of event time."""
    random_ = random.Random(number)
    tags = random_.choices(range(1, TOPICS + 1), WEIGHTS, k=random_.randint(1, 3))
    return Message(" ".join(f"#topic{tag}" for tag in tags), START + timedelta(seconds=number / 10))


app = App("trending")
top = app.parameter("top", 10, help="How many topics to rank.")
window = app.parameter("window", 60, help="Length of the sliding window, in seconds.")
slide = app.parameter("slide", 5, help="By how much it slides, in seconds.")

messages = app.source("Messages", Message, event_time="at", lateness="2 s", sample=message)
mentions = app.stream("Mentions", Mention)
counts = app.stream("Counts", TopicCount)
trending = app.stream("Trending", Trending)
app.sink("Output", trending)


@app.element(messages, emits=mentions)
def extract_topics(message):
    for topic in re.findall(r"#(\w+)", message.text):
        yield mentions(topic, message.at)


def slot_of(at):
    """The start of the slot that a time falls into, in seconds since the epoch."""
    return int(at.timestamp() // slide * slide)


@app.element(mentions, key="topic", emits=counts, timers="event")
class TopicCounter(ProcessingElement):
    slots: dict[int, int] = {}

    def on_event(self, mention):
        slot = slot_of(mention.at)
        self.slots[slot] = self.slots.get(slot, 0) + 1

    def on_batch(self):
        yield from self.report()

    def on_timer(self):
        yield from self.report()

    def report(self):
        """Forget the slots that have left the window, and be called when the next one leaves."""
        now = max([*self.slots, slot_of(self.watermark) if self.watermark else 0])
        self.slots = {slot: count for slot, count in self.slots.items() if slot > now - window}
        if self.slots:
            self.set_timer(at=datetime.fromtimestamp(min(self.slots) + window, UTC))
        yield counts(self.key, sum(self.slots.values()), datetime.fromtimestamp(now, UTC))


@app.element(counts, key="board", emits=trending)
class Board(ProcessingElement):
    counts: dict[str, int] = {}
    at: datetime = START

    def on_event(self, entry):
        self.counts[entry.topic] = entry.count
        if entry.count == 0:
            del self.counts[entry.topic]
        self.at = max(self.at, entry.at)

    def on_batch(self):
        best = sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))[:top]
        yield trending([topic for topic, _ in best], [count for _, count in best], self.at)
