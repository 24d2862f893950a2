"""The adapter towards those who do not mean well, or send the wrong thing twice."""

import json
import socket
import time
import zlib
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
import websockets.sync.client
from adapters import RunningAdapter
from websockets.exceptions import ConnectionClosed

from penstock.connectors.log import EventLog

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
        return [
            json.loads(record.payload)["text"] for record in log.read("Words", log.start("Words"), log.end("Words"))
        ]
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


def quick(adapter):
    """How long the slowest of some honest requests takes."""
    slowest = 0.0
    for _ in range(5):
        began = time.monotonic()
        assert httpx.post(f"{adapter.url}/streams/Words", json={"text": "honest"}, timeout=20).status_code == 200
        slowest = max(slowest, time.monotonic() - began)
    return slowest


def send_without_end(connection):
    for _ in range(1_000):
        connection.sendall(b"a" * 100_000)


def test_attacks_do_not_grow_without_bound_nor_keep_others_waiting(adapter):
    """The bounds are those that the how-to states; 10 s is far more than the second that it takes."""
    connections = []

    def connect(request):
        connection = socket.create_connection(("127.0.0.1", adapter.port))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(request)
        connections.append(connection)
        return connection

    for _ in range(200):
        connect(b"GET /streams/Counts?offset=earliest HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert quick(adapter) < 10
    endless = connect(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ")
    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        send_without_end(endless)
    for _ in range(300):
        connect(b"")
    assert quick(adapter) < 10
    assert peak_mb(adapter) < 700
    for connection in connections:
        connection.close()


def test_a_socket_takes_no_packed_bombs(adapter):
    url = adapter.url.replace("http", "ws") + "/streams/Words"
    with websockets.sync.client.connect(url) as client:
        assert not client.protocol.extensions
        client.send(json.dumps({"text": "through"}))
        assert json.loads(client.recv())["accepted"] == 1
        with suppress(ConnectionClosed):  # it may be told while it is sending
            client.send(b"[" + b" " * (13 << 20) + b"]")
        with pytest.raises(ConnectionClosed):
            client.recv(timeout=20)
    assert peak_mb(adapter) < 700
    bomb = zlib.compress(b" " * (50 << 20))
    assert adapter.post(bomb, headers={"Content-Encoding": "gzip"}).status_code == 400
