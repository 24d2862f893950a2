"""Faults planted on live runs: does the page of `penstock ui` name the right cause first?

    python benchmarks/causes.py [--directory build/causes] [--only NAME,NAME]

Each fault is planted in a run of its own, `penstock run` as anybody starts it, and one `penstock ui` looks at all of them. The
page is asked every five seconds what is wrong, until the run is over; what it says at the end is the answer, and how soon after
the fifth micro-batch it first said so is kept besides. A run that has its answer is not run again. Needs PostgreSQL.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import psycopg
from servers.postgres import PostgresServer

from penstock.bench.servers.process import free_port

HERE = Path(__file__).parent
APP = HERE / "apps" / "planted.py"


class Fault(NamedTuple):
    """How a fault is planted.

    Args:
        right: causes that are right, as the page calls them.
        source: of the generator.
        options: of `penstock run`.
        seconds: how long the run is looked at.
    """

    right: tuple[str, ...]
    source: str = "generator:poisson?rate=500"
    options: tuple[str, ...] = ("--trigger", "2 s")
    seconds: float = 60.0


RISING = "generator:recorded?times={times}"
FAULTS = {
    "nothing": Fault(("healthy",)),
    "saturated element": Fault(("saturated",), "generator:poisson?rate=1500", ("--trigger", "2 s", "--rounds", "6500"), 120),
    "skewed key": Fault(
        ("skewed",), "generator:poisson?rate=1500", ("--trigger", "2 s", "--partitions", "4", "--rounds", "300")
    ),
    "batch longer than its trigger": Fault(("trigger too short",), options=("--trigger", "0.2 s")),
    "trigger too long": Fault(("trigger too long",), options=("--trigger", "8 s"), seconds=120),
    "waiting at the gate": Fault(("waiting at the gate",), "generator:poisson?rate=500&min_rows=100000&max_delay=8s", (), 120),
    "source throttled": Fault(("source throttled",), "generator:poisson?rate=1500&max_rows=1500"),
    "rate rising": Fault(("rate rising",), RISING, seconds=80),
    "slow sink": Fault(("slow sink",), options=("--trigger", "4 s", "--sink", "Out={postgres}?table=slow"), seconds=90),
    "garbage collection": Fault(
        ("garbage collection",),
        "generator:poisson?rate=2000",
        (
            "--trigger",
            "2 s",
            "--size",
            "8000",
            "--rounds",
            "1",
            "--conf",
            "spark.driver.memory=640m",
            "--conf",
            "spark.driver.extraJavaOptions=-XX:+UseSerialGC -Xmn4m",
        ),
    ),
    "state growing": Fault(("state growing",), "generator:poisson?rate=1500"),
    "late events": Fault(("late events",)),
    "dead letters": Fault(("dead letters",)),
    "silent": Fault(("silent",), seconds=140),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, default=HERE.parent / "build" / "causes")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    place = options.directory.absolute()
    place.mkdir(parents=True, exist_ok=True)
    wanted = options.only.split(",") if options.only else list(FAULTS)
    answers = place / "answers"
    answers.mkdir(exist_ok=True)
    left = [name for name in wanted if not (answers / f"{name}.json").exists()]
    if left:
        with served(place / "runs") as page:
            for name in left:
                print(f"{time.strftime('%T')} {name} ...", file=sys.stderr, flush=True)
                found = planted(name, place, page)
                (answers / f"{name}.json").write_text(json.dumps(found, indent=1))
    print("| planted | the page says first | right | after | its evidence |\n| --- | --- | --- | --- | --- |")
    for name in wanted:
        found = json.loads((answers / f"{name}.json").read_text())
        first = found["causes"][0]
        mark = "yes" if first["kind"] in FAULTS[name].right else "**no**"
        sure = "" if first["sure"] else " (not sure)"
        after = "–" if found["after_s"] is None else f"{found['after_s']:.0f} s"
        print(f"| {name} | {first['kind']}{sure} | {mark} | {after} | {first['evidence']} |")


@contextmanager
def served(runs: Path) -> Iterator[str]:
    """The page, in a process of its own; gives its address."""
    port = free_port()
    command = [sys.executable, "-m", "penstock", "ui", str(runs), "--port", str(port)]
    runs.mkdir(exist_ok=True)
    page = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        page.send_signal(signal.SIGINT)
        page.wait(20)


def planted(name: str, place: Path, page: str) -> dict[str, Any]:
    """One run with a fault: what the page says at the end, and how soon it first said what is right."""
    fault, run = FAULTS[name], name.replace(" ", "-")
    server = PostgresServer(place / f"postgres-{os.getpid()}") if name == "slow sink" else None
    if server is not None:
        server.__enter__()
        slow_down(server.uri)
    known = {"postgres": server.uri if server else "", "times": str(rising(place / "times"))}
    command = [
        sys.executable,
        "-m",
        "penstock",
        "run",
        str(APP),
        "--name",
        run,
        "--runs",
        str(place / "runs"),
        "--fresh",
        "--fault",
        name,
        "--master",
        "local[2]",
        "--source",
        f"Readings={fault.source.format(**known)}",
        *(option.format(**known) for option in fault.options),
    ]
    with (place / f"{run}.log").open("w") as log:
        running = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            return watched(fault, f"{page}/api/runs/{run}", running)
        finally:
            running.send_signal(signal.SIGINT)
            try:
                running.wait(30)
            except subprocess.TimeoutExpired:  # a body that sleeps
                os.killpg(running.pid, signal.SIGKILL)
            if server is not None:
                server.__exit__(None, None, None)


def watched(fault: Fault, address: str, running: "subprocess.Popen[bytes]") -> dict[str, Any]:
    """Ask the page again and again."""
    began: float | None = None
    after: float | None = None
    found: dict[str, Any] = {}
    deadline = time.monotonic() + 150
    while time.monotonic() < deadline:
        time.sleep(5)
        if running.poll() is not None:
            raise SystemExit(f"The run ended by itself ({running.returncode}); see its log.")
        answer = httpx.get(address, timeout=60)
        if answer.status_code != 200:
            continue
        found = answer.json()
        if began is None and found["batches"] >= 5:
            began = time.monotonic()
            deadline = began + fault.seconds
        if began is not None and after is None and found["causes"][0]["kind"] in fault.right:
            after = time.monotonic() - began
    return {"causes": found["causes"], "batches": found["batches"], "after_s": after, "why_not": found["why_not"]}


def rising(path: Path) -> Path:
    """Times of events whose rate rises from 300/s by 20/s each second."""
    with path.open("w") as file:
        at = 0.0
        while at < 240:
            at += 1 / (300 + 20 * at)
            file.write(f"{at:.4f}\n")
    return path


def slow_down(uri: str) -> None:
    """Have the database take 2.5 s for each statement that writes into the sink's table."""
    with psycopg.connect(uri, autocommit=True) as connection:
        connection.execute("CREATE TABLE slow (key bigint PRIMARY KEY, seen bigint)")
        connection.execute(
            "CREATE FUNCTION dawdle() RETURNS trigger AS $$ BEGIN PERFORM pg_sleep(2.5); RETURN NULL; END $$ LANGUAGE plpgsql"
        )
        connection.execute("CREATE TRIGGER slow BEFORE INSERT ON slow FOR EACH STATEMENT EXECUTE FUNCTION dawdle()")


if __name__ == "__main__":
    main()
