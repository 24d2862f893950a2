"""Windows of the event dialect, in memory, against windows by brute force over the whole input."""

import bisect
import functools
import itertools
import statistics
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import App, Count, Event, Global, ProcessingElement, Session, Sliding, Tumbling, reducers
from penstock.app.state import check_state_fits, describe_state
from penstock.errors import ConfigurationError, IncompatibleStateError, TopologyError
from penstock.kinds.moments import microseconds, moment
from penstock.testing import TopologyDriver
from penstock.testing.driver import Crash

T0 = datetime(2026, 1, 1, tzinfo=UTC)
LATENESS = 5


class Bid(Event):
    item: int
    price: int
    at: datetime


class Sales(Event):
    item: int
    bids: int
    total: int
    start: datetime
    end: datetime


def at(seconds):
    return T0 + timedelta(seconds=seconds)


def application(window, *, merges=True, late="dead-letter"):
    app = App("sales")
    bids = app.source("Bids", Bid, event_time="at", lateness=LATENESS, late=late)
    sales = app.stream("Sales", Sales)
    app.sink("Out", sales)

    class Sum(ProcessingElement):
        bids: int = 0
        total: int = 0

        def on_event(self, bid):
            self.bids += 1
            self.total += bid.price

        def on_close(self):
            yield sales(self.key, self.bids, self.total, self.window.start, self.window.end)

    class Merging(Sum):
        def merge(self, other):
            self.bids += other.bids
            self.total += other.total

    app.element(bids, key="item", window=window, emits=sales, name="Sum")(Merging if merges else Sum)
    return app


def by_brute_force(window, bids):
    """Each window's bids, found from the definition, without order or state."""
    found = defaultdict(list)
    for bid in bids:
        second = (bid.at - T0).total_seconds()
        if isinstance(window, Session):
            found[bid.item].append(bid)
            continue
        size, every = window.size_us / 1e6, window.every_us / 1e6
        for number in range(-200, 200):
            if number * every <= second < number * every + size:
                found[bid.item, at(number * every), at(number * every + size)].append(bid)
    if isinstance(window, Session):
        sessions = {}
        for item, own in found.items():
            own.sort(key=lambda bid: bid.at)
            parts = [[own[0]]]
            for bid in own[1:]:
                if bid.at - parts[-1][-1].at < timedelta(microseconds=window.gap_us):
                    parts[-1].append(bid)
                else:
                    parts.append([bid])
            for part in parts:
                sessions[item, part[0].at, part[-1].at + timedelta(microseconds=window.gap_us)] = part
        found = sessions
    return sorted((item, len(own), sum(bid.price for bid in own), start, end) for (item, start, end), own in found.items())


def results(driver):
    return sorted((s.item, s.bids, s.total, s.start, s.end) for s in driver.output("Out"))


bids = st.builds(Bid, item=st.integers(0, 2), price=st.integers(1, 99), at=st.integers(0, 60_000).map(lambda ms: at(ms / 1000)))
WINDOWS = [
    Tumbling("10 s"),
    Sliding("10 s", "2 s"),
    Sliding("9 s", "4 s"),
    Sliding("6 s", "2 s"),
    Session("3 s"),
    Session("500 ms"),
]


@pytest.mark.parametrize("merges", [True, False])
@pytest.mark.parametrize("window", WINDOWS, ids=str)
@given(events=st.lists(bids, max_size=40), data=st.data())
@settings(max_examples=20, deadline=None)
def test_windows_are_those_of_the_definition_whatever_the_order_the_cut_and_the_crashes(window, merges, events, data):
    if isinstance(window, Session) and not merges:
        return
    shaken = {id(event): event.at + timedelta(seconds=data.draw(st.floats(0, LATENESS))) for event in events}
    delivered = sorted(events, key=lambda event: shaken[id(event)])
    driver = TopologyDriver(application(window, merges=merges), partitions=2)
    left = delivered
    while left:
        count = data.draw(st.integers(1, len(left)))
        if data.draw(st.booleans()):
            driver.crash_at(data.draw(st.integers(0, count - 1)))
            with pytest.raises(Crash):
                driver.batch({"Bids": left[:count]})
        driver.batch({"Bids": left[:count]})
        left = left[count:]
    driver.finish()
    assert results(driver) == by_brute_force(window, events)


def test_a_window_closes_once_the_watermark_has_passed_its_end_and_not_before():
    driver = TopologyDriver(application(Tumbling("10 s")))
    driver.batch({"Bids": [Bid(1, 5, at(2)), Bid(1, 6, at(14.9))]})
    driver.batch()
    assert results(driver) == []  # the watermark is 9.9
    driver.batch({"Bids": [Bid(2, 1, at(15))]})
    driver.batch()
    assert results(driver) == [(1, 1, 5, at(0), at(10))]


def test_an_event_is_late_once_its_windows_have_closed_not_when_it_is_older_than_the_watermark():
    driver = TopologyDriver(application(Sliding("10 s", "5 s"), merges=False), dead_letters=True)
    driver.batch({"Bids": [Bid(1, 1, at(17))]})
    driver.batch()  # the watermark is 12
    driver.batch({"Bids": [Bid(1, 10, at(6)), Bid(1, 100, at(4.9))]})
    driver.finish()
    assert results(driver) == [(1, 1, 1, at(10), at(20)), (1, 1, 1, at(15), at(25)), (1, 1, 10, at(5), at(15))]
    assert [letter["error"] for letter in driver.dead_letters] == [driver.dead_letters[0]["error"]]
    assert "its windows have closed" in driver.dead_letters[0]["error"]
    assert driver.elements["Sum"].late == 1


def test_late_events_may_be_dropped_and_are_counted():
    driver = TopologyDriver(application(Tumbling("10 s"), late="drop"), dead_letters=True)
    driver.batch({"Bids": [Bid(1, 1, at(100))]})
    driver.batch()
    driver.batch({"Bids": [Bid(1, 1, at(3))]})
    assert driver.dead_letters == []
    assert driver.elements["Sum"].late == 1


def test_within_the_allowed_lateness_a_window_gives_a_new_result():
    driver = TopologyDriver(application(Tumbling("10 s", allowed="20 s")), dead_letters=True)
    driver.batch({"Bids": [Bid(1, 1, at(1)), Bid(1, 1, at(16))]})
    driver.batch()
    assert results(driver) == [(1, 1, 1, at(0), at(10))]
    driver.batch({"Bids": [Bid(1, 7, at(2)), Bid(1, 7, at(3))]})
    assert results(driver)[-1] == (1, 3, 15, at(0), at(10))
    driver.batch({"Bids": [Bid(1, 1, at(35))]})
    driver.batch()  # the watermark is 30
    driver.batch({"Bids": [Bid(1, 7, at(4))]})
    assert len(driver.dead_letters) == 1


def test_on_late_takes_what_comes_within_the_allowed_lateness():
    app = App("late")
    source = app.source("Bids", Bid, event_time="at")
    sales = app.stream("Sales", Sales)
    app.sink("Out", sales)

    @app.element(source, key="item", window=Tumbling("10 s", allowed="20 s"), emits=sales)
    class Sum(ProcessingElement):
        bids: int = 0

        def on_event(self, bid):
            self.bids += 1

        def on_close(self):
            return sales(self.key, self.bids, 0, *self.window)

        def on_late(self, bid):
            return sales(self.key, -1, bid.price, *self.window)

    driver = TopologyDriver(app)
    driver.batch({"Bids": [Bid(1, 1, at(1)), Bid(1, 1, at(12))]})
    driver.batch()
    driver.batch({"Bids": [Bid(1, 9, at(2))]})
    assert [(s.bids, s.total) for s in driver.output("Out")] == [(1, 0), (-1, 9)]


def test_early_results_come_once_a_batch_for_each_window_that_was_touched():
    app = App("early")
    source = app.source("Bids", Bid, event_time="at")
    sales = app.stream("Sales", Sales)
    app.sink("Out", sales)

    @app.element(source, key="item", window=Tumbling("10 s"), emits=sales)
    class Sum(ProcessingElement):
        bids: int = 0

        def on_event(self, bid):
            self.bids += 1

        def on_batch(self):
            return sales(self.key, self.bids, 0, *self.window)

    driver = TopologyDriver(app)
    driver.batch({"Bids": [Bid(1, 1, at(1)), Bid(1, 1, at(2)), Bid(1, 1, at(11))]})
    driver.batch({"Bids": [Bid(1, 1, at(12))]})
    assert [(s.bids, s.start) for s in driver.output("Out")] == [(2, at(0)), (1, at(10)), (2, at(10))]


@pytest.mark.parametrize(("size", "every", "counts"), [(3, 3, [3, 3, 1]), (4, 2, [4, 4, 3]), (1, 1, [1] * 7)])
def test_windows_by_count(size, every, counts):
    driver = TopologyDriver(application(Count(size, every)))
    for second in range(7):
        driver.batch({"Bids": [Bid(1, 10**second, at(second))]})
    driver.finish()
    assert [s.bids for s in driver.output("Out")] == counts
    assert driver.output("Out")[0].total == sum(10**second for second in range(size))
    assert driver.output("Out")[0].end == at(size - 1)


CLOCKS = {
    "Europe/Zurich": [(2026, 3, 29), (2026, 10, 25)],
    "Australia/Lord_Howe": [(2026, 4, 5), (2026, 10, 4)],
    "America/Santiago": [(2026, 4, 5), (2026, 9, 6)],
    "Pacific/Apia": [(2011, 12, 30)],
    "Pacific/Kwajalein": [(1993, 8, 21)],
}
"""Zones, and days of theirs on which clocks skip times or show them again."""


def by_scanning(zone, day, days, every, offset):
    """The windows around a day, from the definition: minute by minute, when clocks first show a start or a later time."""
    minutes, reached = reached_by_clocks(zone, day)

    def begins(number):  # the boundaries count from 1970
        epoch = datetime(1970, 1, 1) + timedelta(minutes=offset)
        return minutes[bisect.bisect_left(reached, epoch + timedelta(days=number))]

    number = (datetime(*day) - datetime(1970, 1, 1)).days // every * every
    windows = [(begins(at), begins(at + every), begins(at + days)) for at in range(number - 6, number + 7, every)]
    return [(start, end) for start, following, end in windows if start != following]


@functools.cache
def reached_by_clocks(zone, day):
    """The minutes of some weeks, and the latest time that clocks have shown by each of them."""
    first = datetime(*day, tzinfo=UTC) - timedelta(days=11)
    minutes = [first + timedelta(minutes=minute) for minute in range(22 * 1440)]
    shown = (minute.astimezone(ZoneInfo(zone)).replace(tzinfo=None) for minute in minutes)
    return minutes, list(itertools.accumulate(shown, max))


@pytest.mark.parametrize(("zone", "day"), [(zone, day) for zone, days in CLOCKS.items() for day in days])
@pytest.mark.parametrize(("days", "every"), [(1, 1), (3, 1), (2, 2)])
def test_days_in_a_zone_are_of_what_clocks_show(zone, day, days, every):
    for offset in (0, 30, 90, 135, 150, 23 * 60):
        check_days(zone, day, days, every, offset)


def check_days(zone, day, days, every, offset):
    window = Sliding(f"{days} d", f"{every} d", offset=f"{offset} min", zone=zone)
    windows = by_scanning(zone, day, days, every, offset)
    for minute in range(-36 * 60, 36 * 60, 15):
        time = datetime(*day, tzinfo=UTC) + timedelta(minutes=minute)
        starts = [moment(start) for start in window.starts(microseconds(time))]
        found = [(start, moment(window.end(microseconds(start)))) for start in starts]
        assert sorted(found) == [(start, end) for start, end in windows if start <= time < end]


def test_a_day_in_a_zone_has_23_24_or_25_hours():
    zurich = ZoneInfo("Europe/Zurich")
    window = Tumbling("1 day", zone="Europe/Zurich")
    for day, hours in ((datetime(2026, 3, 29), 23), (datetime(2026, 3, 30), 24), (datetime(2026, 10, 25), 25)):
        noon = round(day.replace(hour=12, tzinfo=zurich).timestamp() * 1e6)
        (start,) = window.starts(noon)
        assert datetime.fromtimestamp(start / 1e6, zurich).replace(tzinfo=None) == day
        assert (window.end(start) - start) / 3.6e9 == hours


def test_an_offset_moves_the_starts():
    driver = TopologyDriver(application(Tumbling("10 s", offset="3 s")))
    driver.batch({"Bids": [Bid(1, 1, at(2)), Bid(1, 1, at(3))]})
    driver.finish()
    assert [(start, end) for *_, start, end in results(driver)] == [(at(-7), at(3)), (at(3), at(13))]


def test_windows_behind_windows_close_in_the_same_batch():
    app = application(Tumbling("10 s"))
    sales = app.topology().stream("Sales")
    highest = app.stream("Highest", Sales)
    app.sink("Most", highest)

    @app.element(sales, key="start", window=Tumbling("10 s", at="start"), emits=highest)
    class Most(ProcessingElement):
        total: int = 0
        item: int = 0

        def on_event(self, sale):
            self.total, self.item = max((self.total, self.item), (sale.total, sale.item))

        def on_close(self):
            return highest(self.item, 0, self.total, *self.window)

    driver = TopologyDriver(app, dead_letters=True)
    driver.batch({"Bids": [Bid(1, 5, at(1)), Bid(2, 9, at(2)), Bid(1, 3, at(3)), Bid(3, 1, at(40))]})
    driver.batch()
    assert [(s.item, s.total, s.start) for s in driver.output("Most")] == [(2, 9, at(0))]
    driver.finish()
    assert [(s.item, s.total) for s in driver.output("Most")] == [(2, 9), (3, 1)]
    assert driver.dead_letters == []


def test_after_the_end_nothing_comes():
    driver = TopologyDriver(application(Tumbling("10 s")))
    driver.finish()
    with pytest.raises(TopologyError, match="has ended"):
        driver.batch({"Bids": [Bid(1, 1, at(1))]})


def test_timers_on_event_time_fire_at_the_end_and_a_crash_before_it_changes_nothing():
    app = App("timers")
    source = app.source("Bids", Bid, event_time="at")
    sales = app.stream("Sales", Sales)
    app.sink("Out", sales)

    @app.element(source, key="item", timers="event", emits=sales)
    class Later(ProcessingElement):
        fired: int = 0

        def on_event(self, bid):
            self.set_timer(at=bid.at + timedelta(hours=1))

        def on_timer(self):
            self.fired += 1
            if self.fired < 3:
                self.set_timer(at=at(7200))
            return sales(self.key, self.fired, 0, at(0), at(0))

    driver = TopologyDriver(app)
    driver.batch({"Bids": [Bid(1, 1, at(1))]})
    driver.finish()
    assert [s.bids for s in driver.output("Out")] == [1, 2, 3]


class Bare(ProcessingElement):
    def on_event(self, bid): ...


class Closing(Bare):
    def on_close(self): ...


class Early(Bare):
    def on_batch(self): ...


class Timed(Closing):
    def on_timer(self): ...


class Stateful(Closing):
    seen = 0


def plain(bid): ...


@pytest.mark.parametrize(
    ("body", "options", "words"),
    [
        (Closing, {"window": Tumbling("10 s")}, ["no key", "key='field'"]),
        (Bare, {"window": Tumbling("10 s"), "key": "item"}, ["on_close"]),
        (Timed, {"window": Tumbling("10 s"), "key": "item"}, ["on_timer"]),
        (plain, {"window": Tumbling("10 s"), "key": "item"}, ["ProcessingElement"]),
        (Closing, {"window": "10 s", "key": "item"}, ["'10 s'", "Tumbling"]),
        (Closing, {"window": Session("1 s"), "key": "item"}, ["merge"]),
        (Closing, {"window": Count(4, 2), "key": "item"}, ["merge"]),
        (Closing, {"window": Tumbling("10 s", at="price"), "key": "item"}, ["'price'", "datetime"]),
        (Closing, {"window": Tumbling("10 s"), "key": "item", "expires": "1 s"}, ["expires="]),
        (Closing, {"key": "item"}, ["on_close", "window="]),
    ],
)
def test_wrong_use_is_refused_before_anything_runs(body, options, words):
    app = App("wrong")
    source = app.source("Bids", Bid, event_time="at")
    with pytest.raises(TopologyError) as refusal:
        app.element(source, **options)(body)
    assert all(word in str(refusal.value) for word in words), refusal.value


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Tumbling("0 s"), ["longer than zero"]),
        (lambda: Sliding("1 s", "2 s"), ["no longer than"]),
        (lambda: Tumbling("1 h", zone="Europe/Zurich"), ["whole days"]),
        (lambda: Tumbling("1 d", zone="Zurich/Europe"), ["Zurich/Europe"]),
        (lambda: Tumbling("10 s", offset="10 s"), ["shorter"]),
        (lambda: Session("0 s"), ["longer than zero"]),
        (lambda: Count(5, 2), ["multiple"]),
        (lambda: Count(0), ["above zero"]),
    ],
)
def test_windows_that_cannot_be_are_refused(make, words):
    with pytest.raises(TopologyError) as refusal:
        make()
    assert all(word in str(refusal.value) for word in words)


def test_a_window_without_a_clock_is_refused():
    app = App("clockless")
    source = app.source("Bids", Bid)
    with pytest.raises(TopologyError, match="event_time="):
        app.element(source, key="item", window=Tumbling("10 s"))(Closing)
    app.element(source, key="item", window=Tumbling("10 s", at="at"))(Closing)
    with pytest.raises(TopologyError, match="would never come"):
        app.topology()
    with pytest.raises(TopologyError, match="late='process'"):
        application(Tumbling("10 s"), late="process").topology()
    with pytest.raises(ConfigurationError):
        Tumbling("ten seconds")


def test_what_a_checkpoint_holds_of_windows_is_checked():
    stored = describe_state(application(Tumbling("10 s")).topology())
    assert (stored["Sum"]["means"]["windows"], stored["Sum"]["state"][0]) == ("10 s", "struct")
    with pytest.raises(IncompatibleStateError, match="10 s, and now has 20 s"):
        check_state_fits(stored, describe_state(application(Tumbling("20 s")).topology()))


def test_the_graph_says_which_windows():
    elements = application(Sliding("1 h", "1 min")).topology().to_json()["elements"]
    assert elements[0]["note"] == "1 h every 1 min"


class Summary(Event):
    item: int
    start: datetime
    bids: int
    total: int
    mean: float
    least: int
    most: int
    opening: int
    closing: int
    best: list[Bid]
    prices: int
    all: list[int]
    product: int


def summaries(window, results="final"):
    app = App("summaries")
    source = app.source("Bids", Bid, event_time="at", lateness=LATENESS)
    into = app.stream("Summaries", Summary)
    app.sink("Out", into)
    app.aggregate(
        source,
        key="item",
        window=window,
        into=into,
        results=results,
        bids=reducers.count(),
        total=reducers.sum("price"),
        mean=reducers.mean("price"),
        least=reducers.min("price"),
        most=reducers.max("price"),
        opening=reducers.first("price"),
        closing=reducers.last("price"),
        best=reducers.top(2, by="price"),
        prices=reducers.distinct("price"),
        all=reducers.collect("price"),
        product=reducers.fold(1, lambda state, bid: state * bid.price % 1009, lambda one, two: one * two % 1009),
    )
    return app


@pytest.mark.parametrize("window", [Tumbling("10 s"), Sliding("10 s", "2 s"), Session("3 s")], ids=str)
@given(
    events=st.lists(bids, max_size=25, unique_by=(lambda bid: bid.at, lambda bid: bid.price)),
    seed=st.randoms(use_true_random=False),
)
@settings(max_examples=15, deadline=None)
def test_reducers_are_what_their_names_say_in_whatever_order(window, events, seed):
    driver = TopologyDriver(summaries(window))
    shaken = sorted(events, key=lambda bid: bid.at + timedelta(seconds=seed.uniform(0, LATENESS)))
    for place in range(0, len(shaken), 4):
        driver.batch({"Bids": shaken[place : place + 4]})
    driver.finish()
    found = {(s.item, s.start): s for s in driver.output("Out")}
    spans = {(item, start): end for item, _, _, start, end in by_brute_force(window, events)}
    assert found.keys() == spans.keys()
    for (item, start), summary in found.items():
        own = sorted((b for b in events if b.item == item and start <= b.at < spans[item, start]), key=lambda b: b.at)
        prices = [bid.price for bid in own]
        product = 1
        for price in prices:
            product = product * price % 1009
        assert summary == Summary(
            item,
            start,
            len(own),
            sum(prices),
            pytest.approx(statistics.mean(prices)),
            min(prices),
            max(prices),
            prices[0],
            prices[-1],
            sorted(own, key=lambda bid: -bid.price)[:2],
            len(set(prices)),
            prices,
            product,
        )


def test_updates_come_in_each_batch_and_finals_at_the_end():
    for results, counts in (("updates", [1, 2]), ("both", [1, 2, 2]), ("final", [2])):
        driver = TopologyDriver(summaries(Tumbling("10 s"), results))
        driver.batch({"Bids": [Bid(1, 2, at(1))]})
        driver.batch({"Bids": [Bid(1, 3, at(2))]})
        driver.finish()
        assert [summary.bids for summary in driver.output("Out")] == counts


class Few(Event):
    item: int
    bids: int


@pytest.mark.parametrize(
    ("window", "made", "words"),
    [
        (Tumbling("1 s"), {}, ["bids", "no reducer"]),
        (Tumbling("1 s"), {"bids": 3}, ["bids=3", "reducers.count()"]),
        (Tumbling("1 s"), {"bids": reducers.count(), "more": reducers.count()}, ["more"]),
        (Tumbling("1 s"), {"bids": reducers.sum("cost")}, ["'cost'", "price"]),
        (Tumbling("1 s"), {"bids": reducers.sum("at")}, ["'at'", "float"]),
        (Session("1 s"), {"bids": reducers.fold(0, max)}, ["merge="]),
        (Tumbling("1 s"), {"bids": reducers.count(), "results": "all"}, ["results='all'", "updates"]),
    ],
)
def test_an_aggregate_that_does_not_fit_is_refused(window, made, words):
    app = App("wrong")
    source = app.source("Bids", Bid, event_time="at")
    with pytest.raises(TopologyError) as refusal:
        app.aggregate(source, key="item", window=window, into=app.stream("Few", Few), **made)
    assert all(word in str(refusal.value) for word in words), refusal.value


def test_a_silent_source_holds_the_watermark_back_unless_it_is_idle():
    def run(idle):
        app = App("two")
        one = app.source("One", Bid, event_time="at", idle=idle)
        other = app.source("Other", Bid, event_time="at", idle=idle)
        few = app.stream("Few", Few)
        app.sink("Out", few)
        for source in (one, other):
            app.aggregate(source, key="item", window=Tumbling("10 s"), into=few, bids=reducers.count(), name=source.name)
        driver = TopologyDriver(app, dead_letters=True)
        driver.batch({"One": [Bid(1, 1, at(1))], "Other": [Bid(2, 1, at(2))]})
        driver.advance(20)
        driver.batch({"One": [Bid(1, 1, at(50))]})
        driver.batch()
        early = len(driver.output("Out"))
        driver.batch({"Other": [Bid(2, 1, at(4))]})  # it wakes, and is judged by the common watermark
        return early, len(driver.dead_letters)

    assert run(None) == (0, 0)
    assert run("10 s") == (2, 1)


def test_idle_needs_an_event_time():
    with pytest.raises(TopologyError, match="event_time="):
        App("wrong").source("Bids", Bid, idle="10 s")


@pytest.mark.parametrize("merges", [False, True])
def test_a_window_whose_result_fails_keeps_no_other_from_closing(merges):
    app = App("failing")
    source = app.source("Bids", Bid, event_time="at")
    few = app.stream("Few", Few)
    app.sink("Out", few)

    class Sum(ProcessingElement):
        bids: int = 0

        def on_event(self, bid):
            self.bids += 1

        def on_close(self):
            if self.window.start == at(10):
                raise ValueError("not this one")
            yield few(self.key, self.bids)

    if merges:
        Sum.merge = lambda self, other: setattr(self, "bids", self.bids + other.bids)
    app.element(source, key="item", window=Sliding("10 s", "5 s"), emits=few)(Sum)
    driver = TopologyDriver(app, dead_letters=True)
    driver.batch({"Bids": [Bid(1, 1, at(second)) for second in (1, 11, 21, 31)]})
    driver.finish()
    assert len(driver.output("Out")) == 7  # of eight windows
    assert [letter["error"] for letter in driver.dead_letters] == ["ValueError: not this one"]


class Trace(Event):
    item: int
    prices: list[int]


def ordered(window=None):
    app = App("ordered")
    source = app.source("Bids", Bid, event_time="at", lateness=LATENESS)
    traces = app.stream("Traces", Trace)
    app.sink("Out", traces)

    class Running(ProcessingElement):
        prices: list[int] = []

        def on_event(self, bid):
            self.prices.append(bid.price)
            self.set_timer(at=bid.at + timedelta(seconds=4))

        def on_timer(self):  # four seconds of event time without an event
            yield traces(self.key, self.prices)
            self.prices = []

    class Closing(ProcessingElement):
        prices: list[int] = []

        def on_event(self, bid):
            self.prices.append(bid.price)

        def on_close(self):
            yield traces(self.key, self.prices)

    app.element(source, key="item", emits=traces, ordered=True, window=window)(Running if window is None else Closing)
    return app


@given(events=st.lists(bids, max_size=25, unique_by=lambda bid: bid.at), data=st.data())
@settings(max_examples=30, deadline=None)
def test_events_in_order_give_the_same_whatever_the_delivery_and_the_cut(events, data):
    shaken = sorted(events, key=lambda bid: bid.at + timedelta(seconds=data.draw(st.floats(0, LATENESS))))
    plain, windowed = TopologyDriver(ordered()), TopologyDriver(ordered(Tumbling("10 s")))
    left = shaken
    while left:
        count = data.draw(st.integers(1, len(left)))
        for driver in (plain, windowed):
            driver.batch({"Bids": left[:count]})
        left = left[count:]
    for driver in (plain, windowed):
        driver.finish()
    wanted, spans = [], defaultdict(list)
    for item in range(3):
        runs = [[]]
        for bid in sorted((bid for bid in events if bid.item == item), key=lambda bid: bid.at):
            if runs[-1] and bid.at - runs[-1][-1].at >= timedelta(seconds=4):
                runs.append([])
            runs[-1].append(bid)
            spans[item, (bid.at - T0) // timedelta(seconds=10)].append(bid.price)
        wanted += [Trace(item, [bid.price for bid in run]) for run in runs if run]
    assert sorted(plain.output("Out"), key=repr) == sorted(wanted, key=repr)
    assert sorted(windowed.output("Out"), key=repr) == sorted((Trace(k[0], prices) for k, prices in spans.items()), key=repr)


def test_an_event_that_fails_in_order_is_a_dead_letter_and_the_others_go_on():
    app = App("poison")
    source = app.source("Bids", Bid, event_time="at")
    few = app.stream("Few", Few)
    app.sink("Out", few)

    @app.element(source, key="item", emits=few, ordered=True)
    class Picky(ProcessingElement):
        seen: int = 0

        def on_event(self, bid):
            self.seen += 1
            if bid.price == 13:
                raise ValueError("thirteen")
            yield few(self.key, self.seen)

    driver = TopologyDriver(app, dead_letters=True)
    driver.batch({"Bids": [Bid(1, price, at(second)) for second, price in ((3, 7), (1, 5), (2, 13))]})
    driver.finish()
    assert [out.bids for out in driver.output("Out")] == [1, 2]
    (letter,) = driver.dead_letters
    assert (letter["event"]["price"], letter["error"]) == (13, "ValueError: thirteen")


def test_what_is_late_for_the_order_is_a_dead_letter():
    driver = TopologyDriver(ordered(), dead_letters=True)
    driver.batch({"Bids": [Bid(1, 1, at(30))]})
    driver.batch()
    driver.batch({"Bids": [Bid(1, 2, at(3))]})
    assert ["in order" in letter["error"] for letter in driver.dead_letters] == [True]
    means = describe_state(ordered(Tumbling("10 s")).topology())["Closing"]["means"]
    assert (means["form"], means["windows within"]) == ("events held until they are in order", "10 s")


def test_an_instance_is_forgotten_once_its_windows_have_closed():
    driver = TopologyDriver(application(Tumbling("1 s")), partitions=1)
    sizes = []
    for second in range(0, 300, 3):
        driver.batch({"Bids": [Bid(1000 * second + n, 1, at(second)) for n in range(20)]})
        sizes.append(sum(len(content) for store in driver._committed.stores.values() for content in store._content.values()))
    assert max(sizes[50:]) <= 1.2 * max(sizes[:50])
    assert len(driver.output("Out")) > 1900


def test_windows_that_overlap_do_not_share_what_an_event_holds():
    class Tagged(Event):
        key: int
        tags: list[str]
        at: datetime

    class Tags(Event):
        tags: list[str]

    def run(cut):
        app = App("tags")
        source = app.source("Tagged", Tagged, event_time="at")
        out = app.stream("Tags", Tags)
        app.sink("Out", out)

        @app.element(source, key="key", window=Sliding("10 s", "5 s"), emits=out)
        class Collect(ProcessingElement):
            tags: list[str] = []

            def on_event(self, event):
                if self.tags:
                    self.tags += event.tags
                else:
                    self.tags = event.tags

            def on_close(self):
                yield out(self.tags)

        driver = TopologyDriver(app)
        events = [Tagged(1, [letter], at(6)) for letter in "ab"]
        for place in range(0, 2, cut):
            driver.batch({"Tagged": events[place : place + cut]})
        driver.finish()
        return [out.tags for out in driver.output("Out")]

    assert run(1) == run(2) == [["a", "b"], ["a", "b"]]


def test_late_events_reach_only_windows_that_have_not_closed_however_their_state_is_kept():
    for merges in (False, True):
        driver = TopologyDriver(application(Sliding("10 s", "5 s"), merges=merges))
        driver.batch({"Bids": [Bid(1, 1, at(17))]})
        driver.batch()  # the watermark is 12
        driver.batch({"Bids": [Bid(1, 1, at(6))]})
        driver.finish()
        assert [start for *_, start, _ in results(driver)] == [at(5), at(10), at(15)]
        assert (driver.elements["Sum"].late, driver.elements["Sum"].late_in_part) == (0, 1)


@pytest.mark.parametrize("merges", [False, True])
def test_an_event_that_misses_some_of_its_windows_is_counted_once(merges):
    app = application(Sliding("20 s", "5 s"), merges=merges)
    driver = TopologyDriver(app, dead_letters=True)
    driver.batch({"Bids": [Bid(1, 1, at(37))]})
    driver.batch()  # the watermark is 32
    driver.batch({"Bids": [Bid(1, 1, at(second)) for second in range(45)]})
    missed = [sum(start + 20 <= 32 for start in range(-20, 45, 5) if start <= second < start + 20) for second in range(45)]
    tally = driver.elements["Sum"]
    assert (tally.late, tally.late_in_part) == (missed.count(4), sum(map(missed.count, (1, 2, 3))))
    assert len(driver.dead_letters) == tally.late > 0 < tally.late_in_part


@pytest.mark.parametrize(
    ("size", "every", "events", "counts"), [(4, 2, 2, [2]), (4, 2, 4, [4]), (3, 3, 3, [3]), (4, 1, 6, [4, 4, 4])]
)
def test_windows_by_count_say_at_the_end_what_has_not_been_said(size, every, events, counts):
    driver = TopologyDriver(application(Count(size, every)))
    driver.batch({"Bids": [Bid(1, 1, at(second)) for second in range(events)]})
    driver.finish()
    assert [s.bids for s in driver.output("Out")] == counts


@pytest.mark.parametrize("window", [Count(3), Tumbling("10 s", allowed="60 s")], ids=str)
def test_updates_are_said_of_full_windows_and_of_late_events(window):
    driver = TopologyDriver(summaries(window, "updates"))
    driver.batch({"Bids": [Bid(1, price, at(price)) for price in (1, 2, 3)]})
    assert [summary.bids for summary in driver.output("Out")] == [3]
    if isinstance(window, Tumbling):
        driver.batch({"Bids": [Bid(2, 1, at(30))]})
        driver.batch()
        driver.batch({"Bids": [Bid(1, 4, at(4))]})
        assert driver.output("Out")[-1].bids == 4


def test_a_day_whose_midnight_is_skipped_ends_with_the_day():
    window = Tumbling("1 day", zone="America/Santiago")
    zone = ZoneInfo("America/Santiago")
    (start,) = window.starts(round(datetime(2026, 9, 6, 12, tzinfo=zone).timestamp() * 1e6))
    assert window.end(start) == round(datetime(2026, 9, 7, tzinfo=zone).timestamp() * 1e6)
    assert (window.end(start) - start) / 3.6e9 == 23


def test_sessions_that_merge_know_their_key():
    app = App("merging")
    source = app.source("Bids", Bid, event_time="at", lateness=20)
    few = app.stream("Few", Few)
    app.sink("Out", few)

    @app.element(source, key="item", window=Session("5 s"), emits=few)
    class Visit(ProcessingElement):
        bids: int = 0

        def on_event(self, bid):
            self.bids += 1

        def merge(self, other):
            assert self.key == other.key == 1
            assert self.window.start < other.window.start
            self.bids += other.bids

        def on_close(self):
            yield few(self.key, self.bids)

    driver = TopologyDriver(app)
    driver.batch({"Bids": [Bid(1, 1, at(0)), Bid(1, 1, at(8))]})
    driver.batch({"Bids": [Bid(1, 1, at(4))]})
    driver.finish()
    assert driver.output("Out") == [Few(1, 3)]


def test_a_timer_that_sets_itself_again_lets_the_input_end():
    app = App("ticking")
    source = app.source("Bids", Bid, event_time="at")
    few = app.stream("Few", Few)
    app.sink("Out", few)

    @app.element(source, key="item", emits=few, ordered=True)
    class Ticking(ProcessingElement):
        ticks: int = 0

        def on_event(self, bid):
            self.set_timer(at=bid.at + timedelta(seconds=10))

        def on_timer(self):
            self.ticks += 1
            self.set_timer(at=self.watermark + timedelta(seconds=10))

    driver = TopologyDriver(app)
    driver.batch({"Bids": [Bid(1, 1, at(1))]})
    driver.finish()


def test_a_window_in_order_whose_result_fails_keeps_no_other_from_closing():
    app = App("failing")
    source = app.source("Bids", Bid, event_time="at")
    few = app.stream("Few", Few)
    app.sink("Out", few)

    @app.element(source, key="item", window=Tumbling("10 s"), emits=few, ordered=True)
    class Sum(ProcessingElement):
        bids: int = 0

        def on_event(self, bid):
            self.bids += 1

        def on_close(self):
            if self.window.start == at(0):
                raise ValueError("not this one")
            yield few(self.key, self.bids)

    driver = TopologyDriver(app, dead_letters=True)
    driver.batch({"Bids": [Bid(1, 1, at(second)) for second in (1, 21, 41, 61)]})
    driver.finish()
    assert (len(driver.output("Out")), len(driver.dead_letters)) == (3, 1)


def test_a_result_may_have_any_field():
    class Odd(Event):
        item: int
        result: int
        keys: int
        spans: int

    app = App("odd")
    source = app.source("Bids", Bid, event_time="at")
    odd = app.stream("Odd", Odd)
    app.sink("Out", odd)
    app.aggregate(
        source,
        key="item",
        window=Tumbling("1 s"),
        into=odd,
        result=reducers.count(),
        keys=reducers.count(),
        spans=reducers.count(),
    )
    driver = TopologyDriver(app)
    driver.batch({"Bids": [Bid(1, 1, at(1))]})
    driver.finish()
    assert driver.output("Out") == [Odd(1, 1, 1, 1)]


def test_a_window_has_no_timer_but_its_end():
    app = App("timers")
    source = app.source("Bids", Bid, event_time="at")
    few = app.stream("Few", Few)
    app.sink("Out", few)

    @app.element(source, key="item", window=Tumbling("10 s"), emits=few)
    class Sum(ProcessingElement):
        bids: int = 0

        def on_event(self, bid):
            self.bids += 1
            if bid.price == 13:
                self.set_timer(at=at(3))

        def on_close(self):
            yield few(self.key, self.bids)

    driver = TopologyDriver(app, dead_letters=True)
    driver.batch({"Bids": [Bid(1, 1, at(1)), Bid(1, 13, at(2))]})
    driver.finish()
    assert driver.output("Out") == [Few(1, 1)]
    assert "no timer but its end" in driver.dead_letters[0]["error"]


@pytest.mark.parametrize(
    ("body", "options", "words"),
    [
        (Bare, {"key": "item", "expires": "1 s"}, "would lose"),
        (Bare, {}, "give it a key"),
        (Early, {"key": "item"}, "not in on_batch"),
    ],
)
def test_events_in_order_are_refused_where_they_could_be_lost_or_have_no_order(body, options, words):
    app = App("wrong")
    source = app.source("Bids", Bid, event_time="at")
    with pytest.raises(TopologyError, match=words):
        app.element(source, ordered=True, **options)(body)


@pytest.mark.parametrize("window", [Count(3), Count(4, 2), Global(after=2)], ids=str)
@pytest.mark.parametrize("cut", [1, 4, 20])
@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("unkept", [True, False])
def test_a_result_that_fails_takes_no_later_event_with_it(window, cut, timed, unkept):
    app = App("faulty")
    source = app.source("Bids", Bid, event_time="at" if timed else None)
    sums = app.stream("Sums", Bid)
    app.sink("Out", sums)

    @app.element(source, key="item", window=window, emits=sums)
    class Sum(ProcessingElement):
        prices: list[int] = []
        odd: int = 0

        def on_event(self, bid):
            if bid.price == 17:
                raise ValueError("seventeen")
            self.odd = 2**70 if unkept and bid.price == 20 else 0  # which cannot be kept
            self.prices.append(bid.price)

        def merge(self, other):
            self.prices += other.prices
            self.odd = max(self.odd, other.odd)

        def on_close(self):
            if sum(self.prices) % 2:
                return sums(self.key, "no number", self.window.start)
            if sum(self.prices) % 3 == 0:
                raise ValueError("three")
            return sums(self.key, sum(self.prices), self.window.start)

    driver = TopologyDriver(app, dead_letters=True)
    bids = [Bid(1, price, at(price)) for price in range(1, 21)]
    for place in range(0, len(bids), cut):
        driver.batch({"Bids": bids[place : place + cut]})
    taken = [price for price in range(1, 21) if price != 17 and not (unkept and price == 20)]
    if isinstance(window, Global):
        wanted = [sum(taken[:end]) for end in range(2, len(taken) + 1, 2)]
    else:
        wanted = [sum(taken[end - window.size : end]) for end in range(window.size, len(taken) + 1, window.every)]
    right = [total for total in wanted if total % 2 == 0 and total % 3]
    assert [one.price for one in driver.output("Out")] == right
    failed = [letter["event"] and letter["event"]["price"] for letter in driver.dead_letters]
    assert sorted(price for price in failed if price) == [17] + ([20] if unkept else [])
    assert failed.count(None) == len(wanted) - len(right)


def test_windows_of_ordered_events_leave_nothing_behind():
    """They have no end of a micro-batch at which to forget which windows were touched."""
    app = App("ordered")
    sales = app.stream("Sales", Bid)

    class Last(ProcessingElement):
        bid: Bid | None = None

        def on_event(self, bid):
            self.bid = bid

        def on_close(self):
            yield sales.emit(self.bid)

    source = app.source("Bids", Bid, event_time="at")
    app.element(source, key="item", window=Tumbling("10 s"), ordered=True, emits=sales, name="Last")(Last)
    app.sink("Out", sales)
    driver, sizes = TopologyDriver(app, partitions=1), []
    for number in range(60):
        driver.batch({"Bids": [Bid(1, 1, at(10 * number))]})
        sizes.append(sum(len(content) for content in driver._committed.stores[1, 0]._content.values()))
    assert max(sizes[30:]) <= max(sizes[10:30])


class Sent(Event):
    item: int
    at: datetime
    paid: datetime


@pytest.mark.parametrize(("kind", "sizes"), [(Tumbling, ["10 s"]), (Sliding, ["20 s", "5 s"]), (Session, ["3 s"])])
def test_the_field_of_the_times_may_be_named_beside_the_window(kind, sizes):
    def starts(window, **options):
        app = App("sent")
        sent, sales = app.source("Sent", Sent, event_time="at", lateness="1 min"), app.stream("Sales", Sales)
        app.sink("Out", sales)

        @app.element(sent, key="item", window=window, emits=sales, **options)
        class Each(ProcessingElement):
            def on_event(self, one):
                pass

            def merge(self, other):
                pass

            def on_close(self):
                return sales(self.key, 0, 0, *self.window)

        driver = TopologyDriver(app)
        driver.batch({"Sent": [Sent(1, at(second), at(second * 7 % 60)) for second in range(0, 40, 3)]})
        driver.finish()
        return sorted(one.start for one in driver.output("Out"))

    window = kind(*sizes)
    by_paid = starts(window, at="paid")
    assert by_paid == starts(kind(*sizes, at="paid"))
    assert by_paid != starts(window)
    assert window.at is None, "the window that was given stays as it is"
