"""Files that are there whole or not at all, and are on disk once the call returns."""

import os
from pathlib import Path


def write(path: Path, content: str | bytes) -> None:
    """Put a file in the place of the one that is there, if there is one."""
    draft = path.with_name(f".{path.name}.draft")
    with draft.open("wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
