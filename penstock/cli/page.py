"""Writes the pages that commands make."""

from pathlib import Path

from penstock.errors import ConfigurationError, SinkError


def write_page(path: Path, html: str) -> None:
    """Write a page to a file.

    Raises:
        SinkError: the file cannot be written; names it.
        ConfigurationError: it holds something other than a page.
    """
    try:
        held = path.read_bytes()[:15].lower() if path.exists() else b""
        if held and held != b"<!doctype html>":
            raise ConfigurationError(f"{path} is there, and no page: name another file.")
        path.write_text(html, "utf-8")
    except OSError as error:
        raise SinkError(f"The page cannot be written to {path} ({error.strerror}): name another file.") from error
