"""Models in mid-stream, to be kept in files: their streams, and a hard look at what comes back."""

import warnings
from dataclasses import replace

import numpy as np

from driftree import DynamicModelTreeClassifier, FIMTDDClassifier, export_text
from driftree.explain.loss_over_time import loss_by_node
from driftree.explain.over_time import gain_race, outline, weights_over_time
from driftree.learn import constants
from driftree.learn.storage import bounds, container, models

RASH = {
    "epsilon": 1.0,
    "evidence_window": 400,
    "model_window": 60,
    "bins": 8,
    "max_bends": 6,
    "max_nodes": 9,
}
RASH_PAPER = {"epsilon": 1.0, "gain_step": 1.0, "max_nodes": 9}
RASH_FIMTDD = {"tie_threshold": 0.3, "grace_period": 40, "drift_threshold": 5.0, "max_nodes": 9}
MAKERS = {
    "measured": lambda **p: DynamicModelTreeClassifier(**RASH | p),
    "paper": lambda **p: DynamicModelTreeClassifier.paper(**RASH_PAPER | p),
    "FIMT-DD": lambda **p: FIMTDDClassifier(**RASH_FIMTDD | p),
}
LEVELS = ("red", "green", "blue", "grey")


def let_wait(patch):
    """Let rows that come one at a time wait in small trees, too."""
    for name in ("MEASURED", "MEASURED_NUMBERS"):
        patch.setattr(constants, name, replace(getattr(constants, name), wait_bytes=0))


def draw(n_rows, *, start=0, n_labels=2, seed=1):
    """Rows of numbers, a category and gaps, as columns; the rule changes every 1,000 rows.

    Rows are drawn one by one: those from `start` on are the same whoever drew the ones before.
    """
    rng = np.random.default_rng(seed)
    a, b, size, chance = rng.uniform(-1, 1, size=(start + n_rows, 4))[start:].T
    colour = (np.floor(2 * (size + 1)) % 4).astype(int)
    time = np.arange(start, start + n_rows) // 1000 % 4
    rules = np.array([(a > 0) ^ (b > 0), a > b, (colour == 1) ^ (a > 0), b > 0.3])
    y = np.choose(time, rules) ^ (np.abs(chance) < np.where(time == 1, 0.3, 0.0))
    codes = np.where((n_labels > 2) & (chance > 0.9), 2, y.astype(int))
    columns = {
        "a": a,
        "b": np.where(chance < -0.8, np.nan, 1000 * b),
        ("colour", 1): np.array(LEVELS, dtype=object)[colour],
    }
    return columns, np.array(["no", "yes", "maybe"], dtype=object)[codes]


def learn_rows(model, columns, y):
    names = list(columns)
    for i, label in enumerate(y):
        model.learn_one({name: columns[name][i] for name in names}, label)


def learn_batches(model, columns, y, size=50):
    for i in range(0, len(y), size):
        rows = slice(i, i + size)
        model.learn_many({name: column[rows] for name, column in columns.items()}, y[rows])


MODES = {"rows": learn_rows, "batches": learn_batches}


def to_bytes(model):
    """The file of a model: two models are the same if and only if their files are."""
    return container.to_bytes(models.KIND, *models.pack(model))


def from_bytes(data):
    from driftree.stored import CLASSES

    return models.unpack(*container.from_bytes(data, models.KIND, bounds.check), CLASSES)


def exercise(model, n_rows=200):
    """Use a model in every way; its numbers may be absurd, but nothing may break."""
    columns, y = draw(n_rows, start=300, n_labels=3)
    names = list(columns)
    rows = [{name: columns[name][i] for name in names} for i in range(n_rows)]
    rows += [dict.fromkeys(names), {}, {"a": 1e308, "b": -1e308, ("colour", 1): "new"}]
    half = n_rows // 2
    first, rest = (
        {name: columns[name][s] for name in names} for s in (slice(half), slice(half, None))
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for learn, part, labels in (
            (learn_rows, first, y[:half]),
            (learn_batches, rest, y[half:]),
        ):
            for row in rows[-20:]:
                assert model.predict_one(row) in [None, *getattr(model, "classes_", [])]
                model.predict_proba_one(row)
            learn(model, part, labels)
            explain(model)
        for row in rows[-3:]:
            model.learn_one(row, "another")
        explain(model)
        model.memory_usage()


def explain(model):
    """Say all that can be said of a tree and its past."""
    if not isinstance(model, DynamicModelTreeClassifier) or model._tree is None:
        return
    export_text(model)
    model.rules()
    model.leaf_models()
    model.to_dict()
    if model._tree.history is None:
        return
    history = model._tree.history
    assert all(map(str, model.events_))
    assert str(history.at(history.first_step))
    model.diff(history.first_step, model._tree.engine.n_steps)
    model.history(library="pandas")
    outline(model, step=history.first_step)
    gain_race(model)
    weights_over_time(model)
    loss_by_node(model)
