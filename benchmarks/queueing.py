"""The queueing solver beside its alternatives, and the simulator beside others: one command, one thread, one table.

    python benchmarks/queueing.py [--quick] [--output FILE.md]

Optional contenders, shown as "not installed" otherwise: pip install --no-deps line-solver && pip install ciw simpy
Every contender runs in a process of its own with a limit of one minute (--quick: ten seconds); times leave out imports
and compilation, and are the median of several runs where one takes less than two seconds.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
SIZES, LOADS = (25, 100, 1000, 10_000), (0.75, 0.99)
SOLVERS = {
    "auto": "auto",
    "iteration": "paper's iteration",
    "sparse": "sparse direct solve",
    "line": "LINE, M/G/1-type (cyclic reduction)",
}
SIMULATORS = ("penstock", "ciw", "simpy")


def solver(name: str, size: int, load: float) -> tuple[Callable[[], float], Any]:
    """A function that solves the server for L, and the smaller server that warms it up."""
    from penstock.queueing import StreamServer, solve

    server = StreamServer(1000 * load, 1000, size, 600)
    small = replace(server, batch_size=min(size, 3))
    if name == "auto":
        warm = replace(server, batch_size=size if size < 5000 else 1500)
        return lambda: solve(server).mean_jobs, lambda: solve(warm)
    if name == "iteration":
        return lambda: solve(server, "iterative", 1e-10).mean_jobs, lambda: solve(small, "iterative")
    if name == "sparse":
        # The least truncation that leaves less than 1e-10: the tail decays with rho.
        import math

        level = size + math.ceil(math.log(1e-12) / math.log(load))
        return lambda: solve(server, "chain", truncation=level).mean_jobs, lambda: solve(small, "chain")
    return _line(server), lambda: None


def _line(server: Any) -> Callable[[], float]:
    import numpy as np
    from line_solver.lib.thirdparty.smc import mg1_cr

    from penstock.queueing.matrix_analytic import boundary_from
    from penstock.queueing.moments import moments

    size = int(server.batch_size)
    rate, service = server.arrival_rate, server.service_rate
    total = rate + service

    def run() -> float:
        blocks = np.zeros((size, size * (size + 2)))
        blocks[:, :size] = np.eye(size) * service / total
        for j in range(size - 1):
            blocks[j, size + j + 1] = rate / total
        blocks[-1, -size] = rate / total
        g = np.asarray(mg1_cr(blocks))
        return moments(server, boundary_from(server, g)).mean_jobs

    return run


def simulator(name: str, jobs: int) -> tuple[Callable[[], float], Any]:
    """A function that simulates an M/M/1 queue at load .75 and returns the events it simulated."""
    if name == "penstock":
        from penstock.queueing import StreamServer, simulate

        server = StreamServer(0.75, 1.0, 1, 0)

        def run_penstock() -> float:
            simulate(server, jobs=jobs)
            return 2.0 * jobs  # an arrival and a service each, as for the others; its transfers are left out

        return run_penstock, lambda: simulate(server, jobs=10_000)
    if name == "ciw":
        import ciw

        network = ciw.create_network(
            arrival_distributions=[ciw.dists.Exponential(0.75)],
            service_distributions=[ciw.dists.Exponential(1.0)],
            number_of_servers=[1],
        )

        def run_ciw() -> float:
            simulation = ciw.Simulation(network)
            simulation.simulate_until_max_customers(jobs // 100)
            return 2.0 * (jobs // 100)

        return run_ciw, lambda: None
    import random

    import simpy

    def run_simpy() -> float:
        environment = simpy.Environment()
        server = simpy.Resource(environment)
        draw = random.Random(0)

        def job() -> Any:
            with server.request() as turn:
                yield turn
                yield environment.timeout(draw.expovariate(1.0))

        def arrivals() -> Any:
            for _ in range(jobs // 20):
                yield environment.timeout(draw.expovariate(0.75))
                environment.process(job())

        environment.process(arrivals())
        environment.run()
        return 2.0 * (jobs // 20)

    return run_simpy, lambda: None


def contend(arguments: list[str]) -> None:
    """Run one contender and print its result as JSON."""
    kind, name, *numbers = arguments
    try:
        if kind == "solve":
            task, warm = solver(name, int(numbers[0]), float(numbers[1]))
        else:
            task, warm = simulator(name, int(numbers[0]))
    except ImportError:
        print(json.dumps({"failed": "not installed"}))
        return
    try:
        warm()
        times = []
        while len(times) < 15 and sum(times) < 2:
            started = perf_counter()
            value = task()
            times.append(perf_counter() - started)
    except Exception as error:
        print(json.dumps({"failed": type(error).__name__}))
        return
    print(json.dumps({"seconds": median(times), "least": min(times), "most": max(times), "value": value}))


def run(limit: float, *arguments: object) -> dict[str, Any]:
    """A contender in a process of its own."""
    command = [sys.executable, __file__, "--contender", *map(str, arguments)]
    environment = {**os.environ, **THREADS, "PYTHONWARNINGS": "ignore"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, env=environment, check=False)
    except subprocess.TimeoutExpired:
        return {"failed": f"over {limit:g} s"}
    try:
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return {"failed": "out of memory" if done.returncode < 0 else "failed"}
    return result


def shown(result: dict[str, Any], reference: float | None = None) -> str:
    """A time with its spread, and the error of L relative to the reference."""
    if "failed" in result:
        return str(result["failed"])
    unit, factor = ("s", 1.0) if result["seconds"] >= 1 else ("ms", 1000.0)
    text = f"{result['seconds'] * factor:.3g} {unit}"
    if result["most"] > result["least"]:
        text += f" ({result['least'] * factor:.3g} to {result['most'] * factor:.3g})"
    if reference:
        text += f", {abs(result['value'] / reference - 1):.0e}"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--contender", nargs="+")
    given = parser.parse_args()
    if given.contender:
        contend(given.contender)
        return
    limit = 10.0 if given.quick else 60.0
    lines = ["| K | rho | " + " | ".join(SOLVERS.values()) + " |", "| --- | --- |" + " --- |" * len(SOLVERS)]
    for size in SIZES:
        for load in LOADS:
            auto = run(limit, "solve", "auto", size, load)
            cells = [shown(auto)]
            cells += [shown(run(limit, "solve", name, size, load), auto.get("value")) for name in list(SOLVERS)[1:]]
            lines.append(f"| {size:,} | {load} | " + " | ".join(cells) + " |")
            print(lines[-1], flush=True)
    lines += ["", "| simulator, M/M/1 at load .75 | events per second |", "| --- | --- |"]
    for name in SIMULATORS:
        result = run(limit, "simulate", name, 4_000_000)
        rate = result["failed"] if "failed" in result else f"{result['value'] / result['seconds']:,.0f}"
        lines.append(f"| {name} | {rate} |")
        print(lines[-1], flush=True)
    if given.output:
        given.output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
