"""How far both approximations of a network of stream servers are from simulation, over random networks.

python benchmarks/networks.py [--networks 40] [--jobs 1000000] [--output FILE.md]
"""

import argparse
import random
from pathlib import Path
from statistics import mean, median

from penstock.queueing import Network, StreamServer

SHAPES = {
    "three in a row": ({("a", "b"): 1.0, ("b", "c"): 1.0}, ("a",)),
    "two join": ({("a", "c"): 1.0, ("b", "c"): 1.0}, ("a", "b")),
    "one splits": ({("a", "b"): 0.5, ("a", "c"): 0.5}, ("a",)),
}


def draw(shape: str, seed: int) -> Network:
    """A network with K from 1 to 50, tau from 0.02 to 2 per service time, loads from .3 to .85, some slow transfers."""
    routes, entries = SHAPES[shape]
    choose = random.Random(seed)
    placeholder = StreamServer(1, 2, 1, 0)
    flows = Network(dict.fromkeys("abc", placeholder), routes, dict.fromkeys(entries, 1.0)).arrival_rates
    while True:
        servers = {}
        for name, rate in flows.items():
            service = rate / choose.uniform(0.3, 0.85)
            transfer = service / choose.uniform(0.2, 4) if choose.random() < 0.3 else float("inf")
            timer = service * choose.choice([0.02, 0.2, 2.0])
            servers[name] = StreamServer(rate, service, choose.choice([1, 5, 20, 50]), timer, transfer)
        if all(server.slack > 0.1 for server in servers.values()):
            return Network(servers, routes, dict.fromkeys(entries, 1.0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=int, default=40)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    head = "| networks | nodes | isolated: median, mean, worst error | bursts: median, mean, worst error | interval |"
    lines = [head, "| --- | --- | --- | --- | --- |"]
    for shape in SHAPES:
        errors: dict[str, list[float]] = {"isolated": [], "bursts": []}
        widths = []
        for seed in range(given.networks):
            network = draw(shape, seed)
            run = network.simulate(jobs=given.jobs, seed=seed)
            for method, collected in errors.items():
                for name, node in network.solve(method).nodes.items():
                    if name not in network.arrivals:
                        simulated = run.mean_response_times[name]
                        collected.append(abs(node.mean_response_time / simulated.value - 1))
                        if method == "isolated":
                            widths.append(simulated.half_width / simulated.value)
        cells = [f"{median(e):.1%}, {mean(e):.1%}, {max(e):.1%}" for e in errors.values()]
        lines.append(f"| {given.networks}, {shape} | {len(widths)} | {cells[0]} | {cells[1]} | ± {median(widths):.1%} |")
        print(lines[-1], flush=True)
    if given.output:
        given.output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
