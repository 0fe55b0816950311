"""What more machines bring: costs measured here, and what follows from them for many machines.

Measured are CPU microseconds, in this process, so that other work on the machine hardly matters: of
a row in a shard, of a row in the driver, of a step of one model in chunks; and the bytes that are
sent. What a call costs in Ray and a batch of a key in Spark is measured elsewhere and given here
(`--call`, `--spark`). From these the curves follow: work divides by the number of cores until the
driver, or what is not divided, is what remains.

    python benchmarks/scale.py              a minute; writes docs/scale.md
    python benchmarks/scale.py --cores 16 --gigabit 25 --price 0.05
"""

import os

# Before NumPy is imported: matrices are small, and threads would only wait for each other.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import json
import pickle
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import page
from one_model import run
from rich.console import Console
from sharded import BATCH, draw

from driftree import DynamicModelTreeClassifier
from driftree.learn.constants import MEASURED
from driftree.learn.storage import models as files
from driftree.scale import KeyedModels
from driftree.scale.merging import CHUNKS, STEP_ROWS
from driftree.scale.ray import RayKeyedModels, _to_columns
from driftree.streams import hyperplane

MACHINES = (1, 2, 10, 100, 1000)
SPREAD = (2, 4, 8, 32)  # workers
ROW_COSTS = (2, 5, 20, 100, 500)  # microseconds
TREE_ROWS = MEASURED.step_rows  # after which a tree may change
PART_ROWS = 500  # of a batch that go to one shard: more shards, larger batches


class Costs(NamedTuple):
    """Microseconds of a core, and bytes."""

    shard_row: float
    """To read a row, and to let parent and key predict and learn it."""
    driver_row: float
    """To find a row's shard, and to cut it out of its batch."""
    row_bytes: float
    learn_row: float
    """To learn a row of a batch by one model in one process;"""
    chunk_row: float
    """the same in chunks, all together;"""
    merge_row: float
    """and what the driver does then."""
    model_bytes: float
    spill: float
    """To write a key's model."""
    load: float


def cpu(call: Callable[[], Any], n: int) -> float:
    """Return microseconds per item."""
    begin = time.process_time()
    call()
    return 1e6 * (time.process_time() - begin) / n


def measure(n_rows: int, n_keys: int) -> Costs:
    batches = list(draw(n_rows, n_keys))
    models = KeyedModels(DynamicModelTreeClassifier, "key")
    models.learn_many(*batches[0])
    rest = batches[1:]
    shard = cpu(lambda: [models.learn_many(*batch) for batch in rest], BATCH * len(rest))

    driver = RayKeyedModels.__new__(RayKeyedModels)  # only what finds the shards of rows
    driver.key, driver._actors = "key", [None] * 8
    sent: list[int] = []

    def cut(batch: Any) -> None:
        columns = _to_columns(batch[0])
        shards = driver._shards_of(batch[0], columns)
        for i in range(8):
            rows = np.flatnonzero(shards == i)
            part = {name: cells[rows] for name, cells in columns.items()}
            sent.append(len(pickle.dumps((rows, part, batch[1][rows]), protocol=5)))

    driving = cpu(lambda: [cut(batch) for batch in rest], BATCH * len(rest))
    X, y = map(np.concatenate, zip(*hyperplane(n_rows, n_features=10), strict=True))
    _, learning, _ = run(X, y, None)
    _, chunks, merging = run(X, y, CHUNKS)
    one = models[next(iter(models))]
    data = files.to_bytes(one)
    return Costs(
        shard,
        driving,
        sum(sent) / (BATCH * len(rest)),
        learning,
        chunks,
        merging,
        float(len(data)),
        cpu(lambda: [files.to_bytes(one) for _ in range(50)], 50),
        cpu(lambda: [pickle.loads(pickle.dumps(one)) for _ in range(50)], 50),
    )


class Machines(NamedTuple):
    """What there is."""

    cores: int
    bytes_per_second: float
    call: float
    """Microseconds of a call in Ray."""
    spark: float
    """Microseconds of a batch of one key in Spark."""
    rows_per_key: float
    """In such a batch."""
    price: float
    """Of a core for an hour."""


def keyed_one_driver(costs: Costs, have: Machines, n: int) -> float:
    """Rows per second where one process reads all rows and sends them to shards."""
    shards = n * have.cores
    limits = [
        1e6 * shards / costs.shard_row,
        1e6 / (costs.driver_row + have.call / PART_ROWS),
        have.bytes_per_second / costs.row_bytes,
    ]
    return min(limits)


def keyed_partitioned(costs: Costs, have: Machines, n: int) -> float:
    """The same where each core reads rows of its own keys, as from partitions by key."""
    return 1e6 * n * have.cores / costs.shard_row


def spark_by_key(costs: Costs, have: Machines, n: int) -> float:
    """A model per key on Spark, which loads and writes a model for each key and batch."""
    row = have.spark / have.rows_per_key + costs.learn_row
    return 1e6 * n * have.cores / row


def one_core(costs: Costs, have: Machines, n: int) -> float:
    """One model in one process, whatever else there is."""
    return 1e6 / costs.learn_row


def one_model_in_chunks(costs: Costs, have: Machines, n: int) -> float:
    """One model, its steps in chunks; no more than `CHUNKS` workers are of use."""
    workers = min(CHUNKS, n * have.cores)
    step = STEP_ROWS * costs.chunk_row / workers + STEP_ROWS * costs.merge_row
    sending = (CHUNKS * costs.model_bytes * 2 + STEP_ROWS * costs.row_bytes) / have.bytes_per_second
    calls = CHUNKS * have.call
    return 1e6 * STEP_ROWS / (step + calls + 1e6 * sending)


def spread_gain(row: float, call: float, workers: int) -> float:
    """Return how many times as fast one model is, at most, whose simple models are spread.

    Parameters
    ----------
    row : float
        Microseconds that a row costs in one process; all of it divides, which is too kind.
    call : float
        Microseconds of a call: workers keep their models, and a step is a call of each of them.
    workers : int
        How many there are.
    """
    step = TREE_ROWS * row
    return step / (step / workers + workers * call)


def spreading_pays_from(have: Machines) -> float:
    """Return which cost per row makes models spread over 2 workers as fast as one process."""
    return 2 * have.call / (TREE_ROWS * (1 - 1 / 2))


def feeds(costs: Costs, have: Machines) -> float:
    """Return how many shards keep one driver busy."""
    return costs.shard_row / (costs.driver_row + have.call / PART_ROWS)


def pays_from(costs: Costs, have: Machines) -> str:
    """Say which cost per row makes `CHUNKS` workers as fast as one process, by these overheads."""
    fixed = costs.merge_row + CHUNKS * have.call / STEP_ROWS
    gained = 1 - costs.chunk_row / costs.learn_row / CHUNKS
    return f"{fixed / gained:,.0f} µs per row" if gained > 0 else "never"


WAYS: dict[str, Callable[[Costs, Machines, int], float]] = {
    "a model per key, rows read by each core": keyed_partitioned,
    "a model per key, one driver": keyed_one_driver,
    "a model per key on Spark": spark_by_key,
    "one model in one process": one_core,
    "one model in chunks": one_model_in_chunks,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=30_000)
    parser.add_argument("--keys", type=int, default=200)
    parser.add_argument("--cores", type=int, default=8, help="of a machine")
    parser.add_argument("--gigabit", type=float, default=10.0, help="per second")
    parser.add_argument("--call", type=float, default=250.0, help="µs of a call in Ray")
    parser.add_argument("--spark", type=float, default=6500.0, help="µs of a key's batch in Spark")
    parser.add_argument("--rows-per-key", type=float, default=100.0, help="in a batch of Spark's")
    parser.add_argument("--price", type=float, default=0.04, help="of a core for an hour")
    given = parser.parse_args()
    costs = measure(given.rows, given.keys)
    network = given.gigabit * 1e9 / 8
    rest = (given.call, given.spark, given.rows_per_key, given.price)
    have = Machines(given.cores, network, *rest)
    console = Console(width=200)
    console.print(json.dumps({name: round(value, 2) for name, value in costs._asdict().items()}))
    measured = page.markdown(
        ["cost", "measured"],
        [
            [
                "a row in a shard: read, predicted and learnt by parent and key",
                f"{costs.shard_row:.1f} µs",
            ],
            ["a row in the driver: which shard, and cut out", f"{costs.driver_row:.2f} µs"],
            ["a row on its way", f"{costs.row_bytes:.0f} bytes"],
            ["a row of a batch in one model", f"{costs.learn_row:.1f} µs"],
            [f"the same in {CHUNKS} chunks, all together", f"{costs.chunk_row:.1f} µs"],
            ["and merged", f"{costs.merge_row:.1f} µs"],
            ["a key's model on disk", f"{costs.model_bytes:,.0f} bytes"],
            ["to write it", f"{costs.spill:,.0f} µs"],
            ["shards that one driver can feed", f"{feeds(costs, have):,.0f}"],
            [
                "2 workers that share the models of a step pay from, at best",
                f"{spreading_pays_from(have):.1f} µs per row",
            ],
            [f"{CHUNKS} workers that share its rows pay from", pays_from(costs, have)],
        ],
    )
    page.write_table("costs", "### Costs", measured, "scale")
    body = []
    for words, way in WAYS.items():
        rates = [way(costs, have, n) for n in MACHINES]
        paid = MACHINES if "one process" not in words else (1 / have.cores,) * len(MACHINES)
        dollars = [
            1e9 / rate / 3600 * n * have.cores * have.price
            for rate, n in zip(rates, paid, strict=True)
        ]
        body.append(
            [
                words,
                *(f"{rate:,.0f}" for rate in rates),
                f"{dollars[2]:,.2f}",
                f"{dollars[-1]:,.2f}",
            ]
        )
    head = ["rows/s", *(f"{n:,} machine{'s' * (n > 1)}" for n in MACHINES)]
    table = page.markdown([*head, "per 10^9 rows, 10 machines", "1,000 machines"], body)
    page.write_table("curves", "### Curves", table, "scale")
    gains = [
        [f"{row} µs", *(f"{spread_gain(row, have.call, n):.2f}" for n in SPREAD)]
        for row in ROW_COSTS
    ]
    spread = page.markdown(["a row costs", *(f"{n} workers" for n in SPREAD)], gains)
    page.write_table("spread", "### Models of a step spread over machines", spread, "scale")
    console.print(measured, table, spread)


if __name__ == "__main__":
    main()
