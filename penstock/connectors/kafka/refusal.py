"""Why brokers do not take us, as a sentence that says how to mend it."""

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
"""For what no patience helps, how to mend it. That a user may not read as a group is none of that: no consumer here is in
one.
"""

HANDSHAKE = ("SSL alert", "PLAINTEXT broker listener")
"""What librdkafka says where a broker breaks off, which may also do so for no reason of ours."""


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
"""What brokers answer while they divide their work anew: another of them is to be asked, or the same one later."""

AGAIN_AFTER_S = 0.1

FAILED = (KafkaException, SystemError)
"""What a client raises; the second where a callback of ours was running when it failed."""


def patiently(ask: Callable[[], Answer], patience_s: float) -> Answer:
    """Ask brokers, and once more for as long as they say that another of them is to be asked, or the same one later.

    Raises
    ------
    KafkaException: they refuse, or still say so when the patience is at its end.
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
    """What a client has failed of, given one of `FAILED`."""
    return error if isinstance(error, KafkaException) else error.__cause__ or error


def needing(*rights: str) -> str:
    """How to mend that a user may not do something with a topic, in the words of Kafka's access control."""
    return f"have its owner allow the user to {' and '.join(rights)} it"


class Refusals:
    """What brokers have told the clients of a topic besides the answers to questions."""

    def __init__(self, place: KafkaPlace) -> None:
        self._place = place
        self._noted: list[KafkaError] = []

    def note(self, error: KafkaError) -> None:
        """librdkafka's ``error_cb``."""
        if mend_of(error) is not None:
            self._noted.append(error)

    def __bool__(self) -> bool:
        return bool(self._noted)

    def clear(self) -> None:
        """Forget the errors noted so far, before the next request to the brokers."""
        self._noted.clear()

    def said(self, error: KafkaException) -> SourceError:
        """The error for a question that was not answered."""
        cause = self._noted[-1] if self._noted else error.args[0]
        if not isinstance(cause, KafkaError):
            return SourceError(f"{self._place} cannot be reached ({error}); check the settings.")
        mend, reason = mend_of(cause), cause.str()
        if cause.code() == KafkaError._INVALID_ARG:
            return SourceError(f"{self._place}: a setting of the URI does not fit ({reason}); mend it.")
        if mend is None:
            return SourceError(f"{self._place} cannot be reached ({reason}); check that a broker runs there, and the address.")
        if cause.code() == KafkaError._SSL:
            reason = _distrust(self._place.brokers, dict(self._place.options)) or reason
        return SourceError(f"{self._place} refuses us ({reason}); {mend}.")


def mend_of(error: KafkaError) -> str | None:
    """How to mend what no patience helps; None where it might."""
    if error.code() == KafkaError._TRANSPORT and any(words in error.str() for words in HANDSHAKE):
        return TRUST
    return MENDS.get(error.code())


def _distrust(brokers: str, options: Mapping[str, str]) -> str:
    """What is wrong with a broker's certificate, of which librdkafka only says that something is; empty if nothing is found."""
    host, _, port = brokers.split(",")[0].rpartition(":")
    try:
        context = ssl.create_default_context(cafile=options.get("ssl.ca.location"))
        with socket.create_connection((host, int(port)), 3) as raw, context.wrap_socket(raw, server_hostname=host):
            return ""
    except ssl.SSLCertVerificationError as error:
        return error.verify_message
    except (OSError, ValueError):
        return ""
