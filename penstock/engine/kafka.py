"""What Kafka sources, sinks and hops share: Spark's connector, and the headers of messages."""

from pathlib import Path

import pyspark

from penstock.app.event import Event, field_types
from penstock.app.uri import KAFKA, KafkaPlace, Uri
from penstock.engine.maven import Jars
from penstock.errors import ConfigurationError, JarNotFoundError

BORN_HEADER = "penstock-born"
"""When the source event behind a message was meant to be sent, in microseconds, as text."""

HEADER = "header."
"""Options of a Kafka URI that begin so tie a header to a field of events."""

SPARK, CONNECTOR, TOKENS = "org.apache.spark", "spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13"

VERSIONS = ((pyspark.__version__, pyspark.__version__), ("4.2.0", "4.0.0"))
"""Of the connector and of the tokens it needs, by preference. A connector is published some time after PySpark;
until then the one before it serves, which the tests run on."""

SPARKS_OWN = (
    (SPARK, f"(?!{CONNECTOR}|{TOKENS}).*"),
    *((group, ".*") for group in ("org.scala-lang", "org.scala-lang.modules", "org.apache.hadoop", "org.slf4j")),
    *(
        (group, ".*")
        for group in ("com.github.luben", "org.lz4", "at.yawk.lz4", "org.xerial.snappy", "com.google.code.findbugs")
    ),
)
"""What the connector needs and PySpark carries."""


def connector_jars() -> list[Path]:
    """The jars of Spark's connector for Kafka; fetched from Maven Central when a run first needs them.

    Raises
    ------
    JarNotFoundError: they cannot be fetched.
    """
    failure: JarNotFoundError | None = None
    choices = [Jars(SPARK, CONNECTOR, version, SPARKS_OWN, ((SPARK, TOKENS, tokens),)) for version, tokens in VERSIONS]
    present = [jars for jars in choices if jars.directory.exists()]  # looking for a better one would cost each start
    for jars in present or choices:
        try:
            return sorted(jars.fetch().glob("*.jar"))
        except JarNotFoundError as error:
            failure = failure or error
    assert failure is not None
    raise failure


def connector_options(place: KafkaPlace) -> dict[str, str]:
    """What the connector needs to reach a topic's brokers."""
    return {f"{KAFKA}bootstrap.servers": place.brokers, **{f"{KAFKA}{name}": value for name, value in place.options}}


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
