"""Topics whose schemas are in a registry: a real one, and a real broker; what is read and written is checked by Confluent's own
serialisers."""

import json
import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema as RegistrySchema
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from benchmarks.servers.registry import SchemaRegistry
from penstock.app.loader import load_app
from penstock.bench.servers.process import free_port
from penstock.connectors import Uri
from penstock.connectors.kafka.place import KafkaPlace, has_registry
from penstock.connectors.kafka.schema_registry import Registry
from penstock.connectors.kafka.topic import Topic
from penstock.engine import RunOptions
from penstock.engine.running.realtime import run_real_time
from penstock.errors import ConfigurationError, EventSchemaError, SourceError
from penstock.storage.journal import lines_of

APPS = Path(__file__).parent / "apps_words.py"

FIRST = {"type": "record", "name": "Word", "fields": [{"name": "text", "type": "string"}]}
SECOND = {**FIRST, "fields": [*FIRST["fields"], {"name": "size", "type": "int", "default": 7}]}
THIRD = {**FIRST, "fields": [*SECOND["fields"], {"name": "colour", "type": ["null", "string"], "default": None}]}


def avro(client, topic, schema, values):
    serialise = AvroSerializer(client, json.dumps(schema))
    return [serialise(value, SerializationContext(topic, MessageField.VALUE)) for value in values]


def produce(broker, topic, *values):
    Topic(KafkaPlace(broker.brokers, topic), create=True)
    producer = Producer({"bootstrap.servers": broker.brokers})
    for value in values:
        producer.produce(topic, value)
    producer.flush()


def messages(broker, topic):
    found = Topic(KafkaPlace(broker.brokers, topic))
    lows, ends = ({partition: place[side] for partition, place in found.bounds().items()} for side in (0, 1))
    return [message for some in found.read(lows, ends) for message in some]


@pytest.fixture(scope="module")
def client(registry):
    return SchemaRegistryClient({"url": registry.url})


def test_schemas_that_evolve_while_a_run_lasts_and_messages_that_do_not_fit(run_app, broker, registry, client):
    texts = [avro(client, "evolving", FIRST, [{"text": text} for text in "aab"])]
    texts += [avro(client, "evolving", SECOND, [{"text": "a", "size": 3}])]
    unfit = {"type": "record", "name": "Other", "fields": [{"name": "txt", "type": "string"}]}
    number = client.register_schema("elsewhere", RegistrySchema(json.dumps(unfit), "AVRO"))
    bad = [b'{"text": "a"}', b"\0\0\0\x99\x99x", texts[0][0] + b"more", b"\0" + number.to_bytes(4, "big") + b"\x02x"]
    produce(broker, "evolving", *[value for some in texts for value in some], *bad)
    options = {
        "file": APPS,
        "sources": {"Words": f"kafka:{broker.brokers}/evolving?registry={registry.url}"},
        "sinks": {"Out": f"kafka:{broker.brokers}/evolved?registry={registry.url}"},
    }
    result = run_app("app", **options)
    counts = result.report["counts"]
    assert (counts["accepted"], counts["processed"], counts["dead_lettered"], counts["lost"]) == (8, 4, 4, 0)
    assert {count.text: count.seen for count in result.output("Out")} == {"a": 3, "b": 1}
    letters = [letter["error"] for letter in result.dead_letters]
    for words in (
        "left behind the record (schema 1)",
        "no number of a schema",
        f"`text` (schema {number})",
        "has no schema 39321",
    ):
        assert sum(words in letter for letter in letters) == 1, letters
    produce(broker, "evolving", *avro(client, "evolving", THIRD, [{"text": "c", "size": 1, "colour": "red"}]))
    result = run_app("app", **options)
    assert {count.text: count.seen for count in result.output("Out")} == {"a": 3, "b": 1, "c": 1}
    read = AvroDeserializer(client)
    context = SerializationContext("evolved", MessageField.VALUE)
    told = [read(message.value(), context) for message in messages(broker, "evolved")]
    assert sorted(one["text"] for one in told) == ["a", "b", "c"]
    assert client.get_latest_version("evolved-value").schema.schema_type in (None, "AVRO")


@pytest.mark.slow
@pytest.mark.parametrize("form", ["protobuf", "json"])
def test_other_formats_are_written_and_read(run_app, broker, registry, client, form):
    produce(broker, f"{form}-in", b'{"text": "a"}', b'{"text": "b"}')
    topic = f"kafka:{broker.brokers}/{form}-out?registry={registry.url}"
    ways = {"file": APPS, "sinks": {"Out": f"{topic}&schema={form}"}, "name": f"{form}-1"}
    run_app("app", sources={"Words": f"kafka:{broker.brokers}/{form}-in"}, **ways)
    found = messages(broker, f"{form}-out")
    if form == "json":
        schema = client.get_latest_version("json-out-value").schema.schema_str
        read = JSONDeserializer(schema)
        told = [read(message.value(), SerializationContext("json-out", MessageField.VALUE)) for message in found]
        assert sorted(one["text"] for one in told) == ["a", "b"]
    again = run_app("app", file=APPS, sources={"Words": topic}, name=f"{form}-2")
    assert {count.text: count.seen for count in again.output("Out")} == {"a": 1, "b": 1}


@pytest.mark.slow
def test_a_query_reads_by_a_registry_and_writes_by_the_schema_that_is_there(run_app, broker, registry, client):
    produce(broker, "native-in", *avro(client, "native-in", FIRST, [{"text": text} for text in "aab"]), b"junk")
    company = {
        "type": "record",
        "name": "Total",
        "namespace": "org.example",
        "fields": [
            {"name": "text", "type": "string"},
            {"name": "seen", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
            {"name": "unit", "type": "string", "default": "pieces"},
        ],
    }
    client.register_schema("totals", RegistrySchema(json.dumps(company), "AVRO"))
    result = run_app(
        "native",
        file=APPS,
        sources={"Words": f"kafka:{broker.brokers}/native-in?registry={registry.url}"},
        sinks={"Out": f"kafka:{broker.brokers}/totals?registry={registry.url}&subject=totals&schema=latest"},
    )
    assert result.report["counts"]["dead_lettered"] == 1
    read = AvroDeserializer(client)
    told = [read(one.value(), SerializationContext("totals", MessageField.VALUE)) for one in messages(broker, "totals")]
    assert {one["text"]: (one["seen"], one["unit"]) for one in told} == {
        "a": (Decimal(2), "pieces"),
        "b": (Decimal(1), "pieces"),
    }


def test_what_does_not_fit_is_refused_before_anything_is_read(run_app, broker, registry, client, tmp_path):
    produce(
        broker, "unfit-in", *avro(client, "unfit-in", {**FIRST, "fields": [{"name": "txt", "type": "string"}]}, [{"txt": "a"}])
    )
    unfit = f"kafka:{broker.brokers}/unfit-in?registry={registry.url}"
    with pytest.raises(EventSchemaError, match=r"Version 1 of unfit-in-value does not fit Word: it has no field text"):
        run_app("app", file=APPS, sources={"Words": unfit})
    produce(broker, "fit-in", b'{"text": "a"}')
    sources = {"Words": f"kafka:{broker.brokers}/fit-in"}
    client.register_schema("taken", RegistrySchema(json.dumps({**FIRST, "name": "Count"}), "AVRO"))
    taken = f"kafka:{broker.brokers}/taken?registry={registry.url}&subject=taken"
    with pytest.raises(EventSchemaError, match="refuses the schema of taken"):
        run_app("app", file=APPS, sources=sources, sinks={"Out": taken})
    with pytest.raises(EventSchemaError, match="no schema nowhere"):
        run_app("app", file=APPS, sources=sources, sinks={"Out": f"{taken[:-5]}nowhere&schema=latest"})
    app, reference = load_app(f"{APPS}:native")
    framed = {"Words": f"kafka:{broker.brokers}/fit-in?registry={registry.url}"}
    live = RunOptions(runs=tmp_path, sources=framed, sinks={"Out": f"kafka:{broker.brokers}/o"}, quiet=True)
    with pytest.raises(ConfigurationError, match="real-time mode reads JSON only"):
        run_real_time(app, live, application=reference)


@pytest.mark.slow
def test_a_registry_that_does_not_answer_is_no_messages_fault(run_app, broker, tmp_path):
    topic, sinks = f"kafka:{broker.brokers}/fading", {"Out": f"kafka:{broker.brokers}/faded"}
    nowhere = {"Words": f"{topic}?registry=http://127.0.0.1:{free_port()}"}
    with pytest.raises(SourceError, match="does not answer as one"):
        run_app("app", file=APPS, sources=nowhere, sinks=sinks)
    with SchemaRegistry(tmp_path / "registry") as registry:
        produce(broker, "fading", *first_and_second(registry, "a")[:1])
        command = [
            sys.executable,
            "-m",
            "penstock",
            "run",
            f"{APPS}:app",
            "--source",
            f"Words={topic}?registry={registry.url}",
            "--sink",
            f"Out={sinks['Out']}",
            "--runs",
            str(tmp_path),
            "--name",
            "run",
            "--master",
            "local[2]",
        ]
        with (tmp_path / "said").open("wb") as said:
            run = subprocess.Popen(command, stdout=said, stderr=said)
            while not any(lines_of(tmp_path / "run" / "batches-main.jsonl")):
                assert run.poll() is None, (tmp_path / "said").read_text()
                time.sleep(0.1)
            _, second = first_and_second(registry, "b")
            registry.kill()
            produce(broker, "fading", second)
            assert run.wait(120) == 2
        assert "does not answer as one" in (tmp_path / "said").read_text().splitlines()[-1]
        assert "Traceback" not in (tmp_path / "said").read_text()
        registry.__enter__()
        first_and_second(registry, "a")  # its memory is new, its numbers are those of before
        subprocess.run([*command, "--until-idle"], check=True, timeout=240)
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert (report["counts"]["accepted"], report["counts"]["processed"], report["counts"]["dead_lettered"]) == (2, 2, 0)


def first_and_second(registry, text):
    """A word by each of two schemas, which are registered as numbers 1 and 2."""
    client = SchemaRegistryClient({"url": registry.url})
    return [*avro(client, "fading", FIRST, [{"text": text}]), *avro(client, "fading", SECOND, [{"text": text, "size": 1}])]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("registry=http://me:secret@there:8081", "without a user or a password"),
        ("registry=there:8081", "must be a URL"),
        ("registry=http://there&registry.basic.auth.user.info=me:secret", "write registry.basic.auth.user.info=env:NAME"),
        ("registry=http://there&registry.basic.auth.user.info=env:NOT_SET", "no variable NOT_SET"),
        ("registry=http://there&registry.ssl.ca.location=/no/where", "registry.ssl.ca.location: /no/where cannot be read"),
        ("registry=http://there&registry.nonsense=1", "nonsense"),
        ("subject=x", "write registry=URL"),
    ],
)
def test_wrong_options_are_one_sentence_without_secrets(options, words):
    uri = Uri.parse(f"kafka:127.0.0.1:1/topic?{options}")
    with pytest.raises(ConfigurationError, match=words) as error:
        has_registry(uri) and Registry.of(uri)
    assert "secret@" not in str(error.value)
    assert "me:secret" not in str(error.value)
