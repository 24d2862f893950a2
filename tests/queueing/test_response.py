"""The transform of the response time against the sum over all that a tagged job may live to see, step by step."""

import math

import numpy as np
import pytest

from penstock.queueing import StreamServer, solve


def by_steps(server, joint, s):
    """E[exp(-s W)], by following every state: jobs inside, outside, and until the batch that is being served is at its end."""
    size = int(server.effective_batch_size)
    instant = math.isinf(server.transfer_rate)

    def served(ahead, missing):
        """What n services take, of a batch that lacks some arrivals when the first begins: each K-th arrival stops the
        server.
        """
        state = np.zeros((ahead + 1, size), dtype=complex)
        state[ahead, missing % size] = 1.0
        total = 0j
        leave = server.arrival_rate + server.service_rate + s
        for left in range(ahead, 0, -1):
            if instant:
                return (server.service_rate / (server.service_rate + s)) ** left * state[left].sum()
            # Arrivals go round the K places until a service ends; passing one place costs a transfer's time.
            step = np.zeros((size, size), dtype=complex)
            for place in range(size):
                onward = server.arrival_rate / leave
                if place == size - 1:
                    onward *= server.transfer_rate / (server.transfer_rate + s)
                step[place, (place + 1) % size] += onward
            visits = state[left] @ np.linalg.inv(np.eye(size) - step)
            state[left - 1] += visits * server.service_rate / leave
            total = state[left - 1].sum()
        return total

    transfer = 1.0 if instant else server.transfer_rate / (server.transfer_rate + s)
    timer = min(server.timer_rate, 1e12)

    def outcome(outside, inside, ahead):
        """From a state in which the tagged job is outside with so many, inside are so many, and it was found with ``ahead``."""
        if outside == size:
            return transfer * served(inside + ahead, 0)
        timed = timer if inside == 0 or server.timer == "always" else 0.0
        working = server.service_rate if inside else 0.0
        leave = server.arrival_rate + working + timed + s
        value = server.arrival_rate / leave * outcome(outside + 1, inside, ahead)
        if timed:
            value += timed / leave * transfer * served(inside + ahead, 0)
        if working:
            value += working / leave * outcome(outside, inside - 1, ahead)
        return value

    total = 0j
    for (outside, inside), probability in np.ndenumerate(joint.ready):
        if probability > 1e-9:
            total += probability * outcome(outside + 1, inside, outside + 1)
    for inside, probability in enumerate(joint.blocked):
        total += probability * transfer * served(inside + 1, 0)
    return total


@pytest.mark.parametrize(
    "server",
    [
        StreamServer(0.5, 1, 3, 0.3, math.inf, "idle"),
        StreamServer(0.4, 1, 3, 0.3, math.inf, "always"),
        StreamServer(0.4, 1, 3, 0.3, 2, "idle"),
        StreamServer(0.3, 1, 2, 0, 2, "idle"),
        StreamServer(0.3, 1, 3, math.inf, 3, "idle"),
        StreamServer(0.3, 1, 1, 0.2, 2, "idle"),
    ],
)
def test_the_transform_is_the_sum_over_all_paths(server):
    response = solve(server).response_time
    for s in (0.2 + 0j, 0.4 + 1.5j):
        assert response.transform(np.array([s]))[0] == pytest.approx(by_steps(server, response.joint, s), rel=1e-7, abs=1e-9)


def test_quantiles_are_where_the_distribution_is():
    response = solve(StreamServer(750, 1000, 40, 100, 900)).response_time
    for p in (0.001, 0.5, 0.9, 0.99, 0.99999):
        assert response.survival(response.quantile(p)) == pytest.approx(1 - p, rel=1e-5, abs=2e-8)


def test_fast_transfers_are_the_limit_of_those_that_take_no_time():
    instant = solve(StreamServer(750, 1000, 20, 100, math.inf)).response_time
    for p in (0.5, 0.99, 0.999999):
        fast = solve(StreamServer(750, 1000, 20, 100, 1e12)).response_time
        assert fast.quantile(p) == pytest.approx(instant.quantile(p), rel=1e-7)
