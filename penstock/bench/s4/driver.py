"""The driver: one Spark session that runs the application repeatedly, so that executors need not restart.

    python -m penstock.bench.s4.driver MASTER DIRECTORY [KEY=VALUE ...]

Orders come as JSON lines through DIRECTORY/orders, a named pipe. SIGINT ends the present run; its totals and counts are
then in its directory, in over.json.
"""

import json
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec

ORDERS, OVER = "orders", "over.json"


class Order(msgspec.Struct):
    """An order to run the application with a number of keys.

    Args:
        name: name of the run.
        source: source of RawWords.
        partitions: number of partitions of keyed hops.
    """

    name: str
    keys: int
    source: str
    partitions: int


def main() -> None:
    """Run the orders from the pipe until one is an empty line."""
    from penstock.bench.s4.workload import APP
    from penstock.connectors.kafka.place import JARS
    from penstock.engine.session.maven import jars_of
    from penstock.engine.session.spark import start_session

    master, directory, *settings = sys.argv[1:]
    place = Path(directory)
    conf = dict(setting.split("=", 1) for setting in settings)
    jars = jars_of([JARS])
    with (place / "spark.log").open("ab") as log:
        spark = start_session("s4", master, log, conf, jars=jars)
        while True:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # ignore an interrupt that comes after the end of a run
            with (place / ORDERS).open() as pipe:
                line = pipe.readline()
            if not line.strip():
                break
            _obey(msgspec.json.decode(line, type=Order), spark, place, APP)
        spark.stop()


def _obey(order: Order, spark: Any, place: Path, app: Path) -> None:
    from penstock.app.loader import load_app
    from penstock.engine.running.execution import run
    from penstock.engine.running.options import RunOptions

    application, reference = load_app(app, {"keys": str(order.keys)})
    options = RunOptions(
        name=order.name,
        runs=place / "runs",
        sources={"RawWords": order.source},
        partitions=order.partitions,
        spark=spark,
        quiet=True,
    )
    over: dict[str, Any] = {}
    try:
        result = run(application, options, application=reference)
        totals: dict[str, int] = {}
        for total in result.output("Output"):
            totals[total.by] = max(totals.get(total.by, 0), total.count)
        over = {"totals": totals, "counts": result.report["counts"]}
    except Exception as error:
        over = {"error": f"{type(error).__name__}: {error}"}
    draft = place / "runs" / order.name / "over.draft"
    draft.parent.mkdir(parents=True, exist_ok=True)
    draft.write_text(json.dumps(over))
    draft.rename(draft.with_name(OVER))


if __name__ == "__main__":
    main()
