"""The recursion for a tagged job until its transfer starts, for servers whose services have one geometric term."""

import numpy as np
from numba import njit


@njit(cache=True)
def by_steps(ready, blocked, s, z, arrival, service, timer, always, size):  # type: ignore[no-untyped-def]
    """E[exp(-s T) z^n] for each pair (s, z): T is the time from a tagged job's arrival until its transfer starts, and n counts
    the job and those ahead of it then. The states that it finds have the probabilities ``ready`` and ``blocked``."""
    phases, levels = ready.shape
    result = np.empty(len(s), dtype=np.complex128)
    for pair in range(len(s)):
        s_, z_ = s[pair], z[pair]
        timed = timer if always else 0.0
        leave = arrival + service + timed + s_
        leave_empty = arrival + timer + s_
        onward, served, fired = arrival / leave, service / leave, timed / leave
        onward_empty, fired_empty = arrival / leave_empty, timer / leave_empty
        total = 0j
        value = z_
        for n in range(levels):
            total += blocked[n] * value
            value *= z_
        mass = np.zeros(levels, dtype=np.complex128)
        position = z_  # z^(j + 1)
        for j in range(phases):
            for i in range(levels):
                mass[i] += ready[j, i] * position
            if j == size - 1:
                break  # the tagged job completes the batch
            # Services until the next arrival or until the timer fires; then one arrival.
            visits = 0j
            sent = 0j
            for i in range(levels - 1, 0, -1):
                visits = mass[i] + served * visits
                sent = sent * z_ + visits
                mass[i] = onward * visits
            empty = mass[0] + served * visits
            total += fired * sent * z_ + fired_empty * empty
            mass[0] = onward_empty * empty
            position *= z_
        if size > 0:
            inside = 0j
            for i in range(levels - 1, -1, -1):
                inside = inside * z_ + mass[i]
            total += inside
        result[pair] = total
    return result
