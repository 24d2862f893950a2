"""Reading files of JSON lines in which each line is a record of one type."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from penstock.storage import journal

Record = TypeVar("Record")


def records_of(path: Path, kind: type[Record]) -> Iterator[Record]:
    """Yield all records, in order. A torn line is left out: nothing relied on it."""
    decode = msgspec.json.Decoder(kind).decode
    for line in journal.lines_of(path):
        with suppress(msgspec.DecodeError):
            yield decode(line)
