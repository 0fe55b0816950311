"""Helpers of the tests of `serve`: batches, offline learning, a model's bytes, real servers."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from driftree import DynamicModelTreeClassifier, DynamicModelTreeRegressor
from driftree.learn.storage import container, models
from driftree.serve.requests import LearnBatch


def draw_batches(n, seed=1, most_rows=20, *, are_numbers=False):
    """Draw batches of numbers, text and missing values; features and labels come over time."""
    rng = np.random.default_rng(seed)
    batches = []
    for i in range(n):
        rows, labels = [], []
        for _ in range(int(rng.integers(1, most_rows + 1))):
            a, b = rng.normal(size=2).tolist()
            row = {"a": a, "b": b, "car": ["van", "truck", None][int(rng.integers(3))]}
            if i > n // 2:
                row["late"] = int(rng.integers(10))
            rows.append(row)
            label = "up" if (a > 0) ^ (b > 0) else "down"
            labels.append(200 + 30 * abs(a) + b if are_numbers else label)
        weights = rng.integers(0, 3, size=len(rows)).tolist() if i % 5 == 4 else None
        batches.append(LearnBatch(rows, labels, weights, key=f"{seed}-{i}"))
    return batches


def learn_offline(batches, *, are_numbers=False):
    """Return a model that has learnt batches without any server."""
    model = DynamicModelTreeRegressor() if are_numbers else DynamicModelTreeClassifier()
    for batch in batches:
        model.learn_many(batch.rows, batch.labels, batch.weights)
    return model


def to_bytes(model):
    """Return all that a model is."""
    return container.to_bytes(models.KIND, *models.pack(model))


class Server:
    """A real `driftree serve` in a process of its own."""

    def __init__(self, path, *options, token=None):
        environment = {name: text for name, text in os.environ.items() if name != "DRIFTREE_TOKEN"}
        if token is not None:
            environment["DRIFTREE_TOKEN"] = token
        command = [sys.executable, "-m", "driftree", "serve", str(path), "--port", "0", *options]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        line = self.process.stdout.readline()
        found = re.match(r"(http://\S+) serves", line)
        if found is None:
            raise AssertionError(self.process.communicate()[1])
        self.address = found[1]

    def end(self, number=signal.SIGTERM):
        """Send a signal; return exit code and what was said on stderr."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors


@contextmanager
def serving(path, *options, token=None):
    """Run a server until the end of the block, whatever happens there."""
    server = Server(path, *options, token=token)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.end(signal.SIGKILL)


class Answered(NamedTuple):
    """An answer of an application that was asked without a network."""

    status: int
    headers: dict
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)


def ask(app, method, path, body=b"", *, headers=(), chunk=None):
    """Ask an application; a body that is no bytes goes as JSON, in chunks if wanted."""
    path, _, query = path.partition("?")
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"host": "localhost:8000", "content-type": "application/json", **dict(headers)}
    parts = [data] if chunk is None else [data[i : i + chunk] for i in range(0, len(data), chunk)]
    if chunk is None:
        sent.setdefault("content-length", str(len(data)))
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), text.encode()) for name, text in sent.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8000),
    }
    messages, n_read = [], 0

    async def receive():
        nonlocal n_read
        if n_read >= len(parts):  # as when a client goes, or says nothing more
            return {"type": "http.disconnect"}
        n_read += 1
        return {"type": "http.request", "body": parts[n_read - 1], "more_body": n_read < len(parts)}

    async def send(message):
        messages.append(message)

    asyncio.run(app(scope, receive, send))
    start, *rest = messages
    told = {name.decode(): text.decode() for name, text in start["headers"]}
    return Answered(start["status"], told, b"".join(part.get("body", b"") for part in rest))
