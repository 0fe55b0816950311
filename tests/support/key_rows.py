"""Rows of related keys, what keyed models have learnt, and processes that are killed meanwhile.

As a script it kills a process again and again that learns and commits, each time at another point,
and writes what is left at last as JSON to standard output: `python key_rows.py FOLDER`.
"""

import hashlib
import json
import os
import random
import signal
import sys
from functools import partial

from driftree import DynamicModelTreeClassifier
from driftree.learn.storage import models
from driftree.scale import KeyedModels

KEYS = [f"k{i}" for i in range(12)]


make = partial(DynamicModelTreeClassifier, max_bends=0)


def draw_rows(n_rows, seed=1, n_keys=12):
    """Dicts with a key, and labels: a line for all, with a shift of each key's own."""
    draw = random.Random(seed)
    rows, labels = [], []
    for _ in range(n_rows):
        i = draw.randrange(n_keys)
        x = {
            "key": f"k{i}",
            "a": draw.gauss(0, 1),
            "b": draw.gauss(0, 1),
            "kind": draw.choice("uv"),
        }
        rows.append(x)
        labels.append("yes" if x["a"] + 0.3 * x["b"] > (i % 4) - 1.5 else "no")
    return rows, labels


def to_columns(rows):
    return {name: [row[name] for row in rows] for name in rows[0]}


def learnt(keyed):
    """What was learnt, byte for byte: of every key, and of the parent."""
    found = {key: models.to_bytes(keyed[key]) for key in sorted(keyed)}
    if keyed.parent is not None:
        found["parent"] = models.to_bytes(keyed.parent)
    return {key: hashlib.sha256(data).hexdigest() for key, data in found.items()} | {
        f"record of {key}": str(keyed.record(key)) for key in keyed
    }


def learn_until_killed(folder, n_rows, every, kill_at):
    """Learn the rest of the stream; end at the `kill_at`-th statement that is sent to SQLite."""
    rows, labels = draw_rows(n_rows)
    with KeyedModels(make, "key", path=folder, memory=60_000) as keyed:
        n_seen = 0

        def count(_):
            nonlocal n_seen
            n_seen += 1
            if n_seen == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

        keyed._store._connection.set_trace_callback(count)
        for start in range(keyed.position, n_rows, every):
            part = slice(start, start + every)
            keyed.learn_many(to_columns(rows[part]), labels[part])
            keyed.commit(min(start + every, n_rows))
        return {"learnt": learnt(keyed), "position": keyed.position, "rows": keyed.n_rows_seen_}


def main(folder):
    n_kills = 0
    for kill_at in [3, 40, 41, 90, 120, 121, None]:
        if (child := os.fork()) == 0:
            left = learn_until_killed(folder, 600, 100, kill_at)
            print(json.dumps({**left, "kills": n_kills}), flush=True)
            os._exit(0)
        n_kills += os.waitpid(child, 0)[1] == signal.SIGKILL


if __name__ == "__main__":
    main(sys.argv[1])
