"""What more machines bring: costs measured here, and what follows from them for many machines.

Measured are CPU microseconds, in this process, so that other work on the machine hardly matters: of
a row in a shard, of a row in the driver, of a row in a forest's trees, of a round of one model in
slices; the bytes that are sent; and what a call with a step's rows takes in Ray. A batch of a key
in Spark is measured elsewhere and given here (`--spark`). From these the curves follow: work
divides by the number of cores until the driver, or what is not divided, is what remains.

`rows` learns 10^4 to 10^7 rows of small models by key, with one worker and with two, and fits to it
what a run costs: a part that is the same for all, and a part per row.

    python benchmarks/scale.py              minutes; needs Ray; writes docs/scale.md
    python benchmarks/scale.py --cores 16 --gigabit 25 --price 0.05
    python benchmarks/scale.py rows         many minutes; needs Ray; writes docs/scale.md
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
from sharded import BATCH, draw, sharded, start_ray

from driftree import DynamicModelForestClassifier, DynamicModelTreeClassifier
from driftree.learn.constants import FOREST, MEASURED
from driftree.learn.storage import models as files
from driftree.scale import KeyedModels
from driftree.scale.merging import ROUND_ROWS, SLICES
from driftree.scale.ray import RayKeyedModels, ShardByKey, _pick, _to_batch
from driftree.scale.spread import Here, Spread
from driftree.streams import hyperplane
from driftree.streams.rows import cut

MACHINES = (1, 2, 10, 100, 1000)
SPREAD = (2, 4, 8, 32)  # workers
ROW_COSTS = (2, 5, 20, 100, 500)  # microseconds
TREE_ROWS = MEASURED.step_rows  # after which a tree may change
PART_ROWS = 500  # of a batch that go to one shard: more shards, larger batches
LOOK_ROWS = FOREST.look_rows  # after which a tree of a forest may be replaced
TREES = (10, 100)  # of a forest
ROWS = (10**4, 10**5, 10**6, 10**7)


class Costs(NamedTuple):
    """Microseconds of a core, and bytes."""

    shard_row: float
    """To read a row, and to let parent and key predict and learn it."""
    driver_row: float
    """To find a row's shard, and to cut it out of its batch."""
    row_bytes: float
    learn_row: float
    """To learn a row of a batch by one model in one process;"""
    slice_row: float
    """the same in slices, all together;"""
    merge_row: float
    """and what the driver does then."""
    model_bytes: float
    spill: float
    """To write a key's model."""
    load: float
    first_row: float
    """To learn a row by the first tree of a forest,"""
    other_row: float
    """and by each other one."""
    stack_row: float
    """What the driver of a spread forest does for a row,"""
    said_bytes: float
    """and what a tree says of it."""
    call: float
    """A call in Ray with the rows of a step, which returns their losses: by the clock, fastest,"""
    median_call: float
    """and usually on these busy cores;"""
    send: float
    """of the driver's processor, where it does not wait for each;"""
    call_bytes: float
    """and what is sent."""


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
    driver._shard_by_key = ShardByKey(8, "key")
    sent: list[int] = []

    def send(batch: Any) -> None:
        given = _to_batch(batch[0], "key")
        shards = driver._shards_of(given)
        for i in range(8):
            rows = np.flatnonzero(shards == i)
            part = _pick(given, rows)
            sent.append(len(pickle.dumps((rows, part, batch[1][rows]), protocol=5)))

    driving = cpu(lambda: [send(batch) for batch in rest], BATCH * len(rest))
    X, y = map(np.concatenate, zip(*hyperplane(n_rows, n_features=10), strict=True))
    _, learning, _ = run(X, y, None)
    _, slices, merging = run(X, y, SLICES)
    one = models[next(iter(models))]
    data = files.to_bytes(one)
    return Costs(
        shard,
        driving,
        sum(sent) / (BATCH * len(rest)),
        learning,
        slices,
        merging,
        float(len(data)),
        cpu(lambda: [files.to_bytes(one) for _ in range(50)], 50),
        cpu(lambda: [pickle.loads(pickle.dumps(one)) for _ in range(50)], 50),
        *measure_forest([*cut(hyperplane(n_rows, n_features=10), LOOK_ROWS)]),
        *measure_call(),
    )


class Recorded:
    """Workers that return again what was returned before."""

    def __init__(self, answers: list[bytes]) -> None:
        self.answers = iter(answers)

    def share(self, rows: Any) -> Any:
        return rows

    def call(self, method: str, arguments: Any) -> Any:
        return pickle.loads(next(self.answers))


class Recording(Here):
    """Workers of this process, whose answers are kept."""

    def __init__(self, parts: Any) -> None:
        super().__init__(parts)
        self.answers: list[bytes] = []

    def call(self, method: str, arguments: Any) -> list[Any]:
        found = super().call(method, arguments)
        self.answers.append(pickle.dumps(found, protocol=5))
        return found


def measure_forest(batches: list[Any], n_trees: int = 5) -> tuple[float, float, float, float]:
    """Return microseconds of a row in the first tree, in another one and in the driver; bytes."""
    n_rows = sum(len(y) for _, y in batches[1:])

    def learning(n: int) -> float:
        model = DynamicModelForestClassifier(n).partial_fit(*batches[0])
        return cpu(lambda: [model.partial_fit(*batch) for batch in batches[1:]], n_rows)

    one, all_trees = learning(1), learning(n_trees)
    model = DynamicModelForestClassifier(n_trees).partial_fit(*batches[0])
    spread = Spread(model, 2, Recording)
    for batch in batches[1:]:
        assert spread.learn(*batch), "one process has to learn this batch"
    answers = spread._workers.answers  # type: ignore[attr-defined]
    driver = Spread(model, 2, lambda parts: Recorded(answers))
    stacking = cpu(lambda: [driver.learn(*batch) for batch in batches[1:]], n_rows)
    size = sum(map(len, answers)) / n_rows / n_trees
    return one, (all_trees - one) / (n_trees - 1), stacking, size


class Caller:
    """An actor that gets the rows of a step, and returns a number of each."""

    def losses(self, X: np.ndarray) -> np.ndarray:
        return X[:, 0].copy()


def measure_call(n_calls: int = 1000) -> tuple[float, float, float, float]:
    """Return microseconds of a call: fastest and median by the clock, the driver's; and bytes."""
    import ray

    if not ray.is_initialized():
        start_ray()
    actor = ray.remote(Caller).remote()
    X = np.zeros((TREE_ROWS, 10))
    times = []
    for _ in range(n_calls):
        begin = time.perf_counter()
        ray.get(actor.losses.remote(X))
        times.append(1e6 * (time.perf_counter() - begin))
    send = cpu(lambda: ray.get([actor.losses.remote(X) for _ in range(n_calls)]), n_calls)
    n_bytes = len(pickle.dumps(X, protocol=5)) + len(pickle.dumps(X[:, 0].copy(), protocol=5))
    return min(times), float(np.median(times)), send, n_bytes


class Machines(NamedTuple):
    """What there is."""

    cores: int
    bytes_per_second: float
    spark: float
    """Microseconds of a batch of one key in Spark."""
    rows_per_key: float
    """In such a batch."""
    price: float
    """Of a core for an hour."""


Way = Callable[[Costs, Machines, int], float]


def keyed_one_driver(costs: Costs, have: Machines, n: int) -> float:
    """Rows per second where one process reads all rows and sends them to shards."""
    shards = n * have.cores
    limits = [
        1e6 * shards / costs.shard_row,
        1e6 / (costs.driver_row + costs.send / PART_ROWS),
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


def one_model_in_slices(costs: Costs, have: Machines, n: int) -> float:
    """One model, its rounds in slices; no more than `SLICES` workers are of use."""
    workers = min(SLICES, n * have.cores)
    work = ROUND_ROWS * costs.slice_row / workers + ROUND_ROWS * costs.merge_row
    sending = (
        SLICES * costs.model_bytes * 2 + ROUND_ROWS * costs.row_bytes
    ) / have.bytes_per_second
    calls = SLICES * costs.send + costs.call
    return 1e6 * ROUND_ROWS / (work + calls + 1e6 * sending)


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


def spreading_pays_from(costs: Costs) -> float:
    """Return which cost per row makes models spread over 2 workers as fast as one process."""
    return 2 * costs.call / (TREE_ROWS * (1 - 1 / 2))


def forest_row(costs: Costs, n_trees: int, workers: int | None) -> float:
    """Return microseconds of a row in a forest; None: in one process."""
    if workers is None:
        return costs.first_row + (n_trees - 1) * costs.other_row
    workers = min(workers, n_trees - 1)
    own = -(-(n_trees - 1) // workers)  # trees besides the first; sending does not overlap
    driver = costs.stack_row * n_trees / 5 + (workers * costs.send + costs.call) / LOOK_ROWS
    return costs.first_row + own * costs.other_row + driver


def forest_alone(n_trees: int) -> Way:
    """A forest in one process."""
    return lambda costs, have, n: 1e6 / forest_row(costs, n_trees, None)


def forest_spread(n_trees: int) -> Way:
    """A forest whose trees are spread; the driver sends rows to each machine once."""

    def rate(costs: Costs, have: Machines, n: int) -> float:
        sent = of_forest(n_trees)(costs, have, n)
        row = forest_row(costs, n_trees, n * have.cores)
        return 1.0 / (1e-6 * row + sent / have.bytes_per_second)

    return rate


def feeds(costs: Costs) -> float:
    """Return how many shards keep one driver busy."""
    return costs.shard_row / (costs.driver_row + costs.send / PART_ROWS)


def pays_from(costs: Costs) -> str:
    """Say which cost per row makes `SLICES` workers as fast as one process, by these overheads."""
    fixed = costs.merge_row + (SLICES * costs.send + costs.call) / ROUND_ROWS
    gained = 1 - costs.slice_row / costs.learn_row / SLICES
    return f"{fixed / gained:,.0f} µs per row" if gained > 0 else "never"


def of_slices(costs: Costs, have: Machines, n: int) -> float:
    """Return bytes per row that the driver of one model in slices sends and gets."""
    return costs.row_bytes + 2 * SLICES * costs.model_bytes / ROUND_ROWS


def of_forest(n_trees: int) -> Way:
    """Return bytes per row that the driver of a spread forest sends and gets."""

    def sent(costs: Costs, have: Machines, n: int) -> float:
        machines = min(n, -(-(n_trees - 1) // have.cores))
        return machines * costs.row_bytes + n_trees * costs.said_bytes

    return sent


def of_rows(costs: Costs, have: Machines, n: int) -> float:
    """Return bytes per row where all pass one machine."""
    return costs.row_bytes


def of_own_rows(costs: Costs, have: Machines, n: int) -> float:
    """The same where each machine reads its share."""
    return costs.row_bytes / n


# Rows per second; bytes per row that pass the busiest machine; does one core do it all?
WAYS: dict[str, tuple[Way, Way, bool]] = {
    "a model per key, rows read by each core": (keyed_partitioned, of_own_rows, False),
    "a model per key, one driver": (keyed_one_driver, of_rows, False),
    "a model per key on Spark": (spark_by_key, of_own_rows, False),
    "one tree in one process": (one_core, of_rows, True),
    "one tree in slices": (one_model_in_slices, of_slices, False),
    **{f"a forest of {n}, one process": (forest_alone(n), of_rows, True) for n in TREES},
    **{f"a forest of {n}, trees spread": (forest_spread(n), of_forest(n), False) for n in TREES},
}


# ---------------------------------------------------------------------- 10^4 to 10^7 rows
def measure_rows(sizes: list[int]) -> None:
    """Learn more and more rows with one worker and with two, and fit what a run costs."""
    start_ray()
    lines, runs = [], []
    for n_rows in sizes:
        rates = {}
        for n_workers in (1, 2):
            batches = draw(n_rows + BATCH, 1000, 2)  # the first batch makes the models
            seconds, (driver, *shards), _ = sharded(batches, n_workers, parent=False)
            rates[n_workers] = seconds, max(driver, *shards)
            runs.append((n_rows, n_workers, max(shards), driver))
            one, own = rates[1], rates[n_workers]
            lines.append(
                [
                    f"{n_rows:,}",
                    f"{n_workers}",
                    f"{n_rows / seconds:,.0f}",
                    f"{max(shards):.2f}",
                    f"{driver:.2f}",
                    *(f"{x / y:.2f}" for x, y in zip(one, own, strict=True)),
                ]
            )
            print(*lines[-1], flush=True)
    rows, workers, shard, driver = np.array(runs).T
    # Large runs would decide alone: each counts by its relative error.
    parts = np.column_stack([np.ones_like(rows), rows / workers])
    fixed, row = np.linalg.lstsq(parts / shard[:, None], np.ones_like(rows), rcond=None)[0]
    of_driver = float((driver.sum()) / rows.sum())
    lines = [
        [*line, f"{fixed + row * n / w:.2f}"]
        for line, n, w in zip(lines, rows, workers, strict=True)
    ]
    head = ["rows", "workers", "rows/s by the clock", "CPU s of the busiest worker"]
    head += ["CPU s of the driver", "times one worker, by the clock", "by CPU of the busiest"]
    table = page.markdown([*head, "CPU s by the fit"], lines)
    page.write_table("rows", "### Ten thousand to ten million rows", table, "scale")
    fit = page.markdown(
        ["fitted", "value"],
        [
            ["a run, before its first row", f"{fixed:.2f} s"],
            ["a row in a worker", f"{1e6 * row:.2f} µs"],
            ["a row in the driver, drawn and sent", f"{1e6 * of_driver:.2f} µs"],
            ["workers that one driver can feed", f"{row / of_driver:.0f}"],
        ],
    )
    page.write_table("fitted", "### What was fitted", fit, "scale")
    Console(width=200).print(table, fit)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["costs", "rows"], nargs="?", default="costs")
    parser.add_argument("--rows", type=int, default=30_000)
    parser.add_argument("--keys", type=int, default=200)
    parser.add_argument("--cores", type=int, default=8, help="of a machine")
    parser.add_argument("--gigabit", type=float, default=10.0, help="per second")
    parser.add_argument("--spark", type=float, default=6500.0, help="µs of a key's batch in Spark")
    parser.add_argument("--rows-per-key", type=float, default=100.0, help="in a batch of Spark's")
    parser.add_argument("--price", type=float, default=0.04, help="of a core for an hour")
    parser.add_argument("--sizes", type=int, nargs="*", default=ROWS, help="of `rows`")
    given = parser.parse_args()
    if given.what == "rows":
        measure_rows(given.sizes)
        return
    costs = measure(given.rows, given.keys)
    network = given.gigabit * 1e9 / 8
    have = Machines(given.cores, network, given.spark, given.rows_per_key, given.price)
    print_costs(costs, have)
    print_curves(costs, have)


def print_costs(costs: Costs, have: Machines) -> None:
    console = Console(width=200)
    console.print(json.dumps({name: round(value, 2) for name, value in costs._asdict().items()}))
    body = [
        [
            "a row in a shard: read, predicted and learnt by parent and key",
            f"{costs.shard_row:.1f} µs",
        ],
        ["a row in the driver: which shard, and cut out", f"{costs.driver_row:.2f} µs"],
        ["a row on its way", f"{costs.row_bytes:.0f} bytes"],
        ["a row of a batch in one tree", f"{costs.learn_row:.1f} µs"],
        [f"the same in {SLICES} slices, all together", f"{costs.slice_row:.1f} µs"],
        ["and merged", f"{costs.merge_row:.1f} µs"],
        ["a row in the first tree of a forest", f"{costs.first_row:.1f} µs"],
        ["a row in each other tree", f"{costs.other_row:.1f} µs"],
        ["a row in the driver of a spread forest of 5", f"{costs.stack_row:.2f} µs"],
        ["one tree's prediction for a row", f"{costs.said_bytes:.0f} bytes"],
        [
            f"a call in Ray with {TREE_ROWS} rows, which returns their losses, the fastest",
            f"{costs.call:,.0f} µs",
        ],
        ["the median on these busy cores", f"{costs.median_call:,.0f} µs"],
        ["of the driver's processor, where it does not wait", f"{costs.send:,.0f} µs"],
        ["and sent", f"{costs.call_bytes:,.0f} bytes"],
        [f"to learn these {TREE_ROWS} rows by one tree", f"{TREE_ROWS * costs.learn_row:,.0f} µs"],
        ["a key's model on disk", f"{costs.model_bytes:,.0f} bytes"],
        ["to write it", f"{costs.spill:,.0f} µs"],
        ["shards that one driver can feed", f"{feeds(costs):,.0f}"],
        [
            "2 workers that share the models of a step of a tree would pay from, at best",
            f"{spreading_pays_from(costs):.1f} µs per row",
        ],
        [f"{SLICES} workers that share its rows pay from", pays_from(costs)],
    ]
    measured = page.markdown(["cost", "measured"], body)
    page.write_table("costs", "### Costs", measured, "scale")
    console.print(measured)


def print_curves(costs: Costs, have: Machines) -> None:
    body = []
    for words, (way, sent, is_alone) in WAYS.items():
        rates = [way(costs, have, n) for n in MACHINES]
        paid = (1 / have.cores,) * len(MACHINES) if is_alone else MACHINES
        dollars = [
            1e9 / rate / 3600 * n * have.cores * have.price
            for rate, n in zip(rates, paid, strict=True)
        ]
        traffic = [
            rate * sent(costs, have, n) / 1e6 for rate, n in zip(rates, MACHINES, strict=True)
        ]
        line = [words, *(f"{rate:,.0f}" for rate in rates)]
        line += [f"{traffic[i]:,.0f}" for i in (2, -1)]
        body.append([*line, *(f"{dollars[i]:,.2f}" for i in (2, -1))])
    head = ["rows/s", *(f"{n:,} machine{'s' * (n > 1)}" for n in MACHINES)]
    head += ["MB/s of the busiest machine, of 10", "of 1,000"]
    table = page.markdown([*head, "price of 10^9 rows, 10 machines", "1,000 machines"], body)
    page.write_table("curves", "### Curves", table, "scale")
    gains = [
        [f"{row} µs", *(f"{spread_gain(row, costs.call, n):.2f}" for n in SPREAD)]
        for row in ROW_COSTS
    ]
    spread = page.markdown(["a row costs", *(f"{n} workers" for n in SPREAD)], gains)
    page.write_table("spread", "### Models of a step spread over machines", spread, "scale")
    Console(width=200).print(table, spread)


if __name__ == "__main__":
    main()
