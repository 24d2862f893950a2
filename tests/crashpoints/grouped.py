"""Runs `apps_failing.py` with the stand-in for Spark, once for each grouping on standard input, and prints the reports.

The last argument may say what befalls the files of a group's first micro-batch for other groups: ``lose`` removes them,
``double`` copies them, ``swap`` has in each the first row in the place of one that another event has caused.
"""

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
from crashpoints.standin import Session, stand_in

from penstock.app.loader import load_app
from penstock.connectors.files.sink import DirectorySink
from penstock.engine import RunOptions, run
from penstock.runtime.output import ROOT, StagedFile

APPS = Path(__file__).parent.parent / "engine" / "apps_failing.py"


def spoil(how: str) -> None:
    """Let files between groups be lost, come twice, or have a row twice instead of another."""
    deliver = DirectorySink.deliver

    def faulty(sink: DirectorySink, group: str, batch: int, files: Sequence[StagedFile]) -> None:
        before = set(Path(sink.files.directory).glob("*.parquet"))
        deliver(sink, group, batch, files)
        if sink.files.role == "hop" and batch == 0:
            for file in set(Path(sink.files.directory).glob("*.parquet")) - before:
                if how == "double":
                    shutil.copy(file, file.with_name(f"twice-{file.name}"))
                elif how == "swap":
                    rows = pq.read_table(file)
                    roots = rows[ROOT].to_pylist()
                    other = next((row for row, root in enumerate(roots) if root != roots[0]), 0)
                    pq.write_table(rows.take([0 if row == other else row for row in range(len(rows))]), file)
                else:
                    file.unlink()

    DirectorySink.deliver = faulty  # type: ignore[method-assign]


def main() -> None:
    place, files = Path(sys.argv[1]), sys.argv[2]
    stand_in()
    if len(sys.argv) > 3:
        spoil(sys.argv[3])
    for number, groups in enumerate(json.load(sys.stdin)):
        app, reference = load_app(f"{APPS}:failing")
        options = RunOptions(
            name=f"run-{number}",
            runs=place,
            quiet=True,
            spark=Session(),
            groups=groups,
            sources={"Numbers": files},
            until_idle=True,
            partitions=2,
        )
        print(json.dumps(run(app, options, application=reference).report))


if __name__ == "__main__":
    main()
