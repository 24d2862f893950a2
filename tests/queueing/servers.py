"""Random stream servers, by their dimensionless parameters."""

import math

from hypothesis import assume
from hypothesis import strategies as st

from penstock.queueing import StreamServer


@st.composite
def stream_servers(draw, largest_batch=30, least_slack=0.05, timers=("idle", "always"), finite_timer=False):
    """Stable servers with rho from .05 to .95, K up to ``largest_batch``, tau and gamma over six decades."""
    service = draw(st.sampled_from([1.0, 1000.0]))
    load = draw(st.floats(0.05, 0.95))
    size = draw(st.integers(1, largest_batch))
    rates = st.one_of(st.just(0.0), st.floats(-3, 3).map(lambda power: 10**power))
    timer_rate = draw(rates if finite_timer else st.one_of(rates, st.just(math.inf)))
    transfer = draw(st.one_of(st.just(math.inf), st.floats(-1, 2).map(lambda power: 10**power)))
    server = StreamServer(
        load * service, service, size, timer_rate * service, transfer * service, draw(st.sampled_from(timers))
    )
    assume(server.slack > least_slack)
    return server
