"""Middleware: access control and request metrics, before anything else runs.

The metrics are counts and durations of requests, in the text format of Prometheus.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import re
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from driftree.serve.requests import Refusal, busy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MIN_TOKEN = 16  # characters
OPEN_PATHS = frozenset({"/health", "/openapi.json"})  # they reveal nothing about the model
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
VARIABLE = "DRIFTREE_TOKEN"
# RFC 9110, 7.2: a name or an address, IPv6 in brackets; then a port, or nothing
HOST = re.compile(r"(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[0-9A-Za-z.-]+))(?::[0-9]{0,5})?")


def read_token(token_file: Path | None) -> str | None:
    """Return the token from a file, else from DRIFTREE_TOKEN; None if there is none.

    Never from the command line, which every user of the machine can see.
    """
    if token_file is not None:
        token, where = token_file.read_text(encoding="utf-8").strip(), str(token_file)
    elif VARIABLE in os.environ:
        token, where = os.environ[VARIABLE].strip(), VARIABLE
    else:
        return None
    if not re.fullmatch(rf"[!-~]{{{MIN_TOKEN},}}", token):
        raise ValueError(
            f"the token in {where} must have {MIN_TOKEN} or more printable ASCII characters "
            "without spaces: make one with python -c 'import secrets; print(secrets.token_hex())'"
        )
    return token


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach an address.

    Examples
    --------
    >>> [is_loopback(host) for host in ("localhost", "127.0.0.1", "::1", "0.0.0.0", "example.org")]
    [True, True, True, False, False]
    """
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class AccessMiddleware:
    """ASGI middleware that checks host, token and load, and records metrics.

    Parameters
    ----------
    app : ASGI application
        The application to protect.
    refuse : callable
        Makes a response of a `Refusal`.
    token : str or None
        What clients must send as ``Authorization: Bearer ...``; None: no token is needed.
    only_loopback : bool
        Whether the Host header must name this machine. That stops DNS rebinding: a web page whose
        own name is made to resolve to this machine.
    max_requests : int
        Requests that may be in progress at the same time; rejected ones, those for open paths and
        those whose client is still sending do not count.
    metrics : Metrics
        Where requests are counted.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        refuse: Callable[[Refusal], Any],
        token: str | None,
        only_loopback: bool,
        max_requests: int,
        metrics: Metrics,
    ) -> None:
        self.app = app
        self.refuse = refuse
        self.only_loopback = only_loopback
        self.max_requests = max_requests
        self.metrics = metrics
        self._n_running = 0
        self._digest = None if token is None else _digest(token.encode("ascii"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begin, status = time.perf_counter(), 500

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            try:
                self.check(scope)
            except Refusal as refusal:
                await self.refuse(refusal)(scope, receive, watch)
            else:
                await self._run(scope, receive, watch)
        finally:
            # Clients choose paths and methods: only known ones become labels of metrics.
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if scope["method"] in METHODS else "other"
            self.metrics.observe(method, route, status, time.perf_counter() - begin)

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        n = 0 if scope["path"] in OPEN_PATHS else 1

        async def wait() -> Message:  # for a client, who may be slow
            self._n_running -= n
            try:
                message = await receive()
            finally:
                self._n_running += n
            if n and self._n_running > self.max_requests:  # others came meanwhile
                raise self._full()
            return message

        self._n_running += n
        try:
            await self.app(scope, wait, send)
        finally:
            self._n_running -= n

    def check(self, scope: Scope) -> None:
        """Raise `Refusal` if a request must not be passed on."""
        headers = _headers(scope)
        if self.only_loopback and not is_loopback(_host_name(headers.get(b"host", b""))):
            raise Refusal(421, "this server answers only to localhost, 127.0.0.1 and [::1]")
        if scope["path"] in OPEN_PATHS:
            return
        if self._digest is not None:
            _check_token(headers, self._digest)
        if self._n_running >= self.max_requests:
            raise self._full()

    @staticmethod
    def _full() -> Refusal:
        return busy("too many requests are in progress: try again")


def _check_token(headers: dict[bytes, bytes], expected: bytes) -> None:
    scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
    is_right = hmac.compare_digest(_digest(token.strip()), expected)  # in constant time
    if scheme.lower() != b"bearer" or not is_right:
        raise Refusal(
            401,
            "the token is missing or wrong: send the header Authorization: Bearer TOKEN",
            {"WWW-Authenticate": "Bearer"},
        )


def _headers(scope: Scope) -> dict[bytes, bytes]:
    """Return the headers; one that is sent twice counts as empty."""
    found: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        found[name] = b"" if name in found else value
    return found


def _host_name(host: bytes) -> str:
    """Return the name or address in a Host header, without port; empty if malformed."""
    found = HOST.fullmatch(host.decode("latin-1"))
    if found is None:
        return ""
    if found["address"] is None:
        return found["name"]
    return found["address"] if ":" in found["address"] else ""


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()  # of the same length, whatever was sent


# ---------------------------------------------------------------------- metrics
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# name: (type, help)
GAUGES = {
    "driftree_rows_learnt_total": ("counter", "Rows acknowledged since the start."),
    "driftree_snapshots_total": ("counter", "Times the model was saved."),
    "driftree_failed_snapshots_total": ("counter", "Times the model could not be saved."),
    "driftree_rows_seen": ("gauge", "Rows that the model has learnt."),
    "driftree_batches": ("gauge", "Batches that the model has learnt."),
    "driftree_nodes": ("gauge", "Nodes of the tree."),
    "driftree_changes_total": ("counter", "Changes of the tree since the start."),
    "driftree_drifts_total": ("counter", "Drifts that the model has detected."),
    "driftree_last_drift_row": ("gauge", "Rows learnt at the last drift; 0 if there was none."),
    "driftree_recent_loss": ("gauge", "Mean loss of the last rows, predicted before learnt; nats."),
    "driftree_label_share": ("gauge", "Share of each label among the last rows."),
    "driftree_memory_bytes": ("gauge", "Bytes that the tree's arrays hold."),
    "driftree_journal_bytes": ("gauge", "Size of the journal."),
    "driftree_rows_unsaved": ("gauge", "Rows that are only in the journal."),
    "driftree_learning": ("gauge", "1 if batches can be learnt."),
}


class Metrics:
    """Requests by method, route and status; durations by route.

    Examples
    --------
    >>> metrics = Metrics()
    >>> metrics.observe("POST", "/predict", 200, 0.003)
    >>> print(metrics.to_text({"driftree_nodes": 3}))
    # HELP driftree_requests_total Requests answered.
    # TYPE driftree_requests_total counter
    driftree_requests_total{method="POST",route="/predict",status="200"} 1
    ...
    driftree_request_seconds_bucket{route="/predict",le="0.0025"} 0
    driftree_request_seconds_bucket{route="/predict",le="0.005"} 1
    ...
    # TYPE driftree_nodes gauge
    driftree_nodes 3
    """

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._buckets: dict[str, list[int]] = defaultdict(lambda: [0] * (len(BOUNDS) + 1))
        self._seconds: dict[str, float] = defaultdict(float)

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        self._requests[method, route, status] += 1
        self._buckets[route][bisect_left(BOUNDS, seconds)] += 1
        self._seconds[route] += seconds

    def to_text(self, gauges: Mapping[str, float | Mapping[str, float]]) -> str:
        """Return all metrics, with the given figures of the writer and the model."""
        return "\n".join([*self._tell_requests(), *self._tell_seconds(), *_tell(gauges), ""])

    def _tell_requests(self) -> Iterator[str]:
        yield "# HELP driftree_requests_total Requests answered."
        yield "# TYPE driftree_requests_total counter"
        for (method, route, status), n in sorted(self._requests.items()):
            labels = f'method="{method}",route="{route}",status="{status}"'
            yield f"driftree_requests_total{{{labels}}} {n}"

    def _tell_seconds(self) -> Iterator[str]:
        name = "driftree_request_seconds"
        yield f"# HELP {name} Time from the headers of a request to the end of its response."
        yield f"# TYPE {name} histogram"
        for route, counts in sorted(self._buckets.items()):
            total = 0
            for bound, n in zip((*map(str, BOUNDS), "+Inf"), counts, strict=True):
                total += n
                yield f'{name}_bucket{{route="{route}",le="{bound}"}} {total}'
            yield f'{name}_sum{{route="{route}"}} {self._seconds[route]!r}'
            yield f'{name}_count{{route="{route}"}} {total}'


def _tell(gauges: Mapping[str, float | Mapping[str, float]]) -> Iterator[str]:
    for name, value in gauges.items():
        kind, words = GAUGES[name]
        yield f"# HELP {name} {words}"
        yield f"# TYPE {name} {kind}"
        if isinstance(value, Mapping):
            yield from (f'{name}{{label="{_escape(key)}"}} {one}' for key, one in value.items())
        else:
            yield f"{name} {value}"


def _escape(text: str) -> str:
    """Return a text as the value of a Prometheus label."""
    plain = text.encode("utf-8", "backslashreplace").decode()  # lone surrogates
    return plain.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
