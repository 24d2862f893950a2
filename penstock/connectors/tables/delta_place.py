"""Where a Delta table lies, what its store is told, and what the library says, in one line."""

import re
from pathlib import Path

from penstock.connectors.declaration import Option
from penstock.connectors.uri import Uri
from penstock.errors import ConfigurationError

STORAGE = "storage."
"""Options of a URI that begin so are the store's."""

STORAGE_OPTION = Option("storage.NAME", "a setting of the store's, as `storage.AWS_ENDPOINT_URL`")

SECRET = re.compile("secret|token|password|account_key|access_key$|sas", re.IGNORECASE)
"""Settings of stores that hold what others must not read."""

MISREAD = re.compile(r"[\[\]^|\\\\\n]|%[0-9A-Fa-f]{2}")
"""What the library reads otherwise in the name of a place on a disk."""

REASON = 500
"""Characters of what the library says that are passed on."""

COLOURS = re.compile(r"\x1b\[\d+m↳?")
"""Its way to set off one line from the next on a screen."""


def place_of(uri: Uri) -> str:
    """A table's place, which means the same in every process.

    Raises
    ------
    ConfigurationError: it is on a disk, and the library would take its name for another.
    """
    found = None if "://" in uri.place else MISREAD.search(str(Path(uri.place).expanduser().resolve()))
    if found:
        raise ConfigurationError(
            f"{uri}: the library for Delta takes {found[0]!r} in a path for something else; choose a place without it."
        )
    return uri.place if "://" in uri.place else str(Path(uri.place).expanduser().resolve())


def storage_of(what: str, uri: Uri) -> dict[str, str]:
    """What a URI tells the store; ``what`` names the source or the sink.

    Raises
    ------
    ConfigurationError: it would show a secret.
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
    """What the library says of a failure, in one line."""
    return " ".join(COLOURS.sub("", str(error)).split())[:REASON] or type(error).__name__
