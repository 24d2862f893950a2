"""Every crash point of every workload: `scripts/crashpoints`."""

import argparse
import os
import random
import re
import shutil
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from crashpoints.campaign import Campaign, table
from crashpoints.crash_servers import running
from crashpoints.on_spark import campaign as on_spark
from crashpoints.points import HOWS
from crashpoints.random_graphs import workload_of
from crashpoints.runner import Start
from crashpoints.workloads import SERVERS, WORKLOADS, Workload


def _start(text: str) -> Start:
    found = re.fullmatch(rf"({'|'.join(HOWS)})@(\d+)(?:#(\d+))?", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no HOW@POINT or HOW@POINT#SEED, where HOW is one of {', '.join(HOWS)}")
    return Start(int(found[2]), found[1], int(found[3] or 0))


def _starts(text: str) -> tuple[Start, ...]:
    return tuple(map(_start, text.split(",")))


def _workload(name: str) -> Workload:
    if re.fullmatch(r"graph-\d+", name):
        return workload_of(int(name.partition("-")[2]))
    for workload in WORKLOADS:
        if workload.name == name:
            return workload
    raise argparse.ArgumentTypeError(f"{name!r} is no workload: there are {', '.join(known.name for known in WORKLOADS)}")


def main() -> int:
    """Returns 1 where something is wrong."""
    parser = argparse.ArgumentParser(prog="scripts/crashpoints", description=__doc__)
    names = [workload.name for workload in WORKLOADS]
    parser.add_argument(
        "--only", action="append", type=_workload, metavar="WORKLOAD", help=f"graph-SEED, or one of {', '.join(names)}"
    )
    parser.add_argument("--graphs", type=int, default=0, help="so many random graphs in random groups, instead of those")
    parser.add_argument("--how", action="append", choices=HOWS, help="what befalls at single points; all of them unless given")
    parser.add_argument("--share", type=float, default=1.0, help="of the single points, by chance")
    parser.add_argument("--pairs", type=int, default=3000, help="how many pairs of points, by chance")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--without-servers", action="store_true", help="only workloads that need no server")
    parser.add_argument("--on-spark", action="store_true", help="on Spark, at the steps of commits, each some 30 s")
    parser.add_argument("--at", type=_starts, help="one try: HOW@POINT[#SEED][,HOW@POINT[#SEED]]")
    given = parser.parse_args()
    seeds = random.Random(given.seed).sample(range(10**6), given.graphs)
    wanted = given.only or [*map(workload_of, seeds)] or WORKLOADS
    wanted = [workload for workload in wanted if given.on_spark or not workload.by_spark]
    if given.without_servers:
        wanted = [workload for workload in wanted if not workload.server]
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    base = Path(tempfile.mkdtemp(prefix="crashpoints-", dir=memory))
    print(f"Seed {given.seed}, in {base}", flush=True)
    with ExitStack() as stack:
        for kind in {workload.server for workload in wanted} - {""}:
            SERVERS[kind] = stack.enter_context(running(kind, base / kind))
            os.environ.update({name: value for name, value in SERVERS[kind].items() if name != "at"})
        return _try(given, wanted, base)


def _try(given: argparse.Namespace, wanted: list[Workload], base: Path) -> int:
    if given.on_spark:
        print("| workload | steps | wrong |\n| --- | ---: | ---: |", flush=True)
        return 1 if on_spark(wanted, lambda text: print(text, flush=True)) else 0
    campaign = Campaign(wanted, base, given.jobs, given.seed, lambda text: print(f"\n{text}", flush=True))
    if given.at:
        campaign.again([(workload.name, given.at) for workload in wanted])
        fine = "The point has not come: there are fewer." if campaign.missed else "All as it must be."
        print("\n".join(verdict.wrong for verdict in campaign.wrong) or fine)
    else:
        campaign.run(given.how or HOWS, given.share, given.pairs)
        print(f"\n{table(campaign)}\n\nNot counted, for a point has not come: {campaign.missed}")
    if not campaign.wrong:
        shutil.rmtree(base)
    return 1 if campaign.wrong or (given.at and campaign.missed) else 0


if __name__ == "__main__":
    sys.exit(main())
