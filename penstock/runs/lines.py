"""Files of JSON lines, each a record of one type."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from penstock.storage import journal

Record = TypeVar("Record")


def records_of(path: Path, kind: type[Record]) -> Iterator[Record]:
    """All records, in order; a line that is torn, which nothing relied on, is left out."""
    decode = msgspec.json.Decoder(kind).decode
    for line in journal.lines_of(path):
        with suppress(msgspec.DecodeError):
            yield decode(line)
