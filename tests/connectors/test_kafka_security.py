"""Users, passwords and certificates of Kafka: settings for two client libraries, and a broker that asks for them."""

import pytest

from penstock.connectors.kafka import security
from penstock.connectors.kafka.place import KafkaPlace
from penstock.connectors.kafka.topic import Topic
from penstock.connectors.uri import Uri
from penstock.errors import ConfigurationError, SourceError


def place(uri):
    return KafkaPlace.of(Uri.parse(uri))


@pytest.mark.parametrize(
    ("listener", "options"),
    [
        ("LOGIN", {}),
        ("LOGIN", {"sasl_mechanism": "SCRAM-SHA-512"}),
        ("LOGIN", {"sasl_mechanism": "PLAIN", "sasl_password": "env:ALICE"}),
        ("MUTUAL", {}),
    ],
)
def test_who_proves_who_they_are_is_let_in(secure, listener, options, monkeypatch):
    monkeypatch.setenv("ALICE", "plain-password")
    assert Topic(place(secure.uri("open", listener, **options)), create=True).bounds()


@pytest.mark.parametrize(
    ("listener", "options", "said"),
    [
        ("LOGIN", {"sasl_password": "env:WRONG"}, r"refuses us \(.*[Aa]uthentication.*check kafka.sasl.mechanism"),
        ("LOGIN", {"sasl_username": "bob"}, r"refuses us \(.*[Aa]uthentication"),
        ("LOGIN", {"ssl_ca_location": None}, r"refuses us \(.*certificate.*check kafka.security.protocol"),
        ("EXPIRED", {}, r"refuses us \(.*certificate.*the dates and names of certificates"),
    ],
)
def test_who_does_not_is_told_why(secure, listener, options, said, monkeypatch):
    monkeypatch.setenv("WRONG", "guess")
    with pytest.raises(SourceError, match=said) as refused:
        Topic(place(secure.uri("closed", listener, **options)))
    assert "guess" not in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("kafka.sasl.password=hush", "kafka.sasl.password=env:NAME"),
        ("kafka.ssl.key.password=hush", "file:PATH"),
        ("kafka.sasl.jaas.config=hush", "kafka.sasl.username and kafka.sasl.password"),
        ("kafka.ssl.truststore.location=x.jks", "kafka.ssl.ca.location"),
        ("kafka.ssl.keystore.password=hush", "kafka.ssl.certificate.location"),
        ("kafka.sasl.mechanism=GSSAPI", "must be one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
    ],
)
def test_what_is_not_for_both_clients_or_not_for_eyes_is_refused(options, said):
    with pytest.raises(ConfigurationError, match=said) as refused:
        place(f"kafka:broker:9092/words?{options}")
    assert "hush" not in str(refused.value)


def test_settings_for_java(tmp_path, monkeypatch):
    for name in ("ca", "crt", "key", "password"):
        (tmp_path / name).write_text(f"{name} of alice\n")
    monkeypatch.setenv("PASSWORD", 'a"b\\c')
    given = place(
        f"kafka:broker:9092/words?kafka.security.protocol=SASL_SSL&kafka.sasl.mechanisms=SCRAM-SHA-512&kafka.sasl.username=al"
        f"&kafka.sasl.password=env:PASSWORD&kafka.ssl.ca.location={tmp_path / 'ca'}&kafka.client.id=me"
        f"&kafka.ssl.certificate.location={tmp_path / 'crt'}&kafka.ssl.key.location={tmp_path / 'key'}"
        f"&kafka.ssl.key.password=file:{tmp_path / 'password'}&kafka.ssl.endpoint.identification.algorithm=none"
    )
    assert 'a"b' not in f"{given} {given.uri()} {given!r}"
    assert given.for_connector() == {
        "kafka.bootstrap.servers": "broker:9092",
        "kafka.client.id": "me",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": (
            'org.apache.kafka.common.security.scram.ScramLoginModule required username="al" password="a\\"b\\\\c";'
        ),
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": "ca of alice\n",
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": "crt of alice\n",
        "kafka.ssl.keystore.key": "key of alice\n",
        "kafka.ssl.key.password": "password of alice",
        "kafka.ssl.endpoint.identification.algorithm": "",
    }


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sasl.password": "env:NOT_THERE"}, "no variable NOT_THERE"),
        ({"sasl.password": "file:/not/there"}, "/not/there cannot be read"),
        ({"ssl.ca.location": "/not/there"}, "/not/there cannot be read"),
        ({"sasl.mechanism": "PLAIN", "sasl.username": "al"}, "kafka.sasl.password is missing"),
        ({"ssl.key.location": "key"}, "kafka.ssl.certificate.location is missing"),
    ],
)
def test_what_is_missing_is_named(options, said):
    with pytest.raises(ConfigurationError, match=said):
        security.for_java(options)
