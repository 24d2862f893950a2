"""``penstock schema``: event types made from schemas, and schemas from event types."""

import re
from pathlib import Path

import click

from penstock.app.spelling import did_you_mean
from penstock.cli.arguments import load
from penstock.cli.command import command
from penstock.cli.echo import echo
from penstock.errors import ConfigurationError, SourceError
from penstock.kinds.event import Event
from penstock.schemas import FORMATS, Kind, Schema, source_code

SUFFIXES: dict[str, Kind] = {".avsc": "AVRO", ".proto": "PROTOBUF", ".json": "JSON"}


@command()
@click.argument("place", metavar="APP.py|FILE|URI")
@click.argument("event", required=False)
@click.option("--format", "form", type=click.Choice(list(FORMATS)), default="avro", help="Of the schema; avro unless given.")
def schema(place: str, event: str | None, form: str) -> None:
    """Print the schema of an application's EVENT, or the event type of a schema.

    A schema is a .avsc, .proto or .json file, or that of a topic whose URI names its registry.

    \b
    Examples:
      penstock schema app.py Word --format protobuf
      penstock schema word.avsc
      penstock schema 'kafka:HOST:9092/words?registry=http://HOST:8081'
    """
    if place.partition(":")[0].endswith(".py"):
        echo(Schema.of(_event_type(place, event), FORMATS[form]).text)
    elif event is not None:
        raise ConfigurationError(f"{event}: only an application has events to name, and {place} is none: leave it out.")
    else:
        echo(source_code((_registered(place) or _in_file(Path(place))).event_type()), nl=False)


def _event_type(place: str, name: str | None) -> type[Event]:
    """An event type of an application, by its own name or by the name of a stream."""
    streams = load(place)[0].topology().streams
    known = {stream.event_type.__name__: stream.event_type for stream in streams}
    if name is None and len(known) == 1:
        return next(iter(known.values()))
    event_type = {**{stream.name: stream.event_type for stream in streams}, **known}.get(name or "")
    if event_type is None:
        near = did_you_mean(name or "", known) or f"; there are {', '.join(known)}."
        raise ConfigurationError(f"{place} has no event {name}{near}" if name else f"{place}: name an event{near}")
    return event_type


def _registered(place: str) -> Schema | None:
    """The newest schema of a Kafka topic; None if ``place`` names no topic."""
    from penstock.connectors.kafka.place import has_registry, subject_of
    from penstock.connectors.uri import Uri

    if not re.match("kafka:", place):
        return None
    uri = Uri.parse(place)
    if not has_registry(uri):
        raise ConfigurationError(f"{place}: name the registry that has its schemas: {place}?registry=URL.")
    from penstock.connectors.kafka.schema_registry import Registry, UnknownSchemaError  # needs an extra

    try:
        return Registry.of(uri).latest(subject_of(uri))[2]
    except UnknownSchemaError as error:
        raise SourceError(f"{error}; where its name is another, write subject=NAME.") from error


def _in_file(path: Path) -> Schema:
    if path.suffix not in SUFFIXES:
        raise ConfigurationError(
            f"{path}: name an application (.py), a schema ({', '.join(SUFFIXES)}), or a topic, as "
            "kafka:HOST:PORT/TOPIC?registry=URL."
        )
    try:
        return Schema(SUFFIXES[path.suffix], path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise SourceError(f"{path} cannot be read ({reason}).") from error
