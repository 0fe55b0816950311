"""Work on Ray: how much faster are two workers than one, and what does all of it cost?

By key: the same rows of many keys are learnt by `KeyedModels` in this process, and by one and by
two shards. Forest: a forest in this process, and its trees on one and on two workers. Runs of all
ways take turns, and Ray starts its workers before the clock does. Processes of others slow down
two workers more than one: so of each way only the runs count during which others took least of the
cores, and the table says how much that was. What the machine itself allows is measured as well:
workers that hold all their rows beforehand, and learn them without driver.

    python benchmarks/sharded.py            minutes; needs Ray; writes docs/scale.md
    python benchmarks/sharded.py forest     minutes; needs Ray; writes docs/scale.md
    python benchmarks/sharded.py spark      a model per key on Spark beside a loop; needs Java
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import page
from quiet import cpu_seconds, timed, wait_for_cores
from rich.console import Console

from driftree import DynamicModelForestClassifier, DynamicModelTreeClassifier
from driftree.scale import KeyedModels
from driftree.scale.spread import Actors, Spread
from driftree.streams import drifting_agrawal, hyperplane
from driftree.streams.rows import cut

BATCH = 5000
N_FEATURES = 10
Batch = tuple[dict[str, np.ndarray], np.ndarray]
HEAD = ["rows/s", "times one worker", "by CPU time of the busiest process"]
HEAD += ["cores taken by others"]
QUIET = 3  # runs of each way that count
PATIENCE = 10  # seconds to wait for free cores before each


class Times(NamedTuple):
    """What a run took."""

    seconds: float
    cpu: list[float]
    """CPU time of each process, this one first."""
    others: float
    """Cores that processes of others took meanwhile."""


def draw(n_rows: int, n_keys: int, n_features: int = N_FEATURES) -> Iterator[Batch]:
    """Yield batches of rows of keys whose rules are shifted."""
    rng = np.random.default_rng(1)
    shift = rng.normal(size=n_keys)
    for _ in range(0, n_rows, BATCH):
        X, keys = rng.normal(size=(BATCH, n_features)), rng.integers(0, n_keys, BATCH)
        columns = {"key": keys, **{f"x{j}": X[:, j] for j in range(n_features)}}
        yield columns, X[:, 0] + X[:, 1] > shift[keys]


def learn(
    models: Any, batches: Iterable[Batch], end: Callable[[], Any], workers: list[int]
) -> Times:
    """Return the seconds in which all batches after the first are learnt, and the CPU times."""
    rest = iter(batches)
    models.learn_many(*next(rest))
    end()

    def learn_rest() -> None:
        for X, y in rest:
            models.learn_many(X, y)
        end()

    return clock(learn_rest, workers)


def clock(work: Callable[[], Any], workers: list[int]) -> Times:
    """Return the seconds that work takes, and the CPU times of this process and of others."""
    processes = [os.getpid(), *workers]
    cpu = [cpu_seconds(pid) for pid in processes]
    seconds, others = timed(work)
    cpu = [cpu_seconds(pid) - before for pid, before in zip(processes, cpu, strict=True)]
    return Times(seconds, cpu, others)


def alone(batches: Iterable[Batch]) -> Times:
    models = KeyedModels(DynamicModelTreeClassifier, "key")
    return learn(models, batches, lambda: None, [])


def sharded(batches: Iterable[Batch], n_shards: int, **more: Any) -> Times:
    import ray

    from driftree.scale.ray import RayKeyedModels

    with tempfile.TemporaryDirectory() as folder:
        options: dict[str, Any] = {"path": folder, "shards": n_shards, "every": 10**9} | more
        with RayKeyedModels(DynamicModelTreeClassifier, "key", **options) as models:
            pids = [ray.get(actor.pid.remote()) for actor in models._actors]
            return learn(models, batches, lambda: len(models), pids)


def held(batches: list[Batch], n_workers: int) -> Times:
    """Let workers learn rows that they hold, with nobody to wait for: the machine's limit."""
    import ray

    from driftree.scale.ray import Shard, ShardRows, _shard_of

    class Holder(Shard):
        """A shard that has its rows."""

        def hold(self, parts: list[ShardRows]) -> None:
            first, *self.parts = parts
            self.learn_rows(first)

        def learn_held(self) -> None:
            for rows in self.parts:
                self.learn_rows(rows)

    actor = ray.remote(Holder)
    actors = [actor.remote(DynamicModelTreeClassifier, "key") for _ in range(n_workers)]
    for i, one in enumerate(actors):
        parts = []
        for number, (X, y) in enumerate(batches):
            places = np.flatnonzero([_shard_of(key, n_workers) == i for key in X["key"].tolist()])
            taken = {name: cells[places] for name, cells in X.items()}
            begin = number * BATCH
            parts.append(ShardRows(begin, begin + BATCH, begin + places, taken, y[places]))
        ray.get(one.hold.remote(parts))
    pids = [ray.get(one.pid.remote()) for one in actors]
    times = clock(lambda: ray.get([one.learn_held.remote() for one in actors]), pids)
    for one in actors:
        ray.kill(one)
    return times


def start_ray() -> None:
    import ray

    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 (Ray's name)
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)


def race(ways: dict[str, Callable[[], Times]], n_rows: int, repeat: int) -> list[list[str]]:
    """Let all ways take turns; return a line for each, beside the second one."""
    runs: dict[str, list[Times]] = {name: [] for name in ways}
    for _ in range(repeat):
        for name, way in ways.items():
            wait_for_cores(PATIENCE)
            runs[name].append(way())
    figures = {}
    for name, found in runs.items():
        quiet = sorted(found, key=lambda run: run.others)[:QUIET]
        columns = [(run.seconds, max(run.cpu), run.others) for run in quiet]
        figures[name] = np.median(columns, axis=0)
    one = figures[[*ways][1]]
    return [
        [name, f"{n_rows / own[0]:,.0f}", *(f"{x:.2f}" for x in (*one[:2] / own[:2], own[2]))]
        for name, own in figures.items()
    ]


def race_ray(options: argparse.Namespace) -> None:
    start_ray()
    batches = list(draw(options.rows, options.keys))
    ways: dict[str, Callable[[], Times]] = {
        "one process": lambda: alone(batches),
        "Ray, one shard": lambda: sharded(batches, 1),
        "Ray, two shards": lambda: sharded(batches, 2),
        "two workers that hold their rows: the machine's limit": lambda: held(batches, 2),
    }
    body = race(ways, (len(batches) - 1) * BATCH, options.repeat)
    table = page.markdown(["", *HEAD], body)
    page.write_table("sharded", "### Two shards compared with one", table, "scale")
    Console(width=200).print(table)


# ---------------------------------------------------------------------- a forest
def forest_alone(batches: list[Any], n_trees: int) -> Times:
    model = DynamicModelForestClassifier(n_trees)
    model.partial_fit(*batches[0])
    return clock(lambda: [model.partial_fit(*batch) for batch in batches[1:]], [])


def forest_spread(batches: list[Any], n_trees: int, n_workers: int) -> Times:
    import ray

    model = DynamicModelForestClassifier(n_trees)
    model.partial_fit(*batches[0])
    spread = Spread(model, n_workers, Actors)
    pids = [ray.get(actor.pid.remote()) for actor in spread._workers.actors]  # type: ignore[attr-defined]

    def learn_all() -> None:
        for batch in batches[1:]:
            assert spread.learn(*batch), "one process has to learn this batch"

    try:
        return clock(learn_all, pids)
    finally:
        spread.close()


def race_forest(options: argparse.Namespace) -> None:
    start_ray()
    streams = {
        "Agrawal, 9 features": lambda n: drifting_agrawal(n, perturbation=0.1),
        "Hyperplane, 50 features": lambda n: hyperplane(n, n_features=50),
    }
    body = []
    for name, make in streams.items():
        batches = [*cut(make(options.rows), 1000)]
        n_rows = sum(len(y) for _, y in batches[1:])
        ways: dict[str, Callable[[], Times]] = {
            f"{name}: {options.trees} trees, one process": lambda b=batches: forest_alone(
                b, options.trees
            ),
            **{
                f"Ray, {n} worker{'s' * (n > 1)}": lambda b=batches, n=n: forest_spread(
                    b, options.trees, n
                )
                for n in (1, 2)
            },
        }
        body += race(ways, n_rows, options.repeat)
    table = page.markdown(["", *HEAD], body)
    page.write_table("forest", "### A forest's trees on two workers", table, "scale")
    Console(width=200).print(table)


# ---------------------------------------------------------------------- Spark
def race_spark(options: argparse.Namespace) -> None:
    sys.path.append(str(page.ROOT / "tests" / "support"))
    import sparking
    from key_rows import draw_rows

    folder = Path(tempfile.mkdtemp())
    sparking.write_rows(folder, 3, options.rows // 3)
    rows, labels = draw_rows(options.rows // 3 * 3)
    begin = time.perf_counter()
    models: dict[str, Any] = {}
    for x, y in zip(rows, labels, strict=True):
        rest = {name: x[name] for name in ("a", "b", "kind")}
        model = models.setdefault(x["key"], sparking.make())
        model.predict_one(rest)
        model.learn_one(rest, y)
    loop = time.perf_counter() - begin
    spark = sparking.start_spark()
    begin = time.perf_counter()
    sparking.learn_by_key(spark, folder).awaitTermination()
    seconds = time.perf_counter() - begin
    body = [
        ["a loop in one process", "1.00"],
        ["Spark, local[2], 3 batches", f"{loop / seconds:.4f}"],
    ]
    table = page.markdown([f"{options.rows:,} rows of 12 keys", "times the loop"], body)
    page.write_table("spark", "### Spark compared with a loop", table, "scale")
    Console(width=200).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    races = {"ray": race_ray, "forest": race_forest, "spark": race_spark}
    parser.add_argument("what", choices=races, nargs="?", default="ray")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--trees", type=int, default=9)
    parser.add_argument("--repeat", type=int, default=12)
    options = parser.parse_args()
    options.rows = options.rows or {"ray": 80_000, "forest": 10_000, "spark": 12_000}[options.what]
    races[options.what](options)


if __name__ == "__main__":
    main()
