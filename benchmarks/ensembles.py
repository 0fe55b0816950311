"""One tree beside ensembles of ten: fourteen streams, the same rows for all, batch by batch.

Test-then-train on batches of 0.1 % of the stream, at least 10 rows; the first batch only trains. F1
of a batch is the harmonic mean of weighted precision and weighted recall; the table shows the mean
over batches, and for the trees the mean number of splits. The ensembles are River's, with ten
members each. The trees read the streams as they come; River's learners get the same values as
dicts, text included.

    DRIFTREE_DATA=folder python benchmarks/ensembles.py --rows 10000 --json results.json
    DRIFTREE_DATA=folder python benchmarks/ensembles.py --learners tree,straight --rows 30000
    DRIFTREE_DATA=folder python benchmarks/ensembles.py --streams robot,eeg --batch 1
"""

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
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
LEARNERS: dict[str, Callable[[], Any]] = {
    "tree": driftree.DynamicModelTreeClassifier,
    "straight": lambda: driftree.DynamicModelTreeClassifier(max_bends=0),
    "arf": lambda: forest.ARFClassifier(n_models=10, seed=1),
    "srp": lambda: ensemble.SRPClassifier(n_models=10, seed=1),
}
TITLES = {
    "tree": "driftree",
    "straight": "driftree, max_bends=0",
    "arf": "ARF(10), River",
    "srp": "SRP(10), River",
}
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


def run(learner: str, X: pd.DataFrame, y: list[str], batch: int | None) -> tuple[float, float]:
    """Return mean F1 and mean splits (NaN: an ensemble)."""
    stream = open_stream((X, np.array(y)), batch=batch or max(10, round(len(y) / 1000)))
    figures = summarise(prequential({learner: LEARNERS[learner]()}, stream))[learner]
    return figures["f1"].mean, figures["n_splits"].mean if learner in TREES else np.nan


def main() -> None:
    """Run what the command line says, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000, help="of each stream, at most")
    parser.add_argument("--batch", type=int, help="rows; 1: one at a time, F1 is then the accuracy")
    parser.add_argument("--streams", type=names(list(STREAMS)), default=list(STREAMS))
    parser.add_argument("--learners", type=names(list(LEARNERS)), default=list(LEARNERS))
    parser.add_argument("--json", type=Path, help="file to write the figures to")
    given = parser.parse_args()
    results: dict[str, dict[str, tuple[float, float]]] = {}
    console = Console()
    for stream in given.streams:
        X, y = load(stream, given.rows)
        results[stream] = {}
        for learner in given.learners:
            results[stream][learner] = run(learner, X, y, given.batch)
            console.print(stream, TITLES[learner], f"F1 {results[stream][learner][0]:.4f}")
            if given.json:
                given.json.write_text(json.dumps(results, indent=1) + "\n")
    table = Table(title=f"F1, first {given.rows:,} rows", title_justify="left")
    table.add_column("stream")
    for learner in given.learners:
        table.add_column(TITLES[learner], justify="right")
    for stream, found in results.items():
        table.add_row(stream, *(say(*found[learner]) for learner in given.learners))
    means = (
        np.mean([found[learner] for found in results.values()], axis=0)
        for learner in given.learners
    )
    table.add_row("mean", *(say(*mean) for mean in means), style="bold")
    console.print(table)


def say(score: float, splits: float) -> str:
    """Return F1, and the splits of a tree."""
    return f"{score:.3f}" + ("" if np.isnan(splits) else f" ({splits:.1f})")


if __name__ == "__main__":
    main()
