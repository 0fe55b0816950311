"""Models by key on Ray: how much faster are two shards than one, and what does all of it cost?

The same rows of many keys are learnt by `KeyedModels` in this process, and by one and by two shards
on Ray. Ray starts its workers before the clock does. On a machine with other work to do, wall-clock
times say little: so the CPU time of the busiest process is shown beside the best of several runs.

    python benchmarks/sharded.py            minutes; needs Ray; writes docs/scale.md
    python benchmarks/sharded.py spark      a model per key on Spark beside a loop; needs Java
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import page
from rich.console import Console

from driftree import DynamicModelTreeClassifier
from driftree.scale import KeyedModels

BATCH = 5000
N_FEATURES = 10
Batch = tuple[dict[str, np.ndarray], np.ndarray]


def draw(n_rows: int, n_keys: int) -> Iterator[Batch]:
    """Yield batches of rows of keys whose rules are shifted."""
    rng = np.random.default_rng(1)
    shift = rng.normal(size=n_keys)
    for _ in range(0, n_rows, BATCH):
        X, keys = rng.normal(size=(BATCH, N_FEATURES)), rng.integers(0, n_keys, BATCH)
        columns = {"key": keys, **{f"x{j}": X[:, j] for j in range(N_FEATURES)}}
        yield columns, X[:, 0] + X[:, 1] > shift[keys]


def learn(
    models: Any, batches: list[Batch], end: Callable[[], Any], workers: list[int]
) -> tuple[float, float]:
    """Return the seconds in which all batches after the first are learnt, and the most CPU time."""
    models.learn_many(*batches[0])
    end()
    processes = [os.getpid(), *workers]
    cpu = [cpu_seconds(pid) for pid in processes]
    begin = time.perf_counter()
    for X, y in batches[1:]:
        models.learn_many(X, y)
    end()
    seconds = time.perf_counter() - begin
    return seconds, max(
        cpu_seconds(pid) - before for pid, before in zip(processes, cpu, strict=True)
    )


def cpu_seconds(pid: int) -> float:
    """Return what a process has used of the processor (Linux)."""
    figures = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(figures[11]) + int(figures[12])) / os.sysconf("SC_CLK_TCK")


def alone(batches: list[Batch]) -> tuple[float, float]:
    models = KeyedModels(DynamicModelTreeClassifier, "key")
    return learn(models, batches, lambda: None, [])


def sharded(batches: list[Batch], n_shards: int) -> tuple[float, float]:
    import ray

    from driftree.scale.ray import RayKeyedModels

    with tempfile.TemporaryDirectory() as folder:
        options: dict[str, Any] = {"path": folder, "shards": n_shards, "every": 10**9}
        with RayKeyedModels(DynamicModelTreeClassifier, "key", **options) as models:
            pids = [ray.get(actor.pid.remote()) for actor in models._actors]
            return learn(models, batches, lambda: len(models), pids)


def race_ray(options: argparse.Namespace) -> None:
    import ray

    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 (Ray's name)
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    batches = list(draw(options.rows, options.keys))
    n_rows = (len(batches) - 1) * BATCH
    ways: dict[str, Callable[[], tuple[float, float]]] = {
        "one process": lambda: alone(batches),
        "Ray, one shard": lambda: sharded(batches, 1),
        "Ray, two shards": lambda: sharded(batches, 2),
    }
    runs = {name: [way() for _ in range(options.repeat)] for name, way in ways.items()}
    best = {name: np.min(found, axis=0) for name, found in runs.items()}
    one = best["Ray, one shard"]
    body = [
        [name, f"{n_rows / best[name][0]:,.0f}", *(f"{x:.2f}" for x in one / best[name])]
        for name in ways
    ]
    head = ["", "rows/s", "times one shard", "the same by CPU time of the busiest process"]
    table = page.markdown(head, body)
    page.write_table("sharded", "### Two shards beside one", table, "scale")
    Console(width=200).print(table)


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
    page.write_table("spark", "### Spark beside a loop", table, "scale")
    Console(width=200).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["ray", "spark"], nargs="?", default="ray")
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--keys", type=int, default=200)
    parser.add_argument("--repeat", type=int, default=2)
    options = parser.parse_args()
    (race_ray if options.what == "ray" else race_spark)(options)


if __name__ == "__main__":
    main()
