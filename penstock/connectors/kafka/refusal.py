"""Turns errors of Kafka's client into error messages that state the cause and the remedy, and retries what may pass."""

import socket
import ssl
import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from penstock.connectors.kafka.place import KafkaPlace
from penstock.errors import SourceError
from penstock.extras import needs

with needs():
    from confluent_kafka import KafkaError, KafkaException

Answer = TypeVar("Answer")

ALLOW = "have its owner allow the user to describe the topic, and to read or write it"
DENIED = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
LOGIN = "check kafka.sasl.mechanism, the user, and what names the secret"
TRUST = "check kafka.security.protocol, kafka.ssl.ca.location, and the dates and names of certificates"

MENDS = {
    KafkaError._AUTHENTICATION: LOGIN,
    KafkaError._SSL: TRUST,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: ALLOW,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: ALLOW,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "have its owner allow the user transactions of names that begin with "
    "penstock/",
}
"""Remedies for errors that retries cannot solve. The denial of a group is not among them, as no consumer here joins a group."""

HANDSHAKE = ("SSL alert", "PLAINTEXT broker listener")
"""Texts of librdkafka's transport errors that show that the TLS handshake failed; other transport errors may pass."""


AGAIN = frozenset(
    (
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError._WAIT_COORD,
        KafkaError._WAIT_CACHE,
    )
)
"""Errors that brokers return while they elect leaders or coordinators; a retry will succeed."""

AGAIN_AFTER_S = 0.1

FAILED = (KafkaException, SystemError)
"""Exceptions that a client raises; SystemError if one of our callbacks was running when it failed."""


def patiently(ask: Callable[[], Answer], patience_s: float) -> Answer:
    """Call ``ask`` until it succeeds, and return its result; retry only after an error in `AGAIN`, and until ``patience_s``.

    Raises:
        KafkaException: the brokers refuse, or still return such an error at the end.
    """
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in AGAIN or time.monotonic() > deadline:
                raise
        time.sleep(AGAIN_AFTER_S)


def cause_of(error: Exception) -> BaseException:
    """Return the cause of one of the exceptions `FAILED`."""
    return error if isinstance(error, KafkaException) else error.__cause__ or error


def needing(*rights: str) -> str:
    """Return the remedy for missing rights on a topic, named as in Kafka's access control."""
    return f"have its owner allow the user to {' and '.join(rights)} it"


class BrokerErrors:
    """Collects the errors that a topic's clients report by callback, which explain why requests to the brokers fail."""

    def __init__(self, place: KafkaPlace) -> None:
        self._place = place
        self._noted: list[KafkaError] = []

    def note(self, error: KafkaError) -> None:
        """Note an error if there is a remedy; passed to librdkafka as ``error_cb``."""
        if mend_of(error) is not None:
            self._noted.append(error)

    def __bool__(self) -> bool:
        return bool(self._noted)

    def clear(self) -> None:
        """Forget the errors noted so far, before the next request to the brokers."""
        self._noted.clear()

    def said(self, error: KafkaException) -> SourceError:
        """Return the error to raise for a failed request; it prefers the newest error that was noted."""
        cause = self._noted[-1] if self._noted else error.args[0]
        if not isinstance(cause, KafkaError):
            return SourceError(f"{self._place} cannot be reached ({error}); check the settings.")
        mend, reason = mend_of(cause), cause.str()
        if cause.code() == KafkaError._INVALID_ARG:
            return SourceError(f"{self._place}: a setting of the URI does not fit ({reason}); mend it.")
        if cause.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return SourceError(f"{self._place}: there is no such topic, or not any more; create it, or correct its name.")
        if mend is None:
            return SourceError(f"{self._place} cannot be reached ({reason}); check that a broker runs there, and the address.")
        if cause.code() == KafkaError._SSL:
            reason = _distrust(self._place.brokers, dict(self._place.options)) or reason
        return SourceError(f"{self._place} refuses us ({reason}); {mend}.")


def mend_of(error: KafkaError) -> str | None:
    """Return the remedy for an error that retries cannot solve; None if they might."""
    if error.code() == KafkaError._TRANSPORT and any(words in error.str() for words in HANDSHAKE):
        return TRUST
    return MENDS.get(error.code())


def _distrust(brokers: str, options: Mapping[str, str]) -> str:
    """Return why a broker's certificate is not trusted, which librdkafka does not say; empty if no reason is found."""
    host, _, port = brokers.split(",")[0].rpartition(":")
    try:
        context = ssl.create_default_context(cafile=options.get("ssl.ca.location"))
        with socket.create_connection((host, int(port)), 3) as raw, context.wrap_socket(raw, server_hostname=host):
            return ""
    except ssl.SSLCertVerificationError as error:
        return error.verify_message
    except (OSError, ValueError):
        return ""
