"""Models to read, and one stream through every face."""

import functools

import numpy as np
import polars as pl

from driftree import DynamicModelTreeClassifier, DynamicModelTreeRegressor

N_ROWS = 1500


def make_rows(n_rows=N_ROWS, seed=1):
    """A rule in x0, x1 and the category x2 that needs a split; x1 is large, x3 only 0 and 1."""
    rng = np.random.default_rng(seed)
    X = rng.uniform([-1, 1000, 0, 0], [1, 9000, 4, 2], size=(n_rows, 4))
    X[:, 2:] = np.floor(X[:, 2:])
    y = (X[:, 1] > 5000) ^ (X[:, 0] > 0) ^ (X[:, 2] == 3)
    return X, y


def feed_dicts(model, X, y):
    for row, label in zip(X.tolist(), y.tolist(), strict=True):
        model.learn_one({f"x{j}": value for j, value in enumerate(row)}, label)


def feed_arrays(model, X, y):
    for i in range(len(X)):
        model.partial_fit(X[i : i + 1], y[i : i + 1])


def feed_frames(model, X, y, order=(0, 1, 2, 3)):
    for i in range(len(X)):
        frame = pl.DataFrame({f"x{j}": X[i : i + 1, j] for j in order})
        model.learn_many(frame, [bool(y[i])])


def feed_mixed_frames(model, X, y):
    feed_frames(model, X, y, order=(3, 1, 0, 2))


FEEDS = (feed_dicts, feed_arrays, feed_frames)


@functools.cache
def learn(feed=feed_arrays):
    """A model fed row by row; not to be taught further."""
    model = DynamicModelTreeClassifier(categorical=("x2",))
    feed(model, *make_rows())
    return model


@functools.cache
def one_label():
    """A model that has met one label only."""
    model = DynamicModelTreeClassifier()
    model.learn_one({"x": 1.0}, "yes")
    return model


@functools.cache
def noisy():
    """A model that has found a noise floor."""
    rng = np.random.default_rng(1)
    X = rng.uniform(size=(20_000, 2))
    y = (X.sum(axis=1) > 1) ^ (rng.random(len(X)) < 0.1)
    return DynamicModelTreeClassifier().partial_fit(X, y)


@functools.cache
def paper():
    """A model of the paper's setting with a split, text and missing values."""
    X, y = make_rows(6000)
    X[::7, 1] = np.nan
    columns = {
        "x0": X[:, 0],
        "x1": X[:, 1],
        "x2": np.array(list("abcd"), object)[X[:, 2].astype(int)],
    }
    model = DynamicModelTreeClassifier.paper(epsilon=0.5, gain_step=2.0, max_nodes=7)
    for start in range(0, len(X), 100):
        rows = slice(start, start + 100)
        model.partial_fit({name: own[rows] for name, own in columns.items()}, y[rows])
    return model


@functools.cache
def many():
    """A model of more than 40 leaves and 20 labels, with long names that a page could choke on."""
    rng = np.random.default_rng(1)
    X = rng.uniform(size=(4000, 6))
    cell = np.floor(X[:, 0] * 8) + 3 * np.floor(X[:, 1] * 8) + 5 * np.floor(X[:, 2] * 6)
    names = [f'<script>"{j}"</script> & \\N ünïcode\nand {"so on " * 10}{j}' for j in range(6)]
    y = np.array([f'"></b> label\\l {k}' for k in range(20)])[cell.astype(int) % 20]
    model = DynamicModelTreeClassifier.paper(epsilon=1.0, gain_step=50.0, max_nodes=99)
    for rows in np.split(np.arange(len(X)), 40):
        model.partial_fit(dict(zip(names, X[rows].T, strict=True)), y[rows])
    return model


def make_numbers(n_rows=3000, seed=1):
    """Columns and a target, around 200, with a split by the kind, a bend and missing values."""
    rng = np.random.default_rng(seed)
    hour = rng.integers(0, 24, n_rows).astype(float)
    columns = {
        "hour": hour,
        "temp": rng.normal(12, 8, n_rows),
        "kind": rng.choice(np.array(["work", "free"], object), n_rows),
    }
    at_work = 60 * np.sin(hour * np.pi / 12)
    y = 200 + np.where(columns["kind"] == "work", at_work, 3 * (columns["temp"] - 12))
    columns["temp"][::9] = np.nan
    return columns, np.nan_to_num(y, nan=200.0) + rng.normal(0, 8, n_rows)


@functools.cache
def numbers(**settings):
    """A regressor with a split and bends, fed row by row; not to be taught further."""
    columns, y = make_numbers()
    model = DynamicModelTreeRegressor(**settings or {"absent": "missing"})
    for *values, number in zip(*columns.values(), y.tolist(), strict=True):
        model.learn_one(dict(zip(columns, values, strict=True)), number)
    return model


@functools.cache
def paper_numbers():
    """A regressor of the paper's setting with a split."""
    return numbers(setting="paper", epsilon=0.5, gain_step=2.0, max_nodes=5)


def just_split():
    """A model at the moment of its first split: no row has reached a leaf yet."""
    model = DynamicModelTreeClassifier(categorical=("x2",))
    for row, label in zip(*make_rows(), strict=True):
        model.partial_fit(row[None], [label])
        if model.events_:
            return model
    raise AssertionError("it was to be split")


LABELS = {"measured": learn, "one label": one_label, "noise": noisy, "paper": paper, "many": many}
NUMBERS = {"numbers": numbers, "paper's numbers": paper_numbers}
MODELS = LABELS | NUMBERS
