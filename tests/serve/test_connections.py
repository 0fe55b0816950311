"""Connections on real sockets: idle and stalled clients are closed and harm nobody."""

import contextlib
import http.client
import json
import socket
import threading
import time

import pytest
import uvicorn

import driftree.serve.server as serving
from driftree import DynamicModelTreeClassifier
from driftree.serve.app import make_app
from driftree.serve.requests import Limits
from driftree.serve.writer import Writer

PATIENCE = 30  # seconds, after which a test has failed
GET = b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Running:
    """A server in a thread."""

    def __init__(self, app):
        self.server = uvicorn.Server(serving.make_config(app))
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.thread = threading.Thread(target=self.server.run, args=([self.listener],))
        self.thread.start()

    @property
    def n_open(self):
        return len(self.server.server_state.connections)

    def connect(self, data=b"", receive_buffer=None):
        client = socket.socket()
        if receive_buffer is not None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        client.settimeout(PATIENCE)
        client.connect(self.listener.getsockname())
        client.sendall(data)
        return client

    def get(self, path):
        """Return the status of an answer."""
        with self.connect(GET % path) as client:
            return int(client.recv(12).split()[1])

    def end(self):
        self.server.should_exit = True
        self.thread.join()
        self.listener.close()


def keep(**limits):
    """Return a writer that only reads."""
    model = DynamicModelTreeClassifier()
    model.learn_one({"a": 1.0}, "up")
    return Writer(model, None, None, limits=Limits(**limits))


@contextlib.contextmanager
def running(app=None, **limits):
    server = Running(make_app(keep(**limits)) if app is None else app)
    try:
        yield server
    finally:
        server.end()


@pytest.fixture
def hurry(monkeypatch):
    monkeypatch.setattr(serving, "HEAD_SECONDS", 0.3)
    monkeypatch.setattr(serving, "STALL_SECONDS", 1.0)


def read_to_end(client):
    """Return what comes until the server closes; fail if it does not."""
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := client.recv(2**16):
            parts.append(part)
    return b"".join(parts)


def drip(client, data):
    """Send bytes one by one until there is nobody to take them; fail if that does not happen."""
    begin = time.monotonic()
    with contextlib.suppress(ConnectionError):
        for i in range(10**9):
            client.sendall(data[i % len(data) :][:1])
            time.sleep(0.02)
            assert time.monotonic() - begin < PATIENCE


def until(condition):
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() - begin < PATIENCE
        time.sleep(0.01)


# ---------------------------------------------------------------------- who asks nothing
BODY = b"Content-Length: 1000000\r\n\r\n"
POST = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n" + BODY
STARTS = {
    "silence": (b"", b""),
    "a head without end": (b"GET /health HTTP/1.1\r\n", b"X: y\r\n"),
    "empty lines": (b"", b"\r\n"),
    "after an answer": (GET % b"/health", b"X"),
    "a body that nobody reads": (b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + BODY, b"{"),
    "a body after its refusal": (POST, b"{"),
}


@pytest.mark.usefixtures("hurry")
@pytest.mark.parametrize("start", STARTS)
def test_whoever_does_not_ask_is_cut_off(start):
    first, rest = STARTS[start]
    with running() as server, server.connect(first) as client:
        if rest:
            drip(client, rest)
        else:
            head, _, body = read_to_end(client).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 408 ")
            assert json.loads(body) == {"detail": serving.LATE}
        until(lambda: server.n_open == 0)
        assert server.get(b"/health") == 200


def test_a_connection_serves_requests_for_longer_than_a_head_may_take(monkeypatch):
    monkeypatch.setattr(serving, "HEAD_SECONDS", 2.0)
    with running() as server, server.connect() as client:
        connection = http.client.HTTPConnection("localhost")
        connection.sock = client  # the same one for all
        for _ in range(25):
            connection.request("GET", "/health")
            assert connection.getresponse().read()
            time.sleep(0.1)
        assert connection.sock is client


def test_the_silent_do_not_count_against_those_who_speak():
    with running() as server, contextlib.ExitStack() as stack:
        for _ in range(300):  # more than the requests that may be answered at a time
            stack.enter_context(server.connect(b"GET /"))
        until(lambda: server.n_open == 300)
        assert [server.get(path) for path in (b"/health", b"/model")] == [200, 200]


def test_when_too_many_are_open_the_longest_silent_one_goes(monkeypatch):
    monkeypatch.setattr(serving, "MAX_OPEN", 20)
    with running() as server, contextlib.ExitStack() as stack:
        busy = stack.enter_context(server.connect(SLOW))
        for i in range(100):
            stack.enter_context(server.connect())
            if i % 10 == 0:
                assert server.get(b"/health") == 200
        until(lambda: server.n_open <= 20)
        busy.sendall(b"{" * 1_000_000)  # it was being answered, and still is
        assert busy.recv(12) == b"HTTP/1.1 400"


SLOW = POST.replace(b"text/plain", b"application/json")


def test_whoever_sends_a_body_slowly_is_cut_off():
    with running(body_seconds=0.3) as server, server.connect(SLOW) as client:
        for _ in range(10):  # each is in time, all together are not
            client.sendall(b" ")
            time.sleep(0.02)
        assert read_to_end(client).startswith(b"HTTP/1.1 408 ")
        until(lambda: server.n_open == 0)


def test_slow_bodies_do_not_count_against_those_who_ask():
    with running(max_requests=3) as server, contextlib.ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(server.connect(SLOW + b"{"))
        until(lambda: server.n_open == 100)
        assert [server.get(path) for path in (b"/health", b"/model")] == [200, 200]


def test_when_all_who_are_open_send_slowly_the_longest_at_it_goes(monkeypatch):
    monkeypatch.setattr(serving, "MAX_OPEN", 20)
    with running() as server, contextlib.ExitStack() as stack:
        clients = []
        for i in range(20):
            clients.append(stack.enter_context(server.connect(SLOW + b"{")))
            until(lambda n=i + 1: server.n_open == n)
        time.sleep(0.2)  # until all have begun
        assert server.get(b"/model") == 200
        assert read_to_end(clients[0]) == b""
        clients[1].sendall(b"{" * 999_999)
        assert clients[1].recv(12) == b"HTTP/1.1 400"


# ---------------------------------------------------------------------- who takes nothing
@pytest.mark.usefixtures("hurry")
def test_whoever_does_not_take_the_answers_is_cut_off():
    with running() as server, server.connect(receive_buffer=4096) as client:
        with contextlib.suppress(ConnectionError):
            for _ in range(10**6):
                client.sendall(GET % b"/openapi.json" * 100)
        until(lambda: server.n_open == 0)


@pytest.mark.usefixtures("hurry")
def test_whoever_takes_an_answer_slowly_gets_all_of_it():
    size = 15_000_000

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * size})

    with running(app) as server, server.connect(GET % b"/", receive_buffer=2**16) as client:
        n_bytes = 0
        while part := client.recv(2**18, socket.MSG_WAITALL):
            n_bytes += len(part)
            time.sleep(0.02)
            if n_bytes >= size:
                break
        assert n_bytes >= size


# ---------------------------------------------------------------------- who asks too much
def test_more_requests_at_a_time_than_allowed_get_503_but_health_is_told():
    slow = SLOW.replace(b"1000000", b"17")
    writer = keep(max_requests=2)
    with running(make_app(writer)) as server, contextlib.ExitStack() as stack:
        late = stack.enter_context(server.connect(slow))
        with writer.still():  # whoever asks for the model waits
            clients = [stack.enter_context(server.connect(GET % b"/model")) for _ in range(2)]
            until(lambda: server.get(b"/metrics") == 503)
            assert server.get(b"/health") == 200
            late.sendall(b'{"rows":[{"a":1}]')  # it comes when there is no room any more
            assert late.recv(12) == b"HTTP/1.1 503"
        for client in clients:
            assert client.recv(12) == b"HTTP/1.1 200"
        until(lambda: server.get(b"/model") == 200)
