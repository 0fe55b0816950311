"""One model whose rounds are learnt in slices: what does it lose, and what does a round cost?

F1 by test-then-train in batches, of a model that learns each batch as usual and of models for which
each batch is a round that is cut into slices; the mean over seeds of the model, and of the stream
where it is drawn. Next to it, how much F1 varies with the model's seed alone. The costs are CPU
seconds of this process: to learn a batch as usual, to learn its slices, and all else that the
driver does.

    python benchmarks/one_model.py          many minutes; needs DRIFTREE_DATA; writes docs/scale.md
    python benchmarks/one_model.py rounds   the same with longer rounds
"""

import os

# Before NumPy is imported: matrices are small, and threads would only wait for each other.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import time
from typing import Any

import numpy as np
import page
from merging import DRAWN, rows_of
from rich.console import Console
from sklearn.metrics import f1_score

from driftree import DynamicModelTreeClassifier
from driftree.scale import merging

STREAMS = [*DRAWN, "Electricity", "Bank marketing", "Covertype"]
# Of the stream and of the model: three drawn streams, each learnt twice, or a real one four times.
DRAWN_SEEDS = [(stream, model) for stream in (1, 2, 3) for model in (1, 2)]
REAL_SEEDS = [(1, model) for model in (1, 2, 3, 4)]
SLICES = (2, 4, 8)
ROUNDS = (1000, 2000)


def clock(call: Any, *arguments: Any) -> tuple[Any, float]:
    begin = time.process_time()
    found = call(*arguments)
    return found, time.process_time() - begin


def run(
    X: np.ndarray,
    y: np.ndarray,
    n_slices: int | None,
    batch: int = merging.ROUND_ROWS,
    seed: int = 1,
) -> tuple[float, float, float]:
    """Return the F1, and the microseconds per row of learning, and of the driver beside it."""
    model, right = DynamicModelTreeClassifier(seed=seed), []
    inside, total = 0.0, 0.0

    def learn_all(data: bytes, slices: list[Any]) -> list[Any]:
        nonlocal inside
        found, seconds = clock(merging._here, data, slices)
        inside += seconds
        return found

    for start in range(0, len(X), batch):
        rows = slice(start, start + batch)
        if start:
            right.append((y[rows], model.predict(X[rows])))
        if n_slices is None or not start:
            total += clock(model.partial_fit, X[rows], y[rows])[1]
        else:
            total += clock(merging._learn_round, model, X[rows], y[rows], n_slices, learn_all)[1]
    truth, said = map(np.concatenate, zip(*right, strict=True))
    f1 = f1_score(truth, said, average="macro" if len(np.unique(y)) > 2 else "binary")
    learning = total if n_slices is None else inside
    return f1, 1e6 * learning / len(X), 1e6 * (total - learning) / len(X)


def runs(name: str, n_rows: int, n_slices: int | None, batch: int) -> np.ndarray:
    """Return what `run` does for all seeds of a stream, which comes first, and of the model."""
    seeds = DRAWN_SEEDS if name in DRAWN else REAL_SEEDS
    n_streams = len({stream for stream, _ in seeds})
    found = [run(*rows_of(name, n_rows, stream), n_slices, batch, model) for stream, model in seeds]
    return np.reshape(found, (n_streams, -1, 3))


def spread(found: np.ndarray) -> float:
    """Return the standard deviation of the F1 over the seeds of the model, for a given stream."""
    return float(np.sqrt(np.mean(np.var(found[:, :, 0], axis=1, ddof=1))))


def by_slices(streams: list[str], n_rows: int) -> None:
    """Compare numbers of slices, and what they cost."""
    body, ways = [], (None, *SLICES)
    for name in streams:
        every = [runs(name, n_rows, n_slices, merging.ROUND_ROWS) for n_slices in ways]
        found = [one.mean(axis=(0, 1)) for one in every]
        costs = [found[0][1], *found[1][1:]]
        body.append([name, *(f"{f1:.3f}" for f1, *_ in found), f"{spread(every[0]):.3f}"])
        body[-1] += [f"{cost:.1f}" for cost in costs]
    body.append(["mean", *means(body, len(ways) + 1), "", "", ""])
    head = ["stream", "F1, one process", *(f"{n} slices" for n in SLICES), "varies by seed"]
    head += ["µs per row, one process", f"{SLICES[0]} slices, all together", "and the driver"]
    write("one_model", "### The rows of a tree in slices", head, body)


def by_rounds(streams: list[str], n_rows: int) -> None:
    """Compare one process and the most slices in longer rounds."""
    most = SLICES[-1]
    body = []
    for name in streams:
        found = [
            runs(name, n_rows, n_slices, batch)[:, :, 0].mean()
            for batch in ROUNDS
            for n_slices in (None, most)
        ]
        body.append([name, *(f"{f1:.3f}" for f1 in found)])
    body.append(["mean", *means(body, 2 * len(ROUNDS))])
    head = ["stream"]
    for batch in ROUNDS:
        head += [f"F1, one process, batches of {batch:,}", f"{most} slices of rounds of {batch:,}"]
    write("one_model_rounds", "### Longer rounds", head, body)


def means(body: list[list[str]], n_columns: int) -> list[str]:
    """Return the means of the first columns of figures."""
    return [f"{np.mean([float(row[1 + i]) for row in body]):.3f}" for i in range(n_columns)]


def write(name: str, heading: str, head: list[str], body: list[list[str]]) -> None:
    """Write a table into the documentation, and show it."""
    table = page.markdown(head, body)
    page.write_table(name, heading, table, "scale")
    Console(width=200).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", choices=["slices", "rounds"], default="slices")
    parser.add_argument("--streams", nargs="*", default=STREAMS)
    parser.add_argument("--rows", type=int, default=30_000)
    options = parser.parse_args()
    tell = {"slices": by_slices, "rounds": by_rounds}[options.what]
    tell(options.streams, options.rows)


if __name__ == "__main__":
    main()
