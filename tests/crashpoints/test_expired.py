"""Spark deletes a timer after the call for it, so one for the same time is registered for later."""

import math
from types import SimpleNamespace

from crashpoints.standin import State
from hypothesis import given
from hypothesis import strategies as st

from penstock.app.element import InstanceContext, ProcessingElement
from penstock.engine.query.stateful import HopProcessor


def test_a_timer_that_expires_before_its_elements_timers_are_due_is_registered_again():
    state = State({}, set())
    processor = HopProcessor(None, 1, (0,))
    processor.init(state)
    processor._set_timer(1000, 990)
    assert state.timers == {1000}
    expired = HopProcessor(None, 1, (0,))
    expired.init(state)
    expired._expired = True
    expired._set_timer(1000, 1000)
    state.deleteTimer(1000)  # as Spark does then
    assert state.timers == {1001}
    processor._set_timer(None, 1001)
    assert state.timers == set()


class Asked(HopProcessor):
    """Says whether its timer has expired, in place of running its hop."""

    def _stage(self, wiring, key, call=""):
        return None

    def _run(self, stage, arrivals, timers, now):
        yield self._expired


def test_a_call_for_an_expired_timer_knows_that_it_is_one():
    asked = Asked(SimpleNamespace(resolve=lambda: SimpleNamespace(hops=1)), 1, (0,))
    asked.init(State({}, set()))
    assert list(asked.handleInputRows((0,), iter([]), None)) == [False]
    assert list(asked.handleExpiredTimer((0,), None, None)) == [True]


@given(st.integers(1_500_000_000_000, 2_000_000_000_000), st.integers(1, 10**9))
def test_a_timer_is_due_in_whole_microseconds(now_ms, after_us):
    element = ProcessingElement()
    element._context = context = InstanceContext(now_ms / 1000, None, False)
    element.set_timer(after=after_us / 1e6)
    due = now_ms * 1000 + after_us
    assert context.due == due / 1e6
    if after_us % 1000 == 0:  # so that Spark's timer, which is for whole milliseconds, does not come before it
        assert math.ceil(context.due * 1000) / 1000 >= context.due
