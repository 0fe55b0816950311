"""One model whose rounds are learnt in slices: what does it lose, and what does a round cost?

F1 by test-then-train in batches of 500 rows, of a model that learns each batch as usual and of
models whose batches are cut into slices. The costs are CPU seconds of this process: to learn a
batch as usual, to learn its slices, and all else that the driver does.

    python benchmarks/one_model.py          minutes; needs DRIFTREE_DATA; writes docs/scale.md
"""

import os

# Before NumPy is imported: matrices are small, and threads would only wait for each other.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import time
from typing import Any

import numpy as np
import page
from merging import rows_of
from rich.console import Console
from sklearn.metrics import f1_score

from driftree import DynamicModelTreeClassifier
from driftree.scale import merging

STREAMS = ["SEA", "Agrawal, drifting", "Hyperplane, 10 features", "Electricity", "Covertype"]
SLICES = (2, 4, 8)
BATCH = 500


def clock(call: Any, *arguments: Any) -> tuple[Any, float]:
    begin = time.process_time()
    found = call(*arguments)
    return found, time.process_time() - begin


def run(X: np.ndarray, y: np.ndarray, n_slices: int | None) -> tuple[float, float, float]:
    """Return the F1, and the microseconds per row of learning, and of the driver beside it."""
    model, right = DynamicModelTreeClassifier(), []
    inside, total = 0.0, 0.0

    def spread(data: bytes, slices: list[Any]) -> list[Any]:
        nonlocal inside
        found, seconds = clock(merging._here, data, slices)
        inside += seconds
        return found

    for start in range(0, len(X), BATCH):
        rows = slice(start, start + BATCH)
        if start:
            right.append((y[rows], model.predict(X[rows])))
        if n_slices is None or not start:
            total += clock(model.partial_fit, X[rows], y[rows])[1]
        else:
            total += clock(merging._learn_round, model, X[rows], y[rows], n_slices, spread)[1]
    truth, said = map(np.concatenate, zip(*right, strict=True))
    f1 = f1_score(truth, said, average="macro" if len(np.unique(y)) > 2 else "binary")
    learning = total if n_slices is None else inside
    return f1, 1e6 * learning / len(X), 1e6 * (total - learning) / len(X)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", nargs="*", default=STREAMS)
    parser.add_argument("--rows", type=int, default=30_000)
    options = parser.parse_args()
    body = []
    for name in options.streams:
        X, y = rows_of(name, options.rows)
        found = [run(X, y, n_slices) for n_slices in (None, *SLICES)]
        scores = [f"{f1:.3f}" for f1, *_ in found]
        slices = found[1]
        body.append([name, *scores, f"{found[0][1]:.1f}", f"{slices[1]:.1f}", f"{slices[2]:.1f}"])
    head = ["stream", "F1, one process", *(f"{n} slices" for n in SLICES)]
    head += ["µs per row, one process", f"{SLICES[0]} slices, all together", "and the driver"]
    table = page.markdown(head, body)
    page.write_table("one_model", "### The rows of a tree in slices", table, "scale")
    Console(width=200).print(table)


if __name__ == "__main__":
    main()
