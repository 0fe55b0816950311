"""Models trained apart and merged, beside one that was trained together.

At several points of a stream a model goes on in copies: each learns every k-th of the next rows,
and they are merged. The result is tested on the rows after these, beside the model before, one of
the copies, the mean of what all copies say, and a model that learnt all rows.

    python benchmarks/merging.py            minutes; needs DRIFTREE_DATA; writes docs/scale.md
"""

import argparse
import copy
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import page
from rich.console import Console
from sklearn.metrics import log_loss

from driftree import DynamicModelTreeClassifier
from driftree.scale import merge
from driftree.streams import drifting_agrawal, hyperplane, led, load_data_set, random_rbf, sea

POINTS = 12
FIRST_ROWS, TEST_ROWS = 3000, 1000
WAYS = ("the model before", "one copy", "mean of the copies' answers", "merged", "together")


DRAWN: dict[str, Callable[..., Any]] = {
    "SEA": partial(sea, noise=0.1),
    "Agrawal, drifting": partial(drifting_agrawal, width=2000, perturbation=0.1),
    "Hyperplane, 10 features": partial(hyperplane, n_drifting=5, magnitude=0.001),
    "RBF, moving": partial(random_rbf, n_classes=4, n_moving=20, speed=0.0002),
    "LED, with noise": partial(led, noise=0.1, n_irrelevant=17),
}


def rows_of(name: str, n_rows: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Return the first rows of a stream."""
    if name in DRAWN:
        X, y = zip(*DRAWN[name](n_rows, seed=seed), strict=True)
        return np.concatenate(X), np.concatenate(y)
    data = load_data_set(name.lower().replace(" ", "_"))
    return np.asarray(data.X)[:n_rows], np.asarray(data.y)[:n_rows]


def cases(n_copies: int, copy_rows: int) -> Iterator[int]:
    """Yield where the model goes on in copies."""
    span = n_copies * copy_rows + TEST_ROWS
    yield from range(FIRST_ROWS, FIRST_ROWS + POINTS * span, span)


def compare(name: str, n_copies: int, copy_rows: int, **options: Any) -> tuple[list[float], float]:
    """Return the mean loss by each way, and the share of merges that were refused."""
    last = [*cases(n_copies, copy_rows)][-1] + n_copies * copy_rows + TEST_ROWS
    X, y = rows_of(name, last)
    classes = np.unique(y)
    model = DynamicModelTreeClassifier(**options).partial_fit(X[:10], y[:10], classes=classes)
    done, losses, n_refused, n_cases = 10, [], 0, 0
    for begin in cases(n_copies, copy_rows):
        end = begin + n_copies * copy_rows
        if end + TEST_ROWS > len(X):
            break
        model.partial_fit(X[done:begin], y[done:begin])
        copies = [copy.deepcopy(model) for _ in range(n_copies)]
        for i, one in enumerate(copies):
            one.partial_fit(X[begin + i : end : n_copies], y[begin + i : end : n_copies])
        before = copy.deepcopy(model)
        model.partial_fit(X[begin:end], y[begin:end])
        done, n_cases = end, n_cases + 1
        try:
            merged = merge(copies, before)
        except ValueError:
            n_refused += 1
            continue
        rows = slice(end, end + TEST_ROWS)
        said = [one.predict_proba(X[rows]) for one in (before, copies[0], merged, model)]
        said.insert(2, np.mean([one.predict_proba(X[rows]) for one in copies], axis=0))
        losses.append([log_loss(y[rows], one, labels=classes) for one in said])
    return np.mean(losses, axis=0).tolist(), n_refused / n_cases


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--streams",
        nargs="*",
        default=["SEA", "Agrawal, drifting", "Hyperplane, 10 features", "Electricity"],
    )
    options = parser.parse_args()
    body = []
    for name, (n_copies, copy_rows) in itertools.product(
        options.streams, [(2, 500), (4, 250), (4, 1000)]
    ):
        for bends in (None, 0):
            losses, refused = compare(name, n_copies, copy_rows, max_bends=bends)
            words = "default" if bends is None else f"max_bends={bends}"
            head = [name, words, str(n_copies), f"{copy_rows:,}", f"{refused:.0%}"]
            body.append(head + [f"{loss:.3f}" for loss in losses])
    table = page.markdown(["stream", "setting", "copies", "rows each", "refused", *WAYS], body)
    page.write_table("merging", "## Models trained apart", table, "scale")
    Console(width=200).print(table)


if __name__ == "__main__":
    main()
