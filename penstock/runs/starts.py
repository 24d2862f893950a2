"""The starts of a run: ``starts.jsonl``, with one line for each start, and for each change of settings during a start."""

from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import msgspec

from penstock.runs.files import STARTS
from penstock.storage import journal


class Environment(msgspec.Struct, frozen=True):
    """The environment of a start: versions, the system, and the cores of the driver's machine."""

    penstock: str
    pyspark: str
    python: str
    system: str
    cores: int | None


class Loaded(msgspec.Struct, frozen=True):
    """The application: its file (None where a start from Python does not know it), the variable in it, and its parameters,
    without secrets.
    """

    file: str | None
    name: str
    parameters: dict[str, str]


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """A start, or a change during one. Options are those of `penstock.engine.RunOptions`, without secrets; times in seconds.

    Args:
        resumed: whether the run had been started before.
        changed: whether this is a change of settings during a start.
    """

    time: float
    environment: Environment
    application: Loaded
    master: str
    trigger: float
    resumed: bool
    changed: bool = False
    sources: dict[str, str] = {}
    sinks: dict[str, str] = {}
    groups: dict[str, str] = {}
    conf: dict[str, str] = {}
    hops: str | None = None
    archives: list[str] = []
    partitions: int | None = None
    name: str | None = None
    runs: str | None = None
    duration: float | None = None
    until_idle: bool | Literal["pause"] = False
    fresh: bool = False
    take_over: bool = False
    report: str | None = None
    checkpoint_every: float | None = None
    retain: int | None = None
    quiet: bool = False
    log_level: str = "info"
    spark: str | None = None


def note_start(run: Path, start: Start) -> None:
    """Append a start. Options that a Python caller gave in other types, such as NumPy's numbers, become plain values."""
    plain = msgspec.to_builtins(start, enc_hook=_plain)
    journal.add(run / STARTS, msgspec.json.encode(msgspec.convert(plain, Start, strict=False)))


def last_start(run: Path) -> Start | None:
    """Return the last start, or change; None if there is none, or its line cannot be parsed."""
    for line in deque(journal.lines_of(run / STARTS), maxlen=1):
        with suppress(msgspec.DecodeError):
            return msgspec.json.decode(line, type=Start)
    return None


def _plain(value: Any) -> Any:
    """Turn a NumPy number into a Python number, and anything else (such as a path) into a text."""
    return value.item() if hasattr(value, "item") else str(value)
