"""Do two cores help? Wall time with one worker and with two, and whether the results are the same.

Each job is done with one worker, then with two, and again, round by round; a ratio compares the two
of one round. A core that is busy with something else cannot help, so a round counts only if two
cores were free before and after it: if two threads then computed checksums twice as fast as one.

    python benchmarks/cores.py
    python benchmarks/cores.py --rounds 3 --jobs models,bagging --json cores.json

Jobs: `models` are independent trees, each in a thread of its own that predicts and learns batches
of 1000 rows; `paper` the same in the paper's setting; `bagging` is scikit-learn's BaggingClassifier
of trees in joblib's threads, fitted to 200,000 rows and asked for labels; `bagging-processes` the
same in joblib's processes; `predict` is one big batch, cut in two, that one tree predicts;
`compare` is `driftree compare`, whose learners get processes of their own.
"""

import os

# Before NumPy is imported: its libraries read these when they are loaded.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import csv
import hashlib
import json
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
from joblib import parallel_config
from numpy.typing import NDArray
from options import names
from rich.console import Console
from rich.table import Table
from sklearn.ensemble import BaggingClassifier

from driftree import DynamicModelTreeClassifier, streams

BATCH_ROWS = 1000
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


class Predict:
    """One tree, and one big batch cut into as many parts as there are workers."""

    def __init__(self) -> None:
        batches = draw(seed=1)
        self.X = np.concatenate([X for X, _ in batches] * 10)
        self.model = DynamicModelTreeClassifier()
        for X, y in batches:
            self.model.partial_fit(X, y)

    def run(self, n_workers: int) -> bytes:
        """Predict; return the probabilities."""
        with ThreadPoolExecutor(n_workers) as pool:
            parts = pool.map(self.model.predict_proba, np.array_split(self.X, n_workers))
        return np.concatenate(list(parts)).tobytes()


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
        "predict": Predict,
        "compare": Compare,
    }
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=names(list(jobs)), default=list(jobs))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=100_000, help="rows of `compare`")
    parser.add_argument("--patience", type=float, default=600, help="seconds to wait for cores")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results here")
    options = parser.parse_args(arguments)
    results = {}
    for name in options.jobs:
        job = jobs[name](options.rows) if name == "compare" else jobs[name]()
        results[name] = race(job, options.rounds, options.patience)
    Console(width=max(Console().width, 100)).print(tabulate(results))
    if options.json:
        record = {name: result._asdict() for name, result in results.items()}
        options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
