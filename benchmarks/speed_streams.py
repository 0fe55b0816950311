"""The streams on which learners are timed, cut into blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from driftree import streams

SEED = 1
BATCH_ROWS = 1000
WARM_UP_ROWS = 2 * BATCH_ROWS

Batches = Iterator[tuple[NDArray[np.float64], NDArray[Any]]]


class Block(NamedTuple):
    """Rows of a stream, as arrays and as dicts with plain numbers."""

    X: NDArray[np.float64]
    y: NDArray[Any]
    rows: list[dict[str, float]]
    labels: list[Any]
    n_classes: int  # of the whole stream; 0: y is a number

    def head(self, n_rows: int) -> Block:
        """Return the first rows."""
        return Block(
            self.X[:n_rows],
            self.y[:n_rows],
            self.rows[:n_rows],
            self.labels[:n_rows],
            self.n_classes,
        )


class Stream(NamedTuple):
    """How a stream is drawn, and how many of its rows make a block of the long benchmark."""

    draw: Callable[[int], Batches]
    block_rows: int
    has_numbers: bool = False


# ---------------------------------------------------------------------- rows
def draw_agrawal(n_rows: int) -> Batches:
    """Draw loan applications whose rule changes three times, gradually: the trees are deep."""
    return streams.drifting_agrawal(n_rows, seed=SEED, width=n_rows // 10, perturbation=0.1)


def draw_hyperplane(n_rows: int, n_features: int) -> Batches:
    """Draw a hyperplane that moves as the paper's does: half of the weights, by 0.5 per row."""
    return streams.hyperplane(
        n_rows,
        seed=SEED,
        n_features=n_features,
        n_drifting=n_features // 2,
        magnitude=0.5,
        noise=0.1,
    )


# Of covertype's seven classes, in its order: two are common, one is rare.
COVERTYPE_SHARES = (0.365, 0.488, 0.062, 0.005, 0.016, 0.030, 0.034)
N_NUMERIC, N_AREAS, N_SOILS = 10, 4, 40


def draw_like_covertype(n_rows: int) -> Batches:
    """Draw 54 features and 7 classes like covertype's: 10 numbers, one of 4 areas, of 40 soils.

    Which area and soil a row has depends on its first number, the elevation: soils lie in bands.
    Two splits make four regions: low or high ground, then by the second number or by the area.
    In each region every class has a linear score of the numbers and of the soil, whose intercept
    makes the class as common as in covertype (about); the highest score plus noise wins. So a tree
    with linear models in its leaves could be right but for the noise. Nothing drifts.
    """
    n_classes = len(COVERTYPE_SHARES)
    world = np.random.default_rng(SEED)
    weights = world.normal(scale=2.0, size=(4, N_NUMERIC, n_classes))
    soil_scores = world.normal(scale=0.7, size=(N_SOILS, n_classes))
    rng = np.random.default_rng([SEED, 1])
    for start in range(0, n_rows, BATCH_ROWS):
        n = min(BATCH_ROWS, n_rows - start)
        numbers = rng.random((n, N_NUMERIC))
        elevation = numbers[:, 0]
        place = np.clip(elevation + rng.normal(scale=0.1, size=n), 0.0, 0.999)
        soil = (place * N_SOILS).astype(np.intp)
        area = (np.clip(place + rng.normal(scale=0.2, size=n), 0.0, 0.999) * N_AREAS).astype(
            np.intp
        )
        region = np.where(elevation <= 0.45, numbers[:, 1] > 0.5, 2 + (area == N_AREAS - 1))
        scores = np.einsum("ij,ijk->ik", numbers - 0.5, weights[region]) + soil_scores[soil]
        scores += np.log(COVERTYPE_SHARES) + rng.gumbel(scale=0.5, size=scores.shape)
        yield (
            np.hstack([numbers, np.eye(N_AREAS)[area], np.eye(N_SOILS)[soil]]),
            scores.argmax(axis=1),
        )


def draw_friedman(n_rows: int) -> Batches:
    """Draw Friedman's ten inputs and his number, a sum of curves and a product, with noise."""
    rng = np.random.default_rng(SEED)
    for start in range(0, n_rows, BATCH_ROWS):
        X = rng.random((min(BATCH_ROWS, n_rows - start), 10))
        product = 10 * np.sin(np.pi * X[:, 0] * X[:, 1])
        curve = 20 * (X[:, 2] - 0.5) ** 2
        yield X, product + curve + X[:, 3:5] @ [10, 5] + rng.normal(size=len(X))


def read_electricity(n_rows: int) -> Batches:
    """Read the first rows of the real stream, as the paper prepared them."""
    data = streams.load_data_set("electricity", max_rows=n_rows)
    assert isinstance(data.X, np.ndarray)
    yield data.X, data.y


STREAMS = {
    "sea": Stream(partial(streams.sea, seed=SEED), 10_000),
    "agrawal": Stream(draw_agrawal, 10_000),
    "hyperplane10": Stream(partial(draw_hyperplane, n_features=10), 10_000),
    "rbf": Stream(partial(streams.random_rbf, seed=SEED, n_classes=4, speed=0.001), 10_000),
    "hyperplane50": Stream(partial(draw_hyperplane, n_features=50), 5_000),
    "hyperplane200": Stream(partial(draw_hyperplane, n_features=200), 2_000),
    "like_covertype": Stream(draw_like_covertype, 5_000),
    "electricity": Stream(read_electricity, 2_000),
    "friedman": Stream(draw_friedman, 5_000, has_numbers=True),
}


def why_missing(name: str) -> str:
    """Say why a stream cannot be had and what to do, or nothing where it can."""
    if name != "electricity":
        return ""
    [status] = streams.list_data_sets([streams.DATA_SETS[name]])
    if status.path is not None:
        return ""
    return f"{name} is left out: put {name}.csv.gz into a folder that DRIFTREE_DATA names"


# ---------------------------------------------------------------------- blocks
def cut_blocks(name: str, n_rows: int, n_blocks: int) -> Iterator[Block]:
    """Yield two blocks to warm up, then those to time; only one at a time has dicts in memory."""
    batches = STREAMS[name].draw(WARM_UP_ROWS + n_rows)
    features, labels = zip(*batches, strict=True)
    X, y = np.concatenate(features), np.concatenate(labels)
    if len(y) < WARM_UP_ROWS + n_rows:
        raise ValueError(
            f"{name} has {len(y):,} rows, but {WARM_UP_ROWS + n_rows:,} are asked for: "
            "ask for fewer rows or blocks"
        )
    spans = np.ptp(X, axis=0)
    X = (X - X.min(axis=0)) / np.where(spans > 0, spans, 1.0)  # few rows may lack a rare soil
    names = [f"x{j}" for j in range(X.shape[1])]
    cuts = [BATCH_ROWS, *range(WARM_UP_ROWS, len(y), n_rows // n_blocks)]
    for X_block, y_block in zip(np.split(X, cuts), np.split(y, cuts), strict=True):
        rows: list[dict[str, Any]] = [
            dict(zip(names, row, strict=True)) for row in X_block.tolist()
        ]
        n_classes = 0 if y.dtype.kind == "f" else int(y.max()) + 1
        yield Block(X_block, y_block, rows, y_block.tolist(), n_classes)
