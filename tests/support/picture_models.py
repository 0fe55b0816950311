"""Models and records to draw."""

import functools

import numpy as np

from driftree import DynamicModelTreeClassifier
from driftree.evaluate import prequential
from driftree.show.tree_parts import MAX_LEAVES
from driftree.streams import sea


@functools.cache
def changing(seed=1):
    """Another rule for x0 > 0 after 9,000 rows; the rest stays. Splits follow it, not bends."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(14_000, 4))
    y = (X[:, 0] > 0) ^ (X[:, 1] > 0)
    turned = (X[:, 0] > 0) & (np.arange(len(X)) >= 9000)
    y = np.where(turned, X[:, 2] > 0.6, y) ^ (rng.random(len(X)) < 0.05)
    model = DynamicModelTreeClassifier(max_bends=0)
    for start in range(0, len(X), 200):
        model.partial_fit(X[start : start + 200], y[start : start + 200])
    return model


@functools.cache
def large():
    """50 features with long names, 20 labels, 40 leaves."""
    rng = np.random.default_rng(2)
    X = rng.uniform(size=(3000, 50))
    cell = np.floor(X[:, 0] * 6) + 7 * np.floor(X[:, 1] * 4) + 3 * np.floor(X[:, 2] * 3)
    labels = np.array([f"a label with quite some words in it, number {k}" for k in range(20)])
    y = labels[cell.astype(int) % 20]
    names = [f"a feature of $price_and a rather \\long{{ name, number {j}" for j in range(50)]
    model = DynamicModelTreeClassifier.paper(epsilon=1.0, gain_step=60.0, max_nodes=79)
    for rows in np.split(np.arange(len(X)), 60):
        model.partial_fit(dict(zip(names, X[rows].T, strict=True)), y[rows])
    assert model.n_leaves_ == MAX_LEAVES
    return model


@functools.cache
def turning():
    """What x0 says turns round slowly."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(16_000, 3))
    y = np.linspace(2, -2, len(X)) * X[:, 0] + X[:, 1] > rng.normal(scale=0.3, size=len(X))
    model = DynamicModelTreeClassifier()
    for start in range(0, len(X), 200):
        model.partial_fit(X[start : start + 200], y[start : start + 200])
    return model


def explain_first(model):
    names = [name for name in model._tree.encoder.feature_names if not name.startswith("last")]
    return model.explain_one(dict(zip(names, np.linspace(-0.9, 0.9, len(names)), strict=True)))


@functools.cache
def records(names=("dmt", "vfdt-mc", "majority")):
    return list(prequential({name: name for name in names}, sea(6000)))


@functools.cache
def many_records():
    return list(prequential({f"{'a long name ' * 4}{i}": "majority" for i in range(12)}, sea(4000)))


def texts_of(ax):
    """The words that were written into a picture."""
    return [text.get_text() for text in ax.texts]
