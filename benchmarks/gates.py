"""For a bound on the p95: does a gate of rows and a delay need fewer micro-batches than a trigger interval? By simulation.

    python benchmarks/gates.py

Each is the cheapest of a grid that keeps the bound, for a query of 0.3 s a micro-batch and 150 us a row, by the same simulation
of Spark's gate from which predictions come.
"""

from collections.abc import Callable, Iterable

import numpy as np

from penstock.planner.arrivals import Flow
from penstock.planner.gate import Gate, Work, pass_gate

BOUND_S, WARM_S, UNTIL_S = 3.0, 20.0, 1400.0
WORK = Work(0.3, 1.5e-4, planning=0.05, closing=np.full(1, 0.03))
"""What a micro-batch takes: seconds, and seconds per row."""
TRIGGERS = np.arange(0.2, 4.05, 0.1).round(1).tolist()
DELAYS = [*np.arange(0.3, 4.2, 0.3).round(1).tolist(), 6.0, 10.0, 20.0, 60.0]
ROWS = (1, 2, 5, 10, 20, 50, 100, 300, 1_000, 2_000, 3_000, 4_000, 6_000, 8_000, 12_000)
TRAFFIC: dict[str, Callable[[float], float]] = {
    "1,200 a second": lambda at: 1_200,
    "4,000 a second for 1 s of 10": lambda at: 4_000 if at % 10 < 1 else 0,
    "3,000 a second for 5 s of 25": lambda at: 3_000 if at % 25 < 5 else 0,
    "300 a second, and 4,000 for 1 s of 20": lambda at: 4_000 if at % 20 < 1 else 300,
    "20 a second": lambda at: 20,
    "1 in two seconds": lambda at: 0.5,
}


def main() -> None:
    print("| arrivals (Poisson) | trigger | micro-batches a minute | rows, delay | micro-batches a minute |")
    print("| --- | --- | --- | --- | --- |")
    for name, rate in TRAFFIC.items():
        flow = arrivals(rate)
        (trigger, by_trigger), (gate, by_gate) = (
            cheapest(flow, gates)
            for gates in (
                (Gate(trigger=one) for one in TRIGGERS),
                (Gate(min_rows=rows, max_delay=delay) for rows in ROWS for delay in DELAYS),
            )
        )
        print(
            f"| {name} | {trigger.trigger:g} s | {by_trigger:.1f} | {gate.min_rows:,.0f}, {gate.max_delay:g} s | "
            f"{by_gate:.1f} |",
            flush=True,
        )


def arrivals(rate: Callable[[float], float]) -> Flow:
    """Poisson arrivals of a rate that changes."""
    cells = np.arange(0, UNTIL_S + 100, 0.01)
    counts = np.random.default_rng(1).poisson([rate(at) * 0.01 for at in cells])
    return Flow(cells + 0.01, np.cumsum(counts).astype(float))


def cheapest(flow: Flow, gates: Iterable[Gate]) -> tuple[Gate, float]:
    """Of the gates that keep the bound the one with the fewest micro-batches, and how many a minute."""
    keeping = ((gate, count) for gate in gates for p95, count in [judged(flow, gate)] if p95 <= BOUND_S)
    return min(keeping, key=lambda found: found[1])


def judged(flow: Flow, gate: Gate) -> tuple[float, float]:
    """The p95 of the latency, and micro-batches a minute."""
    passage = pass_gate(flow, gate, WORK, until=UNTIL_S)
    kept = (passage.started > WARM_S) & (passage.started < UNTIL_S - WARM_S)
    _, latencies = passage.latencies(flow, WARM_S, UNTIL_S - WARM_S)
    return float(np.quantile(latencies, 0.95)), 60 * int(kept.sum()) / (UNTIL_S - 2 * WARM_S)


if __name__ == "__main__":
    main()
