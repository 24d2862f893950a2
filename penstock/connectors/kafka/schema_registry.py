"""A schema registry: its settings in a Kafka URI, requests to it by Confluent's client, and messages with its schemas."""

import re
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from penstock import secret
from penstock.connectors.kafka.place import REGISTRY
from penstock.connectors.uri import Uri
from penstock.errors import ConfigurationError, EventSchemaError, SourceError
from penstock.extras import needs
from penstock.kinds.event import Event
from penstock.masked import masked
from penstock.schemas.fitting import Leniency, misfits
from penstock.schemas.frame import Frame, divide
from penstock.schemas.schema import Kind, Schema, Values

with needs():
    from authlib.common.errors import AuthlibBaseError
    from confluent_kafka import schema_registry as confluent
    from httpx2 import HTTPError

SECRETS = ("basic.auth.user.info", "bearer.auth.token", "bearer.auth.client.secret", "ssl.key.password")
FILES = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")
PATIENCE = {"timeout": 10, "max.retries": 2}

T = TypeVar("T")


class MessageError(ValueError):
    """A message does not match a schema of its topic's registry; the text names the schema."""


class UnknownSchemaError(ValueError):
    """The registry has no schema with a number (id), or for a subject."""


@dataclass(frozen=True)
class Registry:
    """A registry. It is pickled and sent to executors, with the secrets that were read in the driver.

    Args:
        settings: of Confluent's client, by its own names; where a setting is the path of a file, the file's content.
    """

    url: str
    settings: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, uri: Uri) -> "Registry":
        """Return the registry that a Kafka URI names.

        Raises:
            ConfigurationError: the URI holds a secret, or a file or a variable that it names cannot be read.
        """
        url, own = uri.options["registry"], uri.named(REGISTRY)
        if not re.fullmatch(r"https?://[^@\s]+", url):
            raise ConfigurationError(
                f"{uri.place}: registry={masked(url)} must be a URL as http://HOST:8081, without a user or a password: these "
                "go into registry.basic.auth.user.info=env:NAME."
            )
        settings = {}
        for name, value in own.items():
            is_secret = name in SECRETS or (name == "proxy" and "@" in value)
            if is_secret and not value.startswith((secret.ENVIRONMENT, secret.FILE)):
                raise ConfigurationError(
                    f"{REGISTRY}{name} holds a secret, which others could read here: write {REGISTRY}{name}=env:NAME or "
                    f"{REGISTRY}{name}=file:PATH."
                )
            label = f"{REGISTRY}{name}"
            settings[name] = secret.text_of(label, value) if name in FILES else secret.value_of(label, value)
        registry = cls(url, tuple(settings.items()))
        registry._client()  # which checks the settings
        return registry

    def schema(self, number: int) -> Schema:
        """Return the schema with a number (id).

        Raises:
            UnknownSchemaError: the registry has none.
            SourceError: it does not answer, or refuses.
        """
        return self._with_parts(self._asked(lambda client: client.get_schema(number), str(number)))

    def latest(self, subject: str) -> tuple[int, int, Schema]:
        """Return the number, the version and the content of a subject's newest schema.

        Raises:
            UnknownSchemaError: the registry has none.
            SourceError: it does not answer, or refuses.
        """
        newest = self._asked(lambda client: client.get_latest_version(subject), subject)
        return int(newest.schema_id or 0), int(newest.version or 0), self._with_parts(newest.schema)

    def register(self, subject: str, schema: Schema) -> int:
        """Register a schema as the newest of a subject, unless it has it already; returns the schema's number.

        Raises:
            EventSchemaError: the registry refuses the schema, as it is not compatible with the subject's other schemas.
            SourceError: it does not answer, or refuses us.
        """
        definition = confluent.Schema(schema.text, schema.kind, [])
        return int(self._asked(lambda client: client.register_schema(subject, definition), subject))

    def _with_parts(self, found: Any) -> Schema:
        """Return a schema of the client's with the schemas that it refers to, each after those that it refers to itself."""
        parts: dict[str, str] = {}

        def gather(references: Iterable[Any]) -> None:
            for reference in references:
                if reference.name not in parts:
                    part = self._version(reference.subject, reference.version).schema
                    gather(part.references or ())
                    parts[reference.name] = part.schema_str

        gather(found.references or ())
        return Schema(found.schema_type or "AVRO", found.schema_str, tuple(parts.items()))

    def _version(self, subject: str, version: int) -> Any:
        return self._asked(lambda client: client.get_version(subject, version), subject)

    def _asked(self, question: Callable[[Any], T], what: str) -> T:
        try:
            return question(self._client())
        except confluent.SchemaRegistryError as error:
            if error.http_status_code == 404:
                raise UnknownSchemaError(f"the registry {self.url} has no schema {what}") from error
            if error.http_status_code in (409, 422):
                raise EventSchemaError(
                    f"The registry {self.url} refuses the schema of {what} ({error.error_message}): mend the event type, or "
                    "write schema=latest to use the one that is there."
                ) from error
            raise SourceError(
                f"The registry {self.url} refuses us ({error}); check registry.basic.auth.user.info, or what else it asks for."
            ) from error
        except (HTTPError, OSError, ValueError, TypeError, AuthlibBaseError) as error:
            raise SourceError(
                f"The registry {self.url} does not answer as one ({error}); check that one runs there, and the address."
            ) from error

    def _client(self) -> confluent.SchemaRegistryClient:
        return _client(self)


@lru_cache(maxsize=8)
def _client(registry: Registry) -> confluent.SchemaRegistryClient:
    with tempfile.TemporaryDirectory() as scratch:
        settings: dict[str, Any] = {"url": registry.url, **PATIENCE}
        for name, value in registry.settings:
            settings[name] = value
            if name in FILES:  # the client reads files only while it is created
                settings[name] = str(Path(scratch) / name)
                Path(settings[name]).write_text(value)
        try:
            return confluent.SchemaRegistryClient(settings)
        except (ValueError, TypeError, OSError) as error:
            raise ConfigurationError(
                f"The registry {registry.url}: a setting does not fit ({error}); mend registry.NAME."
            ) from error


class RegistryFrames:
    """Decodes the messages of a topic whose schemas are in a registry. It is pickled and sent to executors."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def prepare(self, messages: Iterable[bytes]) -> None:
        """Fetch the schemas of messages that are about to be read. For a schema that the registry lacks, `read` will raise.

        Raises:
            SourceError: the registry does not answer; no message is to blame for that, so the micro-batch must be repeated.
        """
        readers, unknown = _readers(self._registry), _unknown(self._registry)
        numbers = {divided[0] for message in messages if (divided := divide(message))}
        for number in numbers & unknown:  # by now the registry may know it
            del readers[number]
        unknown -= numbers
        for number in numbers - readers.keys():
            try:
                readers[number] = self._registry.schema(number).reader()
            except (UnknownSchemaError, EventSchemaError) as error:
                readers[number] = _refusal(error)
                if isinstance(error, UnknownSchemaError):
                    unknown.add(number)

    def read(self, message: bytes, fit: Callable[[Values | bytes], Any]) -> Any:
        """Decode a message, and return the result of ``fit`` for its values, or for its JSON.

        Raises:
            MessageError: the message has no schema that the registry knows, or does not fit; names the schema.
        """
        divided = divide(message)
        if divided is None:
            if message == b"null":  # the source's payload for a message without a value
                raise MessageError("the message has no value: it marks its key as deleted")
            raise MessageError("no number of a schema stands before the message; its sender used no registry")
        number, payload = divided
        try:
            return fit(_readers(self._registry)[number](payload))
        except Exception as error:
            raise MessageError(f"{error or type(error).__name__} (schema {number})") from error


@lru_cache(maxsize=8)
def _readers(registry: Registry) -> dict[int, Callable[[bytes], Values | bytes]]:
    """Return this process's decoders by schema number, which are kept, as the schema with a number never changes."""
    return {}


@lru_cache(maxsize=8)
def _unknown(registry: Registry) -> set[int]:
    """Return the numbers that a registry did not know when this process asked last: it may lag behind the one written to."""
    return set()


def _refusal(error: ValueError | EventSchemaError) -> Callable[[bytes], Values | bytes]:
    def refuse(payload: bytes) -> Values:
        raise error

    return refuse


def frame_of(registry: Registry, subject: str, event_type: type[Event], own: Kind | None) -> Frame:
    """Return the frame that encodes events as a topic's messages.

    Args:
        own: the format of a schema to make from the event type and register; None to use the subject's newest schema.

    Raises:
        EventSchemaError: the newest schema does not fit the events, or is missing; or the registry refuses the one made from
            them.
        SourceError: the registry does not answer, or refuses us.
    """
    if own is not None:
        schema = Schema.of(event_type, own)
        return Frame(registry.register(subject, schema), schema)
    try:
        number, version, schema = registry.latest(subject)
    except UnknownSchemaError as error:
        raise EventSchemaError(f"{error}: register a schema, or leave schema=latest out.") from error
    wrong = list(misfits(event_type, schema.event_type(), Leniency(texts=True)))
    if wrong:
        raise EventSchemaError(
            f"{event_type.__name__} does not fit version {version} of {subject}: it {', '.join(wrong)}. Change the event type."
        )
    return Frame(number, schema, others=True)


def check_fits(registry: Registry, subject: str, event_type: type[Event]) -> None:
    """Check that a subject's newest schema, if there is one, has all fields that an event type needs.

    Raises:
        EventSchemaError: a field is missing, or has a type that does not fit.
        SourceError: the registry does not answer.
    """
    try:
        _, version, schema = registry.latest(subject)
    except UnknownSchemaError:
        return
    wrong = list(misfits(schema.event_type(), event_type, Leniency(absences=schema.kind == "PROTOBUF")))
    if wrong:
        raise EventSchemaError(
            f"Version {version} of {subject} does not fit {event_type.__name__}: it {', '.join(wrong)}. Change the event "
            "type; what may be missing needs a default."
        )
