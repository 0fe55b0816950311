"""How many requests a second does `driftree serve` answer, and how long do they take?

A server in a process of its own, on the loopback interface, with its journal on the disk of
--folder. Clients are threads here, each with one connection, which sends a request when the answer
to the one before is there. Every learn waits for its fsync; those that wait together share one.
The rows have ten numbers and a category. Times are wall times as the clients see them.

    python benchmarks/serve.py                       two minutes; writes docs/serve.md
    python benchmarks/serve.py --seconds 1           a quick look; writes nothing
"""

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import page

RESULTS = page.ROOT / "benchmarks" / "results" / "serve.json"
SECONDS = 8.0
WARM_ROWS = 5000
N_FSYNCS = 200


class Load(NamedTuple):
    """What clients do, and how many of them; `beside` is what others do meanwhile."""

    what: str
    rows: int
    clients: int
    beside: str = ""


LOADS = [
    Load(what, rows, clients)
    for what in ("predict", "learn")
    for rows in (1, 100)
    for clients in (1, 16)
]
LOADS.append(Load("predict", 1, 4, "while 4 others learn 100"))


class Figures(NamedTuple):
    """What was measured: answers, seconds of all, milliseconds of half and of 99 % of them."""

    answers: int
    seconds: float
    p50: float
    p99: float


# ---------------------------------------------------------------------- requests
def draw_rows(n_rows: int, seed: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Draw rows whose label follows from two of the numbers."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 10)).round(4)
    cars = rng.choice(["van", "truck", "bike"], size=n_rows)
    rows = [
        {f"x{j}": value for j, value in enumerate(values)} | {"car": str(car)}
        for values, car in zip(X.tolist(), cars, strict=True)
    ]
    return rows, ["up" if (a > 0) ^ (b > 0) else "down" for a, b in X[:, :2]]


def make_request(what: str, n_rows: int, seed: int) -> bytes:
    """Return the bytes of a request."""
    rows, labels = draw_rows(n_rows, seed)
    body = json.dumps({"rows": rows, "labels": labels} if what == "learn" else {"rows": rows})
    head = f"POST /{what} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode("ascii")


def ask(connection: socket.socket, request: bytes) -> None:
    """Send a request and read the whole answer, which must be good."""
    connection.sendall(request)
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 "):
        raise SystemExit(f"the server said {data[:500]!r}")
    found = re.search(rb"content-length: (\d+)", head)
    missing = int(found[1]) - len(body) if found else 0
    while missing > 0:
        missing -= len(connection.recv(min(missing, 65536)))


# ---------------------------------------------------------------------- load
class Client(threading.Thread):
    """Asks until it is told to stop, and notes how long each answer took."""

    def __init__(self, port: int, what: str, n_rows: int, seed: int, stop: threading.Event) -> None:
        super().__init__()
        self.requests = [make_request(what, n_rows, 1000 * seed + i) for i in range(20)]
        self.port = port
        self.stop = stop
        self.taken: list[float] = []

    def run(self) -> None:
        """Ask."""
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while not self.stop.is_set():
                begin = time.perf_counter()
                ask(connection, self.requests[len(self.taken) % len(self.requests)])
                self.taken.append(time.perf_counter() - begin)


def measure(port: int, load: Load, seconds: float) -> Figures:
    """Let clients ask for some time."""
    stop = threading.Event()
    clients = [Client(port, load.what, load.rows, i, stop) for i in range(load.clients)]
    others = [Client(port, "learn", 100, 100 + i, stop) for i in range(4 if load.beside else 0)]
    begin = time.perf_counter()
    for client in [*clients, *others]:
        client.start()
    time.sleep(seconds)
    stop.set()
    for client in [*clients, *others]:
        client.join()
    taken = np.concatenate([client.taken for client in clients]) * 1000
    p50, p99 = np.percentile(taken, [50, 99]).tolist()
    return Figures(len(taken), time.perf_counter() - begin, p50, p99)


@contextmanager
def serve(folder: Path) -> Iterator[int]:
    """Run a server with an empty model; give its port."""
    command = [sys.executable, "-m", "driftree", "serve", str(folder / "model.dmt"), "--new"]
    with subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.match(r"http://127.0.0.1:(\d+) ", process.stdout.readline())
        if found is None:
            raise SystemExit("the server did not start")
        try:
            yield int(found[1])
        finally:
            process.send_signal(signal.SIGTERM)


def time_fsync(folder: Path) -> float:
    """Return the milliseconds of an append and its fsync on this disk, the median of many."""
    taken = []
    with open(folder / "probe", "wb", buffering=0) as file:
        for _ in range(N_FSYNCS):
            begin = time.perf_counter()
            file.write(bytes(200))
            os.fsync(file.fileno())
            taken.append(time.perf_counter() - begin)
    return median(taken) * 1000


# ---------------------------------------------------------------------- command line
def tabulate(results: list[tuple[Load, Figures]], fsync: float) -> str:
    """Lay out what was measured."""
    body = []
    for load, figures in results:
        rate = figures.answers / figures.seconds
        rows = f"{load.rows} row{'s' if load.rows > 1 else ''}"
        name = f"{load.what} {rows}" + (f", {load.beside}" if load.beside else "")
        times = [f"{figures.p50:,.1f}", f"{figures.p99:,.1f}"]
        body.append([name, str(load.clients), f"{rate:,.0f}", f"{rate * load.rows:,.0f}", *times])
    body.append(["append and fsync alone", "1", f"{1000 / fsync:,.0f}", "-", f"{fsync:,.1f}", "-"])
    return page.markdown(["request", "clients", "requests/s", "rows/s", "p50, ms", "p99, ms"], body)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each load")
    parser.add_argument("--folder", type=Path, help="where the journal is; else a temporary one")
    options = parser.parse_args(arguments)
    results = []
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        fsync = time_fsync(Path(name))
        with serve(Path(name)) as port:
            with socket.create_connection(("127.0.0.1", port)) as connection:
                for i in range(WARM_ROWS // 100):
                    ask(connection, make_request("learn", 100, 10**6 + i))
            for load in LOADS:
                measure(port, load, min(1.0, options.seconds / 4))  # warms up
                results.append((load, measure(port, load, options.seconds)))
                print(f"{load}: {results[-1][1]}", file=sys.stderr)
    table = tabulate(results, fsync)
    print(table)
    if options.seconds < SECONDS:
        return
    record = [{"load": load._asdict(), "figures": own._asdict()} for load, own in results]
    RESULTS.write_text(
        json.dumps({"fsync_ms": fsync, "results": record}, indent=1) + "\n", encoding="utf-8"
    )
    page.write_table("load", "## How fast", table, page="serve")


if __name__ == "__main__":
    main()
