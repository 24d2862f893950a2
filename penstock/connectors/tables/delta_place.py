"""The location of a Delta table, the settings of its object store, and the library's error messages in one line."""

import re

from penstock.connectors.declaration import Option
from penstock.connectors.uri import Uri
from penstock.errors import ConfigurationError
from penstock.storage.place import absolute

STORAGE = "storage."
"""The prefix of a URI's options that are settings of the object store."""

STORAGE_OPTION = Option("storage.NAME", "a setting of the store's, as `storage.AWS_ENDPOINT_URL`")

SECRET = re.compile("secret|token|password|account_key|access_key$|sas", re.IGNORECASE)
"""Matches the names of settings that hold secrets."""

MISREAD = re.compile(r"[\[\]^|\\\\\n]|%[0-9A-Fa-f]{2}")
"""Matches characters in a local path that the library would take for others."""

REASON = 500
"""The most characters of an error message of the library that are passed on."""

COLOURS = re.compile(r"\x1b\[\d+m↳?")
"""Terminal codes and a separator in the library's error messages."""


def place_of(uri: Uri) -> str:
    """Return a table's location: a URL, or an absolute path, which is valid in every process.

    Raises:
        ConfigurationError: it is a local path that the library would take for another.
    """
    place = uri.place.removeprefix("file://") if uri.place.startswith("file:///") else uri.place
    if "://" in place:
        return place
    path = str(absolute(place).resolve())
    if misread := MISREAD.search(path):
        raise ConfigurationError(
            f"{uri}: the library for Delta takes {misread[0]!r} in a path for something else; choose a place without it."
        )
    return path


def storage_of(what: str, uri: Uri) -> dict[str, str]:
    """Return a URI's settings of the object store; ``what`` names the source or the sink in error messages.

    Raises:
        ConfigurationError: a setting holds a secret.
    """
    storage = uri.named(STORAGE)
    secrets = [name for name in storage if SECRET.search(name)]
    if secrets:
        raise ConfigurationError(
            f"{what}: storage.{secrets[0]} holds a secret, which others could read here: set {secrets[0]} in the "
            "environment instead."
        )
    return storage


def reason_of(error: Exception) -> str:
    """Return the message of an error, or else its type, in one line of at most `REASON` characters."""
    return " ".join(COLOURS.sub("", str(error)).split())[:REASON] or type(error).__name__
