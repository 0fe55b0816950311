"""Does another constant or parameter cost quality? Many synthetic streams, each learnt with both.

One stream says little: a split that comes a row later may change all that follows. So here are
many, and the mean difference with its standard error. Numbers are judged by the logarithm of the
mean absolute error, labels by the share of errors. Streams of 40,000 rows, in batches of 100;
those with codes have 12,000, those of drifts.py 20,000, and those of shapes, where no sum over the
features fits, 10,000; the last two come row by row. Segments are stretches of 5,000 rows of the
real streams in DRIFTREE_DATA, far apart: of labels in batches of 10 (`segments`), of numbers row by
row (`number_segments`). They run where they are asked for.

    python benchmarks/paired.py --set trials_rest=False
    python benchmarks/paired.py --set epsilon=1e-5 --seeds 84
    python benchmarks/paired.py --set epsilon=1e-5 --kinds segments,number_segments --seeds 84
    python benchmarks/paired.py --set rest_factor=16 --kinds numbers --seeds 48
    python benchmarks/paired.py --set most_codes=0 --kinds codes --seeds 48
"""

import argparse
import ast
import os
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import drifts
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from options import names
from rich.console import Console
from rich.table import Table

from driftree import DynamicModelTreeClassifier, DynamicModelTreeRegressor, streams
from driftree.learn import constants
from driftree.learn.parameters import MeasuredParameters

N_ROWS = 40_000
BATCH_ROWS = 100
CHANGED = ("MEASURED", "MEASURED_NUMBERS")
Stream = tuple[NDArray[np.float64], NDArray[Any]]


# ---------------------------------------------------------------------- streams
def friedman(rng: np.random.Generator) -> Stream:
    """Draw Friedman's number, of other inputs from some row on."""
    X = rng.random((N_ROWS, 10))
    change = int(N_ROWS * rng.uniform(0.4, 0.7))

    def number(rows: slice, order: NDArray[np.intp]) -> NDArray[np.float64]:
        a, b, c, d, e = X[rows][:, order[:5]].T
        return 10 * np.sin(np.pi * a * b) + 20 * (c - 0.5) ** 2 + 10 * d + 5 * e

    y = np.concatenate(
        [number(rows, rng.permutation(10)) for rows in (slice(change), slice(change, None))]
    )
    return X, y + rng.normal(size=N_ROWS)


def regions(rng: np.random.Generator) -> Stream:
    """Draw a line for each of four regions, and four others later."""
    n_features = int(rng.integers(4, 14))
    X = rng.uniform(-1, 1, (N_ROWS, n_features))
    slopes = 10 * rng.normal(size=(2, 4, n_features))
    region = 2 * (X[:, 0] > 0) + (X[:, 1] > 0.2)
    concept = (np.arange(N_ROWS) >= 0.6 * N_ROWS).astype(int)
    y = np.einsum("ij,ij->i", slopes[concept, region], X) + 5 * region
    return X, y + rng.normal(size=N_ROWS)


def walk(rng: np.random.Generator) -> Stream:
    """Draw a line whose slopes walk, and a corner."""
    X = rng.normal(size=(N_ROWS, 8))
    slopes = 5 * rng.normal(size=8) + np.cumsum(0.02 * rng.normal(size=X.shape), axis=0)
    return X, (slopes * X).sum(axis=1) + 3 * np.abs(X[:, 0]) + rng.normal(size=N_ROWS)


def skewed(rng: np.random.Generator) -> Stream:
    """Draw curves of log-normal inputs, one of which counts in a region only."""
    X = rng.lognormal(size=(N_ROWS, 6))
    y = 5 * np.log1p(X[:, 0]) * (X[:, 1] > 1) + 3 * np.sqrt(X[:, 2]) - 2 * np.minimum(X[:, 3], 2)
    return X, y + 0.5 * rng.normal(size=N_ROWS)


def border(rng: np.random.Generator) -> Stream:
    """Draw two lines on either side of a border that moves, with heavy tails."""
    X = rng.random((N_ROWS, 7))
    edge = 0.3 + 0.4 * np.arange(N_ROWS) / N_ROWS
    y = 10 * np.where(X[:, 0] < edge, X[:, 1], 1 - X[:, 2]) + 5 * np.abs(X[:, 3] - 0.5)
    return X, y + 4 * (X[:, 4] > 0.5) * X[:, 5] + 0.5 * rng.standard_t(4, size=N_ROWS)


def codes(rng: np.random.Generator, kind: int) -> Stream:
    """Draw labels by a line, and by codes whose values mean what they like.

    Of 8, 20, 40 or 60 values each, in a row or scattered; two or five labels; of sixteen streams
    the last eight have other meanings from the middle on.
    """
    n_rows, n_codes = 12_000, int(rng.choice([1, 2, 4]))
    n_values, n_labels, n_concepts = (
        (8, 20, 40, 60)[kind % 4],
        (2, 5)[kind // 4 % 2],
        1 + kind // 8 % 2,
    )
    shares = np.arange(1, n_values + 1) ** -rng.choice([0.0, 0.7])
    n_names = n_values * rng.choice([1, 10])
    names = np.array([rng.permutation(n_names)[:n_values] for _ in range(n_codes)])
    drawn = rng.choice(n_values, (n_rows, n_codes), p=shares / shares.sum())
    numbers = rng.normal(size=(n_rows, 4))
    log_odds = rng.gumbel(size=(n_rows, n_labels)) / 2
    for part in np.array_split(np.arange(n_rows), n_concepts):
        meaning = rng.normal(scale=2 / np.sqrt(n_codes), size=(n_codes, n_values, n_labels))
        log_odds[part] += numbers[part] @ rng.normal(scale=0.5, size=(4, n_labels))
        log_odds[part] += meaning[np.arange(n_codes), drawn[part]].sum(axis=1)
    values = names[np.arange(n_codes), drawn].astype(float)
    return np.hstack([values, numbers]), log_odds.argmax(axis=1)


def shapes(rng: np.random.Generator, kind: int) -> Stream:
    """Draw labels by a checkerboard, two spirals, a product of two features, or twelve clusters."""
    n_rows = 10_000
    if kind % 4 == 0:
        X = rng.uniform(0, 4, (n_rows, 2))
        return X, X.astype(int).sum(axis=1) % 2
    if kind % 4 == 1:
        y = rng.integers(0, 2, n_rows)
        radius = 3 * np.pi * np.sqrt(rng.random(n_rows))
        angle = radius + np.pi * y
        X = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
        return X + rng.normal(scale=0.4, size=X.shape), y
    if kind % 4 == 2:
        X = rng.normal(size=(n_rows, 6))
        log_odds = 2 * X[:, 0] * X[:, 1] + X[:, 2]
        return X, (rng.random(n_rows) < 1 / (1 + np.exp(-log_odds))).astype(int)
    centres = rng.uniform(-2, 2, (12, 4))
    drawn = rng.integers(0, 12, n_rows)
    return centres[drawn] + rng.normal(scale=0.5, size=(n_rows, 4)), drawn % 3


NUMBERS = (friedman, regions, walk, skewed, border)
LABELS: tuple[Callable[[int], Any], ...] = (
    lambda seed: streams.drifting_agrawal(N_ROWS, seed=seed, width=N_ROWS // 10, perturbation=0.1),
    lambda seed: streams.sea(N_ROWS, seed=seed),
    lambda seed: streams.hyperplane(
        N_ROWS, seed=seed, n_features=10, n_drifting=5, magnitude=0.5, noise=0.1
    ),
    lambda seed: streams.random_rbf(N_ROWS, seed=seed, n_classes=4),
    lambda seed: streams.agrawal(N_ROWS, seed=seed, function=seed % 10, perturbation=0.05),
    lambda seed: streams.random_rbf(N_ROWS, seed=seed, n_classes=3, speed=0.0005),
)


# ---------------------------------------------------------------------- segments of real streams
SEGMENT_ROWS = 5000
REAL = {
    "segments": {
        "electricity": 45_312,
        "bank_marketing": 45_211,
        "covertype": 581_012,
        "airlines_5of7_features": 539_383,
        "letter": 20_000,
        "robot": 5456,
        "eeg": 14_980,
    },
    "number_segments": {
        "regression/bike_hour": 17_379,
        "regression/elec_demand": 45_312,
        "regression/beijing_pm25": 41_757,
        "regression/cal_housing": 20_640,
        "regression/elevators": 16_599,
    },
}
"""Their rows."""


def list_segments(kind: str) -> list[tuple[str, int]]:
    """List streams and first rows: the first segment of every stream, a later one of each, ...

    Segments of a stream are spread over it evenly, at most twelve.
    """
    starts = {}
    for name, n_rows in REAL[kind].items():
        n_segments = min(12, n_rows // SEGMENT_ROWS)
        starts[name] = [i * (n_rows // n_segments) for i in range(n_segments)]
    turns = range(max(map(len, starts.values())))
    return [(name, own[i]) for i in turns for name, own in starts.items() if i < len(own)]


def draw_segment(kind: str, seed: int) -> tuple[pd.DataFrame, NDArray[Any]]:
    """Read a segment of a real stream."""
    name, first = list_segments(kind)[seed]
    path = Path(os.environ["DRIFTREE_DATA"], f"{name}.csv.gz")
    X = pd.read_csv(path, skiprows=range(1, first + 1), nrows=SEGMENT_ROWS, na_values="?")
    y = X.pop("target")
    return X, y.to_numpy(float) if kind == "number_segments" else y.astype(str).to_numpy(object)


# ---------------------------------------------------------------------- runs
def run(model: Any, X: Any, y: NDArray[Any], batch_rows: int = BATCH_ROWS) -> NDArray[Any]:
    """Return what the model says of each batch before it learns it; the first is only learnt."""
    said = []
    for start in range(0, len(y), batch_rows):
        batch = slice(start, start + batch_rows)
        if start:
            said.append(model.predict(X[batch]))
        model.partial_fit(X[batch], y[batch])
    return np.concatenate(said)


def draw_numbers(seed: int) -> Stream:
    """Draw a stream of numbers."""
    return NUMBERS[seed % len(NUMBERS)](np.random.default_rng(seed))


def draw_labels(seed: int) -> Stream:
    """Draw a stream of labels."""
    features, labels = zip(*LABELS[seed % len(LABELS)](seed), strict=True)
    return np.concatenate(features), np.concatenate(labels)


def draw_codes(seed: int) -> Stream:
    """Draw a stream with codes."""
    return codes(np.random.default_rng(seed), seed)


def draw_shapes(seed: int) -> Stream:
    """Draw a stream of shapes."""
    return shapes(np.random.default_rng(seed), seed)


def draw_drifts(seed: int) -> Stream:
    """Draw a stream of drifts.py."""
    number, kind = divmod(seed, len(drifts.STREAMS))
    return drifts.load(drifts.STREAMS[kind], 20_000, number + 1)


def judge_numbers(X: NDArray[np.float64], y: NDArray[Any], **parameters: Any) -> float:
    """Return the logarithm of the mean absolute error."""
    error = np.abs(run(DynamicModelTreeRegressor(**parameters), X, y) - y[BATCH_ROWS:])
    return float(np.log(error.mean()))


def judge_labels(X: NDArray[np.float64], y: NDArray[Any], **parameters: Any) -> float:
    """Return the share of errors."""
    said = run(DynamicModelTreeClassifier(**parameters), X, y)
    return float((said != y[BATCH_ROWS:]).mean())


def judge_rows(X: NDArray[np.float64], y: NDArray[Any], **parameters: Any) -> float:
    """Return the share of errors, row by row."""
    return float(drifts.run(DynamicModelTreeClassifier(**parameters), X, y).mean())


def judge_small_batches(X: pd.DataFrame, y: NDArray[Any], **parameters: Any) -> float:
    """Return the share of errors, in batches of 10."""
    said = run(DynamicModelTreeClassifier(**parameters), X, y, batch_rows=10)
    return float((said != y[10:]).mean())


def judge_number_rows(X: pd.DataFrame, y: NDArray[Any], **parameters: Any) -> float:
    """Return the logarithm of the mean absolute error, row by row."""
    model, errors = DynamicModelTreeRegressor(**parameters), []
    for x, target in zip(X.to_dict("records"), y.tolist(), strict=True):
        errors.append(abs(model.predict_one(x) - target))
        model.learn_one(x, target)
    return float(np.log(np.mean(errors[1:])))


KINDS: dict[str, tuple[Callable[[int], Any], Callable[..., float]]] = {
    "numbers": (draw_numbers, judge_numbers),
    "labels": (draw_labels, judge_labels),
    "codes": (draw_codes, judge_labels),
    "drifts": (draw_drifts, judge_rows),
    "shapes": (draw_shapes, judge_rows),
    "segments": (partial(draw_segment, "segments"), judge_small_batches),
    "number_segments": (partial(draw_segment, "number_segments"), judge_number_rows),
}
SYNTHETIC = [kind for kind in KINDS if kind not in REAL]


class Pair(NamedTuple):
    """What a stream cost with the present constants and with the others."""

    score: tuple[float, float]
    seconds: tuple[float, float]


@contextmanager
def replaced(given: dict[str, Any]) -> Any:
    """Let trees be made with other constants."""
    present = {name: getattr(constants, name) for name in CHANGED}
    try:
        for name, setting in present.items():
            setattr(constants, name, replace(setting, **given))
        yield
    finally:
        for name, setting in present.items():
            setattr(constants, name, setting)


def compare(kind: str, seed: int, given: dict[str, Any]) -> Pair:
    """Run a stream with both."""
    draw, judge = KINDS[kind]
    rows, scores, seconds = draw(seed), [], []
    for changes in ({}, given):
        parameters = {name: value for name, value in changes.items() if is_parameter(name)}
        with replaced({name: changes[name] for name in changes.keys() - parameters}):
            start = time.process_time()
            scores.append(judge(*rows, **parameters))
            seconds.append(time.process_time() - start)
    return Pair((scores[0], scores[1]), (seconds[0], seconds[1]))


def is_parameter(name: str) -> bool:
    """Tell whether a name is that of a parameter of a tree, not of a constant."""
    return name in MeasuredParameters.__dataclass_fields__


def assignment(text: str) -> tuple[str, Any]:
    """Read NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not equals or not (is_parameter(name) or hasattr(constants.MEASURED, name)):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not NAME=VALUE, with a name of MeasuredParameters or "
            "MeasuredConstants (learn/parameters.py, learn/constants.py)"
        )
    return name, float(value) if value == "inf" else ast.literal_eval(value)


def main() -> None:
    """Run what the command line says, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--set", type=assignment, nargs="+", required=True, metavar="NAME=VALUE", dest="given"
    )
    parser.add_argument("--kinds", type=names(KINDS), default=SYNTHETIC)
    parser.add_argument("--seeds", type=int, default=42, help="streams of each kind")
    options = parser.parse_args()
    given = dict(options.given)
    table = Table("streams", "number", "difference", "standard error", "worst", "time")
    for kind in options.kinds:
        n_streams = len(list_segments(kind)) if kind in REAL else options.seeds
        pairs = [compare(kind, seed, given) for seed in range(min(options.seeds, n_streams))]
        scores, seconds = (np.array(column) for column in zip(*pairs, strict=True))
        difference = scores[:, 1] - scores[:, 0]
        table.add_row(
            kind,
            str(len(pairs)),
            f"{difference.mean():+.4f}",
            f"{difference.std() / np.sqrt(len(pairs)):.4f}",
            f"{difference.max():+.4f}",
            f"{seconds[:, 1].sum() / seconds[:, 0].sum():.2f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
