"""A Kafka broker whose clients must prove who they are: with real certificates, passwords, and tokens that a server gives
out.
"""

import base64
import json
import shutil
import subprocess
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs

from adapters import required
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from penstock.bench.servers.broker import KafkaBroker
from penstock.engine.session.java import java_home

PASSWORD = 'pass"word\\ 1'
SECRET = "a=client's secret"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
OAUTH = "org.apache.kafka.common.security.oauthbearer"
PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="plain-password";'


def certificate(directory: Path, name: str, *given: str) -> tuple[Path, Path, Path]:
    """A certificate that signs itself: in a file by itself, its key, and both in one."""
    required(shutil.which("openssl"), "openssl, to make a certificate")
    store, own = directory / f"{name}.p12", ["-storepass", "secret"]
    subprocess.run(
        [
            java_home() / "bin" / "keytool",
            "-genkeypair",
            "-alias",
            name,
            "-keyalg",
            "RSA",
            "-dname",
            f"CN={name}",
            "-ext",
            "SAN=ip:127.0.0.1,dns:localhost",
            "-storetype",
            "PKCS12",
            "-keystore",
            store,
            *own,
            *given,
        ],
        check=True,
        capture_output=True,
    )
    files = directory / f"{name}.crt", directory / f"{name}.key", directory / f"{name}.pem"
    for file, wanted in zip(files, (["-nokeys"], ["-nocerts", "-nodes"], ["-nodes"]), strict=True):
        command = ["openssl", "pkcs12", "-in", store, "-passin", "pass:secret", *wanted, "-out", file]
        subprocess.run(command, check=True, capture_output=True)
    return files


def _coded(text: bytes) -> str:
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


class TokenServer:
    """Gives signed tokens (RFC 6749, 4.4; RFC 7519) to who knows a client's secret, and the key that they are checked by."""

    def __init__(self, directory: Path) -> None:
        self._key = directory / "tokens.key"
        self._openssl("genrsa", "-out", self._key, "2048")
        shown = self._openssl("rsa", "-in", self._key, "-noout", "-modulus").decode()
        modulus = int(shown.partition("=")[2], 16).to_bytes(256, "big")
        key = {"kty": "RSA", "kid": "one", "use": "sig", "alg": "RS256", "n": _coded(modulus), "e": "AQAB"}
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(200, {"keys": [key]})

            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                known = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
                if known != f"alice:{SECRET}":
                    self._answer(401, {"error": "invalid_client"})
                    return
                token = server.token(form.get("scope", ["kafka"])[0])
                self._answer(200, {"access_token": token, "token_type": "Bearer", "expires_in": 300})

            def _answer(self, status: int, what: object) -> None:
                body = json.dumps(what).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def token(self, scope: str) -> str:
        """One for alice, of five minutes."""
        now = int(time.time())
        head = {"alg": "RS256", "typ": "JWT", "kid": "one"}
        body = {"iss": "tests", "sub": "alice", "aud": "kafka", "iat": now, "exp": now + 300, "scope": scope}
        text = ".".join(_coded(json.dumps(part).encode()) for part in (head, body))
        return f"{text}.{_coded(self._openssl('dgst', '-sha256', '-sign', self._key, given=text.encode()))}"

    def close(self) -> None:
        """No more tokens."""
        self._server.shutdown()
        self._server.server_close()

    def _openssl(self, *arguments: object, given: bytes = b"") -> bytes:
        return subprocess.run(["openssl", *map(str, arguments)], input=given, check=True, capture_output=True).stdout


class SecureBroker:
    """The broker, with ``alice``, who logs in by SCRAM, PLAIN or a token, or is known by the certificate ``client``, and may do
    all; and ``carol``, who logs in by SCRAM, and may do what she is allowed."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self.ca, _, server = certificate(directory, "server")
        self.expired_ca, _, expired = certificate(directory, "expired", "-startdate", "-10d", "-validity", "5")
        self.client, self.key, _ = certificate(directory, "client")
        self.password = directory / "password"
        self.password.write_text(PASSWORD + "\n")
        self.secret = directory / "secret"
        self.secret.write_text(SECRET)
        self.tokens = TokenServer(directory)
        oauth = {
            "oauthbearer.sasl.jaas.config": f"{OAUTH}.OAuthBearerLoginModule required;",
            "oauthbearer.sasl.server.callback.handler.class": f"{OAUTH}.OAuthBearerValidatorCallbackHandler",
            "oauthbearer.sasl.oauthbearer.jwks.endpoint.url": f"{self.tokens.url}/keys",
            "oauthbearer.sasl.oauthbearer.expected.audience": "kafka",
        }
        login = {
            "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN,OAUTHBEARER",
            **oauth,
            "scram-sha-256.sasl.jaas.config": SCRAM,
            "scram-sha-512.sasl.jaas.config": SCRAM,
            "plain.sasl.jaas.config": PLAIN,
        }
        tls = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(server)}
        mutual = {"ssl.client.auth": "required", "ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.client)}
        listeners = {
            "LOGIN": ("SASL_SSL", {**login, **tls}),
            "EXPIRED": ("SASL_SSL", {**login, **tls, "ssl.keystore.location": str(expired)}),
            "MUTUAL": ("SSL", {**tls, **mutual}),
        }
        access = {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:alice;User:CN=client",
        }
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self.tokens.url}/keys"
        self.broker = KafkaBroker(directory / "kafka", listeners=listeners, java_options=(allowed,), settings=access)

    def __enter__(self) -> "SecureBroker":
        self.broker.__enter__()
        self._admin = AdminClient({"bootstrap.servers": self.broker.brokers})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            for name in ("alice", "carol"):
                user = UserScramCredentialUpsertion(name, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
                self._admin.alter_user_scram_credentials([user])[name].result()
        return self

    def create(self, topic: str) -> None:
        """Make a topic, of which carol is allowed nothing."""
        self._admin.create_topics([NewTopic(topic)])[topic].result()

    def allow(self, name: str, *operations: str, kind: str = "TOPIC", prefix: bool = False) -> None:
        """Allow carol something with a topic, or what else ``kind`` says, of a name, or of all names that begin so."""
        pattern = ResourcePatternType.PREFIXED if prefix else ResourcePatternType.LITERAL
        rules = [
            AclBinding(ResourceType[kind], name, pattern, "User:carol", "*", AclOperation[operation], AclPermissionType.ALLOW)
            for operation in operations
        ]
        for done in self._admin.create_acls(rules).values():
            done.result()
        while not set(rules) <= set(self._rules(name)):
            time.sleep(0.05)

    def forbid(self, name: str) -> None:
        """Take all that again."""
        for done in self._admin.delete_acls([self._all(name)]).values():
            done.result()
        while self._rules(name):
            time.sleep(0.05)

    def _rules(self, name: str) -> list[AclBinding]:
        return self._admin.describe_acls(self._all(name)).result()

    @staticmethod
    def _all(name: str) -> AclBindingFilter:
        any_pattern, any_operation, any_way = ResourcePatternType.ANY, AclOperation.ANY, AclPermissionType.ANY
        return AclBindingFilter(ResourceType.ANY, name, any_pattern, None, None, any_operation, any_way)

    def __exit__(self, *_: object) -> None:
        self.broker.kill()
        self.tokens.close()

    def uri(self, topic: str, listener: str = "LOGIN", **options: object) -> str:
        """A URI of a topic; options are Kafka's, with underscores for points."""
        given = {
            "security.protocol": "SSL" if listener == "MUTUAL" else "SASL_SSL",
            "ssl.ca.location": self.expired_ca if listener == "EXPIRED" else self.ca,
        }
        if listener == "MUTUAL":
            given |= {"ssl.certificate.location": self.client, "ssl.key.location": self.key}
        else:
            given |= {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "alice", "sasl.password": f"file:{self.password}"}
        if options.get("sasl_mechanism") == "OAUTHBEARER":
            given |= {
                "sasl.oauthbearer.client.id": "alice",
                "sasl.oauthbearer.client.secret": f"file:{self.secret}",
                "sasl.oauthbearer.token.endpoint.url": f"{self.tokens.url}/token",
                "sasl.oauthbearer.scope": "kafka",
                "sasl.username": None,
                "sasl.password": None,
            }
        given |= {name.replace("_", "."): value for name, value in options.items()}
        query = "&".join(f"kafka.{name}={value}" for name, value in given.items() if value is not None)
        return f"kafka:{self.broker.at(listener)}/{topic}?{query}"
