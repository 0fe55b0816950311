"""Server: the application on a port, until it is told to stop."""

from __future__ import annotations

import os
import signal
import socket
from typing import TYPE_CHECKING

import uvicorn

from driftree.serve.app import make_app
from driftree.serve.connections import Connection
from driftree.serve.middleware import VARIABLE, is_loopback, read_token
from driftree.serve.recovery import open_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from driftree.serve.limits import Limits
    from driftree.serve.recovery import Recovered

BACKLOG = 128  # connections that the system keeps until they are taken
IDLE_SECONDS = 5  # of a connection between two requests
STOP_SECONDS = 10  # for requests that are being answered


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
