"""Where a topic is: what every use of Kafka shares. Needs no client library."""

import re
from dataclasses import dataclass

from penstock.connectors.declaration import Jars, Option, Release
from penstock.connectors.kafka import security
from penstock.connectors.uri import Uri
from penstock.errors import ConfigurationError
from penstock.kinds.event import Event, field_types

KAFKA = "kafka."
"""Options of a Kafka URI that begin so are Kafka's own, and handed on."""

HEADER = "header."
"""Options of a Kafka URI that begin so tie a header to a field of events."""

BORN_HEADER, ROOT_HEADER = "penstock-born", "penstock-root"
"""When the source event behind a message was meant to be sent, in microseconds, as text."""

OWN = Option(
    "kafka.NAME",
    "a setting of Kafka's own in librdkafka's words, as `kafka.security.protocol`; of secrets `env:NAME` or `file:PATH`",
)

REGISTRY = "registry."
"""Options of a Kafka URI that begin so are those of a schema registry's client, and handed on."""

OWN_OF_REGISTRY = (
    Option("registry", "the URL of a schema registry, by which values are Avro, Protobuf or JSON"),
    Option("subject", "what the topic's schemas are called there; `TOPIC-value` unless given"),
    Option(
        "registry.NAME",
        "a setting of Confluent's registry client, as `registry.basic.auth.user.info`; of secrets `env:NAME` or `file:PATH`",
    ),
)

SPARK, CONNECTOR, TOKENS = "org.apache.spark", "spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13"

JARS = Jars(
    SPARK,
    CONNECTOR,
    (
        Release("{spark}", ((SPARK, TOKENS, "{spark}"),)),
        Release("4.0.4", ((SPARK, TOKENS, "4.0.0"),), ("4.0",)),
        Release("4.1.3", ((SPARK, TOKENS, "4.1.1"),), ("4.1",)),
        Release("4.2.0", ((SPARK, TOKENS, "4.0.0"),), ("4.2", "4.3")),
    ),
    (
        (SPARK, f"(?!{CONNECTOR}|{TOKENS}).*"),
        *((group, ".*") for group in ("org.scala-lang", "org.scala-lang.modules", "org.apache.hadoop", "org.slf4j")),
        *(
            (group, ".*")
            for group in ("com.github.luben", "org.lz4", "at.yawk.lz4", "org.xerial.snappy", "com.google.code.findbugs")
        ),
    ),
    provides="org.apache.spark.sql.kafka010.KafkaSourceProvider",
)
"""Spark's connector. It is published some time after PySpark; until then the one before it serves, which the tests
run on, with the tokens that it needs (the connector of another minor version asks for classes that Spark does not have).
PySpark carries the rest of what it asks for.
"""


@dataclass(frozen=True)
class KafkaPlace:
    """A topic, and how to reach it.

    Parameters
    ----------
    brokers: as Kafka's ``bootstrap.servers``.
    options: Kafka's own client settings in librdkafka's words, such as ``security.protocol``; they hold no secrets.
    """

    brokers: str
    topic: str
    options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, uri: Uri) -> "KafkaPlace":
        """The topic of ``kafka:HOST:PORT,HOST:PORT/TOPIC``.

        Raises
        ------
        ConfigurationError: it is not of that form, or has settings that are not for both clients.
        """
        brokers, _, topic = uri.place.removeprefix("//").partition("/")
        if uri.scheme != "kafka" or not brokers or not re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", topic):
            raise ConfigurationError(f"{uri}: write kafka:HOST:PORT/TOPIC, with several brokers divided by commas.")
        options = uri.named(KAFKA)
        security.check(options)
        return cls(brokers, topic, tuple(options.items()))

    def __str__(self) -> str:
        return f"kafka:{self.brokers}/{self.topic}"

    def uri(self) -> Uri:
        """What `of` reads."""
        return Uri("kafka", f"{self.brokers}/{self.topic}", {f"{KAFKA}{name}": value for name, value in self.options})

    def for_connector(self) -> dict[str, str]:
        """What Spark's connector needs to reach the brokers; secrets among it.

        Raises
        ------
        ConfigurationError: what a setting names cannot be read.
        """
        settings = {"bootstrap.servers": self.brokers, **security.for_java(dict(self.options))}
        return {f"{KAFKA}{name}": value for name, value in settings.items()}


def header_fields(uri: Uri, event_type: type[Event]) -> dict[str, str]:
    """For each header that a URI names, the field of events that it holds.

    Raises
    ------
    ConfigurationError: there is no such field.
    """
    headers = uri.named(HEADER)
    for header, field in headers.items():
        check_field(uri, f"{HEADER}{header}", field, event_type)
    return headers


def check_field(uri: Uri, option: str, field: str, event_type: type[Event]) -> None:
    """See that what a URI's option names is a field.

    Raises
    ------
    ConfigurationError: it is none.
    """
    fields = field_types(event_type)
    if field not in fields:
        raise ConfigurationError(
            f"{uri.place}: {option}={field} is no field of {event_type.__name__}, which has {', '.join(fields)}."
        )


def has_registry(uri: Uri) -> bool:
    """Whether a topic's schemas are in a registry.

    Raises
    ------
    ConfigurationError: something is said of one, and not where it is.
    """
    if "registry" not in uri.options and (uri.named(REGISTRY) or {"subject", "schema"} & uri.options.keys()):
        raise ConfigurationError(f"{uri.place}: what is said of a schema registry needs its URL: write registry=URL.")
    return "registry" in uri.options


def subject_of(uri: Uri) -> str:
    """What the schemas of a topic's values are called in its registry."""
    return uri.options.get("subject") or f"{KafkaPlace.of(uri).topic}-value"
