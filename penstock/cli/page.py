"""Writes the pages that commands make."""

from pathlib import Path

from penstock.errors import ConfigurationError, SinkError
from penstock.storage import durable

BEGINNING = b"<!doctype html>"


def write_page(path: Path, html: str) -> None:
    """Write a page to a file.

    Raises:
        SinkError: the file cannot be written; names it.
        ConfigurationError: it holds something other than a page.
    """
    try:
        if path.is_file():
            with path.open("rb") as file:
                held = file.read(len(BEGINNING)).lower()
            if held and held != BEGINNING:
                raise ConfigurationError(f"{path} is there, and no page: name another file.")
        durable.write(path, html, 0o666)
    except OSError as error:
        raise SinkError(f"The page cannot be written to {path} ({error.strerror}): name another file.") from error
