"""The same, read by a program that does not know of the log."""

import json
from pathlib import Path

from files import build  # noqa: F401


def read(spark, sink):
    return [json.loads(line) for file in Path(sink).glob("*.json") for line in file.read_text().splitlines()]
