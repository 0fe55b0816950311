"""How soon can one begin? Processor time of imports and of `driftree --help`; the first prediction.

Every start is a fresh process. The starts take turns, round by round, and a ratio compares two
starts of the same round, so a machine whose speed varies hurts little. One round before the first
writes the bytecode, as an installation does, and is not counted.

    python benchmarks/startup.py
    python benchmarks/startup.py --rounds 5 --json startup.json

Whoever uses scikit-learn and River imports a learner of each (`sklearn.linear_model` and
`river.tree`), and whoever uses driftree its classifier: these two are compared. `import driftree`
alone imports nothing of this until a name is asked for.

A prediction is the first if its model has predicted nothing before: it has just learnt, or been
loaded. It does the same work as the thousandth, but with a model whose memory is not in the
processor's caches. So the thousandth is timed twice: warm, right after the others, and cold, after
the caches were emptied, which is what the first is to be compared with. Other learners are beside
it.
"""

import os

# Before NumPy is imported, here and in the processes: its libraries read these when loaded.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import argparse
import json
import pickle
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from river.tree import HoeffdingTreeClassifier
from sklearn.linear_model import SGDClassifier

from driftree import DynamicModelTreeClassifier, streams

OTHERS = "scikit-learn and River"
STARTS = {
    "Python alone": ["-c", "pass"],
    OTHERS: ["-c", "import sklearn.linear_model, river.tree"],
    "driftree's classifier": ["-c", "from driftree import DynamicModelTreeClassifier"],
    "import driftree": ["-c", "import driftree"],
    "driftree --help": ["-m", "driftree", "--help"],
    "driftree compare --help": ["-m", "driftree", "compare", "--help"],
    "driftree --version": ["-m", "driftree", "--version"],
}
N_PREDICTIONS = 1000
PLACES = ("1st", "1000th, cold", "1000th, warm")
EMPTY_BYTES = 2**27  # read to empty the caches: more than they hold


# ---------------------------------------------------------------------- starts
def processor_time(arguments: Sequence[str]) -> float:
    """Return the seconds of processor time of a Python process, its own and the system's."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def time_starts(n_rounds: int) -> dict[str, list[float]]:
    """Start everything once per round."""
    for arguments in STARTS.values():
        processor_time(arguments)
    seconds: dict[str, list[float]] = {name: [] for name in STARTS}
    for _ in range(n_rounds):
        for name, arguments in STARTS.items():
            seconds[name].append(processor_time(arguments))
    return seconds


def tabulate_starts(seconds: dict[str, list[float]]) -> Table:
    """Lay out the median and the range of each, and its ratio to the others' learners."""
    table = Table(title="Processor time of a fresh process", title_justify="left")
    table.add_column("start")
    for heading in ("seconds", "range", f"x {OTHERS}"):
        table.add_column(heading, justify="right")
    for name, own in seconds.items():
        ratios = [mine / theirs for mine, theirs in zip(own, seconds[OTHERS], strict=True)]
        table.add_row(
            name,
            f"{median(own):.3f}",
            f"{min(own):.3f} - {max(own):.3f}",
            f"{median(ratios):.2f}",
        )
    return table


# ---------------------------------------------------------------------- predictions
def make_predictors() -> dict[str, tuple[Callable[[], Any], Callable[[Any, int], Any]]]:
    """Return how each fresh model is made, and how it predicts the next row."""
    X, y = next(streams.agrawal(5000, batch_rows=5000, function=1, seed=1))
    rows = [dict(zip(streams.AGRAWAL_FEATURES, row, strict=True)) for row in X.tolist()]
    labels = y.tolist()

    def learn(model: Any) -> Any:
        for x, label in zip(rows, labels, strict=True):
            model.learn_one(x, label)
        return model

    def loader(model: Any) -> Callable[[], Any]:
        saved = pickle.dumps(model)
        return lambda: pickle.loads(saved)

    def predict_one(model: Any, i: int) -> Any:
        return model.predict_one(rows[i])

    def predict(model: Any, i: int) -> Any:
        return model.predict(X[i : i + 1])

    ours = learn(DynamicModelTreeClassifier())
    batches = DynamicModelTreeClassifier().partial_fit(X, y)
    return {
        "driftree predict_one, after learning": (
            lambda: learn(DynamicModelTreeClassifier()),
            predict_one,
        ),
        "driftree predict_one, after loading": (loader(ours), predict_one),
        "River HoeffdingTree predict_one": (
            loader(learn(HoeffdingTreeClassifier())),
            predict_one,
        ),
        "driftree predict of 1 row, after loading": (loader(batches), predict),
        "scikit-learn SGD predict of 1 row": (loader(SGDClassifier().fit(X, y)), predict),
    }


def time_predictions(
    make: Callable[[], Any], predict: Callable[[Any, int], Any], n_models: int
) -> list[list[int]]:
    """Return nanoseconds of predictions of many fresh models, as `PLACES` names them."""
    other, *models = [make() for _ in range(n_models + 1)]
    for i in range(N_PREDICTIONS):
        predict(other, i)  # what is measured is the models', not Python's
    memory = np.ones(EMPTY_BYTES // 8)

    def clock(model: Any, i: int, *, is_cold: bool) -> int:
        if is_cold:
            memory.sum()
        begin = time.perf_counter_ns()
        predict(model, i)
        return time.perf_counter_ns() - begin

    taken = []
    for model in models:
        first = clock(model, 0, is_cold=True)
        for i in range(1, N_PREDICTIONS - 1):
            predict(model, i)
        hot, cold = (clock(model, N_PREDICTIONS - 1, is_cold=is_cold) for is_cold in (False, True))
        taken.append([first, cold, hot])
    return taken


def tabulate_predictions(taken: dict[str, list[list[int]]]) -> Table:
    """Lay out the medians over the models."""
    table = Table(title="Microseconds of a prediction, median over models", title_justify="left")
    table.add_column("prediction")
    for heading in (*PLACES, "1st / cold"):
        table.add_column(heading, justify="right")
    for name, models in taken.items():
        figures = [median(own) / 1000 for own in zip(*models, strict=True)]
        ratio = figures[0] / figures[1]
        table.add_row(name, *(f"{figure:.1f}" for figure in figures), f"{ratio:.2f}")
    return table


# ---------------------------------------------------------------------- command line
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15, help="starts of each kind")
    parser.add_argument("--models", type=int, default=100, help="fresh models per prediction")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results here")
    options = parser.parse_args(arguments)
    console = Console(width=max(Console().width, 100))
    seconds = time_starts(options.rounds)
    console.print(tabulate_starts(seconds))
    taken = {
        name: time_predictions(make, predict, options.models)
        for name, (make, predict) in make_predictors().items()
    }
    console.print(tabulate_predictions(taken))
    if options.json:
        record = {"starts_seconds": seconds, "predictions_ns": {"places": PLACES, **taken}}
        options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
