"""What may be shown and written down: addresses, settings and sentences without the secrets that they may hold."""

import re
from collections.abc import Mapping

SECRETS = (
    r"(?i)^kafka\.|secret|passw|pwd|passphrase|token|credential|(api|access|account|shared|signing)[._-]?key|private|keystore"
    r"|jaas|user[._]info|signature"
)
"""Names of settings whose values are nobody's business, as a regular expression that Spark takes, too; of Kafka's own, all may
be.
"""

PARAMETERS = (
    r"(?i)(^|[._-])(secret|pwd|pass|token|credentials?|sas|signature)$|passw(or)?d|passphrase"
    r"|(api|access|account|secret|private)[._-]?key$"
)
"""Names of parameters of applications, which may speak of tokens and mean words of a text."""

IN_SENTENCES = re.compile(r"(\b\w[\w.+-]*://[^\s/:@?]*):[^\s?]*@(?=[\w.\[/-])")
"""A user and a password before a host, in an address within a sentence."""
SETTING = re.compile(r"(?<=[?&])([\w.%-]+)=([^&\s]+)|\b((?:spark|kafka|registry|storage|catalog)\.[\w.-]+)=(\S+)")
"""A setting within a sentence: of an address, or one whose name says whose it is."""


def masked(uri: str) -> str:
    """An address, or a setting, without its password and its secrets, whatever characters these hold.

    Values that only say where a secret is (``env:NAME``, ``file:PATH``) stay.

    >>> masked("postgresql://me:se@c/ret@host/db?table=t&sslpassword=x")
    'postgresql://me:***@host/db?table=t&sslpassword=***'
    """
    place, mark, options = uri.partition("?")
    place = re.sub(r"^((?:\w[\w.+-]*:)?//[^:/@]*):.*@", r"\1:***@", place, flags=re.DOTALL)
    place = re.sub(r"^(\w[\w.+-]*:[^:/@]+):(?!//)[^/]*@", r"\1:***@", place)
    told = (one.partition("=") for one in options.split("&"))
    return (
        place
        + mark
        + "&".join(name + equals + ("***" if _hides(SECRETS, name, value) else value) for name, equals, value in told)
    )


def discreet(sentence: str) -> str:
    """A sentence without the passwords and secrets of addresses and settings in it; what a user's own words say stays.

    >>> discreet("http://me:hush@host/x does not answer, at 12:30@home; token=red")
    'http://me:***@host/x does not answer, at 12:30@home; token=red'
    """

    def hide(setting: re.Match[str]) -> str:
        name, value = setting[1] or setting[3], setting[2] or setting[4]
        return f"{name}=***" if _hides(SECRETS, name, value) else setting[0]

    return SETTING.sub(hide, IN_SENTENCES.sub(r"\1:***@", sentence))


def shown(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings, of those that are secrets the names alone."""
    return {name: "***" if _hides(SECRETS, name, value) else masked(value) for name, value in settings.items()}


def is_secret(parameter: str) -> bool:
    """Whether a parameter of an application is one that nobody is to see."""
    return bool(re.search(PARAMETERS, parameter))


def is_secret_setting(name: str) -> bool:
    """Whether a setting's value is one that nobody is to see; a keystore's is the place of one."""
    return bool(re.search(SECRETS, name)) and not re.search(r"(?i)(store|location|path|file|dir)$", name)


def _hides(names: str, name: str, value: str) -> bool:
    return bool(re.search(names, name)) and not value.startswith(("env:", "file:"))
