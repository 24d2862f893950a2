"""What a report says is lost and duplicated: counts of different places, none of which makes up for another."""

from itertools import zip_longest

import pytest

from penstock import App, Event
from penstock.connectors.source import Reckoning
from penstock.engine.running.report import report_of
from penstock.runs.progress import ProgressSums
from penstock.runs.totals import Totals
from penstock.runtime.places import Place, Seen, sent_to


class Word(Event):
    text: str


def topology():
    app = App("counted")
    one, two, sums = app.source("One", Word), app.source("Two", Word), app.stream("Sums", Word)
    app.element([one, two], emits=sums, name="Relay")(lambda word: sums(word.text))
    app.sink("Out", sums)
    return app.topology()


def counts(committed, accepted, sent=(), received=(), queued=0, other=7):
    """What is counted of two sources and two elements."""
    totals = Totals()
    for name, events in zip(("One", "Two"), accepted, strict=True):
        totals.source(name).accepted = events
    for name, left, came in zip_longest("AB"[: max(len(sent), len(received))], sent, received, fillvalue=0):
        totals.places[sent_to(name)] = Place.between(Seen(left, 7), Seen(came, other))
    reckonings = {name: Reckoning(count, queued) for name, count in zip(("One", "Two"), committed, strict=True)}
    report = report_of(topology(), totals, reckonings, ProgressSums(), engine="", master="", refused=0)
    assert report.counts.lost == sum(place.missing + place.differs for place in report.places.values())
    return report.counts


@pytest.mark.parametrize(
    ("committed", "accepted", "sent", "received", "lost", "duplicated"),
    [
        ((5, 5), (5, 5), (4, 4), (4, 4), 0, 0),
        ((5, 5), (3, 5), (4, 4), (4, 4), 2, 0),
        ((5, 5), (5, 8), (4, 4), (4, 4), 0, 3),
        ((5, 5), (3, 7), (4, 4), (4, 4), 2, 2),  # as many of one source as are missing of the other
        ((5, 5), (5, 5), (4, 4), (3, 4), 1, 0),
        ((5, 5), (5, 5), (4, 4), (2, 6), 2, 2),
        ((5, 5), (5, 5), (4,), (), 4, 0),
        ((5, 5), (5, 5), (), (4,), 0, 4),
        ((None, 5), (3, 5), (), (), 0, 0),  # of which nothing is known but what was decoded
    ],
)
def test_what_is_lost_at_one_place_is_not_made_up_for_at_another(committed, accepted, sent, received, lost, duplicated):
    found = counts(committed, accepted, sent, received)
    assert (found.lost, found.duplicated) == (lost, duplicated)


def test_as_many_of_others_are_lost_and_doubled():
    found = counts((5, 5), (5, 5), (4,), (4,), other=8)
    assert (found.lost, found.duplicated) == (1, 1)


def test_all_that_is_accepted_is_processed_dead_lettered_or_queued():
    found = counts((5, 6), (5, 6), queued=2)
    assert (found.accepted, found.processed, found.dead_lettered, found.queued) == (15, 11, 0, 4)
    assert found.uncounted_sources == []
    assert counts((None, 6), (5, 6)).uncounted_sources == ["One"]
