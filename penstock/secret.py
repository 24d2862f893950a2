"""Secrets given by reference, as ``env:NAME`` or ``file:PATH``, and read only when they are used."""

import os
from collections.abc import Mapping
from pathlib import Path

from penstock.errors import ConfigurationError
from penstock.masked import is_secret, is_secret_setting

ENVIRONMENT, FILE = "env:", "file:"


def value_of(name: str, given: str) -> str:
    """Return the secret that a setting refers to as ``env:`` or ``file:``, or the text itself where it is no reference.

    Raises:
        ConfigurationError: the environment variable is not set, or the file cannot be read.
    """
    if given.startswith(ENVIRONMENT):
        variable = given.removeprefix(ENVIRONMENT)
        if variable not in os.environ:
            raise ConfigurationError(f"{name}={given}: there is no variable {variable} in the environment; set it.")
        return os.environ[variable]
    return text_of(name, given.removeprefix(FILE)).strip() if given.startswith(FILE) else given


def text_of(name: str, path: str) -> str:
    """Return the content of the file that a setting names.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    try:
        return Path(path).expanduser().read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason: object = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigurationError(f"{name}: {path} cannot be read ({reason}); name a file that can.") from error


def conf_of(settings: Mapping[str, str]) -> dict[str, str]:
    """Return Spark settings with the secrets that they refer to. ``file:`` refers to a secret only where the setting's name is
    that of a secret; elsewhere it is a plain URI.

    Raises:
        ConfigurationError: an environment variable is not set, or a file cannot be read.
    """
    return {
        name: value_of(f"--conf {name}", value)
        if value.startswith(ENVIRONMENT) or (value.startswith(FILE) and is_secret_setting(name))
        else value
        for name, value in settings.items()
    }


def parameter_of(name: str, text: str) -> str:
    """Return the text of an application parameter; where its name is that of a secret, resolve a reference in the text.

    Raises:
        ConfigurationError: the environment variable is not set, or the file cannot be read.
    """
    return value_of(f"--{name}", text) if is_secret(name) else text
