"""How Kafka's clients prove who they are: settings in librdkafka's words, for it and for Java's client. Needs no client
library.

A secret is not written down but named, as ``env:NAME`` or ``file:PATH``, and read when a client is made. PEM files are read
here and handed on as text, so that executors elsewhere need no copy of them.
"""

import base64
import re
from collections.abc import Mapping

from penstock.errors import ConfigurationError
from penstock.secret import ENVIRONMENT, FILE, text_of, value_of

SECRETS = ("sasl.password", "ssl.key.password", "sasl.oauthbearer.client.secret")
"""Settings that are given by name only."""


MECHANISMS = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
"""Java's module for each way to log in."""

INSTEAD = {
    "sasl.jaas": "kafka.sasl.username and kafka.sasl.password",
    "ssl.truststore": "kafka.ssl.ca.location, a PEM file",
    "ssl.keystore": "kafka.ssl.certificate.location and kafka.ssl.key.location, PEM files",
    "sasl.login.callback": "kafka.sasl.mechanism=OAUTHBEARER",
    "enable.ssl.certificate.verification": "kafka.ssl.ca.location, a PEM file",
}
"""For settings that only one of the clients has, what both are told by."""

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
OAUTH = {"sasl.oauthbearer.client.id": "clientId", "sasl.oauthbearer.client.secret": "clientSecret"}
"""What a client needs besides the address of the endpoint that gives out tokens, and how Java calls it."""
ENDPOINT = "sasl.oauthbearer.token.endpoint.url"

PBES2 = bytes.fromhex("2a864886f70d01050d")
"""A way to encrypt keys that Java 17 does not read."""


def check(options: Mapping[str, str]) -> None:
    """See that settings can be given to both clients, and hold no secret.

    Raises
    ------
    ConfigurationError: says what is allowed.
    """
    for name, value in options.items():
        for beginning, instead in INSTEAD.items():
            if name.startswith(beginning):
                raise ConfigurationError(f"kafka.{name} is not for both clients; write {instead}.")
        if name in SECRETS and not value.startswith((ENVIRONMENT, FILE)):
            raise ConfigurationError(
                f"kafka.{name} holds a secret, which others could read here: write kafka.{name}=env:NAME or "
                f"kafka.{name}=file:PATH."
            )
    mechanism, is_sasl = _mechanism(options), options.get("security.protocol", "").upper().startswith("SASL")
    if (mechanism or is_sasl) and mechanism not in (*MECHANISMS, "OAUTHBEARER"):
        raise ConfigurationError(
            f"kafka.sasl.mechanism must be one of {', '.join(MECHANISMS)} or OAUTHBEARER, and is {mechanism or 'missing'}."
        )


def opened(options: Mapping[str, str]) -> dict[str, str]:
    """Settings with the values that ``env:`` and ``file:`` name, as librdkafka takes them.

    Raises
    ------
    ConfigurationError: there is no such variable, or the file cannot be read.
    """
    given = {name: value_of(f"kafka.{name}", value) for name, value in options.items()}
    return given | ({"sasl.oauthbearer.method": "oidc"} if _mechanism(given) == "OAUTHBEARER" else {})


def for_java(options: Mapping[str, str]) -> dict[str, str]:
    """Settings for security in the words of Java's client.

    Raises
    ------
    ConfigurationError: as `opened`; or a file of certificates cannot be read, or half of what belongs together is missing.
    """
    given = opened(options)
    made: dict[str, str] = {}
    mechanism = _mechanism(given)
    if mechanism == "OAUTHBEARER":
        made |= _tokens(given)
    elif mechanism:
        user, password = _both(given, "sasl.username", "sasl.password")
        made["sasl.mechanism"] = mechanism
        made["sasl.jaas.config"] = f"{MECHANISMS[mechanism]} required username={_quoted(user)} password={_quoted(password)};"
    if location := given.get("ssl.ca.location"):
        made |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": text_of("kafka.ssl.ca.location", location)}
    if "ssl.certificate.location" in given or "ssl.key.location" in given:
        certificate, key = _both(given, "ssl.certificate.location", "ssl.key.location")
        made["ssl.keystore.type"] = "PEM"
        made["ssl.keystore.certificate.chain"] = text_of("kafka.ssl.certificate.location", certificate)
        made["ssl.keystore.key"] = _key("ssl.key.location", key)
        if "BEGIN PRIVATE KEY" in made["ssl.keystore.key"]:
            given.pop("ssl.key.password", None)  # there is nothing that it opens
    if given.get("ssl.endpoint.identification.algorithm") == "none":
        made["ssl.endpoint.identification.algorithm"] = ""
    ours = {
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.scope",
        "https.ca.location",
        *OAUTH,
    }
    return {name: value for name, value in given.items() if name not in ours} | made


def _tokens(given: Mapping[str, str]) -> dict[str, str]:
    """What logs in by a token that is asked of an endpoint with a client's own secret."""
    missing = [name for name in (*OAUTH, ENDPOINT) if name not in given]
    if missing:
        raise ConfigurationError(f"kafka.sasl.mechanism=OAUTHBEARER needs {', '.join(f'kafka.{name}' for name in missing)}.")
    own = {java: given[name] for name, java in OAUTH.items()}
    if scope := given.get("sasl.oauthbearer.scope"):
        own["scope"] = scope
    if location := given.get("https.ca.location"):
        own |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": text_of("kafka.https.ca.location", location)}
    words = " ".join(f"{name}={_quoted(value)}" for name, value in own.items())
    return {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{MODULE} required {words};",
        "sasl.login.callback.handler.class": HANDLER,
    }


def _key(name: str, path: str) -> str:
    """A private key that Java reads, too."""
    text = text_of(f"kafka.{name}", path)
    kind = re.search("-----BEGIN (.*?)-----(.*?)-----END", text, re.DOTALL)
    mend = "write it anew with openssl pkcs8 -topk8"
    if kind is None or not kind[1].endswith("PRIVATE KEY"):
        raise ConfigurationError(f"kafka.{name}: {path} holds no private key in PEM; {mend}.")
    if kind[1] not in ("PRIVATE KEY", "ENCRYPTED PRIVATE KEY"):
        raise ConfigurationError(f"kafka.{name}: {path} is a {kind[1]}, and Java's client reads PKCS 8 alone; {mend}.")
    if kind[1].startswith("ENCRYPTED") and PBES2 in base64.b64decode(kind[2]):
        raise ConfigurationError(
            f"kafka.{name}: {path} is encrypted by PBES2, which Java's client may not read; {mend} -v1 PBE-SHA1-3DES."
        )
    return text


def _mechanism(options: Mapping[str, str]) -> str | None:
    return options.get("sasl.mechanism", options.get("sasl.mechanisms"))


def _both(given: Mapping[str, str], one: str, other: str) -> tuple[str, str]:
    missing = [name for name in (one, other) if name not in given]
    if missing:
        raise ConfigurationError(f"kafka.{one} and kafka.{other} go together; kafka.{missing[0]} is missing.")
    return given[one], given[other]


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
