"""Server: runs the application on a port until it is stopped.

uvicorn closes a connection that is idle after a response, but waits forever for the first request,
for the rest of the headers or of a body that nobody reads, and for a client that does not read its
response. Here every connection has a deadline unless a request is in progress.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from driftree.explain.changes import Listener, can_tell
from driftree.serve.app import make_app
from driftree.serve.middleware import VARIABLE, is_loopback, read_token
from driftree.serve.recovery import Follower, open_model

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from pathlib import Path

    from driftree.explain.changes import OnChange, OnDrift
    from driftree.serve.recovery import Recovered
    from driftree.serve.requests import Limits

BACKLOG = 128  # connections that wait to be accepted
IDLE_SECONDS = 5  # between two requests of a connection
STOP_SECONDS = 10  # for requests in progress at shutdown
HEAD_SECONDS = 10.0  # from connecting, or the last response, to the end of the headers
STALL_SECONDS = 30.0  # in which a client must read this much of a response:
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
    follow: bool = False,
    tell: Callable[[Recovered, str, int], None],
    on_change: OnChange | None = None,
    on_drift: OnDrift | None = None,
    **made: Any,
) -> None:
    """Serve a model until SIGTERM or SIGINT, then save it.

    Parameters
    ----------
    path, new, read_only, limits, snapshot_every, without_journal, **made
        As in `open_model`; the last are those of a new model.
    host, port : str, int
        Where to listen; port 0 is any free port. A host that other machines reach needs a token.
    token_file : Path or None
        File with the token; None: DRIFTREE_TOKEN, if that is set.
    follow : bool, default=False
        With `read_only`: reload the model whenever another server saves it.
    tell : callable
        Called with what was recovered, host and port, just before requests are accepted.
    on_change, on_drift : callable, optional
        Called with each change and each drift of the model, by the thread that learns, after the
        batch was acknowledged. What they raise is logged.
    """
    token = read_token(token_file)
    only_loopback = is_loopback(host)
    if token is None and not only_loopback:
        raise ValueError(
            f"listening on {host} makes the server reachable from other machines and needs a "
            f"token: set {VARIABLE}, or "
            "give --token-file"
        )
    if follow and not read_only:
        raise ValueError(
            "--follow is for --read-only: a server that learns already has the newest model"
        )
    family, address = _resolve(host, port)
    # With IPPROTO_TCP, asyncio turns off Nagle's algorithm, which delays responses by 40 ms.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)  # no connection is accepted before the model is loaded
        recovered = open_model(
            path,
            new=new,
            read_only=read_only,
            limits=limits,
            snapshot_every=snapshot_every,
            without_journal=without_journal,
            **made,
        )
        writer = recovered.writer
        if can_tell(writer.model):
            writer.listener = Listener(on_change, on_drift)
            writer.listener.skip(writer.model)
        writer.start()
        try:
            app = make_app(writer, token=token, only_loopback=only_loopback)
            server = _make_server(app)
            listener.listen(BACKLOG)
            tell(recovered, host, listener.getsockname()[1])
            with Follower(writer, path) if follow else nullcontext():
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
    """Return a server that from now on shuts down cleanly on SIGTERM and SIGINT."""
    server = uvicorn.Server(make_config(app))

    def stop(*_: object) -> None:
        server.should_exit = True

    # uvicorn installs its own handlers when it runs. At the end it raises the signal once more,
    # which must not end the process.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    return server


def make_config(app: object) -> uvicorn.Config:
    """Return the configuration of uvicorn; the middleware limits concurrent requests."""
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
    """Return how many connections may be open: fewer than the limit of open files."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 512 if most < 0 else max(16, min(512, most - 64))


MAX_OPEN = _most_open()  # beyond, the connection that has been idle longest is closed


class Connection(H11Protocol):
    """HTTP/1.1 connection that is closed when its client neither sends nor reads."""

    _timer: asyncio.TimerHandle | None = None
    _unsent = 0  # bytes, when the timer was set
    _idle_since = 0.0

    # ------------------------------------------------------------------ what uvicorn calls
    def connection_made(self, transport: Any) -> None:
        """Start the deadline, and make room if too many connections are open."""
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > MAX_OPEN:
            self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the deadline."""
        self._stop_waiting()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Process what has arrived; only complete headers cancel the deadline."""
        super().handle_events()
        if not self.is_idle:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        """Start the deadline for the next request, and for what the client has yet to read."""
        super().on_response_complete()
        if not self.is_answering:  # a pipelined request may follow
            self._wait()

    def pause_writing(self) -> None:
        """Start the deadline for a client that does not read its response."""
        super().pause_writing()
        self._wait()

    def resume_writing(self) -> None:
        """Cancel the deadline, since the client reads again."""
        super().resume_writing()
        self._stop_waiting()
        if not self.is_answering:
            self._wait()

    # ------------------------------------------------------------------ the deadline
    @property
    def is_answering(self) -> bool:
        """Whether there is a request whose response is not complete."""
        cycle: Any = self.cycle  # None before the first request
        return cycle is not None and not cycle.response_complete

    @property
    def is_idle(self) -> bool:
        """Whether the client has to act next."""
        return not self.is_answering or self.flow.write_paused

    @property
    def is_sending(self) -> bool:
        """Whether the client has yet to send the rest of a body."""
        return self.is_answering and bool(self.cycle.more_body)

    def _wait(self) -> None:
        if self._timer is not None:
            return
        self._idle_since = self.loop.time()
        self._unsent = self.transport.get_write_buffer_size()
        seconds = STALL_SECONDS if self._unsent else HEAD_SECONDS
        self._timer = self.loop.call_later(seconds, self._end_wait)

    def _make_room(self) -> None:
        """Close the connection that has been idle longest, or else sending a body for longest."""
        others: Any = self.connections
        staying: list[Connection] = [one for one in others if not one.transport.is_closing()]
        if len(staying) > MAX_OPEN:
            idle = [one for one in staying if one.is_idle and one is not self]
            slow = [one for one in staying if one.is_sending]
            found = min(idle or slow or [self], key=lambda one: one._idle_since)
            found.transport.abort()

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end_wait(self) -> None:
        """Close the connection, unless its client reads a response fast enough."""
        self._timer = None
        unsent = self.transport.get_write_buffer_size()
        if unsent and self._unsent - unsent >= STALL_BYTES:
            self._wait()
        elif unsent or self.transport.is_closing():
            self.transport.abort()  # unsent bytes would keep it open
        else:
            if self.conn.our_state is h11.IDLE:  # otherwise the rest of a body after a response
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
