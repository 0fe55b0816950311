"""One tree beside ensembles of ten: fourteen streams, the same rows for all, batch by batch.

Test-then-train on batches of 0.1 % of the stream, at least 10 rows; the first batch only trains. F1
of a batch is the harmonic mean of weighted precision and weighted recall; the table shows the mean
over batches, and for the trees the mean number of splits, counted as in the paper. The ensembles
are River's and, where it is installed (`pip install capymoa`, and Java 17), CapyMOA's, with ten
members and one seed each. A column more shows, stream by stream, the better of the two libraries.
The trees read the streams as they come; the ensembles get the same values as dicts, text included.
River's SRP is slow: it runs where it is asked for, or where CapyMOA's cannot.

    DRIFTREE_DATA=folder python benchmarks/ensembles.py --rows 10000 --json results.json
    DRIFTREE_DATA=folder python benchmarks/ensembles.py --learners tree,straight --rows 30000
    DRIFTREE_DATA=folder python benchmarks/ensembles.py --streams robot,eeg --batch 1
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from capymoa_peers import Ensemble
from capymoa_peers import load as load_capymoa
from options import names
from rich.console import Console
from rich.table import Table
from river import ensemble, forest
from river.datasets import synth

import driftree
from driftree.evaluate import prequential, summarise
from driftree.streams import load_data_set, open_stream

NAMED = {
    "electricity": "electricity",
    "bank": "bank_marketing",
    "covertype": "covertype",
    "airlines": "airlines_5of7_features",
    "kdd": "kddcup99_10pct",
    "sea": "sea",
    "agrawal": "agrawal",
    "hyperplane": "hyperplane",
}
GENERATED: dict[str, Callable[[], Any]] = {
    "rbf": lambda: synth.RandomRBFDrift(
        seed_model=1,
        seed_sample=1,
        n_classes=4,
        n_features=10,
        n_centroids=50,
        change_speed=0.001,
        n_drift_centroids=50,
    ),
    "led": lambda: synth.LEDDrift(
        seed=1, noise_percentage=0.1, irrelevant_features=True, n_drift_features=3
    ),
}
FILES = ("outdoor", "letter", "robot", "eeg")
STREAMS = (*NAMED, *GENERATED, *FILES)
Learner = Callable[..., Any]  # of all rows and labels: CapyMOA's must know the levels
LEARNERS: dict[str, Learner] = {
    "tree": lambda X, y, seed=1: driftree.DynamicModelTreeClassifier(seed=seed),
    "straight": lambda X, y, seed=1: driftree.DynamicModelTreeClassifier(max_bends=0, seed=seed),
    "arf": lambda X, y: forest.ARFClassifier(n_models=10, seed=1),
    "moa-arf": lambda X, y: Ensemble("AdaptiveRandomForestClassifier", X, y, ensemble_size=10),
    "srp": lambda X, y: ensemble.SRPClassifier(n_models=10, seed=1),
    "moa-srp": lambda X, y: Ensemble("StreamingRandomPatches", X, y, ensemble_size=10),
}
TITLES = {
    "tree": "driftree",
    "straight": "driftree, max_bends=0",
    "arf": "ARF(10), River",
    "moa-arf": "ARF(10), CapyMOA",
    "srp": "SRP(10), River",
    "moa-srp": "SRP(10), CapyMOA",
}
BETTER = {"ARF(10), the better": ("arf", "moa-arf"), "SRP(10), the better": ("srp", "moa-srp")}
Results = dict[str, dict[str, tuple[float, float]]]  # F1 and splits, by stream and learner
TREES = ("tree", "straight")


def load(stream: str, n_rows: int) -> tuple[pd.DataFrame, list[str]]:
    """Return the first rows of a stream and their labels."""
    if stream in NAMED:
        data = load_data_set(NAMED[stream], preprocess="none", max_rows=n_rows)
        columns = data.X if isinstance(data.X, dict) else dict(enumerate(np.transpose(data.X)))
        X = pd.DataFrame({str(name): values[:n_rows] for name, values in columns.items()})
        return X, [str(label) for label in data.y[:n_rows]]
    if stream in GENERATED:
        rows = list(GENERATED[stream]().take(n_rows))
        X = pd.DataFrame([{str(k): float(v) for k, v in x.items()} for x, _ in rows])
        return X, [str(y) for _, y in rows]
    X = pd.read_csv(Path(os.environ["DRIFTREE_DATA"]) / f"{stream}.csv.gz")[:n_rows]
    y = X.pop("target")
    return X.astype(float), [str(label) for label in y]


def run(
    learner: str, X: pd.DataFrame, y: list[str], batch: int | None, n_seeds: int
) -> tuple[float, float]:
    """Return mean F1 and mean splits (NaN: an ensemble), of our trees over several seeds."""
    seeds = [{"seed": seed} for seed in range(1, n_seeds + 1)] if learner in TREES else [{}]
    found = []
    for seed in seeds:
        stream = open_stream((X, np.array(y)), batch=batch or max(10, round(len(y) / 1000)))
        model = LEARNERS[learner](X, y, **seed)
        figures = summarise(prequential({learner: model}, stream))[learner]
        n_splits = figures["n_paper_splits"].mean if learner in TREES else np.nan
        found.append((figures["f1"].mean, n_splits))
    f1, n_splits = np.mean(found, axis=0)
    return float(f1), float(n_splits)


def main() -> None:
    """Run what the command line says, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000, help="of each stream, at most")
    parser.add_argument("--batch", type=int, help="rows; 1: one at a time, F1 is then the accuracy")
    parser.add_argument("--seeds", type=int, default=1, help="of our trees: the mean over them")
    parser.add_argument("--streams", type=names(list(STREAMS)), default=list(STREAMS))
    parser.add_argument("--learners", type=names(list(LEARNERS)))
    parser.add_argument("--json", type=Path, help="file to write the figures to")
    given = parser.parse_args()
    given.learners = choose_learners(given.learners)
    results: Results = {}
    console = Console()
    for stream in given.streams:
        X, y = load(stream, given.rows)
        results[stream] = {}
        for learner in given.learners:
            results[stream][learner] = run(learner, X, y, given.batch, given.seeds)
            console.print(stream, TITLES[learner], f"F1 {results[stream][learner][0]:.4f}")
            if given.json:
                given.json.write_text(json.dumps(results, indent=1) + "\n")
    console.print(tabulate(results, given.learners, f"F1, first {given.rows:,} rows"))


def choose_learners(asked: list[str] | None) -> list[str]:
    """Return those asked for, or by default those that can run: River's SRP only as a stand-in."""
    try:
        if asked is None or any(learner.startswith("moa-") for learner in asked):
            load_capymoa("classifier")
    except ImportError as error:
        if asked is not None:
            sys.exit(str(error))
        print(error, file=sys.stderr)
        return [learner for learner in LEARNERS if not learner.startswith("moa-")]
    return asked or [learner for learner in LEARNERS if learner != "srp"]


def tabulate(results: Results, learners: list[str], title: str) -> Table:
    """Lay out a column for each learner, and for the better of two libraries."""
    found = {
        TITLES[learner]: [figures[learner] for figures in results.values()] for learner in learners
    }
    for better, both in BETTER.items():
        if set(both) <= set(learners):
            pairs = zip(*(found[TITLES[learner]] for learner in both), strict=True)
            found[better] = [max(pair) for pair in pairs]
    table = Table(title=title, title_justify="left")
    table.add_column("stream")
    for column in found:
        table.add_column(column, justify="right")
    for i, stream in enumerate(results):
        table.add_row(stream, *(say(*column[i]) for column in found.values()))
    means = (np.mean(column, axis=0) for column in found.values())
    table.add_row("mean", *(say(*mean) for mean in means), style="bold")
    return table


def say(score: float, splits: float) -> str:
    """Return F1, and the splits of a tree."""
    return f"{score:.3f}" + ("" if np.isnan(splits) else f" ({splits:.1f})")


if __name__ == "__main__":
    main()
