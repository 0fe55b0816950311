"""Real servers, killed at random moments under load: what was acknowledged is there, once."""

import http.client
import json
import random
import signal
import threading
import time
from urllib.parse import urlsplit

import pytest

from driftree import load
from serving import draw_batches, learn_offline, serving, to_bytes

TOKEN = "a-token-of-some-length"
N_CLIENTS = 4


class Client:
    """Sends its batches one after the other, each until it is acknowledged."""

    def __init__(self, batches):
        self.batches = batches
        self.learnt = {}  # keys to sequence numbers

    def send(self, address):
        """Go on, from the first batch that was not acknowledged, until the server is gone."""
        connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=30)
        try:
            while len(self.learnt) < len(self.batches):
                batch = self.batches[len(self.learnt)]
                self.learnt[batch.key] = learn(connection, batch)
        except (OSError, http.client.HTTPException):
            return
        finally:
            connection.close()


def learn(connection, batch):
    """Let a server learn a batch; return its sequence number."""
    headers = {
        "Content-Type": "application/json",
        "Authorization": f"Bearer {TOKEN}",
        "Idempotency-Key": batch.key,
    }
    body = {"rows": batch.rows, "labels": batch.labels, "weights": batch.weights}
    connection.request("POST", "/learn", json.dumps(body), headers)
    answer = connection.getresponse()
    data = json.loads(answer.read())
    assert answer.status == 200, data
    return data["sequence"]


def test_killed_servers_lose_no_acknowledged_batch(tmp_path):
    drive(tmp_path / "model.dmt", n_kills=2, n_batches=60, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 130, 10))
def test_servers_killed_often_lose_no_acknowledged_batch(tmp_path, seed):
    drive(tmp_path / "model.dmt", n_kills=20, n_batches=1500, seed=seed)


def drive(path, n_kills, n_batches, seed):
    """Kill servers while clients send; at the end every batch is in the model, once, in order."""
    draw = random.Random(seed)
    clients = [
        Client(draw_batches(n_batches, seed=seed + i, most_rows=5)) for i in range(N_CLIENTS)
    ]
    n_acknowledged = [0]
    for i in range(n_kills + 1):
        options = ["--snapshot-every", "60", *(["--new"] if i == 0 else [])]
        with serving(path, *options, token=TOKEN) as server:
            threads = [
                threading.Thread(target=client.send, args=(server.address,)) for client in clients
            ]
            for thread in threads:
                thread.start()
            if i < n_kills:
                time.sleep(draw.uniform(0.02, 0.3))
                server.end(signal.SIGKILL)
            for thread in threads:
                thread.join()
            n_acknowledged.append(sum(len(client.learnt) for client in clients))
            if i == n_kills:
                assert server.end(signal.SIGINT)[0] == 0
    assert n_acknowledged[n_kills] > 0  # before the last start
    check(path, clients)


def check(path, clients):
    batches = {batch.key: batch for client in clients for batch in client.batches}
    order = {sequence: key for client in clients for key, sequence in client.learnt.items()}
    assert sorted(order) == list(range(1, len(batches) + 1))
    offline = learn_offline(batches[order[sequence]] for sequence in sorted(order))
    model = load(path)
    assert model.n_rows_seen_ == offline.n_rows_seen_
    assert to_bytes(model) == to_bytes(offline)
