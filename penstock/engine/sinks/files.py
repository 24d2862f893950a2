"""Directories of files, and what is shown of them besides."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq

from penstock.engine.sinks.base import other_run
from penstock.errors import SinkError
from penstock.runtime.staging import STAGING, SinkFiles
from penstock.runtime.tally import StagedFile

OWNER = ".penstock"

MEMORY: dict[str, list[Any]] = {}
"""Events that have left at ``memory:`` sinks of runs in this process, by the URI's name."""


class Directory:
    """A directory, into which a batch's files are moved; they are named by group and batch.

    Parameters
    ----------
    event_type: dict, where events are of no type (dead letters).
    """

    def __init__(self, files: SinkFiles, event_type: type = dict) -> None:
        self.files, self.uri = files, f"{files.kind}:{files.directory}"
        self._event_type = event_type

    def claim(self, run: str, previous: str | None) -> None:
        """See `BoundSink`."""
        files = self.files
        directory = Path(files.directory)
        try:
            owner = directory / OWNER
            held = json.loads(owner.read_text())["run"] if owner.exists() else None
            committed = (
                [path for path in directory.glob("*.*") if path.name[0] not in "._"] if directory.is_dir() else []
            )
            ours = held is not None and held in (run, previous)
            if not ours and (held is not None or committed):
                raise SinkError(other_run(files, directory, f"{files.kind}:PATH"))
            if ours and held == previous:
                for path in committed:
                    path.unlink()
            (directory / STAGING).mkdir(parents=True, exist_ok=True)
            draft = directory / f"{OWNER}.draft"
            draft.write_text(json.dumps({"run": run}))
            draft.replace(owner)
        except SinkError:
            raise
        except OSError as error:
            raise SinkError(
                f"Sink {files.name}: {directory} cannot be written ({error.strerror}); choose another directory."
            ) from error

    def deliver(self, group: str, batch: int, files: Sequence[StagedFile]) -> None:
        """See `BoundSink`."""
        for file in files:
            staged = Path(file.staged)
            if staged.exists():
                final = Path(self.files.directory) / f"{batch:08d}-{group}-{file.final}"
                os.replace(staged, final)
                self._show(final)

    def read(self) -> list[Any]:
        """See `BoundSink`."""
        events: list[Any] = []
        for path in sorted(Path(self.files.directory).glob(f"*.{self.files.kind}")):
            if self.files.kind == "parquet":
                rows = pq.read_table(path).to_pylist(maps_as_pydicts="strict")
                events.extend(msgspec.convert(row, self._event_type, strict=False) for row in rows)
            else:
                events.extend(
                    msgspec.json.decode(line, type=self._event_type) for line in path.read_bytes().splitlines()
                )
        return events

    def _show(self, final: Path) -> None:
        """Nothing but the file."""


class Console(Directory):
    """Prints committed events, besides keeping them."""

    def _show(self, final: Path) -> None:
        for line in final.read_bytes().splitlines():
            print(f"{self.files.name}: {line.decode()}", flush=True)


class Memory(Directory):
    """Keeps committed events in `MEMORY` as well."""

    def __init__(self, files: SinkFiles, event_type: type, place: str) -> None:
        super().__init__(files, event_type)
        self._place = place or files.name

    def _show(self, final: Path) -> None:
        kept = MEMORY.setdefault(self._place, [])
        kept.extend(msgspec.json.decode(line, type=self._event_type) for line in final.read_bytes().splitlines())
