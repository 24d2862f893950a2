"""Writes the files of Iceberg tables on a local disk so that they survive a power failure.

Staged events are removed once the table's catalog refers to the files with their rows. So each file is synced before that.
"""

import os
from io import BufferedWriter, FileIO
from pathlib import Path
from typing import Any

from penstock.extras import needs
from penstock.storage import durable

with needs():
    from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO


class _Kept(BufferedWriter):
    """A file that is synced, together with its directory, when it is closed."""

    def close(self) -> None:
        if self.closed:
            return
        self.flush()
        os.fsync(self.fileno())
        super().close()
        durable.sync_path(Path(str(self.name)).parent)


class _DurableFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> Any:
        path = Path(self._path)
        durable.make(path.parent)
        return _Kept(FileIO(path, "wb" if overwrite else "xb"))


class DurableFileIO(PyArrowFileIO):
    """The library's own file access, except that files on a local disk are synced when they are closed."""

    def new_output(self, location: str) -> PyArrowFile:
        """Return a file that can be created at a location."""
        file = super().new_output(location)
        if self.parse_location(location, self.properties)[0] != "file":
            return file
        return _DurableFile(location=location, path=file._path, fs=file._filesystem, buffer_size=file._buffer_size)
