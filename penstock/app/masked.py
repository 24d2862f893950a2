"""What may be shown and written down: addresses and settings without the secrets that they may hold."""

import re
from collections.abc import Mapping
from hashlib import sha256

SECRET = re.compile(
    r"(?i)secret|passw(or)?d|passphrase|token|credential|(api|access|private|account|shared|signing)[._-]?key|jaas|keystore|^key$|^pw$"
)
"""Names of settings and parameters whose values are nobody's business."""


def masked(uri: str) -> str:
    """A URI without a password before a host, in a setting of Kafka's, or in an option whose name says that it is a secret."""
    text = re.sub(r"(//[^:/@\s]*):\S*@", r"\1:***@", uri)

    def hide(option: re.Match[str]) -> str:
        hidden = option[1].startswith("kafka.") or SECRET.search(option[1])
        return f"{option[1]}=***" if hidden else option[0]

    return re.sub(r"(?<=[?&])([^=&\s]+)=[^&\s]*", hide, text)


def shown(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings, of those that are secrets the names alone."""
    return {name: "***" if SECRET.search(name) else value for name, value in settings.items()}


def told_apart(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings, of those that are secrets only what tells one value from another."""
    digest = {name: sha256(f"{name}={value}".encode()).hexdigest()[:16] for name, value in settings.items()}
    return {name: f"secret {digest[name]}" if SECRET.search(name) else value for name, value in settings.items()}
