"""Addresses as they may be shown: without the secrets that they may hold."""

import re


def masked(uri: str) -> str:
    """A URI without a password before a host, or in a setting of Kafka's."""
    return re.sub(r"(kafka\.[^=&]*)=[^&]*", r"\1=***", re.sub(r"(//[^:/@]*):[^@]*@", r"\1:***@", uri))
