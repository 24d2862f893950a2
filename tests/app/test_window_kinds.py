"""A kind of window from outside the package: one class in one file, which aggregates, elements and the query dialect ask."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from penstock import App, Event, ProcessingElement, Session, Sliding, Tumbling, reducers
from penstock.app.window import Windowing
from penstock.app.window.aligned import Aligned
from penstock.errors import TopologyError
from penstock.kinds.moments import microseconds, moment
from penstock.testing import TopologyDriver


@dataclass(frozen=True, init=False)
class Months(Windowing):
    """Calendar months in UTC."""

    def starts(self, time: int) -> Iterator[int]:
        """Of the month that a time lies in."""
        yield microseconds(moment(time).replace(day=1, hour=0, minute=0, second=0, microsecond=0))

    def end(self, start: int) -> int:
        """Of the month that begins at a time."""
        month = moment(start)
        return microseconds(month.replace(year=month.year + month.month // 12, month=month.month % 12 + 1))

    def keeper(self, body, has_times):
        """Each month has a state of its own."""
        return Aligned

    def __str__(self) -> str:
        return "a month"


class Sale(Event):
    shop: str
    euros: int
    at: datetime


class Total(Event):
    shop: str
    start: datetime
    end: datetime
    euros: int


def sales(*days):
    return [Sale("a", number + 1, datetime(2026, *day, tzinfo=UTC)) for number, day in enumerate(days)]


def application(declare):
    app = App("months")
    source = app.source("Sales", Sale, event_time="at", late="drop")
    totals = app.stream("Totals", Total)
    app.sink("Totals", totals)
    declare(app, source, totals)
    driver = TopologyDriver(app)
    driver.batch({"Sales": sales((1, 1), (1, 31), (2, 1), (12, 31))})
    driver.finish()
    return [(total.start.month, total.end.month, total.euros) for total in driver.output("Totals")]


@pytest.mark.parametrize(
    ("kind", "lengths"),
    [
        (Tumbling, {"size": 10.0}),
        (Tumbling, {"size": 10.0, "offset": 1.0}),
        (Sliding, {"size": 10.0, "every": 5.0}),
        (Session, {"gap": 10.0}),
    ],
)
def test_what_stored_windows_mean_is_exact_to_the_microsecond(kind, lengths):
    """Stored windows are refused if their meaning has changed, and texts round."""
    for name, seconds in {**lengths, "allowed": 1.0}.items():
        changed = kind(**{**lengths, "allowed": 1.0, name: seconds + 1e-6})
        assert changed.meaning() != kind(**lengths, allowed=1.0).meaning()


MONTHS = [(1, 2, 3), (2, 3, 3), (12, 1, 4)]


def test_aggregates_and_elements_take_it():
    def aggregated(app, source, totals):
        app.aggregate(source, key="shop", window=Months(), into=totals, euros=reducers.sum("euros"))

    def written(app, source, totals):
        @app.element(source, emits=totals, key="shop", window=Months())
        class Sum(ProcessingElement):
            euros: int = 0

            def on_event(self, sale):
                self.euros += sale.euros

            def on_close(self):
                yield totals(self.key, self.window.start, self.window.end, self.euros)

    assert application(aggregated) == application(written) == MONTHS


def test_the_query_dialect_refuses_what_it_does_not_plan():
    def planned(app, source, totals):
        app.aggregate(source, key="shop", window=Months(), into=totals, dialect="query", euros=reducers.sum("euros"))

    with pytest.raises(TopologyError, match="Spark plans no windows of a month"):
        application(planned)
