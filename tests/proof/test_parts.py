"""The parts of the prover: schedules, outcomes, the least example, and what is read off an application's code."""

import json
import random
import time
import uuid
from collections import Counter
from datetime import UTC, datetime
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import App, Event, ProcessingElement
from penstock.errors import ConfigurationError
from penstock.testing import prove
from penstock.testing.proof.outcome import Outcome, difference, difference_of_tables, last_by, rounded
from penstock.testing.proof.sample import drawn_sample, given_sample
from penstock.testing.proof.schedule import Schedule, alternating, chains_of, cut, drawn_order, random_cut
from penstock.testing.proof.shrinking import smallest
from penstock.testing.proof.suspects import growing, suspects_of

sizes = st.dictionaries(st.sampled_from("AB"), st.integers(1, 12), min_size=1)


@given(sizes, st.integers(0, 2**32))
def test_a_cut_keeps_all_events_in_order(given_sizes, seed):
    order = alternating(given_sizes)
    batches = random_cut(order, random.Random(seed))
    assert Schedule(batches).order == order
    assert Counter(name for name, _ in order) == given_sizes
    assert all(batches)


@given(
    st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=6), min_size=1, max_size=4),
    st.integers(0, 2**32),
    st.integers(0, 30),
)
def test_an_order_keeps_each_chain_and_makes_no_event_late(times, seed, lateness):
    chains, told, number = [], {}, 0
    for each in times:
        chain = []
        for own in sorted(each):
            chain.append(("A", number))
            told["A", number] = (own, own + lateness)
            number += 1
        chains.append(chain)
    order = drawn_order([list(chain) for chain in chains], told, random.Random(seed))
    assert sorted(order) == sorted(place for chain in chains for place in chain)
    for chain in chains:
        assert [place for place in order if place in chain] == chain
    newest = -1.0
    for place in order:
        newest = max(newest, told[place][0])
        assert told[place][0] >= newest - lateness


def test_events_that_reach_one_instance_belong_together():
    belonging = [(("A", 0), ["x"]), (("A", 1), ["y"]), (("A", 2), ["x", "z"]), (("A", 3), ["z"]), (("A", 4), [])]
    assert sorted(map(sorted, chains_of(belonging))) == [[("A", 0), ("A", 2), ("A", 3)], [("A", 1)], [("A", 4)]]


@given(st.sets(st.integers(0, 40), min_size=1, max_size=4))
def test_the_least_example_is_found(culprits):
    order = [("A", number) for number in range(41)]
    wanted = frozenset(("A", number) for number in culprits)
    assert smallest(order, lambda kept: wanted <= kept, time.monotonic() + 20) == wanted


def row(**values):
    return json.dumps(values)


def test_rows_that_are_appended_count_each_as_often_as_it_is_there():
    found = difference([row(a=1), row(a=1), row(a=2)], [row(a=2), row(a=1), row(a=3)])
    assert (found.missing, found.extra) == ([row(a=1)], [row(a=3)])


def test_rows_that_are_upserted_count_by_the_last_of_each_key():
    mine, theirs = [row(k=1, n=1), row(k=2, n=1), row(k=1, n=2)], [row(k=1, n=2), row(k=2, n=1)]
    assert not difference_of_tables(mine, theirs, ["k"])
    assert last_by(mine, ["k"]) == {"[1]": row(k=1, n=2), "[2]": row(k=2, n=1)}
    assert difference_of_tables(mine, [row(k=1, n=1), row(k=2, n=1)], ["k"])


def test_the_last_digits_of_floats_are_told_from_other_differences():
    assert rounded(row(a=0.1 + 0.2)) == rounded(row(a=0.3))
    assert rounded(row(a=0.31)) != rounded(row(a=0.3))
    assert rounded(row(a="0.30000000000000004")) != rounded(row(a="0.3"))
    assert Outcome({"S": [row(a=[0.1 + 0.2])]}).rounded() == Outcome({"S": [row(a=[0.3])]}).rounded()


class Reading(Event):
    sensor: str
    value: float = 0.0
    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)


TABLE, SEEN = {"a": 1}, []
GENERATOR = random.Random(1)
total = 0

app = App("suspected")
readings = app.source("Readings", Reading)
results = app.stream("Results", Reading)
app.sink("Out", results)


def helper():
    return uuid.uuid4()


@lru_cache
def looked_up(text):
    return TABLE.get(text)


@app.element(readings, key="sensor", emits=results)
class Everything(ProcessingElement):
    value: float = 0.0

    def on_event(self, reading):
        global total
        total += 1
        self.value += reading.value
        self.other = helper()
        SEEN.append(reading)
        now = datetime.now(UTC)
        names = {reading.sensor}
        drawn = GENERATOR.random()
        drawn += np.random.random()
        yield results(hash(str(names)) and str(looked_up("a")), drawn + time.time(), now)


def test_what_code_has_to_do_with_is_read_off_it():
    found = {(suspect.part, suspect.what) for suspect in suspects_of(app.topology().elements[0])}
    assert {
        ("global", "total"),
        ("state", "other"),
        ("randomness", "uuid.uuid4"),
        ("global", "SEEN"),
        ("clock", "datetime.now"),
        ("hash", "hash"),
        ("global", "looked_up"),
        ("global", "TABLE"),
        ("clock", "time.time"),
        ("sum", "value"),
        ("emission", "results"),
    } <= found
    assert {what for part, what in found if part == "randomness"} >= {"GENERATOR", "np.random.random"}
    assert [suspect.what for suspect, _ in growing(app.topology().elements[0])] == ["SEEN"]


plain = App("plain")
words = plain.source("Readings", Reading, event_time="at")
plain.sink("Out", words)


def test_a_sound_application_passes_in_a_test():
    proof = prove(plain, [Reading("a"), '{"sensor": "b"}'], runs=30)
    assert proof.sound
    assert proof.events == {"Readings": 2}
    assert not proof.drawn


@pytest.mark.slow
def test_a_faulty_one_fails_with_what_was_found():
    with pytest.raises(AssertionError, match="(?s)effect: element Everything.*randomness: element Everything"):
        prove(app, runs=20)


def test_samples_are_drawn_that_every_event_accepts():
    topology = plain.topology()
    sample = drawn_sample(topology, 0)
    assert sample == drawn_sample(topology, 0)
    assert sample != drawn_sample(topology, 1)
    assert [Reading(**json.loads(event)).sensor for event in sample["Readings"]]


@pytest.mark.parametrize(
    ("sample", "says"),
    [
        ({"Reading": []}, "There is no source Reading; the application has Readings"),
        ({}, "Source Readings has no sample"),
        ({"Readings": []}, "The sample has 0 events"),
    ],
)
def test_a_sample_that_does_not_fit_is_refused(sample, says):
    with pytest.raises(ConfigurationError, match=says):
        given_sample(plain.topology(), sample)


def test_a_cut_ends_where_it_is_told():
    order = alternating({"A": 4})
    assert [len(batch) for batch in cut(order, [1, 3, 3, 9, 0])] == [1, 2, 1]
