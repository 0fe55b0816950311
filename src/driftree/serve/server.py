"""Server: the application on a port, until it is told to stop.

uvicorn closes a connection that is silent after an answer, but waits for ever for the first
request, for the rest of a head or of a body that nobody reads, and for a client that does not take
its answer. Here every connection has a deadline unless a request is being answered.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
from typing import TYPE_CHECKING, Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from driftree.serve.app import make_app
from driftree.serve.middleware import VARIABLE, is_loopback, read_token
from driftree.serve.recovery import open_model

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from pathlib import Path

    from driftree.serve.recovery import Recovered
    from driftree.serve.requests import Limits

BACKLOG = 128  # connections that the system keeps until they are taken
IDLE_SECONDS = 5  # of a connection between two requests
STOP_SECONDS = 10  # for requests that are being answered
HEAD_SECONDS = 10.0  # from the connection, or the answer before, to the end of a request's head
STALL_SECONDS = 30.0  # in which a client must take some of an answer:
STALL_BYTES = 2**15
LATE = "the headers of the request did not arrive in time"


def serve(
    path: Path,
    *,
    host: str,
    port: int,
    token_file: Path | None,
    new: bool,
    read_only: bool,
    limits: Limits,
    snapshot_every: int,
    without_journal: bool,
    tell: Callable[[Recovered, str, int], None],
) -> None:
    """Serve a model until SIGTERM or SIGINT, then save it.

    Parameters
    ----------
    path, new, read_only, limits, snapshot_every, without_journal
        As in `open_model`.
    host, port : str, int
        Where to listen; 0 is any free port. Beyond this machine a token is needed.
    token_file : Path or None
        Where the token is; None: in DRIFTREE_TOKEN, or nowhere.
    tell : callable
        Is told what was recovered and where the server is, just before it begins to answer.
    """
    token = read_token(token_file)
    only_loopback = is_loopback(host)
    if token is None and not only_loopback:
        raise ValueError(
            f"listening on {host} lets other machines in, which needs a token: set {VARIABLE}, or "
            "give --token-file"
        )
    family, address = _resolve(host, port)
    # Told that it is TCP, asyncio turns Nagle's algorithm off: answers would wait for 40 ms.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)  # nobody is let in before the model is there
        recovered = open_model(
            path,
            new=new,
            read_only=read_only,
            limits=limits,
            snapshot_every=snapshot_every,
            without_journal=without_journal,
        )
        writer = recovered.writer
        writer.start()
        try:
            app = make_app(writer, token=token, only_loopback=only_loopback)
            server = _make_server(app)
            listener.listen(BACKLOG)
            tell(recovered, host, listener.getsockname()[1])
            server.run(sockets=[listener])
        finally:
            writer.close()
            if recovered.lock is not None:
                os.close(recovered.lock)
    if writer.failure is not None:
        raise OSError(writer.failure)


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, tuple[object, ...]]:
    kind = socket.SOCK_STREAM
    family, _, _, _, address = socket.getaddrinfo(host, port, type=kind)[0]
    return family, address


def _make_server(app: object) -> uvicorn.Server:
    """Return a server that ends in order when it is told to, at any time from now on."""
    server = uvicorn.Server(make_config(app))

    def stop(*_: object) -> None:
        server.should_exit = True

    # uvicorn's own handlers come when it runs. At the end it sends itself the signal once more,
    # which has had its effect.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    return server


def make_config(app: object) -> uvicorn.Config:
    """Return how uvicorn runs an application; the middleware limits the requests at a time."""
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        loop="asyncio",
        http=Connection,
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS,
    )


# ---------------------------------------------------------------------- connections
def _most_open() -> int:
    """Return how many connections may be open: fewer than the files that the system allows."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 512 if most < 0 else max(16, min(512, most - 64))


MAX_OPEN = _most_open()  # beyond, the connection that has been silent longest goes


class Connection(H11Protocol):
    """HTTP/1.1 whose connections end when nothing is asked, or nothing taken."""

    _timer: asyncio.TimerHandle | None = None
    _unsent = 0  # bytes, when the timer was set
    _silent_since = 0.0

    # ------------------------------------------------------------------ what uvicorn calls
    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request, and make room if there are too many who do."""
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > MAX_OPEN:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop to wait."""
        self._stop_waiting()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Take what has arrived; only a whole head ends the wait, not the bytes of one."""
        super().handle_events()
        if not self.is_silent:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        """Wait for the next request, and for what the client has not taken yet."""
        super().on_response_complete()
        if not self.is_answering:  # there may have been another one behind it
            self._wait()

    def pause_writing(self) -> None:
        """Wait for a client that does not take its answer."""
        super().pause_writing()
        self._wait()

    def resume_writing(self) -> None:
        """Go on: it does."""
        super().resume_writing()
        self._stop_waiting()
        if not self.is_answering:
            self._wait()

    # ------------------------------------------------------------------ the deadline
    @property
    def is_answering(self) -> bool:
        """Whether there is a request whose answer is not complete."""
        cycle: Any = self.cycle  # None before the first request
        return cycle is not None and not cycle.response_complete

    @property
    def is_silent(self) -> bool:
        """Whether the other side has to do something first."""
        return not self.is_answering or self.flow.write_paused

    def _wait(self) -> None:
        if self._timer is not None:
            return
        self._silent_since = self.loop.time()
        self._unsent = self.transport.get_write_buffer_size()
        seconds = STALL_SECONDS if self._unsent else HEAD_SECONDS
        self._timer = self.loop.call_later(seconds, self._end_wait)

    def _make_room(self) -> None:
        others: Any = self.connections
        staying: list[Connection] = [one for one in others if not one.transport.is_closing()]
        if len(staying) > MAX_OPEN:
            silent = (one for one in staying if one.is_silent)  # this one, at least
            min(silent, key=lambda one: one._silent_since).transport.abort()

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end_wait(self) -> None:
        """Close the connection, unless its client is taking an answer at a fair speed."""
        self._timer = None
        unsent = self.transport.get_write_buffer_size()
        if unsent and self._unsent - unsent >= STALL_BYTES:
            self._wait()
        elif unsent or self.transport.is_closing():
            self.transport.abort()  # what is unsent would keep it open
        else:
            if self.conn.our_state is h11.IDLE:  # else it is the body after an answer
                self._refuse()
            self.transport.close()

    def _refuse(self) -> None:
        body = json.dumps({"detail": LATE}).encode("ascii")
        length = str(len(body)).encode("ascii")
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", length),
            (b"connection", b"close"),
        ]
        for event in (
            h11.Response(status_code=408, headers=headers, reason=b"Request Timeout"),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
