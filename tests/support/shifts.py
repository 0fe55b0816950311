"""A model whose log says that thresholds moved, there and back."""

from dataclasses import replace

import numpy as np

from driftree import DynamicModelTreeClassifier
from driftree.learn.events import Shift

FIGURES = {"gain": 21.9, "threshold": 18.5, "loss_before": 34.0, "loss_after": 12.1, "rows": 164.0}


def learn_deep():
    """A tree with inner nodes below the root, of whose last steps the log has nothing to say."""
    X = np.random.default_rng(1).uniform(-1, 1, size=(6000, 3))
    a, b, c = X.T
    y = np.where(a > 0, (b > 0) ^ (c > 0), b < 0)
    model = DynamicModelTreeClassifier(max_bends=0).partial_fit(X, y)
    assert model.depth_ > 1
    assert model.events_[-1].step < model._tree.engine.n_steps - 4
    return model


def add_shift(log, value, *, step, n_rows, node=0):
    """Add to a log that a threshold moved to a value."""
    old = log.now.nodes[node].condition
    event = Shift(
        step=step,
        n_rows=n_rows,
        node=node,
        path=log.now.path(node),
        condition=replace(old, value=value),
        old_condition=old,
        **FIGURES,
    )
    log.add(event)
    return event


def shift_and_back(model, by=0.25):
    """Add to the log that the root's threshold moved, and in the last step moved back."""
    log, engine = model._tree.history, model._tree.engine
    value = log.now.nodes[0].condition.value
    last = {"step": engine.n_steps, "n_rows": engine.n_rows}
    before = {"step": engine.n_steps - 2, "n_rows": engine.n_rows - 2}
    return add_shift(log, value + by, **before), add_shift(log, value, **last)
