"""Do two cores help? Wall time with one worker and with two, and whether the results are the same.

Each job is done with one worker, then with two, and again, round by round; a ratio compares the two
of one round. A core that is busy with something else cannot help, so a round counts only if two
cores were free before and after it: if two threads then computed checksums twice as fast as one.

    python benchmarks/cores.py
    python benchmarks/cores.py --rounds 3 --jobs models,bagging --json cores.json

Jobs: `trees` is one tree in batches of 1000 rows, and a large batch that it predicts, with n_jobs=1
and n_jobs=2; it writes the tables in docs/speed.md. Its blocks are so short (one batch) that the
best of several rounds is one in which both cores were free. Beside it stands what the machine
allows: two trees that have nothing to do with each other, learnt at the same time in two threads.
`forests` does the same with forests of five and ten trees, and writes their table.
`models` are independent trees, each in a thread of its own that predicts and learns batches of 1000
rows; `paper` the same in the paper's setting; `bagging` is scikit-learn's BaggingClassifier of
trees in joblib's threads, fitted to 200,000 rows and asked for labels; `bagging-processes` the same
in joblib's processes; `compare` is `driftree compare`, whose learners get processes of their own.
"""

import os

# Before NumPy is imported: its libraries read these when they are loaded.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import copy
import csv
import hashlib
import json
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import page
import profile_learning
from joblib import parallel_config
from numpy.typing import NDArray
from options import names
from quiet import wait_for_cores
from rich.console import Console
from rich.table import Table
from sklearn.ensemble import BaggingClassifier
from speed_streams import draw_hyperplane

from driftree import DynamicModelForestClassifier, DynamicModelTreeClassifier, streams

BATCH_ROWS = 1000
STEP_ROWS = 200
N_MODELS, N_BATCHES = 8, 100
N_FEATURES = 20
COMPARED = "dmt,dmt-paper,fimtdd,vfdt-mc,vfdt-nba,ht-ada,efdt,arf3"
CHECKED_BYTES = 100_000_000
VARYING = {"predict_seconds", "learn_seconds", "memory"}  # between runs of `driftree compare`


class Result(NamedTuple):
    """Seconds of each round by the number of workers, and whether the results were the same."""

    seconds: dict[int, list[float]]
    same_results: bool


def draw(
    seed: int, n_batches: int = N_BATCHES
) -> list[tuple[NDArray[np.float64], NDArray[np.int64]]]:
    """Draw a hyperplane that moves, in batches."""
    return list(
        streams.hyperplane(
            n_batches * BATCH_ROWS,
            batch_rows=BATCH_ROWS,
            seed=seed,
            n_features=N_FEATURES,
            n_drifting=N_FEATURES // 2,
            magnitude=0.5,
            noise=0.1,
        )
    )


# ---------------------------------------------------------------------- jobs
class Models:
    """Independent models, each with its own stream and in a thread of its own."""

    def __init__(self, build: Callable[[], Any]) -> None:
        self.build = build
        self.streams = [draw(seed) for seed in range(N_MODELS)]

    def run(self, n_workers: int) -> bytes:
        """Let all models learn; return what they predicted."""
        with ThreadPoolExecutor(n_workers) as pool:
            return b"".join(pool.map(self.walk, self.streams))

    def walk(self, batches: list[tuple[NDArray[np.float64], NDArray[np.int64]]]) -> bytes:
        """Let one model predict, then learn, batch by batch."""
        model, predicted = self.build(), []
        for i, (X, y) in enumerate(batches):
            if i:
                predicted.append(model.predict_proba(X).tobytes())
            model.partial_fit(X, y)
        return b"".join(predicted)


class Bagging:
    """scikit-learn's ensemble of our trees."""

    def __init__(self, backend: str) -> None:
        self.backend = backend
        batches = draw(seed=1, n_batches=200)
        self.X = np.concatenate([X for X, _ in batches])
        self.y = np.concatenate([y for _, y in batches])

    def run(self, n_workers: int) -> bytes:
        """Fit it; return its labels and what its trees predict.

        The probabilities of the whole are sums by worker in scikit-learn, and so rounded otherwise.
        """
        ensemble = BaggingClassifier(
            DynamicModelTreeClassifier(), n_estimators=8, random_state=1, n_jobs=n_workers
        )
        with parallel_config(self.backend):
            labels = ensemble.fit(self.X, self.y).predict(self.X)
        trees = [tree.predict_proba(self.X[:BATCH_ROWS]) for tree in ensemble.estimators_]
        return labels.tobytes() + np.stack(trees).tobytes()


class Compare:
    """`driftree compare` on a file."""

    def __init__(self, n_rows: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.file = Path(self.folder.name) / "loans.csv"
        batches = streams.drifting_agrawal(n_rows, seed=1, perturbation=0.05)
        with open(self.file, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*streams.AGRAWAL_FEATURES, "target"])
            for X, y in batches:
                writer.writerows([*row, label] for row, label in zip(X.tolist(), y, strict=True))

    def run(self, n_workers: int) -> bytes:
        """Run the command; return the records, but for times and memory."""
        out = Path(self.folder.name) / str(n_workers)
        command = [sys.executable, "-m", "driftree", "compare", str(self.file), "--overwrite"]
        options = ["--models", COMPARED, "--jobs", str(n_workers), "--out", str(out)]
        subprocess.run([*command, *options], check=True, capture_output=True)
        with open(out / "records.csv", newline="") as file:
            rows = [
                [value for name, value in row.items() if name not in VARYING]
                for row in csv.DictReader(file)
            ]
        return repr(rows).encode()


# ---------------------------------------------------------------------- one tree
Block = tuple[NDArray[np.float64], NDArray[np.int64]]
PREDICTED_ROWS = 200_000
PATIENCE = 10  # seconds to wait for free cores before each round
CORES = (2, 8, 32)
# Kernels of which several threads have a part each; all else of a step, Python included, is serial.
SHARED = {
    *("forward", "links", "Adagrad", "Newton", "opinions", "SGD", "gradients", "grid sums"),
    *("slots", "proposals", "bends", "candidate sums", "buckets"),
}


class TreeResult(NamedTuple):
    """How much faster two threads are, and two trees at a time; how far tasks could be cut."""

    ratio: float
    limit: float
    is_same: bool
    longest: float
    """Share of the longest task of a step in all its tasks; 0 where none are shared."""

    @property
    def words(self) -> list[str]:
        """Return the ratios, and whether the bits are the same."""
        return [f"{self.ratio:.2f}", f"{self.limit:.2f}", "yes" if self.is_same else "NO"]


class Best:
    """The shortest time of each block, by what was timed."""

    def __init__(self) -> None:
        self.seconds: dict[tuple[str, int], float] = {}

    def time(self, what: str, block: int, call: Callable[[], object]) -> None:
        """Call it, and keep the time if none was shorter."""
        begin = time.perf_counter()
        call()
        seconds = time.perf_counter() - begin
        self.seconds[what, block] = min(seconds, self.seconds.get((what, block), np.inf))

    def total(self, what: str) -> float:
        """Return the seconds of all blocks."""
        return sum(seconds for (name, _), seconds in self.seconds.items() if name == what)

    def compare(self, is_same: bool, longest: float) -> TreeResult:
        """Return the ratios."""
        one, two, pair = map(self.total, ("one", "two", "pair"))
        return TreeResult(one / two, 2 * one / pair, is_same, longest)


def at_a_time(pool: ThreadPoolExecutor, calls: list[Callable[[], object]]) -> None:
    """Call several functions, each in a thread of its own."""
    for done in [pool.submit(call) for call in calls]:
        done.result()


def time_blocks(
    build: Callable[..., Any], blocks: list[Block], n_rounds: int, longest: float = 0.0
) -> TreeResult:
    """Time each batch of a stream with one thread, with two, and two models at a time."""
    best, files = Best(), set()
    with ThreadPoolExecutor(2) as pool:
        for _ in range(n_rounds):
            wait_for_cores(PATIENCE)
            one, two, *pair = [build(n_jobs=n) for n in (1, 2, 1, 1)]
            for i, (X, y) in enumerate(blocks):
                best.time("one", i, partial(one.partial_fit, X, y))
                best.time("two", i, partial(two.partial_fit, X, y))
                calls = [partial(tree.partial_fit, X, y) for tree in pair]
                best.time("pair", i, partial(at_a_time, pool, calls))
            files |= {pickle.dumps(tree.set_params(n_jobs=None)) for tree in (one, two, *pair)}
    return best.compare(len(files) == 1, longest)


def longest_share(build: Callable[..., Any], setting: str, blocks: list[Block]) -> float:
    """Return the share of the longest task of a step in all its tasks."""
    if setting == "paper":  # its tasks are the features of a node
        return 1 / blocks[0][0].shape[1]
    tasks = plan_of(build, blocks)
    return sum(max(own) for own in tasks) / sum(map(sum, tasks)) if tasks else 0.0


def plan_of(build: Callable[..., Any], blocks: list[Block]) -> list[list[float]]:
    """Return the work of the tasks of each step that several threads share."""
    tree, tasks = build(n_jobs=max(CORES)), []
    for X, y in blocks:
        for start in range(0, len(X), STEP_ROWS):
            tree.partial_fit(X[start : start + STEP_ROWS], y[start : start + STEP_ROWS])
            tasks.append(tree._tree.engine.task_work)
    return [own for own in tasks if own]


def predict_blocks(blocks: list[Block], n_rounds: int) -> TreeResult:
    """Time a large batch that a tree predicts, with one thread, two, and two calls at a time."""
    one = DynamicModelTreeClassifier()
    for X, y in blocks:
        one.partial_fit(X, y)
    two = copy.deepcopy(one).set_params(n_jobs=2)
    rows = np.concatenate([X for X, _ in blocks])
    X, best = np.tile(rows, (PREDICTED_ROWS // len(rows), 1)), Best()
    with ThreadPoolExecutor(2) as pool:
        for _ in range(4 * n_rounds):
            wait_for_cores(PATIENCE)
            best.time("one", 0, partial(one.predict_proba, X))
            best.time("two", 0, partial(two.predict_proba, X))
            best.time("pair", 0, partial(at_a_time, pool, 2 * [partial(one.predict_proba, X)]))
    return best.compare(bool((one.predict_proba(X) == two.predict_proba(X)).all()), 0.0)


def serial_share(kernels: dict[str, float]) -> float:
    """Return the share of a row's instructions that one thread has to do (make profile)."""
    return 1.0 - sum(count for name, count in kernels.items() if name in SHARED) / kernels["total"]


def race_trees(n_rounds: int) -> None:
    """Time one tree with one thread and with two; predict more cores; write both down."""
    profile, body = json.loads(profile_learning.FIGURES.read_text()), []
    for stream, draw_rows in profile_learning.STREAMS.items():
        blocks = list(draw_rows(5000 if "200" in stream else 20_000))
        for setting, build in profile_learning.settings_of(stream).items():
            longest = longest_share(build, setting, blocks)
            result = time_blocks(build, blocks, n_rounds, longest)
            serial = serial_share(profile[f"{stream} {setting} batch"])
            shares = [max(1 / n, result.longest) if result.longest else 1.0 for n in CORES]
            figures = [f"{serial:.1%}", f"{result.longest:.0%}" if result.longest else "none"]
            figures += [f"{1 / (serial + (1 - serial) * share):.1f}" for share in shares]
            body.append([f"{stream}, {setting}", *result.words, *figures])
            print(*body[-1], sep="  ", flush=True)
    result = predict_blocks(list(draw_hyperplane(20_000, n_features=20)), n_rounds)
    body.append([f"{PREDICTED_ROWS:,} rows predicted", *result.words, *[""] * (2 + len(CORES))])
    print(*body[-1], sep="  ")
    head = ["stream, setting", "2 threads", "2 trees", "same bits", "serial", "longest task"]
    table = page.markdown([*head, *(f"{n} cores" for n in CORES)], body)
    page.write_table("cores", "### One tree on several cores", table)


def race_forests(n_rounds: int) -> None:
    """Time forests of five and ten trees with one thread and with two; write it down."""
    body = []
    for stream in ("agrawal", "hyperplane10", "cover54x7"):
        blocks = list(profile_learning.STREAMS[stream](10_000))
        for n_trees in (5, 10):
            build = partial(DynamicModelForestClassifier, n_trees)
            result = time_blocks(build, blocks, n_rounds)
            body.append([f"{stream}, {n_trees} trees", *result.words])
            print(*body[-1], sep="  ", flush=True)
    table = page.markdown(["stream", "2 threads", "2 forests", "same bits"], body)
    page.write_table("cores_forests", "### A forest on two cores", table)


# ---------------------------------------------------------------------- the race
def two_cores_are_free() -> bool:
    """Tell whether two threads that need nothing but a core each get one each."""
    data = bytes(CHECKED_BYTES)
    seconds = []
    for n_workers in (1, 2):
        with ThreadPoolExecutor(n_workers) as pool:
            begin = time.perf_counter()
            list(pool.map(lambda _: hashlib.sha256(data).digest(), range(2)))
            seconds.append(time.perf_counter() - begin)
    return seconds[0] / seconds[1] > 1.8


def race(job: Any, n_rounds: int, patience: float) -> Result:
    """Return the seconds with one and with two workers, and whether all results agree."""
    seconds: dict[int, list[float]] = {1: [], 2: []}
    digests = set()
    job.run(1)  # nothing is cold then
    deadline = time.monotonic() + patience
    while len(seconds[1]) < n_rounds:
        if time.monotonic() > deadline:
            raise SystemExit("two cores were hardly ever free: try again when less is running here")
        if not two_cores_are_free():
            time.sleep(1)
            continue
        durations = []
        for n_workers in seconds:
            begin = time.perf_counter()
            result = job.run(n_workers)
            durations.append(time.perf_counter() - begin)
            digests.add(hashlib.sha256(result).hexdigest())
        if two_cores_are_free():
            for own, duration in zip(seconds.values(), durations, strict=True):
                own.append(duration)
    return Result(seconds, len(digests) == 1)


def tabulate(results: dict[str, Result]) -> Table:
    """Lay out medians, ratios and whether the bits are the same."""
    table = Table(title="Wall time with one worker and with two", title_justify="left")
    table.add_column("job")
    for heading in ("1: seconds", "2: seconds", "ratio", "range", "same results"):
        table.add_column(heading, justify="right")
    for name, (seconds, is_same) in results.items():
        ratios = [one / two for one, two in zip(*seconds.values(), strict=True)]
        table.add_row(
            name,
            *(f"{median(own):.2f}" for own in seconds.values()),
            f"{median(ratios):.2f}",
            f"{min(ratios):.2f} - {max(ratios):.2f}",
            "yes" if is_same else "NO",
        )
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    jobs: dict[str, Callable[..., Any]] = {
        "models": partial(Models, DynamicModelTreeClassifier),
        "paper": partial(Models, DynamicModelTreeClassifier.paper),
        "bagging": partial(Bagging, "threading"),
        "bagging-processes": partial(Bagging, "loky"),
        "compare": Compare,
    }
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    alone = {"trees": race_trees, "forests": race_forests}
    every = [*alone, *jobs]
    parser.add_argument("--jobs", type=names(every), default=every)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=100_000, help="rows of `compare`")
    parser.add_argument("--patience", type=float, default=600, help="seconds to wait for cores")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results here")
    options = parser.parse_args(arguments)
    results = {}
    for name in options.jobs:
        if name in alone:
            alone[name](options.rounds)
            continue
        job = jobs[name](options.rows) if name == "compare" else jobs[name]()
        results[name] = race(job, options.rounds, options.patience)
    if results:
        Console(width=max(Console().width, 100)).print(tabulate(results))
    if options.json:
        record = {name: result._asdict() for name, result in results.items()}
        options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
