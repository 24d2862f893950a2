"""The gate of a door, what arrivals are measured as, and bodies of any kind."""

import asyncio
import json
import time

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.adapter import EventLog
from penstock.adapter.arrivals import ArrivalStatistics
from penstock.adapter.body import BodyReader, Malformed
from penstock.adapter.door import Door
from penstock.adapter.transfers import Transfer, Transfers
from penstock.connectors.log.arrays import divide
from penstock.connectors.log.log import Parcel
from penstock.errors import ConfigurationError, SinkError
from penstock.kinds.event import Event
from penstock.runs.gate import TransferGate


class Word(Event):
    text: str


class SlowStore:
    """Notes each transfer, and takes a while for it."""

    def __init__(self, seconds=0.0, fails=False):
        self.transfers, self._seconds, self._fails = [], seconds, fails

    def begin(self, entries):
        def finish():
            time.sleep(self._seconds)
            if self._fails:
                raise SinkError("full")
            self.transfers.append([len(entry.payloads) for entry in entries])
            return [len(entry.payloads) for entry in entries]

        return finish


def deliver(gate, sizes, store=None, patience=30.0, change=None, memory=10_000):
    """Offer entries of some sizes at once; returns the store, the answers and the seconds it took."""
    store = store or SlowStore()

    async def run():
        door = Door(store, gate, lambda made: None, patience, memory)
        began = time.monotonic()
        offers = [asyncio.ensure_future(door.deliver(Parcel([b"x"] * size))) for size in sizes]
        if change is not None:
            await asyncio.sleep(0.1)
            door.set_gate(change)
        answers = await asyncio.gather(*offers, return_exceptions=True)
        took = time.monotonic() - began
        await door.close(5.0)
        return answers, took

    return store, *asyncio.run(run())


def test_a_transfer_takes_at_most_a_batch_in_whole_requests():
    store, answers, _ = deliver(TransferGate(10), [4, 4, 4, 25, 1, 9])
    assert answers == [4, 4, 4, 25, 1, 9]
    assert [sum(transfer) for transfer in store.transfers] == [8, 4, 25, 10]


def test_a_batch_that_is_not_full_waits_for_the_timer():
    store, _, took = deliver(TransferGate(10, 0.3), [3, 3])
    assert (store.transfers, took >= 0.3) == ([[3, 3]], True)


def test_a_full_batch_does_not_wait():
    _, _, took = deliver(TransferGate(6, 5.0), [3, 3])
    assert took < 2


def test_a_changed_gate_holds_for_what_waits():
    _, _, took = deliver(TransferGate(100, 60.0), [1], change=TransferGate(1, 60.0))
    assert took < 5


def test_a_store_that_fails_fails_its_requests_only():
    _, answers, _ = deliver(TransferGate(1), [1, 1], SlowStore(fails=True))
    assert [str(answer) for answer in answers] == ["full", "full"]


def test_requests_are_told_when_the_store_does_not_answer():
    store, answers, took = deliver(TransferGate(1), [1, 1], SlowStore(1.0), patience=0.3)
    assert all("not answered within 0.3 s" in str(answer) for answer in answers)
    assert took < 0.9
    assert store.transfers == [[1], [1]]  # they are kept all the same


def test_what_waits_is_bounded_even_when_nobody_waits_for_it():
    store, answers, _ = deliver(TransferGate(1), [1] * 7, SlowStore(0.3), patience=0.1, memory=4)
    assert sum("More than 4 bytes" in str(answer) for answer in answers) == 3
    assert store.transfers == [[1]] * 4


def test_a_step_that_fails_leaves_the_log_usable(tmp_path):
    stream = EventLog(tmp_path).stream("S")
    with pytest.raises(ValueError, match="zip"):
        stream.begin([Parcel([b"a", b"b"], ids=["1"])])
    assert stream.begin([Parcel([b"a"])])() == [1]


@pytest.mark.parametrize("setting", [(0, 0.0), (2_000_000, 0.0), (1, -1.0), (1, 4000.0)])
def test_gates_out_of_range(setting):
    with pytest.raises(ConfigurationError, match="choose a batch_size"):
        TransferGate(*setting)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.floats(0.001, 5), st.integers(1, 50)), min_size=3, max_size=60))
def test_arrivals_are_what_numpy_says(requests):
    now = [0.0]
    arrivals = ArrivalStatistics(window=10_000, clock=lambda: now[0])
    for gap, size in requests:
        now[0] += gap
        arrivals.note(size)
    gaps = np.array([gap for gap, _ in requests])[1:]
    sizes = np.array([size for _, size in requests])
    measured = arrivals.measured()
    assert measured.events == sizes.sum()
    assert measured.rate == pytest.approx(sizes.sum() / now[0], rel=1e-6)
    assert measured.gap_scv == pytest.approx(gaps.var() / gaps.mean() ** 2, abs=1e-6)
    assert measured.size_scv == pytest.approx(sizes.var() / sizes.mean() ** 2, abs=1e-9)


def test_the_error_of_a_rate_is_what_many_windows_show():
    """Against the spread of the rate over many windows of a compound Poisson stream."""
    random = np.random.default_rng(1)
    rates, errors = [], []
    for _ in range(300):
        now = [0.0]
        arrivals = ArrivalStatistics(window=100_000, clock=lambda now=now: now[0])
        for gap, size in zip(random.exponential(0.1, 400), random.integers(1, 9, 400), strict=True):
            now[0] += gap
            arrivals.note(int(size))
        measured = arrivals.measured()
        rates.append(measured.rate)
        errors.append(measured.rate_error)
    assert np.mean(errors) == pytest.approx(np.std(rates), rel=0.15)


def test_old_requests_leave_the_window():
    now = [0.0]
    arrivals = ArrivalStatistics(window=10, clock=lambda: now[0])
    arrivals.note(5)
    now[0] = 100.0
    assert (arrivals.measured().events, arrivals.measured().gap_scv) == (0, None)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, max_examples=150)
@given(st.lists(st.one_of(st.builds(lambda text: {"text": text}, st.text()), json_values), max_size=6), st.booleans())
def test_every_event_of_a_body_is_accepted_or_rejected(events, lines):
    body = (
        "\n".join(json.dumps(event) for event in events).encode()
        if lines
        else json.dumps(events, ensure_ascii=False).encode("utf-8", "surrogatepass")
    )
    try:
        parsed = BodyReader(Word, 10_000).read(body, lines=lines)
    except Malformed:
        return
    assert sorted([*parsed.rows, *(rejection.index for rejection in parsed.rejected)]) == list(range(len(events)))
    for row, payload in zip(parsed.rows, parsed.payloads, strict=True):
        assert json.loads(payload) == events[row]
        assert isinstance(events[row]["text"], str)


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_read_or_refused(body, lines):
    try:
        parsed = BodyReader(Word, 100).read(body, lines=lines)
    except Malformed:
        return
    assert all(json.loads(payload)["text"] is not None for payload in parsed.payloads)


def test_transfers_are_what_numpy_says():
    random, now = np.random.default_rng(3), [0.0]
    transfers = Transfers(window=100.0, clock=lambda: now[0])
    assert transfers.measured().seconds_mean is None
    sizes = random.integers(1, 2_000, 400)
    seconds = 0.004 + 3e-6 * sizes + random.exponential(0.0005, 400)
    for size, took in zip(sizes.tolist(), seconds.tolist(), strict=True):
        now[0] += 0.2
        transfers.note(Transfer(size, took))
    measured, (slope, fixed) = transfers.measured(), np.polyfit(sizes, seconds, 1)
    assert measured.transfers == 400
    assert (measured.fixed_s, measured.per_event_s) == (pytest.approx(fixed), pytest.approx(slope))
    now[0] += 150
    assert transfers.measured().transfers == 0


def test_a_line_is_flat_unless_it_rises_beyond_chance():
    transfers = Transfers()
    for size, took in zip([1, 2, 3] * 20, np.random.default_rng(5).exponential(0.003, 60).tolist(), strict=True):
        transfers.note(Transfer(size, took))
    measured = transfers.measured()
    assert (measured.fixed_s, measured.per_event_s) == (measured.seconds_mean, 0.0)


@pytest.mark.parametrize(
    "body",
    [rb'[{"a":"\ud800"},]', rb'[{"a":"\ud800"}', rb'[{"a":"\ud800"}]x', rb'[{"a":"\ud800"},{]', rb'[{"a":"\ud800","b":NaN}]'],
)
def test_half_of_a_surrogate_pair_excuses_nothing_else(body):
    with pytest.raises(msgspec.DecodeError):
        divide(body)
    assert divide(rb'[{"a":"\ud800"}, 1]') == [rb'{"a":"\ud800"}', b"1"]


@pytest.mark.parametrize("body", [b"[" + b"1," * 500 + b"1]", b"[[" + b"[[[[0]]]]," * 2_000 + b"0]]"])
def test_items_are_counted_before_they_take_memory(body):
    with pytest.raises(OverflowError):
        divide(body, 100)
