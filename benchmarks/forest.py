"""A forest beside the ensembles of River and CapyMOA: the same rows for all, in one run.

Open streams (those of benchmarks/ensembles.py) and streams whose concept changes (benchmarks/
drifts.py), test-then-train on batches of 0.1 % of the stream, at least 10 rows; the first batch
only trains. F1 of a batch is the harmonic mean of weighted precision and weighted recall. Tables
show F1 stream by stream, then for each learner the mean, the mean rank among all of them, the
processor's time for all streams, and how many times faster than River's ARF(10) that is. Ensembles
have ten members, but for the forest of five, CapyMOA's gradient boosting (its default) and
kNN(1000). CapyMOA's run where it is installed (`pip install capymoa`, and Java 17). Of numbers:
`benchmarks/regression.py --ours forest,dmt`.

    DRIFTREE_DATA=folder python benchmarks/forest.py --rows 10000 --json results.json
    python benchmarks/forest.py --streams "agrawal abrupt,rbf abrupt" --learners tree,forest5
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import drifts
import ensembles
import numpy as np
import pandas as pd
from capymoa_peers import Ensemble
from capymoa_peers import load as load_capymoa
from options import names
from rich.console import Console
from rich.table import Table
from river import ensemble, forest, neighbors, tree

import driftree
from driftree.evaluate import prequential, summarise
from driftree.streams import open_stream

STREAMS = [*ensembles.STREAMS, *drifts.STREAMS]
Learner = Callable[[pd.DataFrame, list[str]], Any]


def moa(name: str, **options: Any) -> Learner:
    """Return CapyMOA's learner, to be made for given rows."""
    return lambda X, y: Ensemble(name, X, y, **options)


LEARNERS: dict[str, tuple[str, Learner]] = {
    "tree": ("driftree, one tree", lambda X, y: driftree.DynamicModelTreeClassifier()),
    "forest5": ("driftree, forest of 5", lambda X, y: driftree.DynamicModelForestClassifier()),
    "forest10": ("driftree, forest of 10", lambda X, y: driftree.DynamicModelForestClassifier(10)),
    "arf": ("ARF(10), River", lambda X, y: forest.ARFClassifier(n_models=10, seed=1)),
    "srp": ("SRP(10), River", lambda X, y: ensemble.SRPClassifier(n_models=10, seed=1)),
    "levbag": (
        "LevBag(10), River",
        lambda X, y: ensemble.LeveragingBaggingClassifier(
            tree.HoeffdingTreeClassifier(), n_models=10, seed=1
        ),
    ),
    "knn": ("kNN(1000), River", lambda X, y: neighbors.KNNClassifier(n_neighbors=10)),
    "moa-arf": ("ARF(10), CapyMOA", moa("AdaptiveRandomForestClassifier", ensemble_size=10)),
    "moa-srp": ("SRP(10), CapyMOA", moa("StreamingRandomPatches", ensemble_size=10)),
    "moa-levbag": ("LevBag(10), CapyMOA", moa("LeveragingBagging", ensemble_size=10)),
    "moa-sgbt": ("SGBT, CapyMOA", moa("StreamingGradientBoostedTrees")),
    "moa-boost": ("SmoothBoost(10), CapyMOA", moa("OnlineSmoothBoost", boosting_iterations=10)),
    "moa-knn": ("kNN(1000), CapyMOA", moa("KNN", k=10, window_size=1000)),
}
SLOW = ("srp", "levbag", "knn")  # run where they are asked for: CapyMOA has the same
Results = dict[str, dict[str, tuple[float, float]]]  # F1 and seconds, by stream and learner


def load(stream: str, n_rows: int) -> tuple[pd.DataFrame, list[str]]:
    """Return the first rows of a stream and their labels."""
    if stream in ensembles.STREAMS:
        return ensembles.load(stream, n_rows)
    X, y = drifts.load(stream, n_rows, seed=1)
    return pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])]), y.astype(str).tolist()


def run(learner: str, X: pd.DataFrame, y: list[str]) -> tuple[float, float]:
    """Return mean F1 and the processor's seconds."""
    stream = open_stream((X, np.array(y)), batch=max(10, round(len(y) / 1000)))
    model = LEARNERS[learner][1](X, y)
    start = time.process_time()
    figures = summarise(prequential({learner: model}, stream))[learner]
    return figures["f1"].mean, time.process_time() - start


def ranks_of(results: Results, learners: list[str]) -> dict[str, float]:
    """Return the mean rank of each learner, 1 the best; equal ones share theirs."""
    scores = np.array([[found[one][0] for one in learners] for found in results.values()])
    better = (scores[:, None, :] > scores[:, :, None]).sum(axis=2)
    equal = (scores[:, None, :] == scores[:, :, None]).sum(axis=2) - 1
    return dict(zip(learners, (1 + better + equal / 2).mean(axis=0), strict=True))


def tabulate(results: Results, learners: list[str], title: str) -> list[Table]:
    """Lay out F1 stream by stream, and what sums it up learner by learner."""
    by_stream = Table("stream", *learners, title=f"F1, {title}", title_justify="left")
    for stream, found in results.items():
        best = max(found[one][0] for one in learners)
        cells = [f"{found[one][0]:.3f}" for one in learners]
        marked = [f"[bold]{c}[/bold]" if c == f"{best:.3f}" else c for c in cells]
        by_stream.add_row(stream, *marked)
    ranks = ranks_of(results, learners)
    summary = Table(
        "learner",
        "mean F1",
        "mean rank",
        "seconds",
        "times River's ARF(10)",
        title=f"{len(results)} streams, ranks among {len(learners)}",
        title_justify="left",
    )
    seconds = {one: sum(found[one][1] for found in results.values()) for one in learners}
    for one in sorted(learners, key=ranks.__getitem__):
        mean = np.mean([found[one][0] for found in results.values()])
        faster = f"{seconds['arf'] / seconds[one]:.1f}" if "arf" in learners else "-"
        summary.add_row(
            LEARNERS[one][0], f"{mean:.4f}", f"{ranks[one]:.2f}", f"{seconds[one]:,.0f}", faster
        )
    return [by_stream, summary]


def choose_learners(asked: list[str] | None) -> list[str]:
    """Return those asked for, or by default those that can run in reasonable time."""
    chosen = asked or [name for name in LEARNERS if name not in SLOW]
    try:
        if any(name.startswith("moa-") for name in chosen):
            load_capymoa("classifier")
    except ImportError as error:
        if asked is not None:
            sys.exit(str(error))
        print(error, file=sys.stderr)
        return [name for name in LEARNERS if not name.startswith("moa-")]
    return chosen


def main() -> None:
    """Run what the command line says, and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000, help="of each stream, at most")
    parser.add_argument("--streams", type=names(STREAMS), default=STREAMS)
    parser.add_argument("--learners", type=names(list(LEARNERS)))
    parser.add_argument("--json", type=Path, help="file to keep the figures in, and take them from")
    given = parser.parse_args()
    learners = choose_learners(given.learners)
    kept: dict[str, Any] = {"rows": given.rows, "streams": {}}
    if given.json and given.json.exists():
        found = json.loads(given.json.read_text(encoding="utf-8"))
        kept = found if found["rows"] == given.rows else kept
    for stream in given.streams:
        known = kept["streams"].setdefault(stream, {})
        wanted = [learner for learner in learners if learner not in known]
        X, y = load(stream, given.rows) if wanted else (pd.DataFrame(), [])
        for learner in wanted:
            known[learner] = run(learner, X, y)
            print(f"{stream}, {LEARNERS[learner][0]}: F1 {known[learner][0]:.4f}", file=sys.stderr)
            if given.json:
                given.json.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    results = {stream: kept["streams"][stream] for stream in given.streams}
    for table in tabulate(results, learners, f"first {given.rows:,} rows"):
        Console(width=200).print(table)


if __name__ == "__main__":
    main()
