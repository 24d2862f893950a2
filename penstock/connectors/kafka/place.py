"""The address of a Kafka topic, and the URI options that sources and sinks share. Needs no client library."""

import re
from dataclasses import dataclass, replace

from penstock.connectors.declaration import Jars, Option, Release
from penstock.connectors.kafka import security
from penstock.connectors.uri import Uri
from penstock.errors import ConfigurationError
from penstock.kinds.event import Event, field_types
from penstock.masked import masked

KAFKA = "kafka."
"""The prefix of a URI's options that are passed on to Kafka's clients."""

HEADER = "header."
"""The prefix of a URI's options that map a header to a field of events."""

BORN_HEADER, ROOT_HEADER = "penstock-born", "penstock-root"
"""The headers with the birth (microseconds since the epoch) and the root of a message's event (see `Lineage`), as texts."""

OWN = Option(
    "kafka.NAME",
    "a setting of Kafka's own in librdkafka's words, as `kafka.security.protocol`; of secrets `env:NAME` or `file:PATH`",
)

REGISTRY = "registry."
"""The prefix of a URI's options that are passed on to the client of a schema registry."""

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
"""The jars of Spark's Kafka connector. A connector is published some time after its PySpark; until then, the one before it is
used, which the tests run on, with the token provider that it needs (a connector of another minor version needs classes that
Spark does not have). PySpark has the other dependencies.
"""


@dataclass(frozen=True)
class KafkaPlace:
    """The address of a topic, and the settings of the clients that access it.

    Args:
        brokers: as in Kafka's ``bootstrap.servers``.
        options: Kafka's own client settings in librdkafka's words, such as ``security.protocol``; they hold no secrets.
    """

    brokers: str
    topic: str
    options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, uri: Uri) -> "KafkaPlace":
        """Parse a URI of the form ``kafka:HOST:PORT,HOST:PORT/TOPIC``.

        Raises:
            ConfigurationError: the URI has another form, or a setting that only one of the two clients (librdkafka and Java's)
                has.
        """
        brokers, _, topic = uri.place.removeprefix("//").partition("/")
        if uri.scheme != "kafka" or not brokers or not re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", topic):
            raise ConfigurationError(f"{uri}: write kafka:HOST:PORT/TOPIC, with commas between several brokers.")
        options = uri.named(KAFKA)
        security.check(options)
        return cls(brokers, topic, tuple(options.items()))

    @classmethod
    def of_hops(cls, text: str) -> "KafkaPlace":
        """Parse ``kafka:HOST:PORT``, the brokers that join groups; the topic is to be replaced.

        Raises:
            ConfigurationError: the text has another form, or an option that would be ignored.
        """
        uri = Uri.parse(text)
        unknown = [name for name in uri.options if not name.startswith(KAFKA)]
        if uri.scheme != "kafka" or not uri.place.strip("/") or "/" in uri.place.removeprefix("//") or unknown:
            raise ConfigurationError(
                f"--hops {masked(text)}: write kafka:HOST:PORT, with commas between several brokers, without a topic, and with "
                "no options but Kafka's, as ?kafka.NAME=VALUE."
            )
        return cls.of(replace(uri, place=f"{uri.place}/hop"))

    def __str__(self) -> str:
        return f"kafka:{self.brokers}/{self.topic}"

    def uri(self) -> Uri:
        """Return the URI from which `of` makes this place."""
        return Uri("kafka", f"{self.brokers}/{self.topic}", {f"{KAFKA}{name}": value for name, value in self.options})

    def for_connector(self) -> dict[str, str]:
        """Return the options, secrets included, by which Spark's connector reaches the brokers.

        Raises:
            ConfigurationError: a file or a variable that a setting names cannot be read.
        """
        settings = {"bootstrap.servers": self.brokers, **security.for_java(dict(self.options))}
        return {f"{KAFKA}{name}": value for name, value in settings.items()}


def header_fields(uri: Uri, event_type: type[Event]) -> dict[str, str]:
    """Return the fields of events that a URI maps headers to, by header.

    Raises:
        ConfigurationError: there is no such field.
    """
    headers = uri.named(HEADER)
    for header, field in headers.items():
        check_field(uri, f"{HEADER}{header}", field, event_type)
    return headers


def check_field(uri: Uri, option: str, field: str, event_type: type[Event]) -> None:
    """Check that a URI's option names a field of an event type.

    Raises:
        ConfigurationError: there is no such field.
    """
    fields = field_types(event_type)
    if field not in fields:
        raise ConfigurationError(
            f"{uri.place}: {option}={field} is no field of {event_type.__name__}, which has {', '.join(fields)}."
        )


def has_registry(uri: Uri) -> bool:
    """Whether a topic's schemas are in a schema registry.

    Raises:
        ConfigurationError: there are options of a registry, but not its URL.
    """
    if "registry" not in uri.options and (uri.named(REGISTRY) or {"subject", "schema"} & uri.options.keys()):
        raise ConfigurationError(f"{uri.place}: options of a schema registry need its URL: write registry=URL.")
    return "registry" in uri.options


def subject_of(uri: Uri) -> str:
    """Return the registry's subject for the schemas of a topic's values."""
    return uri.options.get("subject") or f"{KafkaPlace.of(uri).topic}-value"
