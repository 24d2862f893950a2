"""Writes the pages that commands make."""

from pathlib import Path

from penstock.errors import SinkError


def write_page(path: Path, html: str) -> None:
    """Write a page to a file.

    Raises:
        SinkError: the file cannot be written; names it.
    """
    try:
        path.write_text(html, "utf-8")
    except OSError as error:
        raise SinkError(f"The page cannot be written to {path} ({error.strerror}): name another file.") from error
