"""Files of Iceberg tables on a local disk that stay when the power goes.

A table's catalog names its files, and staged events are removed once it does. So each file is on disk before it is named.
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
    """A file that is on disk, and so is its name, when it is closed."""

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
    """The library's own, but for what it writes to a local disk."""

    def new_output(self, location: str) -> PyArrowFile:
        """Where a file is written."""
        made = super().new_output(location)
        if self.parse_location(location, self.properties)[0] != "file":
            return made
        return _DurableFile(location=location, path=made._path, fs=made._filesystem, buffer_size=made._buffer_size)
