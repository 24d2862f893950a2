"""Says in plain words what a run of the divisibility example has found.

python explain.py REPORT.json
"""

import json
import sys
from pathlib import Path

report = json.loads(Path(sys.argv[1]).read_text())
streams, counts = report["streams"], report["counts"]
copies = streams["ThreeCandidates"] // max(1, streams["RawWords"] - streams["RawWords"] // 100)
print(f"""
Of {streams["RawWords"]:,} words, each checked under {copies} keys, {streams["Three"]:,} candidates were divisible by three
(Three = {streams["Three"]:,}) and {streams["Eleven"]:,} by eleven;
{counts["lost"]} events were lost and {counts["duplicated"]} counted twice.

Try next:
  make run KEYS=8 NAME=eight                       the same with eight keys, as a run of its own
  .venv/bin/penstock graph examples/divisibility/app.py -o topology.svg
  .venv/bin/penstock new hello                     a small project of your own
  docs/tutorial.md                                 ten minutes, from nothing to a tested stream""")
