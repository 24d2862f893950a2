"""Security settings of Kafka's clients, named as in librdkafka, and translated for Java's client. Needs no client library.

A secret is given by reference, as ``env:NAME`` or ``file:PATH``, and read when a client is made. PEM files are read here and
passed on to Java's client as text, so that executors on other machines need no copy of them.
"""

import base64
import re
from collections.abc import Mapping

from penstock.errors import ConfigurationError
from penstock.secret import ENVIRONMENT, FILE, text_of, value_of

SECRETS = ("sasl.password", "ssl.key.password", "sasl.oauthbearer.client.secret")
"""Settings whose values must be references to secrets."""


MECHANISMS = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
"""The login module of Java's client for each SASL mechanism."""

INSTEAD = {
    "sasl.jaas": "kafka.sasl.username and kafka.sasl.password",
    "ssl.truststore": "kafka.ssl.ca.location, a PEM file",
    "ssl.keystore": "kafka.ssl.certificate.location and kafka.ssl.key.location, PEM files",
    "sasl.login.callback": "kafka.sasl.mechanism=OAUTHBEARER",
    "enable.ssl.certificate.verification": "kafka.ssl.ca.location, a PEM file",
}
"""For each prefix of settings that only one of the clients has, the settings to use instead."""

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
OAUTH = {"sasl.oauthbearer.client.id": "clientId", "sasl.oauthbearer.client.secret": "clientSecret"}
"""The settings that OAUTHBEARER needs besides the endpoint that issues tokens, and their names in Java's client."""
ENDPOINT = "sasl.oauthbearer.token.endpoint.url"

PBES2 = bytes.fromhex("2a864886f70d01050d")
"""The encoded object identifier of PBES2, an encryption of keys that Java 17 does not read."""


def check(options: Mapping[str, str]) -> None:
    """Check that settings work with both clients, and hold no secrets.

    Raises:
        ConfigurationError: states what is allowed.
    """
    for name, value in options.items():
        for beginning, instead in INSTEAD.items():
            if name.startswith(beginning):
                raise ConfigurationError(f"kafka.{name} does not work with both Kafka clients; write {instead}.")
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
    """Return settings for librdkafka, with references to secrets resolved.

    Raises:
        ConfigurationError: there is no such environment variable, or the file cannot be read.
    """
    settings = {name: value_of(f"kafka.{name}", value) for name, value in options.items()}
    return settings | ({"sasl.oauthbearer.method": "oidc"} if _mechanism(settings) == "OAUTHBEARER" else {})


def for_java(options: Mapping[str, str]) -> dict[str, str]:
    """Return settings for Java's client, with references to secrets resolved.

    Raises:
        ConfigurationError: as `opened`; or a file of certificates cannot be read, or one of two joint settings is missing.
    """
    settings = opened(options)
    java: dict[str, str] = {}
    mechanism = _mechanism(settings)
    if mechanism == "OAUTHBEARER":
        java |= _tokens(settings)
    elif mechanism:
        user, password = _both(settings, "sasl.username", "sasl.password")
        java["sasl.mechanism"] = mechanism
        java["sasl.jaas.config"] = f"{MECHANISMS[mechanism]} required username={_quoted(user)} password={_quoted(password)};"
    if location := settings.get("ssl.ca.location"):
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": text_of("kafka.ssl.ca.location", location)}
    if "ssl.certificate.location" in settings or "ssl.key.location" in settings:
        certificate, key = _both(settings, "ssl.certificate.location", "ssl.key.location")
        java["ssl.keystore.type"] = "PEM"
        java["ssl.keystore.certificate.chain"] = text_of("kafka.ssl.certificate.location", certificate)
        java["ssl.keystore.key"] = _key("ssl.key.location", key)
        if "BEGIN PRIVATE KEY" in java["ssl.keystore.key"]:
            settings.pop("ssl.key.password", None)  # the key is not encrypted
    if settings.get("ssl.endpoint.identification.algorithm") == "none":
        java["ssl.endpoint.identification.algorithm"] = ""
    # Settings of librdkafka that Java's client does not know; the lines above have translated them.
    translated = {
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
    return {name: value for name, value in settings.items() if name not in translated} | java


def _tokens(given: Mapping[str, str]) -> dict[str, str]:
    """Return settings for Java's client to log in with OAUTHBEARER: it gets tokens from an endpoint by the client's secret."""
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
    """Read a file with a private key, and refuse formats that Java's client cannot read."""
    text = text_of(f"kafka.{name}", path)
    kind = re.search("-----BEGIN (.*?)-----(.*?)-----END", text, re.DOTALL)
    mend = "write it anew with openssl pkcs8 -topk8"
    if kind is None or not kind[1].endswith("PRIVATE KEY"):
        raise ConfigurationError(f"kafka.{name}: {path} holds no private key in PEM; {mend}.")
    if kind[1] not in ("PRIVATE KEY", "ENCRYPTED PRIVATE KEY"):
        raise ConfigurationError(f"kafka.{name}: {path} is a {kind[1]}, but Java's client reads PKCS 8 alone; {mend}.")
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
