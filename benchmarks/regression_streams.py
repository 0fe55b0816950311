"""Streams of numbers: seven real ones in DRIFTREE_DATA/regression, and synthetic ones."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from river.datasets import synth

from driftree.streams import open_stream
from driftree.streams.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Callable

REAL = (
    "bike_hour",
    "elec_demand",
    "beijing_pm25",
    "cal_housing",
    "elevators",
    "trump_approval",
    "chick_weights",
)


class NumberStream(NamedTuple):
    """Rows as dicts, their targets, and how much a target is like the one before it."""

    X: list[dict[Any, Any]]
    y: np.ndarray
    rho: float


def read(name: str, n_rows: int) -> NumberStream:
    """Read a file of DRIFTREE_DATA/regression: features first, then the target, in stream order."""
    folder = Path(os.environ.get("DRIFTREE_DATA", "."), "regression")
    stream = open_stream(folder / f"{name}.csv.gz", batch=n_rows, n_rows=n_rows, task="regression")
    rows = Rows(*next(iter(stream)))
    return _stream(rows.dicts, rows.y)


def _stream(X: list[dict[Any, Any]], y: np.ndarray) -> NumberStream:
    return NumberStream(X, y, float(np.corrcoef(y[1:], y[:-1])[0, 1]))


def _from_river(generator: Any, n_rows: int) -> NumberStream:
    X, y = zip(*generator.take(n_rows), strict=True)
    named = [{str(name): value for name, value in x.items()} for x in X]
    return _stream(named, np.array(y, dtype=float))


def friedman(kind: str, n_rows: int) -> NumberStream:
    """Draw River's Friedman stream with one of its three kinds of drift."""
    is_local = kind == "lea"
    quarters = (n_rows // 4, n_rows // 2, 3 * n_rows // 4)
    thirds = (n_rows // 3, 2 * n_rows // 3)
    return _from_river(
        synth.FriedmanDrift(
            kind, quarters if is_local else thirds, transition_window=n_rows // 20, seed=1
        ),
        n_rows,
    )


def hyperplane(n_rows: int) -> NumberStream:
    """Draw a line in ten inputs, whose slopes drift all the time."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (n_rows, 10))
    slopes, trend = rng.normal(size=10) * 10, rng.normal(size=10) * 0.002
    y = np.empty(n_rows)
    for i in range(n_rows):
        slopes += trend + rng.normal(size=10) * 0.02
        y[i] = slopes @ X[i] + rng.normal() * 0.5
    return _stream(Rows(X, y).dicts, y)


def piecewise(n_rows: int) -> NumberStream:
    """Draw a line for each of four regions of eight inputs; in the middle come four others."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (n_rows, 8))
    slopes = rng.normal(size=(2, 4, 8)) * 10
    region = 2 * (X[:, 0] > 0) + (X[:, 1] > 0.2)
    concept = (np.arange(n_rows) >= n_rows // 2).astype(int)
    y = np.einsum("ij,ij->i", slopes[concept, region], X) + 5 * region + rng.normal(size=n_rows)
    return _stream(Rows(X, y).dicts, y)


SYNTHETIC: dict[str, Callable[[int], NumberStream]] = {
    "friedman_lea": partial(friedman, "lea"),
    "friedman_gra": partial(friedman, "gra"),
    "friedman_gsg": partial(friedman, "gsg"),
    "mv": lambda n_rows: _from_river(synth.Mv(seed=1), n_rows),
    "planes_2d": lambda n_rows: _from_river(synth.Planes2D(seed=1), n_rows),
    "hyperplane": hyperplane,
    "piecewise": piecewise,
}
STREAMS = {name: partial(read, name) for name in REAL} | SYNTHETIC
