"""What may be shown and written down: sentences, addresses and settings without the secrets that they may hold."""

import re
from collections.abc import Mapping

SECRETS = r"(?i)secret|passw|pwd|passphrase|token|credential|(api|access|account|shared|signing)[._-]?key|private|keystore|jaas|user[._]info|\bsas\b"
"""Names of settings and parameters whose values are nobody's business, as a regular expression that Spark takes, too."""

USER = re.compile(r"((?:^|(?<=[\s'\"(=:]))(?:\w[\w.+-]*:)?(?://)?[^\s:/@'\"?]*):(?!//)[^\s'\"]*@(?=[\w.\[-])")
"""A user and a password before a host, whatever the password holds."""
SETTING = re.compile(r"(?<![\w.%-])([\w.-]+)=([^&\s'\",;]+)")


def masked(text: str) -> str:
    """A text without passwords before a host, and without the values of settings whose names say that they are secrets.

    Values that only say where a secret is (``env:NAME``, ``file:PATH``) stay.

    >>> masked("postgresql://me:se@cret@host/db?table=t&kafka.ssl.key.password=x")
    'postgresql://me:***@host/db?table=t&kafka.ssl.key.password=***'
    """

    def hide(setting: re.Match[str]) -> str:
        plain = setting[2].startswith(("env:", "file:")) or not re.search(SECRETS, setting[1])
        return setting[0] if plain else f"{setting[1]}=***"

    return SETTING.sub(hide, USER.sub(r"\1:***@", text))


def shown(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings, of those that are secrets the names alone."""
    return {name: "***" if is_secret(name, value) else masked(value) for name, value in settings.items()}


def is_secret(name: str, value: str = "") -> bool:
    """Whether a setting is one that nobody is to see."""
    return bool(re.search(SECRETS, name)) and not value.startswith(("env:", "file:"))
