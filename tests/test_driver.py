"""What only the in-memory driver can show: the clock, crashes, expiry, hypothesis."""

import json
import sys
import time
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import load

from penstock import App, Event, ProcessingElement
from penstock.errors import ConfigurationError, EmissionError, RunFailedError, TopologyError
from penstock.testing import Crash, TopologyDriver


class Word(Event):
    text: str


class Count(Event):
    text: str
    seen: int


def counter(**options):
    app = App("counter", on_error=options.pop("on_error", "dead-letter"))
    words, counts = app.source("Words", Word), app.stream("Counts", Count)
    app.sink("Out", counts)

    class Counter(ProcessingElement):
        seen: int = 0

        def on_event(self, word):
            if word.text == "bad":
                raise ValueError("bad word")
            self.seen += 1

        def on_batch(self):
            yield counts(self.key, self.seen)

    app.element(words, key="text", emits=counts, **options)(Counter)
    return app


def latest(driver):
    return {count.text: count.seen for count in driver.output("Out")}


def test_an_instance_expires_after_its_last_event():
    driver = TopologyDriver(counter(expires="60 s"))
    driver.batch({"Words": [Word("a"), Word("b")]})
    driver.advance(40)
    driver.batch({"Words": [Word("a")]})
    driver.advance(40)
    driver.batch({"Words": [Word("a"), Word("b")]})
    assert latest(driver) == {"a": 3, "b": 1}


def test_expired_instances_are_dropped_from_pages_nobody_touches():
    driver = TopologyDriver(counter(expires="60 s"), partitions=1)
    driver.batch({"Words": [Word(str(number)) for number in range(3000)]})
    assert driver.elements["Counter"].instances == {0: 3000}
    driver.advance(100)
    for _ in range(10):
        driver.batch({"Words": [Word("again")]})
    assert driver.elements["Counter"].instances == {0: 1}


def test_a_crashed_batch_leaves_nothing_and_can_be_run_again():
    driver = TopologyDriver(counter())
    driver.batch({"Words": [Word("a")]})
    for event in range(3):
        driver.crash_at(event)
        with pytest.raises(Crash):
            driver.batch({"Words": [Word("a"), Word("b"), Word("a")]})
        assert latest(driver) == {"a": 1}
    driver.batch({"Words": [Word("a"), Word("b"), Word("a")]})
    assert latest(driver) == {"a": 3, "b": 1}


def test_an_application_may_stop_instead():
    driver = TopologyDriver(counter(on_error="stop"))
    with pytest.raises(RunFailedError, match="Counter: ValueError: bad word"):
        driver.batch({"Words": [Word("a"), Word("bad")]})
    assert driver.output("Out") == []


class Reminder(Event):
    key: str
    what: str


def reminders():
    app = App("reminders")
    words, out = app.source("Words", Word), app.stream("Out", Reminder)
    app.sink("Out", out)

    class Timed(ProcessingElement):
        seen: int = 0

        def on_event(self, word):
            self.seen += 1
            if self.seen == 1:
                self.set_timer(after="30 s")
            if self.seen == 3:
                self.cancel_timer()

        def on_timer(self):
            yield out(self.key, f"timer at {self.now:%S}")

        def on_interval(self):
            yield out(self.key, f"interval at {self.now:%S}")

    app.element(words, key="text", emits=out, every="20 s")(Timed)
    return app


def test_timers_of_instances_and_of_the_prototype_follow_the_clock():
    driver = TopologyDriver(reminders(), start=datetime(2026, 1, 1, tzinfo=UTC))
    driver.batch({"Words": [Word("a"), Word("b"), Word("b"), Word("b")]})
    for _ in range(4):
        driver.advance(10)
        driver.batch()
    said = [(event.key, event.what) for event in driver.output("Out")]
    assert sorted(said) == [
        ("a", "interval at 20"),
        ("a", "interval at 40"),
        ("a", "timer at 30"),
        ("b", "interval at 20"),
        ("b", "interval at 40"),
    ]


def test_instances_read_back_by_a_timer_know_their_key():
    load("ticking")
    t = sys.modules["topologies"]
    driver = TopologyDriver(t.ticking)
    event = t.Everything(True, 1, 0.5, "x", b"", datetime(2025, 5, 5, tzinfo=UTC), t.Colour.RED, t.Place("p"), [], {})
    driver.batch({"Everything": [event, event]})
    driver.advance(1.5)
    driver.batch()
    assert driver.output("Out") == [t.Place("RED 2025", 2.0)]


def test_a_query_element_needs_spark():
    app = App("x")
    app.query(app.source("Words", Word), emits=app.stream("Out", Word), name="native")(lambda frame: frame)
    with pytest.raises(TopologyError, match="native is in the query dialect"):
        TopologyDriver(app)


def test_returning_the_wrong_thing_is_named():
    app = App("x")
    out = app.stream("Out", Word)
    app.element(app.source("Words", Word), emits=out, name="wrong")(lambda word: [word])
    driver = TopologyDriver(app, dead_letters=True)
    driver.batch({"Words": [Word("a")]})
    assert driver.dead_letters[0]["error"].startswith(EmissionError.__name__)
    assert "declares that it emits into Out" in driver.dead_letters[0]["error"]


def test_what_cannot_be_encoded_is_a_dead_letter():
    class Number(Event):
        value: int

    app = App("x")
    numbers = app.stream("Numbers", Number)

    @app.element(app.source("Words", Word), emits=numbers)
    def grow(word):
        yield numbers(2 ** int(word.text))

    class Sum(ProcessingElement):
        total: int = 0

        def on_event(self, number):
            self.total += number.value

    app.element(numbers, key="value")(Sum)
    driver = TopologyDriver(app, dead_letters=True)
    driver.batch({"Words": [Word("3"), Word("80"), Word("63")]})
    assert [letter["event"] for letter in driver.dead_letters] == [{"value": 2**80}]
    assert driver.elements["Sum"].events == 2


def test_a_bug_raises_with_the_users_line():
    driver = TopologyDriver(counter())
    with pytest.raises(RunFailedError, match=r"Counter: ValueError: bad word \(test_driver\.py:\d+\)"):
        driver.batch({"Words": [Word("a"), Word("bad")]})
    driver.batch({"Words": [Word("a")]})  # nothing of the batch that failed was kept
    assert latest(driver) == {"a": 1}
    with pytest.raises(RunFailedError, match="decoding Words"):
        driver.batch({"Words": ["{"]})


def test_the_line_of_a_dead_letter_is_the_users():
    """Though the error was raised in a library that the user's code has called."""
    app = App("x")
    app.element(app.source("Words", Word), name="reads")(lambda word: json.loads(word.text))
    driver = TopologyDriver(app, dead_letters=True)
    driver.batch({"Words": [Word("{")]})
    assert driver.dead_letters[0]["line"].startswith("test_driver.py:")


def test_an_event_of_another_type_is_refused():
    with pytest.raises(TopologyError, match=r"Source Words takes Word, or JSON as text or bytes, not Count"):
        TopologyDriver(counter()).batch({"Words": [Count("a", 1)]})


words = st.lists(st.sampled_from(["a", "b", "c", "bad"]), max_size=30)


@settings(deadline=None, max_examples=40)
@given(st.lists(words, max_size=5), st.integers(1, 5))
def test_counts_do_not_depend_on_batches_or_partitions(batches, partitions):
    driver = TopologyDriver(counter(), partitions=partitions, dead_letters=True)
    for batch in batches:
        driver.batch({"Words": list(map(Word, batch))})
    every = [word for batch in batches for word in batch]
    counted = {text: seen for text, seen in latest(driver).items() if seen}
    assert counted == {word: every.count(word) for word in set(every) - {"bad"}}
    assert len(driver.dead_letters) == every.count("bad")


def single(body, event_type=Word, **options):
    """An application of one keyed element that emits into Out."""
    app = App("single")
    source, out = app.source("Words", event_type), app.stream("Out", Listed)
    app.sink("Out", out)
    app.element(source, key=options.pop("key", "text"), emits=out, **options)(body(out))
    return app


class Listed(Event):
    values: list[int]


def test_what_was_emitted_does_not_change_with_the_state():
    def body(out):
        class Collector(ProcessingElement):
            values: list[int] = []

            def on_event(self, word):
                self.values.append(len(self.values))
                yield out(self.values)
                if len(self.values) == 3:
                    raise ValueError("three is too many")

        return Collector

    driver = TopologyDriver(single(body), dead_letters=True)
    driver.batch({"Words": [Word("a")] * 3})
    assert [event.values for event in driver.output("Out")] == [[0], [0, 1]]


def test_an_instance_whose_only_event_failed_was_never_made():
    driver = TopologyDriver(counter(), partitions=1, dead_letters=True)
    driver.batch({"Words": [Word("bad"), Word("a")]})
    assert driver.elements["Counter"].instances == {0: 1}


def test_a_timer_set_again_in_the_past_fires_in_the_same_batch():
    def body(out):
        class Windows(ProcessingElement):
            closed: int = 0

            def on_event(self, word):
                self.set_timer(after="10 s")

            def on_timer(self):
                self.closed += 1
                yield out([self.closed])
                if self.closed < 4:
                    self.set_timer(at=datetime.fromtimestamp(self.closed, UTC))

        return Windows

    driver = TopologyDriver(single(body))
    driver.batch({"Words": [Word("a")]})
    driver.advance(11)
    driver.batch()
    assert [event.values for event in driver.output("Out")] == [[1], [2], [3], [4]]


def test_expired_instances_are_not_revived_by_their_interval():
    def body(out):
        class Ticker(ProcessingElement):
            seen: int = 0

            def on_event(self, word):
                self.seen += 1

            def on_interval(self):
                yield out([self.seen])

        return Ticker

    driver = TopologyDriver(single(body, every="10 s", expires="15 s"), partitions=1)
    driver.batch({"Words": [Word("a")]})
    for _ in range(4):
        driver.advance(10)
        driver.batch()
    assert [event.values for event in driver.output("Out")] == [[1]]
    assert driver.elements["Ticker"].instances == {0: 0}


def test_unknown_names_are_named():
    driver = TopologyDriver(counter())
    with pytest.raises(TopologyError, match="no source Wrods; the application has Words"):
        driver.batch({"Wrods": []})
    with pytest.raises(TopologyError, match="no sink Outt"):
        driver.output("Outt")


def test_a_start_without_a_zone_is_utc(monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        driver = TopologyDriver(counter(), start=datetime(2026, 1, 1, 12))
        driver.advance(60)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert driver.now == datetime(2026, 1, 1, 12, 1, tzinfo=UTC)


@pytest.mark.parametrize("wrong", [{"partitions": 0}, {"partitions": -1}])
def test_a_driver_of_no_partition_is_refused(wrong):
    with pytest.raises(ConfigurationError, match="partitions is"):
        TopologyDriver(counter(), **wrong)
    with pytest.raises(ConfigurationError, match="from 0"):
        TopologyDriver(counter()).crash_at(-1)
