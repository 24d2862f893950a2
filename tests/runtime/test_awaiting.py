"""Asynchronous elements give what plain ones give, whatever fails, and make each call once."""

import asyncio
import sys
import time
from contextlib import suppress
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import App, Event, ProcessingElement, Tumbling, shared
from penstock.errors import PenstockError, TopologyError
from penstock.testing import TopologyDriver


class Call(Event):
    number: int
    key: str = "a"
    does: str = "answers"


class Answer(Event):
    number: int
    key: str = ""
    before: int = 0


def application():
    app = App("calls")
    calls, answers = app.source("Calls", Call), app.stream("Answers", Answer)
    app.sink("Output", answers)
    return app, calls, answers


def outputs(app, batches):
    driver = TopologyDriver(app, partitions=2, dead_letters=True)
    for batch in batches:
        driver.batch({"Calls": batch})
    return driver.output("Output"), driver.dead_letters


def test_many_calls_are_under_way_at_once_but_no_more_than_allowed_and_results_come_in_order():
    app, calls, answers = application()
    under_way, most = 0, 0

    @app.element(calls, emits=answers, concurrency=7)
    async def ask(call):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.001 * (call.number * 7919 % 13))
        under_way -= 1
        yield answers(call.number)

    said, _ = outputs(app, [[Call(number) for number in range(100)]])
    assert [answer.number for answer in said] == list(range(100))
    assert most == 7


@pytest.mark.parametrize("keyed", [False, True])
def test_a_call_that_takes_too_long_fails_alone_and_is_cancelled(keyed):
    app, calls, answers = application()
    cancelled = []

    async def ask(call):
        try:
            await asyncio.sleep(30 if call.number == 3 else 0)
        except asyncio.CancelledError:
            cancelled.append(call.number)
            raise
        return answers(call.number)

    class Asking(ProcessingElement):
        asked: list[int] = []

        async def on_event(self, call):
            self.asked.append(call.number)
            return await ask(call)

    app.element(calls, emits=answers, timeout="50 ms", name="Ask", key="key" if keyed else None)(Asking if keyed else ask)
    said, letters = outputs(app, [[Call(number) for number in range(5)]])
    assert [answer.number for answer in said] == [0, 1, 2, 4]
    assert [(letter["event"]["number"], letter["error"]) for letter in letters] == [
        (3, "TimeoutError: it took longer than 0.05 s, which is the timeout= of the element")
    ]
    assert cancelled == [3]


def test_calls_of_all_kinds_are_awaited():
    class Asker:
        async def __call__(self, call):
            return answers(call.number)

    async def with_more(more, call):
        yield answers(call.number + more)

    async def listed(call):
        return [answers(call.number), answers(-call.number)]

    async def silent(call):
        await asyncio.sleep(0)

    for body, expected in ((Asker(), [1, 2]), (partial(with_more, 10), [11, 12]), (listed, [1, -1, 2, -2]), (silent, [])):
        app, calls, answers = application()
        app.element(calls, emits=answers, name="Ask")(body)
        said, letters = outputs(app, [[Call(1), Call(2)]])
        assert ([answer.number for answer in said], letters) == (expected, [])


def test_a_plain_function_that_returns_something_to_await_is_told_so():
    app, calls, answers = application()

    async def ask(call):
        return answers(call.number)

    app.element(calls, emits=answers, name="Ask")(lambda call: ask(call))
    _, letters = outputs(app, [[Call(1)]])
    assert "returned something to be awaited, and is no asynchronous function itself" in letters[0]["error"]


def misbehave(self, call):
    """What the twins below have in common: state changes first, so that a failure has to be undone."""
    self.seen += 1
    if call.does == "raises":
        raise ValueError("no")
    if call.does == "cancels":
        raise asyncio.CancelledError
    if call.does == "exits":
        raise SystemExit(3)
    if call.does == "spoils":
        self.kept = [object()]
    if call.does == "grows":
        self.big = 2**70
    if call.does == "lies":
        return "no emission"
    return None


def twin(asynchronous):
    app, calls, answers = application()

    class Plain(ProcessingElement):
        seen: int = 0
        big: int = 0
        kept: list[int] = []

        def on_event(self, call):
            wrong = misbehave(self, call)
            if wrong is not None:
                return wrong
            return answers(call.number, self.key, self.seen)

        def on_batch(self):
            if self.seen % 7 == 3:
                raise RuntimeError("three")
            return answers(-1, self.key, self.seen)

    class Awaited(Plain):
        async def on_event(self, call):
            await asyncio.sleep(0)
            wrong = misbehave(self, call)
            await asyncio.sleep(0)
            if wrong is not None:
                return wrong
            return answers(call.number, self.key, self.seen)

    app.element(calls, emits=answers, key="key", name="Twin")(Awaited if asynchronous else Plain)
    return app


DOES = ("answers", "answers", "answers", "raises", "cancels", "exits", "spoils", "grows", "lies")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(DOES)), max_size=12), min_size=1, max_size=4))
def test_keyed_calls_give_what_plain_ones_give_whatever_fails(cuts):
    batches = [[Call(place, *each) for place, each in enumerate(batch)] for batch in cuts]
    plain, awaited = (outputs(twin(asynchronous), batches) for asynchronous in (False, True))
    for key in "abc":
        assert [each for each in awaited[0] if each.key == key] == [each for each in plain[0] if each.key == key]
    shown = [sorted((str(letter["event"]), letter["error"]) for letter in letters) for _, letters in (plain, awaited)]
    assert shown[1] == shown[0]


def test_each_call_is_made_once_although_others_of_its_key_fail():
    app, calls, answers = application()
    made = []

    @app.element(calls, emits=answers, key="key")
    class Asking(ProcessingElement):
        count: int = 0

        async def on_event(self, call):
            made.append(call.number)
            self.count += 1
            if call.number % 2:
                raise ValueError("odd")
            yield answers(call.number, before=self.count)

    said, letters = outputs(app, [[Call(number) for number in range(6)]] * 2)
    assert made == [*range(6)] * 2
    assert [answer.before for answer in said] == [1, 2, 3, 4, 5, 6]
    assert len(letters) == 6


async def leaves():
    sys.exit(3)


async def cancels_itself():
    asyncio.current_task().cancel()
    await asyncio.sleep(1)


async def forgets_to_uncancel():
    asyncio.current_task().cancel()
    with suppress(asyncio.CancelledError):
        await asyncio.sleep(1)


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize(
    ("does", "error"),
    [(lambda: asyncio.gather(leaves()), "SystemExit: 3"), (cancels_itself, "CancelledError: "), (forgets_to_uncancel, None)],
)
def test_a_call_that_ends_in_an_odd_way_is_alone_in_that(keyed, does, error):
    app, calls, answers = application()

    async def ask(call):
        if call.number == 1:
            await does()
        return answers(call.number)

    class Asking(ProcessingElement):
        async def on_event(self, call):
            return await ask(call)

    app.element(calls, emits=answers, name="Ask", concurrency=1, key="key" if keyed else None)(Asking if keyed else ask)
    said, letters = outputs(app, [[Call(number) for number in range(4)], [Call(7)]])
    assert [letter["error"] for letter in letters] == ([] if error is None else [error])
    assert [answer.number for answer in said] == [number for number in (0, 1, 2, 3, 7) if error is None or number != 1]


def test_keys_wait_for_no_other_key():
    app, calls, answers = application()
    begun = []

    @app.element(calls, emits=answers, key="key")
    class Asking(ProcessingElement):
        async def on_event(self, call):
            begun.append((call.key, call.number))
            await asyncio.sleep(0.05)

    started = time.monotonic()
    outputs(app, [[Call(number, key) for key in "abcdefghijklmnopqrst" for number in range(2)]])
    assert time.monotonic() - started < 1  # one by one it takes two seconds
    assert {key for key, _ in begun[:10]} == {key for key, _ in begun[:10] if (key, 0) in begun[:20]}


def test_results_of_keys_that_answer_late_come_in_the_order_of_the_events():
    app, calls, answers = application()

    @app.element(calls, emits=answers, key="key")
    class Asking(ProcessingElement):
        async def on_event(self, call):
            await asyncio.sleep(0.02 if self.key == "a" else 0)
            return answers(call.number)

    driver = TopologyDriver(app, partitions=1)
    driver.batch({"Calls": [Call(number, "abc"[number % 3]) for number in range(9)]})
    assert [answer.number for answer in driver.output("Output")] == list(range(9))


def test_timers_of_instances_at_work_side_by_side_are_their_own():
    app, calls, answers = application()

    @app.element(calls, emits=answers, key="key")
    class Asking(ProcessingElement):
        async def on_event(self, call):
            await asyncio.sleep(0.001 * (10 - call.number))
            self.set_timer(after=call.number)
            await asyncio.sleep(0.001 * call.number)

        def on_timer(self):
            yield answers(round(self.now.timestamp()), self.key)

    driver = TopologyDriver(app)
    driver.batch({"Calls": [Call(number, f"key {number}") for number in range(1, 10)]})
    fired = []
    for _ in range(9):
        driver.advance(1)
        driver.batch({})
        fired.append([answer.key for answer in driver.output("Output")])
    assert fired == [[f"key {number}" for number in range(1, last + 1)] for last in range(1, 10)]


def test_where_another_loop_runs_calls_are_awaited_too():
    app, calls, answers = application()

    @app.element(calls, emits=answers)
    async def ask(call):
        yield answers(call.number)

    async def notebook():
        return outputs(app, [[Call(1)]])

    said, _ = asyncio.run(notebook())
    assert [answer.number for answer in said] == [1]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"concurrency": 0}, "lets no call begin"),
        ({"timeout": 0}, "must be longer than zero"),
        ({"timeout": "soon"}, "soon"),
        ({"concurrency": "many"}, "whole number"),
        ({"ordered": True, "key": "key"}, "derive|class"),
    ],
)
def test_bounds_that_make_no_sense_are_refused(options, sentence):
    app, calls, answers = application()

    async def ask(call):
        yield answers(call.number)

    with pytest.raises(PenstockError, match=sentence):
        app.element(calls, emits=answers, name="Ask", **options)(ask)


@pytest.mark.parametrize("options", [{"concurrency": 3}, {"timeout": "1 s"}])
def test_bounds_of_what_is_not_asynchronous_are_refused(options):
    app, calls, answers = application()
    with pytest.raises(TopologyError, match="makes none: write async def"):
        app.element(calls, emits=answers, name="Ask", **options)(lambda call: answers(call.number))


@pytest.mark.parametrize("options", [{"window": Tumbling("1 s").by("at")}, {"ordered": True, "at": "at"}])
def test_windows_and_events_in_order_await_no_calls(options):
    from datetime import datetime

    class Timed(Event):
        key: str
        at: datetime

    app = App("timed")
    timed, answers = app.source("Timed", Timed), app.stream("Answers", Answer)

    class Asking(ProcessingElement):
        async def on_event(self, call):
            return answers(1)

        def on_close(self):
            return answers(2)

    if "ordered" in options:
        del Asking.on_close
    with pytest.raises(TopologyError, match=r"nothing here awaits it|await no calls"):
        app.element(timed, emits=answers, key="key", name="Ask", **options)(Asking)


@pytest.mark.parametrize("hook", ["on_batch", "on_timer", "on_interval"])
def test_other_hooks_are_not_asynchronous(hook):
    app, calls, answers = application()

    async def body(self):
        return answers(1)

    prototype = type("Asking", (ProcessingElement,), {hook: body})
    with pytest.raises(TopologyError, match="nothing here awaits it"):
        app.element(calls, emits=answers, key="key", **({"every": "1 s"} if hook == "on_interval" else {}))(prototype)


def test_what_is_shared_is_made_once_and_again_where_that_has_failed():
    made = []

    @shared
    async def thing():
        made.append(len(made))
        await asyncio.sleep(0.01)
        if len(made) == 1:
            raise OSError("not yet")
        yield made[-1]

    async def use():
        with suppress(OSError):
            await thing()
        return await asyncio.gather(*(thing() for _ in range(5)))

    assert asyncio.run(use()) == [1] * 5
    assert made == [0, 1]
    with pytest.raises(TopologyError, match="async generator"):
        shared(lambda: 1)
