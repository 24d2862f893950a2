"""The adapter towards those who do not mean well, or send the wrong thing twice."""

import json
import re
import signal
import subprocess
import sys
import threading
import time
import zlib
from contextlib import suppress
from pathlib import Path

import attacks
import httpx
import pytest
import websockets.sync.client
from adapters import APP, RunningAdapter
from websockets.exceptions import ConnectionClosed, InvalidStatus

from penstock.adapter.consumers import CONSUMERS
from penstock.bench.servers.process import free_port
from penstock.connectors.log import EventLog
from penstock.web.server import HEAD_WITHIN_MS

pytestmark = pytest.mark.servers


@pytest.fixture(scope="module")
def adapter(tmp_path_factory):
    spool = tmp_path_factory.mktemp("spool")
    log = EventLog(spool)
    log.append("Counts", [json.dumps({"text": "x" * 900, "seen": number}).encode() for number in range(20_000)])
    log.close()
    with RunningAdapter(spool) as running:
        yield running


def peak_mb(adapter):
    status = Path(f"/proc/{adapter.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) // 1024


def held(adapter):
    log = EventLog(adapter.spool, create=False)
    try:
        return [json.loads(record.payload)["text"] for record in log.read("Words", log.start("Words"), log.end("Words"))]
    finally:
        log.close()


def answer(adapter, key, *texts, headers=None):
    events = [{"text": text} for text in texts]
    reply = adapter.post(json.dumps(events), headers={"Idempotency-Key": key, **(headers or {})})
    if reply.status_code not in (200, 422):
        return reply.status_code
    body = reply.json()
    return body["accepted"], body["duplicates"], [each["index"] for each in body["rejected"]]


def test_what_was_rejected_may_come_again_mended_under_its_key(adapter):
    assert answer(adapter, "mend", "m1", 2, "m3") == (2, 0, [1])
    assert answer(adapter, "mend", "m1", 2, "m3") == (0, 2, [1])
    assert answer(adapter, "mend", "m1", "m2", "m3") == (1, 2, [])
    assert answer(adapter, "mend", "m1", "m2", "m3") == (0, 3, [])
    assert sorted(text for text in held(adapter) if text.startswith("m")) == ["m1", "m2", "m3"]


def test_a_key_with_other_events_is_refused_and_nothing_of_it_kept(adapter):
    assert answer(adapter, "once", "o1", "o2") == (2, 0, [])
    assert answer(adapter, "once", "o1", "o2") == (0, 2, [])
    for texts in (("o1",), ("o1", "other"), ("o2", "o1"), ("o1", "o2", "o3"), ("o1", 7)):
        assert answer(adapter, "once", *texts) == 409
    assert answer(adapter, "part", "p1", 2) == (1, 0, [1])
    for texts in (("other", 2), ("p1",), ("p1", 2, "p3"), (1, "p2")):
        assert answer(adapter, "part", *texts) == 409
    assert answer(adapter, "once/part", "o1", "o9") == (2, 0, [])
    assert sorted(text for text in held(adapter) if text[0] in "op") == ["o1", "o1", "o2", "o9", "p1"]


def test_keys_are_those_of_a_client(tmp_path):
    (tmp_path / "tokens.json").write_text(json.dumps({"produce": ["first-secret", "second-secret"]}))
    with RunningAdapter(tmp_path / "spool", "--tokens", tmp_path / "tokens.json") as running:
        for token, text in (("first-secret", "a"), ("second-secret", "b"), ("first-secret", "a")):
            answer(running, "same", text, headers={"Authorization": f"Bearer {token}"})
        assert held(running) == ["a", "b"]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("localhost:8470", 200),
        ("[::1]:8470", 200),
        ("evil.example:8470", 403),
        ("127.0.0.1.evil.example", 403),
    ],
)
@pytest.mark.parametrize("origin", [None, "http://evil.example:8470"])
def test_a_page_of_another_site_cannot_rebind_its_name(adapter, host, origin, status):
    headers = {"Host": host, **({"Origin": origin} if origin else {})}
    reply = adapter.post(b'{"text":"rebound"}', headers=headers)
    assert reply.status_code == (403 if origin and status == 200 else status)


def test_a_name_of_its_own_can_be_allowed(tmp_path):
    with RunningAdapter(tmp_path, "--allow-host", "events.example") as running:
        assert running.post(b'{"text":"a"}', headers={"Host": "events.example"}).status_code == 200


WORD = b'{"text":"a"}'
SMUGGLED = attacks.POST + b'Content-Length: 19\r\n\r\n{"text":"smuggled"}'
CHUNKED = attacks.POST + b"Transfer-Encoding: chunked\r\n"


@pytest.mark.parametrize(
    ("sent", "statuses"),
    [
        (attacks.POST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED, [400]),
        (CHUNKED + b"Content-Length: 4\r\n\r\n0\r\n\r\n" + SMUGGLED, [400]),
        (attacks.POST + b"Content-Length: 0\r\nContent-Length: 12\r\n\r\n" + WORD + SMUGGLED, [400]),
        (attacks.POST + b"Transfer-Encoding: identity\r\nContent-Length: 12\r\n\r\n" + WORD, [400]),
        (attacks.POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + SMUGGLED, [400]),
        (attacks.POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + SMUGGLED, [400]),
        (attacks.POST + b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n" + SMUGGLED, [400]),
        (attacks.POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" + SMUGGLED, [400]),
        (attacks.POST + b"Content-Length : 12\r\n\r\n" + WORD, [400]),
        (attacks.POST + b"X: a\r\n b\r\nContent-Length: 12\r\n\r\n" + WORD, [400]),
        (attacks.POST + b"X: a\rContent-Length: 5\r\nContent-Length: 12\r\n\r\n" + WORD, [400]),
        (attacks.POST + b"X: a\0b\r\nContent-Length: 12\r\n\r\n" + WORD, [400]),
        (attacks.POST + b"Content-Length: +12\r\n\r\n" + WORD, [400]),
        (attacks.POST + b"Content-Length: 1_2\r\n\r\n" + WORD, [400]),
        (attacks.POST + b"Content-Length: -12\r\n\r\n" + WORD, [400]),
        (attacks.POST + b"Content-Length: 99999999999999999999999\r\n\r\n" + WORD, [400]),
        (CHUNKED + b"\r\nFFFFFFFFFFFFFFFFF\r\n" + WORD, [400]),
        (CHUNKED + b"\r\n0xC\r\n" + WORD + b"\r\n0\r\n\r\n", [400]),
        (CHUNKED + b"\r\n-1\r\n" + WORD, [400]),
        (CHUNKED + b"\r\nC\n" + WORD + b"\r\n0\r\n\r\n", [400]),
        (attacks.GET + b"Host: evil.example\r\n\r\n", [200]),  # where anybody may ask
        (attacks.POST + b"Host: evil.example\r\nContent-Length: 12\r\n\r\n" + WORD, [403]),
        (b"GET /streams HTTP/1.1\r\nHost: [::1\r\n\r\n", [403]),
        (attacks.GET + b"a:b\r\n" * 101 + b"\r\n", [431]),
        (attacks.GET + b"X: " + b"a" * 200_000 + b"\r\n\r\n", [431]),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", []),
        (b"GET /health\r\n\r\n", [400]),
        (b"CONNECT evil.example:80 HTTP/1.1\r\nHost: localhost\r\n\r\n", [404]),
        (b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", [404]),
        (b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n", [400]),
        (b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", [404]),
    ],
)
def test_what_is_no_request_or_two_in_one_is_refused(adapter, sent, statuses):
    """By RFC 9112, and advisories of other servers: CL.TE and TE.CL, TE.TE, CVE-2019-16276, CVE-2022-32214, CVE-2023-49081."""
    before = len(held(adapter))
    answered = b""
    with attacks.sending(adapter.port, sent) as connection, suppress(TimeoutError, ConnectionError):
        connection.settimeout(1)
        while more := connection.recv(65536):
            answered += more
    assert [int(status) for status in re.findall(rb"HTTP/1.1 (\d+)", answered)] == statuses
    assert len(held(adapter)) == before


@pytest.mark.parametrize(
    "frames",
    [
        attacks.frame(attacks.TEXT, WORD, masked=False),
        attacks.frame(attacks.TEXT, WORD, reserved=4),
        attacks.frame(3, WORD),
        attacks.frame(11),
        attacks.frame(attacks.PING, b"x" * 126),
        attacks.frame(attacks.PING, last=False),
        attacks.frame(attacks.CONTINUED, WORD),
        attacks.frame(attacks.TEXT, b"{", last=False) + attacks.frame(attacks.TEXT, b"}"),
        attacks.frame(attacks.TEXT, b'{"text":"\xff"}'),
        attacks.frame(attacks.CLOSE, b"\3"),
        attacks.frame(attacks.CLOSE, b"\3\xed"),
        attacks.frame(attacks.TEXT, b"x", announced=1 << 63),
        attacks.frame(attacks.TEXT, b"x", announced=17 << 20),
    ],
)
def test_frames_that_are_against_the_rules_close_the_socket(adapter, frames):
    """As the Autobahn suite has them: cases 2.5, 3.1 to 3.7, 4.1, 4.2, 5.1, 5.9, 5.18, 6.3, 7.3, 7.9, 9."""
    before, answered = len(held(adapter)), b""
    with attacks.web_socket(adapter.port) as connection:
        connection.sendall(frames)
        while more := connection.recv(65536):  # to its end
            answered += more
    assert answered[:1] == b"\x88"
    assert len(held(adapter)) == before


@pytest.mark.parametrize("name", attacks.ATTACKS)
def test_attacks_take_no_memory_and_keep_nobody_waiting(adapter, name):
    """`benchmarks/attacks.py` measures how long; here, that honest requests are answered, and the bound of the how-to."""
    Path(f"/proc/{adapter.process.pid}/clear_refs").write_text("5")  # the peak is to be this attack's
    script = [sys.executable, attacks.__file__, str(adapter.port), name, "2.5"]
    with subprocess.Popen(script, stdout=subprocess.PIPE, text=True) as attacker:
        time.sleep(0.5)
        for _ in range(15):
            deadline = time.monotonic() + 20
            while (answered := adapter.post(b'{"text": "honest"}')).status_code == 503:
                assert time.monotonic() < deadline, answered.text  # there may be too little memory while the attack lasts
                time.sleep(float(answered.headers["retry-after"]))
            assert answered.status_code == 200
            time.sleep(0.1)
        assert attacker.communicate(timeout=60)[0], "it came to nothing"
    assert peak_mb(adapter) < 900  # --max-memory is 700, and what comes within a moment is beyond it


def test_a_head_is_given_up_after_a_while_be_it_the_second(tmp_path):
    with RunningAdapter(tmp_path) as running:
        connections = [attacks.connect(running.port), attacks.sending(running.port, attacks.GET + b"\r\n")]
        assert connections[1].recv(4096)
        for connection in connections:
            connection.sendall(attacks.GET)
        time.sleep(HEAD_WITHIN_MS / 1000 + 2)
        for connection in connections:
            connection.settimeout(5)
            while connection.recv(4096):  # to its end
                pass


def test_half_of_a_surrogate_pair_refuses_its_event_only(adapter):
    reply = adapter.post(rb'[{"text": "before"}, {"text": "\ud83d"}, {"text": "after, [}\""}]')
    assert reply.status_code == 200
    assert (reply.json()["accepted"], [each["index"] for each in reply.json()["rejected"]]) == (2, [1])
    assert held(adapter)[-2:] == ["before", 'after, [}"']


def test_tls_that_is_no_tls_keeps_nobody_waiting(tmp_path):
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "1"]
    subprocess.run([*command, "-keyout", "key.pem", "-out", "cert.pem"], cwd=tmp_path, check=True, capture_output=True)
    arguments = ("--certificate", tmp_path / "cert.pem", "--private-key", tmp_path / "key.pem")
    with RunningAdapter(tmp_path / "spool", *arguments, scheme="https") as running:
        connections = [attacks.sending(running.port, b"\x16\x03\x01") for _ in range(500)]
        connections += [attacks.sending(running.port, attacks.GET + b"\r\n") for _ in range(20)]
        assert httpx.get(f"{running.url}/health", verify=False, timeout=20).status_code == 200
        for connection in connections:
            connection.close()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "say who may ask with --tokens FILE and serve TLS"),
        (("--tokens", "tokens.json"), "serve TLS with --certificate"),
        (("--behind-proxy",), "say who may ask with --tokens FILE, or leave out --host"),
    ],
)
def test_other_machines_are_not_served_without_tokens_and_tls(tmp_path, arguments, said):
    (tmp_path / "tokens.json").write_text('{"produce": ["a-long-secret"]}')
    command = [sys.executable, "-m", "penstock", "adapter", str(APP), "--host", "0.0.0.0", "--port", str(free_port())]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 1)
    assert said in done.stderr


def test_a_socket_takes_no_packed_bombs(adapter):
    Path(f"/proc/{adapter.process.pid}/clear_refs").write_text("5")
    url = adapter.url.replace("http", "ws") + "/streams/Words"
    with websockets.sync.client.connect(url) as client:
        assert not client.protocol.extensions
        client.send(json.dumps({"text": "through"}))
        assert json.loads(client.recv())["accepted"] == 1
        with suppress(ConnectionClosed):  # it may be told while it is sending
            client.send(b"[" + b" " * (13 << 20) + b"]")
        with pytest.raises(ConnectionClosed):
            client.recv(timeout=20)
    assert peak_mb(adapter) < 900
    bomb = zlib.compress(b" " * (50 << 20))
    assert adapter.post(bomb, headers={"Content-Encoding": "gzip"}).status_code == 400


def test_unfinished_messages_of_consumers_are_closed_and_memory_is_given_back(tmp_path):
    """What a socket that only receives has sent is held as well; after it, and after slow readers, honest requests are
    answered.
    """
    log = EventLog(tmp_path)
    log.append("Counts", [json.dumps({"text": "x" * 900, "seen": number}).encode() for number in range(20_000)])
    log.close()
    with RunningAdapter(tmp_path, "--max-memory", 300 << 20) as running:
        for _ in range(2):
            sockets = [_web_socket_soon(running.port, "/streams/Counts?offset=latest") for _ in range(20)]
            for connection in sockets:
                with suppress(OSError):
                    connection.sendall(attacks.frame(attacks.TEXT, b"x" * 15_000_000, announced=16_000_000))
            readers = [
                attacks.sending(running.port, b"GET /streams/Counts?offset=earliest HTTP/1.1\r\nHost: localhost\r\n\r\n")
                for _ in range(400)
            ]
            time.sleep(2)
            for connection in (*sockets, *readers):
                connection.close()
        deadline = time.monotonic() + 10
        while running.post(b'{"text":"honest"}').status_code == 503:
            assert time.monotonic() < deadline
            time.sleep(0.2)


def _web_socket_soon(port, path):
    """Open one as soon as the adapter has given back what those before have held."""
    deadline = time.monotonic() + 10
    while True:
        try:
            return attacks.web_socket(port, path)
        except ConnectionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def test_many_consumers_at_once_are_no_more_than_are_served(adapter):
    asked = b"GET /streams/Counts?offset=latest HTTP/1.1\r\nHost: localhost\r\n\r\n"
    consumers = [attacks.sending(adapter.port, asked) for _ in range(CONSUMERS + 40)]
    statuses = [connection.recv(4096)[9:12] for connection in consumers]
    assert (statuses.count(b"200"), statuses.count(b"503")) == (CONSUMERS, 40)
    for connection in consumers:
        connection.close()


def test_a_body_that_is_slow_to_divide_keeps_no_other_waiting(adapter):
    slow = b"[[" + b"[[[[0]]]]," * 700_000 + b'"\\ud800"]]'
    attackers = [threading.Thread(target=adapter.post, args=(slow,)) for _ in range(4)]
    for attacker in attackers:
        attacker.start()
    time.sleep(0.5)
    large = adapter.post(json.dumps([{"text": "x" * 900}] * 200))
    assert large.status_code == 200
    for attacker in attackers:
        attacker.join()


def test_sockets_are_refused_with_the_reason(adapter):
    for path, status in (("/streams/Nope", 404), ("/nowhere", 404), ("/streams/Counts?offset=nine", 400)):
        with pytest.raises(InvalidStatus) as refused:
            websockets.sync.client.connect(adapter.url.replace("http", "ws") + path)
        assert refused.value.response.status_code == status
        assert json.loads(refused.value.response.body)["detail"]


@pytest.mark.parametrize("curve", ["secp521r1", "prime256v1"])
def test_keys_that_the_server_does_not_know_are_refused_before(tmp_path, curve):
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", f"ec_paramgen_curve:{curve}", "-nodes", "-days", "1"]
    subprocess.run(
        [*command, "-subj", "/CN=localhost", "-keyout", "key.pem", "-out", "cert.pem"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    arguments = ("--certificate", tmp_path / "cert.pem", "--private-key", tmp_path / "key.pem")
    if curve == "prime256v1":
        with RunningAdapter(tmp_path / "spool", *arguments, scheme="https") as running:
            assert httpx.get(f"{running.url}/health", verify=False).status_code == 200
        return
    script = [sys.executable, "-m", "penstock", "adapter", str(APP), *map(str, arguments), "--port", str(free_port())]
    done = subprocess.run(script, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert (done.returncode, "none of P-256 and P-384" in done.stderr) == (2, True)


def test_a_stop_answers_what_is_under_way_on_sockets_and_says_goodbye(tmp_path):
    with RunningAdapter(tmp_path, "--gate", "Words=1000,2s") as running:
        url = running.url.replace("http", "ws")
        with (
            websockets.sync.client.connect(f"{url}/streams/Words") as busy,
            websockets.sync.client.connect(f"{url}/streams/Words") as idle,
            websockets.sync.client.connect(f"{url}/streams/Counts?offset=latest") as consumer,
        ):
            busy.send(json.dumps({"text": "under way"}))
            time.sleep(0.3)
            running.process.send_signal(signal.SIGINT)
            assert json.loads(busy.recv(timeout=20))["accepted"] == 1
            for client in (busy, idle, consumer):
                with pytest.raises(ConnectionClosed) as closed:
                    client.recv(timeout=20)
                assert closed.value.rcvd.code == 1001
        assert running.process.wait(20) == 0


def test_a_second_signal_waits_for_nothing(tmp_path):
    with RunningAdapter(tmp_path, "--gate", "Words=1000,25s") as running:
        with suppress(httpx.HTTPError):
            httpx.post(f"{running.url}/streams/Words", json={"text": "waits"}, timeout=0.5)
        connection = attacks.sending(running.port, attacks.GET)
        running.process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(8) == 0  # GRACE_S is 10
        connection.close()
