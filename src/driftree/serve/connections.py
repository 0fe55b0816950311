"""Connections: how long one may be open without a request, and which goes when there are too many.

uvicorn closes a connection that is silent after an answer, but waits for ever for the first
request, for the rest of a head or of a body that nobody reads, and for a client that does not take
its answer. Here every connection has a deadline unless a request is being answered.
"""

from __future__ import annotations

import json
import resource
from typing import TYPE_CHECKING, Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

HEAD_SECONDS = 10.0  # from the connection, or the answer before, to the end of a request's head
STALL_SECONDS = 30.0  # in which a client must take some of an answer:
STALL_BYTES = 2**15
WORDS = "the head of a request did not arrive in time"


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
        body = json.dumps({"detail": WORDS}).encode("ascii")
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
