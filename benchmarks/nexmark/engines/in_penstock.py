"""NEXMark's queries on Penstock, in one session, local[2].

    python in_penstock.py INPUT OUTPUT QUERY...

INPUT has a directory of JSON Lines for each source; a file is a micro-batch. What a query emits goes to OUTPUT/QUERY. Prints a
JSON object for each query: Spark's progress.
"""

import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent))
from oracle import HERE

from penstock.app.loader import load_app
from penstock.engine import RunOptions, run
from penstock.engine.session.checkpoint import DISK
from penstock.engine.session.spark import start_session


def main() -> None:
    given, out = Path(sys.argv[1]), Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    with (out / "spark.log").open("ab") as log:
        spark = start_session("nexmark", "local[2]", log, DISK)
        for query in sys.argv[3:]:
            app, reference = load_app(HERE / f"{query}.py")
            options = RunOptions(
                name=query,
                runs=out / "runs",
                spark=spark,
                sources={source.name: f"jsonl:{given / source.name}?max_files=1" for source in app.topology().sources},
                sinks={"Out": f"{'parquet' if query == 'q10' else 'jsonl'}:{out / query}"},
                until_idle=True,
                quiet=True,
            )
            done = run(app, options, application=reference)
            lines = (done.directory / "progress.jsonl").read_text().splitlines()
            print(json.dumps({"query": query, "progress": [json.loads(line) for line in lines]}), flush=True)
        spark.stop()


if __name__ == "__main__":
    main()
