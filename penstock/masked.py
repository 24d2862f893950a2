"""Masking of secrets in addresses, settings and sentences, so that these may be shown and logged."""

import re
from collections.abc import Mapping

SECRETS = (
    r"(?i)^kafka\.|secret|passw|pwd|passphrase|token|credential|(api|access|account|shared|signing)[._-]?key|private|keystore"
    r"|jaas|user[._]info|signature|encryption[._-]?key|(^|[._-])sas([._-]|$)|(^|[._-])(pass|sig|auth|authorization)$"
)
"""Names of settings whose values are secret, as a regular expression that Spark can use, too. All of Kafka's own settings count
as secret, since any of them may be.
"""

PARAMETERS = (
    r"(?i)(^|[._-])(secret|pwd|pass|token|credentials?|sas|signature)$|passw(or)?d|passphrase"
    r"|(api|access|account|secret|private)[._-]?key$"
)
"""Names of application parameters whose values are secret. Narrower than `SECRETS`: a parameter may count a text's tokens."""

OPTIONS = r"\?(?=[\w.-]+=)"
"""Where the options of an address begin, as a regular expression; another question mark is part of a path or a password."""
IN_SENTENCES = re.compile(rf"(\b\w[\w.+-]*://[^\s/:@?]*):(?:(?!{OPTIONS})\S)*@(?=[\w.\[/-])")
"""A user and a password before the host of an address within a sentence."""
PROPERTY = re.compile(r"(?i)(-D[\w.-]*(?:passw|secret|token|credential)[\w.-]*=)[^\s&]+")
"""A secret property of a Java process, within its options."""
SETTING = re.compile(r"(?<=[?&])([\w.%-]+)=([^&\s]+)|\b((?:spark|kafka|registry|storage|catalog)\.[\w.-]+)=(\S+)")
"""A setting within a sentence: an option of an address, or a setting whose name begins as those of a known component."""


def masked(uri: str) -> str:
    """Return an address or a setting with its password and secret options masked, whatever characters these hold.

    Values that only name the place of a secret (``env:NAME``, ``file:PATH``) stay.

    >>> masked("postgresql://me:se@c/ret@host/db?table=t&sslpassword=x")
    'postgresql://me:***@host/db?table=t&sslpassword=***'
    """
    begin = re.search(OPTIONS, uri)
    place, mark, options = (uri, "", "") if begin is None else (uri[: begin.start()], "?", uri[begin.end() :])
    place = re.sub(r"^((?:\w[\w.+-]*:)?//[^:/@]*):.*@", r"\1:***@", place, flags=re.DOTALL)
    place = re.sub(r"^(\w[\w.+-]*:[^:/@]+):(?!//)[^/]*@", r"\1:***@", place)
    pairs = (option.partition("=") for option in options.split("&"))
    texts = (name + equals + ("***" if _hides(SECRETS, name, value) else _discreet(value)) for name, equals, value in pairs)
    return PROPERTY.sub(r"\1***", place) + mark + "&".join(texts)


def _discreet(value: str) -> str:
    """Return a value that is no secret as a whole without the passwords in it."""
    return PROPERTY.sub(r"\1***", IN_SENTENCES.sub(r"\1:***@", value))


def discreet(sentence: str) -> str:
    """Return a sentence with the secrets of its addresses and settings masked; a user's own words stay.

    >>> discreet("http://me:hush@host/x does not answer, at 12:30@home; token=red")
    'http://me:***@host/x does not answer, at 12:30@home; token=red'
    """

    def hide(setting: re.Match[str]) -> str:
        name, value = setting[1] or setting[3], setting[2] or setting[4]
        return f"{name}=***" if _hides(SECRETS, name, value) else setting[0]

    return SETTING.sub(hide, _discreet(sentence))


def shown(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings by name, with secret values masked."""
    return {name: "***" if _hides(SECRETS, name, value) else masked(value) for name, value in settings.items()}


def is_secret(parameter: str) -> bool:
    """Whether the value of an application parameter is secret, by the parameter's name."""
    return bool(re.search(PARAMETERS, parameter))


def is_secret_setting(name: str) -> bool:
    """Whether a setting's value is secret, by its name; not where the name says that the value is a path (of a keystore)."""
    return bool(re.search(SECRETS, name)) and not re.search(r"(?i)(store|location|path|file|dir)$", name)


def _hides(names: str, name: str, value: str) -> bool:
    return bool(re.search(names, name)) and not value.startswith(("env:", "file:"))
