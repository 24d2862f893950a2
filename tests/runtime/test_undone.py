"""What has failed leaves nothing behind: no generator that goes on, no letter that is not due, no key that it has changed."""

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock import App, Event, Global, ProcessingElement, Session, Sliding, reducers
from penstock.runtime import arrivals, timers, wire
from penstock.runtime.together import windows
from penstock.testing import TopologyDriver

T0 = datetime(2026, 1, 1, tzinfo=UTC)


class Told(Event):
    key: list[str]
    at: datetime
    number: int = 0
    items: list[int] = []


class Sum(Event):
    key: str
    number: int


class SumOfKey(Event):
    key: list[str]
    number: int


def told(second: float, number: int = 0, items: Any = (), key: str = "a") -> Told:
    return Told([key], T0 + timedelta(seconds=second), number, list(items))


def driven(make: Any, batches: Any, ends: bool = True, into: Any = Sum, **source: Any) -> tuple[list[Any], list[str], Any]:
    """What an element emits, the errors of its dead letters, and its counts."""
    app = App("undone")
    given = app.source("Told", Told, event_time="at", **source)
    sums = app.stream("Sums", into)
    app.sink("Out", sums)
    make(app, given, sums)
    driver = TopologyDriver(app, dead_letters=True)
    for batch in batches:
        driver.batch({"Told": batch})
    if ends:
        driver.finish()
    letters = [letter["error"] for letter in driver.dead_letters]
    return [(event.key, event.number) for event in driver.output("Out")], letters, driver.elements["E"]


def test_an_ordered_element_that_emits_what_is_refused_loses_only_that_event() -> None:
    def make(app: App, given: Any, sums: Any) -> None:
        @app.element(given, key="key", emits=sums, ordered=True, name="E")
        class Counter(ProcessingElement):
            n: int = 0

            def on_event(self, event):
                self.n += 1
                yield sums(self.key[0], "text" if event.number == 13 else self.n)

    found, letters, tally = driven(make, [[told(1, 13), told(2), told(3)], [told(4, 13), told(5)]])
    assert found == [("a", 1), ("a", 2), ("a", 3)]
    assert len(letters) == tally.dead_letters == 2


@pytest.mark.parametrize("key", ["key", None])
def test_a_generator_that_emits_what_is_refused_gives_its_lock_back(key: Any) -> None:
    lock = threading.Lock()

    def make(app: App, given: Any, sums: Any) -> None:
        def summed(event):
            assert lock.acquire(timeout=1), "the lock is held"
            try:
                yield sums(event.key[0], "x" if event.number == 13 else event.number)
            finally:
                lock.release()

        if key is None:
            app.element(given, emits=sums, name="E")(summed)
        else:

            @app.element(given, key=key, emits=sums, name="E")
            class Locking(ProcessingElement):
                def on_event(self, event):
                    yield from summed(event)

    found, letters, _ = driven(make, [[told(1, 1), told(2, 13), told(3, 2)]])
    assert found == [("a", 1), ("a", 2)]
    assert len(letters) == 1


@pytest.mark.parametrize("key", ["key", None])
def test_an_asynchronous_generator_that_emits_what_is_refused_gives_its_lock_back(key: Any) -> None:
    def make(app: App, given: Any, sums: Any) -> None:
        limiter = asyncio.Semaphore(1)

        async def summed(event):
            async with limiter:
                await asyncio.sleep(0)
                yield sums(event.key[0], "x" if event.number == 13 else event.number)

        if key is None:
            app.element(given, emits=sums, name="E", timeout="2 s")(summed)
        else:

            @app.element(given, key=key, emits=sums, name="E", timeout="2 s")
            class Limited(ProcessingElement):
                async def on_event(self, event):
                    async for emission in summed(event):
                        yield emission

    found, letters, _ = driven(make, [[told(1, 13), told(2, 1), told(3, 2)]])
    assert sorted(found) == [("a", 1), ("a", 2)]
    assert len(letters) == 1


@pytest.mark.parametrize("cut", [1, 5])
@pytest.mark.parametrize("delivered", [1, 100])
def test_a_result_that_fails_takes_no_event_with_it_where_another_has_spoilt_the_state(
    cut: int, delivered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(app: App, given: Any, sums: Any) -> None:
        @app.element(given, key="key", emits=sums, window=Global(after=2), name="E")
        class Pair(ProcessingElement):
            n: int = 0
            seen: int = 0

            def on_event(self, event):
                self.seen += 1
                if event.number == 1:
                    self.n = 2**70

            def on_close(self):
                if self.seen == 2:
                    raise ValueError("two")
                yield sums(self.key[0], self.seen)

    monkeypatch.setattr(wire, "EVENTS_PER_BLOCK", delivered)
    monkeypatch.setattr(arrivals, "DECODED", arrivals.Limits(delivered, 0, delivered))
    events = [told(number, number) for number in range(1, 6)]
    found, letters, _ = driven(make, [events[at : at + cut] for at in range(0, 5, cut)])
    assert found == [("a", 4)]
    assert len(letters) == 2
    assert sum("two" in letter for letter in letters) == 1


@pytest.mark.parametrize("delivered", [1, 100])
def test_an_event_that_is_late_without_one_that_spoilt_its_session_is_treated_as_late(
    delivered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(app: App, given: Any, sums: Any) -> None:
        @app.element(given, key="key", emits=sums, window=Session("3 s"), name="E")
        class Visit(ProcessingElement):
            n: int = 0

            def on_event(self, event):
                self.n = 2**70 if event.number == 1 else self.n + 1

            def merge(self, other):
                self.n += other.n

            def on_close(self):
                yield sums(self.key[0], self.n)

    monkeypatch.setattr(wire, "EVENTS_PER_BLOCK", delivered)
    monkeypatch.setattr(arrivals, "DECODED", arrivals.Limits(delivered, 0, delivered))
    batches = [[told(100, key="b")], [told(101, key="b")], [told(99, 1), told(96.5)]]
    found, letters, tally = driven(make, batches, late="drop")
    assert [pair for pair in found if pair[0] == "a"] == []
    assert len(letters) == 1
    assert "70" in letters[0] or "64 bits" in letters[0]
    assert tally.late == 1


def test_what_becomes_late_or_fails_only_when_it_is_applied_again_is_undone_as_such() -> None:
    """The last event fails, so that those before are applied again; the first one of each raises then."""
    calls = []

    def sessions(app: App, given: Any, sums: Any) -> None:
        @app.element(given, key="key", emits=sums, window=Session("3 s"), name="E")
        class Visit(ProcessingElement):
            n: int = 0

            def on_event(self, event):
                calls.append(event.number)
                if event.number == 3 or (event.number == 1 and calls.count(1) == 2):
                    raise ValueError(f"number {event.number}")
                self.n += 1

            def merge(self, other):
                self.n += other.n

            def on_close(self):
                yield sums(self.key[0], self.n)

    batches = [[told(100, key="b")], [told(101, key="b")], [told(99, 1), told(96.5), told(99.5, 3)]]
    _, letters, tally = driven(sessions, batches, late="drop")
    assert sorted(letters) == ["ValueError: number 1", "ValueError: number 3"]
    assert tally.late == 1

    def pairs(app: App, given: Any, sums: Any) -> None:
        @app.element(given, key="key", emits=sums, window=Global(after=2), name="E")
        class Pair(ProcessingElement):
            seen: int = 0

            def on_event(self, event):
                calls.append(event.number)
                if event.number == 3 or (event.number == 2 and calls.count(2) == 3):
                    raise ValueError(f"number {event.number}")
                self.seen += 1

            def on_close(self):
                if self.seen == 2:
                    raise ValueError("two")
                yield sums(self.key[0], self.seen)

    calls.clear()
    _, letters, _ = driven(pairs, [[told(1, 1), told(2, 2), told(3, 3)]])
    assert sorted(letters) == ["ValueError: number 2", "ValueError: number 3"]


def test_each_window_gets_the_event_as_it_came() -> None:
    def make(app: App, given: Any, sums: Any) -> None:
        @app.element(given, key="key", emits=sums, window=Sliding("10 s", "5 s"), name="E")
        class Emptied(ProcessingElement):
            n: int = 0

            def on_event(self, event):
                while event.items:
                    self.n += event.items.pop()

            def on_close(self):
                yield sums(self.key[0], self.n)

    assert driven(make, [[told(7, items=[1, 2])]])[0] == [("a", 3), ("a", 3)]


@pytest.mark.parametrize("parts", [False, True])
def test_a_timer_that_always_sets_itself_again_fires_no_more_part_by_part(parts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    fired = []

    def make(app: App, given: Any, sums: Any) -> None:
        @app.element(given, key="key", emits=sums, name="E", timers="processing")
        class Restless(ProcessingElement):
            def on_event(self, event):
                self.set_timer(after=0)

            def on_timer(self):
                fired.append(1)
                self.set_timer(after=0)

    if parts:
        monkeypatch.setattr(timers, "PAGES_AT_ONCE", 0)
    driven(make, [[told(1)], []], ends=False)
    assert len(fired) == 2 * timers.REARMED_AT_MOST


@pytest.mark.parametrize("many", [False, True])
def test_an_event_whose_session_may_have_closed_is_late_in_part(many: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """For results depend on the cut then: with the first event it would be in one session."""

    def make(app: App, given: Any, sums: Any) -> None:
        app.aggregate(given, key="key", window=Session("10 s"), into=sums, name="E", number=reducers.count())

    def kept(app: App, given: Any, sums: Any) -> None:
        app.aggregate(given, key="key", window=Session("10 s", allowed="20 s"), into=sums, name="E", number=reducers.count())

    if many:
        monkeypatch.setattr(windows, "FEW", 0)
    first, other, late = told(0), told(12, key="b"), told(5)
    found, _, tally = driven(make, [[first, other, late]], into=SumOfKey)
    assert ((["a"], 2) in found, tally.late_in_part, tally.late) == (True, 0, 0)
    found, _, tally = driven(make, [[first, other], [], [late]], into=SumOfKey)
    assert ((["a"], 2) in found, tally.late_in_part, tally.late) == (False, 1, 0)
    found, _, tally = driven(kept, [[told(0), other], [], [told(-5)]], into=SumOfKey)
    assert (["a"], 2) in found, "a closed session that is kept still takes it"
    assert tally.late_in_part == 0
    found, _, tally = driven(make, [[told(0), told(9), other], [], [late]], into=SumOfKey)
    assert ((["a"], 3) in found, tally.late_in_part) == (True, 0), "it lies in an open session"
    within = told(13, key="a")
    found, _, tally = driven(make, [[told(12), other], [], [within, told(11.9)]], into=SumOfKey, lateness="1 s")
    assert ((["a"], 3) in found, tally.late_in_part, tally.late) == (True, 0, 0)


@pytest.mark.parametrize("milliseconds", [2151014400004, *(221845392000000 + number for number in range(28))])
def test_an_event_at_the_watermark_is_not_late(milliseconds: int) -> None:
    """In 2038, and in 9000, a time of whole milliseconds, in seconds and back, is not the same number of microseconds."""

    def make(app: App, given: Any, sums: Any) -> None:
        @app.element(given, key="key", emits=sums, name="E")
        class Counter(ProcessingElement):
            def on_event(self, event):
                return sums(self.key[0], event.number)

    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    found, _, tally = driven(make, [[Told(["a"], at, 1)], [Told(["a"], at, 2)]])
    assert found == [("a", 1), ("a", 2)]
    assert tally.late == 0


@pytest.mark.parametrize("delivered", [2, 100])
def test_an_event_that_fails_is_not_late_in_part(delivered: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def make(app: App, given: Any, sums: Any) -> None:
        @app.element(given, key="key", emits=sums, window=Sliding("5 s", "2 s"), name="E")
        class Strict(ProcessingElement):
            n: int = 0

            def on_event(self, event):
                if event.number == 1:
                    self.n = 2**70
                if event.number == 2:
                    raise ValueError("two")

            def on_close(self):
                yield sums(self.key[0], self.n)

    monkeypatch.setattr(wire, "EVENTS_PER_BLOCK", delivered)
    monkeypatch.setattr(arrivals, "DECODED", arrivals.Limits(delivered, 0, delivered))
    batches = [[told(100, key="b")], [told(100, key="b")], [told(100, 1), told(98.5, 2), told(101), told(102), told(103)]]
    assert driven(make, batches)[2].late_in_part == 0


def test_a_key_that_a_failed_event_has_changed_is_as_before() -> None:
    seen = []

    def make(app: App, given: Any, sums: Any) -> None:
        @app.element(given, key="key", emits=sums, name="E")
        class Changing(ProcessingElement):
            def on_event(self, event):
                seen.append(list(self.key))
                if event.number == 13:
                    self.key.append("more")
                    raise ValueError("thirteen")

    driven(make, [[told(1, 13), told(2)]])
    assert seen[-1] == ["a"]
