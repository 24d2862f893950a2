"""The adapter as its clients see it: a real process, real requests, and all that clients do wrong."""

import asyncio
import gzip
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import attacks
import httpx
import pytest
import websockets
from adapters import APP, RunningAdapter, required
from websockets.exceptions import InvalidStatus

from penstock.adapter import EventLog
from penstock.adapter.consumers import CONSUMERS
from penstock.bench.servers.process import free_port
from penstock.connectors.log.log import Parcel

pytestmark = pytest.mark.servers

WORD = {"text": "gate"}
NDJSON = {"Content-Type": "application/x-ndjson"}


@pytest.fixture(scope="module")
def adapter(tmp_path_factory):
    arguments = ("--max-body", 100_000, "--max-event", 1_000, "--receive-within", "1 s")
    with RunningAdapter(tmp_path_factory.mktemp("spool"), *arguments) as running:
        yield running


def held(spool, stream="Words"):
    """The events in an adapter's log."""
    log = EventLog(spool, create=False)
    try:
        return [json.loads(record.payload) for record in log.read(stream, log.start(stream), log.end(stream))]
    finally:
        log.close()


def added(adapter, send):
    """What a request has added to the log, and its answer."""
    before = len(held(adapter.spool))
    answer = send()
    return held(adapter.spool)[before:], answer


# --- in -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "headers", "events"),
    [
        (json.dumps(WORD), {}, [WORD]),
        (json.dumps([WORD, {"text": "lock", "size": 2}]), {}, [WORD, {"text": "lock", "size": 2}]),
        ("[]", {}, []),
        ('{"text":"a"}\n\n{"text":"b"}\r\n', NDJSON, [{"text": "a"}, {"text": "b"}]),
        (gzip.compress(b'{"text":"a"}'), {"Content-Encoding": "gzip"}, [{"text": "a"}]),
        (' {"text":"\\u00e9 \\ud83d\\ude00", "other": [1]} ', {}, [{"text": "é 😀", "other": [1]}]),
    ],
    ids=["one", "many", "none", "lines", "gzip", "unicode"],
)
def test_events_are_in_the_log_when_the_answer_comes(adapter, content, headers, events):
    new, answer = added(adapter, lambda: adapter.post(content, headers=headers))
    assert answer.status_code == 200
    assert answer.json() == {"accepted": len(events), "duplicates": 0, "rejected": []}
    assert new == events


def test_each_rejected_event_comes_with_its_place_and_the_reason(adapter):
    events = [WORD, {"text": 5}, {"size": 1}, {"text": "b", "when": "no time"}, {"text": "x" * 2000}, [], None]
    new, answer = added(adapter, lambda: adapter.post(json.dumps(events)))
    assert (answer.status_code, new) == (200, [WORD])
    reasons = {each["index"]: each["reason"] for each in answer.json()["rejected"]}
    assert list(reasons) == [1, 2, 3, 4, 5, 6]
    assert "$.text" in reasons[1]
    assert "missing required field `text`" in reasons[2]
    assert "at most 1000" in reasons[4]


def test_a_request_none_of_whose_events_fits_is_422(adapter):
    assert adapter.post('{"text": 5}').status_code == 422


@pytest.mark.parametrize(
    ("status", "sentence", "request_"),
    [
        (400, "not JSON", {"content": '[{"text":"a"}'}),
        (400, "not JSON", {"content": "{text: a}"}),
        (400, "not JSON", {"content": b"\xff\xfe"}),
        (400, "empty", {"content": ""}),
        (400, "is not", {"content": "{}", "headers": {"Content-Encoding": "gzip"}}),
        (400, "cut off", {"content": gzip.compress(b"[" * 999)[:-9], "headers": {"Content-Encoding": "gzip"}}),
        (400, "characters", {"content": "{}", "headers": {"Idempotency-Key": "k" * 201}}),
        (400, "no field", {"content": "{}", "params": {"id": "nope"}}),
        (404, "there are Words, Counts", {"content": "{}", "stream": "Nope"}),
        (405, "is a result", {"content": "{}", "stream": "Counts"}),
        (413, "more than 100000 bytes", {"content": b" " * 100_001}),
        (413, "more than 100000 bytes", {"content": gzip.compress(b" " * 10_000_000), "headers": {"Content-Encoding": "gzip"}}),
        (415, "send application/json", {"content": "<a/>", "headers": {"Content-Type": "text/xml"}}),
        (415, "gzip", {"content": "{}", "headers": {"Content-Encoding": "br"}}),
    ],
)
def test_what_cannot_be_used_is_refused_with_one_sentence(adapter, status, sentence, request_):
    new, answer = added(adapter, lambda: adapter.post(**request_))
    assert (answer.status_code, new) == (status, [])
    assert answer.headers["content-type"] == "application/problem+json"
    assert sentence in answer.json()["detail"]


def test_nesting_too_deep_is_refused(adapter):
    deep = '{"text":"a","other":' + "[" * 20_000 + "]" * 20_000 + "}"
    new, answer = added(adapter, lambda: adapter.post(deep))
    assert answer.status_code in (400, 422)
    assert new == []


def test_a_repeated_request_does_no_harm(adapter):
    content = json.dumps([{"text": "once"}, {"text": 5}, {"text": "twice"}])
    first = adapter.post(content, headers={"Idempotency-Key": "k1"}).json()
    new, again = added(adapter, lambda: adapter.post(content, headers={"Idempotency-Key": "k1"}).json())
    assert (first["accepted"], first["duplicates"]) == (2, 0)
    assert (again["accepted"], again["duplicates"]) == (0, 2)
    assert (again["rejected"], new) == (first["rejected"], [])


def test_a_field_may_be_the_events_id(adapter):
    def send(*sizes):
        events = [{"text": "t", "size": size} for size in sizes]
        return adapter.post(json.dumps(events), params={"id": "size"}).json()["accepted"]

    assert [send(901, 902), send(902, 903, 903), send(901)] == [2, 1, 0]


def test_an_event_without_a_usable_id_is_rejected(adapter):
    events = [{"text": ""}, {"text": "a\0b"}, {"text": "x" * 201}, {"text": "good id"}]
    answer = adapter.post(json.dumps(events), params={"id": "text"}).json()
    assert (answer["accepted"], [each["index"] for each in answer["rejected"]]) == (1, [0, 1, 2])
    answer = adapter.post(json.dumps([WORD, WORD]), params={"id": "when"}).json()  # an optional field, and not there
    assert (answer["accepted"], answer["duplicates"], len(answer["rejected"])) == (0, 0, 2)


def test_too_many_events_at_once_are_refused(tmp_path):
    with RunningAdapter(tmp_path) as adapter:
        answer = adapter.post("[" + ",".join(["1"] * 100_001) + "]")
        assert (answer.status_code, "100000 events" in answer.json()["detail"]) == (413, True)


def test_many_clients_at_once_lose_nothing(adapter):
    async def send(client, number):
        for index in range(20):
            answer = await client.post(f"{adapter.url}/streams/Words", json={"text": f"c{number}", "size": index})
            assert answer.json()["accepted"] == 1

    async def all_of_them():
        async with httpx.AsyncClient() as client:
            await asyncio.gather(*(send(client, number) for number in range(30)))

    new, _ = added(adapter, lambda: asyncio.run(all_of_them()))
    assert sorted((event["text"], event["size"]) for event in new) == sorted(
        (f"c{number}", index) for number in range(30) for index in range(20)
    )
    for number in range(30):
        assert [event["size"] for event in new if event["text"] == f"c{number}"] == list(range(20))


def raw(adapter, head, *chunks, pause=0.0):
    """Send bytes as they are; what comes back."""
    with socket.create_connection(("127.0.0.1", adapter.port), timeout=20) as connection:
        connection.sendall(head)
        for chunk in chunks:
            time.sleep(pause)
            try:
                connection.sendall(chunk)
            except OSError:
                break
        connection.settimeout(5)
        try:
            return connection.recv(65536)
        except OSError:
            return b""


HEAD = b"POST /streams/Words HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16\r\n\r\n"


def test_a_byte_a_second_is_too_slow(adapter):
    new, answer = added(adapter, lambda: raw(adapter, HEAD, *[b"{"] * 4, pause=0.5))
    assert b" 408 " in answer
    assert new == []
    assert adapter.post(json.dumps(WORD)).status_code == 200


def test_a_client_that_vanishes_in_its_body_adds_nothing(adapter):
    def vanish():
        for sent in (HEAD[:20], HEAD, HEAD + b'{"text":"abc'):
            with socket.create_connection(("127.0.0.1", adapter.port)) as connection:
                connection.sendall(sent)
        time.sleep(0.3)

    new, _ = added(adapter, vanish)
    assert new == []
    assert adapter.get("/health").json() == {"status": "up"}


def test_a_socket_answers_each_message(adapter):
    async def talk():
        async with websockets.connect(f"ws://127.0.0.1:{adapter.port}/streams/Words") as connection:
            answers = []
            for message in (
                '{"text":"one"}',
                '[{"text":"two"},{"text":3}]',
                '{"text":"four"}\n{"text":"five"}',
                '{"key":"s1","events":[{"text":"six"}]}',
                '{"key":"s1","events":[{"text":"six"}]}',
                "nonsense",
            ):
                await connection.send(message)
                answers.append(json.loads(await connection.recv()))
            return answers

    new, answers = added(adapter, lambda: asyncio.run(talk()))
    assert [answer.get("accepted") for answer in answers] == [1, 1, 2, 1, 0, None]
    assert answers[1]["rejected"][0]["index"] == 1
    assert (answers[4]["key"], answers[4]["duplicates"]) == ("s1", 1)
    assert answers[5]["status"] == 400
    assert [event["text"] for event in new] == ["one", "two", "four", "five", "six"]


# --- out ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def results(adapter):
    """Some results, as a run leaves them."""
    payloads = [json.dumps({"text": "a/b ü", "by": n % 2, "seen": n}).encode() for n in range(10)]
    log = EventLog(adapter.spool).stream("Counts")
    log.append([Parcel(payloads, result_keys=[f"a%2Fb%20%C3%BC/{n % 2}" for n in range(10)])])
    return log


def server_sent(adapter, count, **params):
    """So many (id, event) of a stream, as server-sent events."""
    got, last = [], None
    with httpx.stream("GET", f"{adapter.url}/streams/Counts", params=params, timeout=20) as response:
        assert response.status_code == 200
        for line in response.iter_lines():
            if line.startswith("id:"):
                last = line[3:].strip()
            if line.startswith("data:"):
                got.append((last, json.loads(line[5:])["seen"]))
                if len(got) == count:
                    return got
    return got


def test_results_are_sent_from_an_offset_and_resumed(adapter, results):
    assert server_sent(adapter, 10, offset="earliest") == [(str(n + 1), n) for n in range(10)]
    assert server_sent(adapter, 2, offset="8") == [("9", 8), ("10", 9)]
    with httpx.stream("GET", f"{adapter.url}/streams/Counts", headers={"Last-Event-ID": "9"}, timeout=9) as response:
        assert "id: 10" in next(line for line in response.iter_lines() if line.startswith("id"))


def test_results_that_come_later_are_sent_when_they_come(adapter, results):
    got = []
    thread = threading.Thread(target=lambda: got.extend(server_sent(adapter, 1)))
    thread.start()
    time.sleep(1.0)
    results.append([Parcel([b'{"text":"z","by":0,"seen":99}'])])
    thread.join(10)
    assert [seen for _, seen in got] == [99]


def test_results_over_a_socket(adapter, results):
    async def listen():
        async with websockets.connect(f"ws://127.0.0.1:{adapter.port}/streams/Counts?offset=3") as connection:
            return [json.loads(await connection.recv()) for _ in range(3)]

    assert [(each["next"], each["event"]["seen"]) for each in asyncio.run(listen())] == [("4", 3), ("5", 4), ("6", 5)]


def test_consumers_that_have_gone_make_room_for_others(adapter, results):
    def consumers(count):
        for _ in range(count):
            with attacks.connect(adapter.port) as connection:
                connection.sendall(b"GET /streams/Counts?offset=latest HTTP/1.1\r\nHost: localhost\r\n\r\n")
                answered = connection.recv(4096)
            with attacks.web_socket(adapter.port, "/streams/Counts?offset=latest"):
                pass
            yield answered[9:12]

    statuses = list(consumers(CONSUMERS))
    assert set(statuses) == {b"200"}


def test_the_last_result_of_a_key(adapter, results):
    assert adapter.get("/results/Counts/a%2Fb%20%C3%BC/1").json()["seen"] == 9
    assert adapter.get("/results/Counts/a%2Fb%20%C3%BC/0").json()["seen"] == 8
    assert adapter.get("/results/Counts/a/b").status_code == 404
    assert adapter.get("/results/Totals/a").status_code == 409


@pytest.mark.parametrize(("offset", "status"), [("-1", 400), ("999999", 400), ("x" * 999, 400), ("٣", 400), ("9" * 5000, 400)])
def test_offsets_that_are_none(adapter, results, offset, status):
    assert adapter.get("/streams/Counts", params={"offset": offset}).status_code == status


def test_trimmed_events_are_gone(tmp_path):
    with RunningAdapter(tmp_path) as adapter:
        log = EventLog(tmp_path).stream("Counts")
        log.append([Parcel([b'{"text":"z","by":0,"seen":0}'] * 4)])
        log.trim(2)
        assert adapter.get("/streams/Counts", params={"offset": "1"}).status_code == 410
        assert "before offset 2" in adapter.get("/streams/Counts", params={"offset": "1"}).json()["detail"]


# --- who may, and how it goes -----------------------------------------------------------------------


def test_tokens_allow_their_role_only(tmp_path):
    tokens = {"produce": ["producer-secret"], "consume": ["consumer-secret"]}
    (tmp_path / "tokens.json").write_text(json.dumps(tokens))
    with RunningAdapter(tmp_path / "spool", "--tokens", tmp_path / "tokens.json") as adapter:

        def status(token, path, method="GET"):
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            return httpx.request(method, f"{adapter.url}{path}", headers=headers, content="{}").status_code

        assert status(None, "/streams/Words", "POST") == 401
        assert status("wrong-secret", "/streams/Words", "POST") == 401
        assert status("consumer-secret", "/streams/Words", "POST") == 403
        assert status("producer-secret", "/streams/Words", "POST") == 422
        assert status("producer-secret", "/results/Counts/a/0") == 403
        assert status("consumer-secret", "/results/Counts/a/0") == 404
        assert status("consumer-secret", "/streams/Words/gate") == 403
        assert status(None, "/metrics") == 401
        assert status(None, "/health") == 200
        query = httpx.get(f"{adapter.url}/results/Counts/a/0", params={"access_token": "consumer-secret"})
        assert query.status_code == 404

        async def knock():
            async with websockets.connect(f"ws://127.0.0.1:{adapter.port}/streams/Words") as connection:
                await connection.recv()

        with pytest.raises(InvalidStatus):
            asyncio.run(knock())
        assert held(tmp_path / "spool") == []


def test_the_gate_is_changed_while_running(tmp_path):
    with RunningAdapter(tmp_path, "--gate", "Words=1000,200ms") as adapter:
        assert adapter.get("/streams/Words/gate").json() == {"batch_size": 1000, "flush_timer_s": 0.2}
        began = time.monotonic()
        adapter.post(json.dumps(WORD))
        assert time.monotonic() - began > 0.15
        change = httpx.put(f"{adapter.url}/streams/Words/gate", json={"batch_size": 1, "flush_timer_s": 5})
        assert change.status_code == 200
        began = time.monotonic()
        adapter.post(json.dumps(WORD))
        assert time.monotonic() - began < 4
        for wrong in (
            {"batch_size": 0},
            {"batch_size": 1, "flush_timer_s": -1},
            {"batch_size": 1, "flush_timer_s": 60},
            {"size": 1},
            [],
        ):
            assert httpx.put(f"{adapter.url}/streams/Words/gate", json=wrong).status_code == 422


def test_a_plan_sets_the_gate(tmp_path):
    (tmp_path / "plan.json").write_text('{"gates": {"Words": {"batch_size": 7, "flush_timer_s": 0.5}}}')
    with RunningAdapter(tmp_path / "spool", "--plan", tmp_path / "plan.json") as adapter:
        assert adapter.get("/streams/Words/gate").json() == {"batch_size": 7, "flush_timer_s": 0.5}


def test_who_looks_around_is_told_where_to_look(adapter, results):
    assert adapter.get("/").json()["docs"] == "/docs"
    page = adapter.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "POST /streams/Words" in page.text
    assert "http" not in page.text.replace("http://HOST:PORT", "")  # it loads nothing
    for path in ("/results", "/results/Counts"):
        answer = adapter.get(path)
        assert answer.status_code == 404
        assert "/results/NAME/KEY" in answer.json()["detail"]
    with httpx.stream("GET", f"{adapter.url}/streams/Counts") as stream:  # says at once that it is there
        assert next(stream.iter_lines()).startswith(": events of Counts from ")


def test_metrics_schema_and_arrivals(adapter):
    adapter.post(json.dumps([WORD, WORD]))
    metrics = adapter.get("/metrics").text
    for name in ("accepted_events_total", "waiting_events", "acknowledgement_seconds_bucket", "arrival_rate", "store_bytes"):
        assert f"penstock_{name}{{" in metrics, name
    arrivals = adapter.get("/streams/Words/arrivals").json()
    assert arrivals["events"] >= 2
    assert arrivals["rate"] > 0
    schema = adapter.get("/schemas/Words").json()
    assert "text" in json.dumps(schema)
    assert {each["name"]: each["direction"] for each in adapter.get("/streams").json()} == {
        "Words": "in",
        "Counts": "out",
        "Totals": "out",
    }


def test_tls(tmp_path):
    required(shutil.which("openssl"), "openssl, to make a certificate")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            key,
            "-out",
            certificate,
            "-days",
            "2",
            "-subj",
            "/CN=127.0.0.1",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
        ],
        check=True,
        capture_output=True,
    )
    arguments = ("--certificate", certificate, "--private-key", key)
    with RunningAdapter(tmp_path / "spool", *arguments, scheme="https") as adapter:
        context = httpx.create_ssl_context(verify=str(certificate))
        assert httpx.post(f"{adapter.url}/streams/Words", json=WORD, verify=context).json()["accepted"] == 1


def test_pages_of_an_allowed_origin_may_use_it(tmp_path):
    with RunningAdapter(tmp_path, "--allow-origin", "https://page.example") as adapter:
        answer = adapter.post(json.dumps(WORD), headers={"Origin": "https://page.example"})
        assert answer.headers["access-control-allow-origin"] == "https://page.example"
        stranger = {"Origin": "https://other.example"}
        assert adapter.post(json.dumps(WORD), headers=stranger).status_code == 403
        assert adapter.post(json.dumps(WORD), headers={"Origin": adapter.url}).status_code == 200

        async def listen():
            async with websockets.connect(f"ws://127.0.0.1:{adapter.port}/streams/Words", origin=stranger["Origin"]):
                pass

        with pytest.raises(InvalidStatus):
            asyncio.run(listen())


# --- what goes wrong --------------------------------------------------------------------------------


def test_kill_9_loses_nothing_acknowledged_and_a_retry_doubles_nothing(tmp_path):
    acknowledged = []
    with RunningAdapter(tmp_path) as adapter:
        stopped = threading.Event()

        def send(name):
            number = 0
            while not stopped.is_set():
                try:
                    content = json.dumps([{"text": name, "size": number * 5 + index} for index in range(5)])
                    if (
                        adapter.post(
                            content,
                            params={"id": "size"} if name == "a" else {},
                            headers={} if name == "a" else {"Idempotency-Key": f"{name}{number}"},
                        ).status_code
                        == 200
                    ):
                        acknowledged.append((name, number))
                        number += 1
                except httpx.TransportError:
                    time.sleep(0.05)

        senders = [threading.Thread(target=send, args=(name,)) for name in "abc"]
        for sender in senders:
            sender.start()
        for kill in range(3):
            while len(acknowledged) < 20 * (kill + 1):
                time.sleep(0.001)
            adapter.kill()
            adapter.start()
        stopped.set()
        for sender in senders:
            sender.join()
    got = [(event["text"], event["size"]) for event in held(tmp_path)]
    assert len(set(got)) == len(got)
    assert {(name, number * 5 + index) for name, number in acknowledged for index in range(5)} <= set(got)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_after_what_is_under_way(tmp_path, number):
    with RunningAdapter(tmp_path, "--gate", "Words=1000,500ms") as adapter:
        answers = []
        thread = threading.Thread(target=lambda: answers.append(adapter.post(json.dumps(WORD)).json()))
        thread.start()
        time.sleep(0.2)
        code, said = adapter.stop(number)
        thread.join()
        assert code == 0
        assert "Traceback" not in said
    assert answers == [{"accepted": 1, "duplicates": 0, "rejected": []}]
    assert held(tmp_path) == [WORD]


@pytest.fixture
def small_disk(tmp_path):
    """A file system of one megabyte, for root only."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], capture_output=True)
    required(mounted.returncode == 0, "root and the right to mount, for a disk that fills up")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_full_disk_is_answered_with_503_until_there_is_room(small_disk):
    (small_disk / "ballast").write_bytes(b"x" * 400_000)
    with RunningAdapter(small_disk / "spool") as adapter:
        accepted = 0
        for number in range(40):
            content = json.dumps([{"text": f"{number}" * 100, "size": number}] * 100)
            answer = adapter.post(content)
            if answer.status_code != 200:
                break
            accepted += 100
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        assert "cannot be written" in answer.json()["detail"]
        assert adapter.get("/health").status_code == 200
        (small_disk / "ballast").unlink()
        again = adapter.post(json.dumps(WORD))
        assert again.status_code == 200
    assert len(held(small_disk / "spool")) == accepted + 1


def test_a_disk_that_becomes_read_only_is_answered_with_503(small_disk):
    with RunningAdapter(small_disk / "spool") as adapter:
        assert adapter.post(json.dumps(WORD)).status_code == 200
        adapter.kill()
        subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
        adapter.start()
        answer = adapter.post(json.dumps(WORD))
        assert answer.status_code == 503
        assert "cannot be" in answer.json()["detail"]
        subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
        assert adapter.post(json.dumps(WORD)).status_code == 200
    assert held(small_disk / "spool") == [WORD, WORD]


def test_memory_is_bounded(tmp_path):
    with RunningAdapter(tmp_path, "--gate", "Words=1000000,2s", "--max-held", "50000") as adapter:
        body = json.dumps([{"text": "x" * 1000}] * 10)

        async def all_of_them():
            async with httpx.AsyncClient(timeout=30) as client:
                return await asyncio.gather(*(client.post(f"{adapter.url}/streams/Words", content=body) for _ in range(20)))

        statuses = [answer.status_code for answer in asyncio.run(all_of_them())]
        assert set(statuses) == {200, 503}
    assert len(held(tmp_path)) == 10 * statuses.count(200)


def test_a_store_that_does_not_answer_is_503_and_no_event_is_doubled(tmp_path):
    with RunningAdapter(tmp_path, "--answer-within", "1 s") as adapter:
        import sqlite3

        blocking = sqlite3.connect(tmp_path / "Words.log.sqlite", isolation_level=None)
        blocking.execute("BEGIN IMMEDIATE")
        answer = adapter.post(json.dumps(WORD), headers={"Idempotency-Key": "b"})
        assert answer.status_code == 503
        assert "not answered within" in answer.json()["detail"]
        blocking.execute("COMMIT")
        blocking.close()
        again = adapter.post(json.dumps(WORD), headers={"Idempotency-Key": "b"})
        assert again.json()["accepted"] + again.json()["duplicates"] == 1
    assert held(tmp_path) == [WORD]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--port", "PORT"], "cannot listen on 127.0.0.1:PORT"),
        (["--host", "no.such.host.invalid"], "cannot listen on no.such.host.invalid"),
        (["--tokens", "none.json"], "cannot be read"),
        (["--certificate", "none.pem"], "both --certificate and --private-key"),
        (["--certificate", "none.pem", "--private-key", "none.pem"], "must be PEM files"),
        (["--gate", "Words=many"], "a batch size and a flush timer"),
        (["--gate", "Words=0"], "batch_size from 1"),
        (["--gate", "Words=5,1m"], "is not below the 30 s"),
        (["--gate", "Nope=5"], "no such stream here as Nope"),
        (["--stream", "Nope=kafka:127.0.0.1:1/x"], "no such stream here as Nope"),
        (["--stream", "Words=kafka:127.0.0.1:1"], "write kafka:HOST:PORT/TOPIC"),
        (["--plan", "none.json"], "The plan none.json cannot be read"),
    ],
)
def test_options_that_cannot_be_used_are_one_sentence(tmp_path, arguments, sentence):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        arguments = [argument.replace("PORT", port) if argument == "PORT" else argument for argument in arguments]
        command = [sys.executable, "-m", "penstock", "adapter", str(APP), "--spool", str(tmp_path / "spool")]
        command += arguments if "--port" in arguments else ["--port", str(free_port()), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 2
    assert (sentence.replace("1:PORT", f"1:{port}")) in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_file_size_limit_is_a_full_disk(tmp_path):
    command = [sys.executable, "-m", "penstock", "adapter", str(APP), "--spool", str(tmp_path)]
    adapter = RunningAdapter.__new__(RunningAdapter)
    adapter.port, adapter.spool = free_port(), tmp_path
    adapter.url = f"http://127.0.0.1:{adapter.port}"
    adapter._command = [*command, "--port", str(adapter.port)]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
    try:
        adapter.start()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with adapter:
        answers = [adapter.post(json.dumps([{"text": os.urandom(400).hex()}] * 100)).status_code for _ in range(8)]
        assert answers[-1] == 503
    assert len(held(tmp_path)) == 100 * answers.count(200)
