"""Models whose features, categories and labels are as hostile as text can be; and a large one."""

import math

import numpy as np

import quick
from driftree import DynamicModelForestClassifier, DynamicModelTreeClassifier
from driftree.evaluate.records import Record
from driftree.learn.events import Condition, LinkChange, Prune, Split
from driftree.learn.history import History, NodeSample, Sample

SCRIPT = "<script>alert(1)</script>"
LEVELS = ('"><img src=x onerror=alert(1)>', "{{data}}", "\u2028' & <!--")
LABELS = ("</script><b>no", "<i>yes</i>")
TITLE = '<title> & "quotes" </title><script>alert(2)</script>'
N_ROWS = 6000


def learn(n_rows=N_ROWS, **parameters):
    """A rash learner of a stream whose rule changes: it splits, replaces, prunes and restarts."""
    rng = np.random.default_rng(1)
    parameters = {"setting": "measured", "epsilon": 1.0, "max_nodes": 15, **parameters}
    model = DynamicModelTreeClassifier(**quick.of_setting(**parameters))
    for start in range(0, n_rows, 50):
        rule = start * 6 // N_ROWS
        a, b = rng.normal(size=(2, 50))
        c = rng.integers(0, 3, 50)
        truth = ((a > 0) ^ (b > 0), a > 0, (b > 0) ^ (c == 1), a + b > 0, (a > 1) ^ (b < 0))
        y = (*truth, (c == 2) ^ (a > 0))[rule]
        y = np.where(rng.random(50) < (0.3 if rule in (1, 3) else 0), rng.random(50) < 0.5, y)
        X = {SCRIPT: a, "a_long_name_" * 8: b, "&c": np.array(LEVELS, dtype=object)[c]}
        model.learn_many(X, np.array(LABELS, dtype=object)[y.astype(int)])
    return model


def learn_shift():
    """One leaf of twelve inputs: six matter at first, and bit by bit the other six."""
    rng = np.random.default_rng(1)
    model = DynamicModelTreeClassifier(**quick.of_setting("measured", max_nodes=1))
    for share in np.linspace(0, 0.8, 100):
        X = rng.normal(size=(50, 12))
        y = np.array(LABELS, dtype=object)[(X @ np.repeat([1 - share, share], 6) > 0).astype(int)]
        model.learn_many({f"x{j}": column for j, column in enumerate(X.T)}, y)
    return model


def make_confusion(labels, step):
    """Rows of a batch: each label is found the less, the later it is."""
    others = [*labels[1:], labels[0]]
    return {
        label: {label: 600 - step, other: 1 + step + place}
        for place, (label, other) in enumerate(zip(labels, others, strict=True))
    }


def make_records(*learners, n_batches=600, labels=LABELS):
    """F1 that falls, of which the first is not known."""
    figures = {"kappa": 0.5, "log_loss": math.nan, "n_nodes": 3, "depth": 1, "memory": None}
    seconds = {"predict_seconds": 0.01, "learn_seconds": 0.02}
    return [
        Record(
            learner=learner,
            step=step,
            n_rows=(step + 1) * 10,
            f1=math.nan if step == 0 else 0.9 - place / 10 - step / 10000,
            accuracy=0.75,
            n_splits=None if place else 4,
            n_paper_splits=None if place else 9,
            n_parameters=10,
            majority=0.6,
            macro_f1=0.55,
            auc=0.65,
            confusion=make_confusion(labels, min(step, 500)),
            **figures,
            **seconds,
        )
        for step in range(n_batches)
        for place, learner in enumerate(learners)
    ]


def make_number_records(n_batches=90):
    """Numbers that rise, and are predicted to be a little less."""
    figures = {
        "n_splits": 1,
        "n_paper_splits": 3,
        "n_parameters": 4,
        "n_nodes": 3,
        "depth": 1,
        "memory": None,
    }
    seconds = {"predict_seconds": 0.01, "learn_seconds": 0.02}
    return [
        Record(
            learner="dmt",
            step=step,
            n_rows=step * 20,
            mae=1.0,
            rmse=2.0,
            r2=0.5,
            target_mean=float(step),
            predicted_mean=step - 0.5,
            **figures,
            **seconds,
        )
        for step in range(1, n_batches + 1)
    ]


def learn_forest(n_rows=3000):
    """Few trees with a hostile feature."""
    rng = np.random.default_rng(1)
    model = DynamicModelForestClassifier(n_trees=3)
    for _ in range(n_rows // 100):
        a, b = rng.uniform(-1, 1, size=(2, 100))
        y = np.array(LABELS, dtype=object)[((a > 0) ^ (b > 0)).astype(int)]
        model.learn_many({SCRIPT: a, "b": b}, y)
    return model


# ---------------------------------------------------------------------- a large one
def learn_much(n_leaves=40, name="a name of some length, as people give them, number "):
    """1,000 changes, some leaves, 50 features with long names, 20 labels, and many samples."""
    rng = np.random.default_rng(1)
    names = [f"{name}{j}" for j in range(50)]
    model = DynamicModelTreeClassifier()
    rows = dict(zip(names, rng.normal(size=(50, 400)), strict=True))
    model.learn_many(rows, np.array([f"label {k}" for k in rng.permutation(400) % 20]))
    model._tree.history = make_history(names, n_leaves)
    return model


def make_history(names, n_leaves):
    """A log that grows its leaves, prunes and splits the deepest, and starts again in the end."""
    rng = np.random.default_rng(1)
    log = History(distance=500)
    figures = {"gain": 12.3456789, "threshold": 9.87654321, "loss_before": 123.456, "rows": 1e4}
    for step in range(1, 1000):
        deepest = max(log.now.nodes.values(), key=lambda spot: (spot.is_leaf, spot.depth % 12))
        node = deepest.node if step < n_leaves or step % 2 else deepest.parent
        common = {
            "step": step,
            "n_rows": 2 * step // 5,
            "node": node,
            "path": log.now.path(node),
            "loss_after": 100.0,
            "removed": log.now.below(node),
            **figures,
        }
        condition = Condition(names[step % 50], "<=", step / 7)
        if node == deepest.node:
            free = (k for k in range(1, 200) if k not in log.now.nodes)
            log.add(Split(condition=condition, left=next(free), right=next(free), **common))
        else:
            log.add(Prune(old_condition=condition, **common))
        if step % 4 == 0:
            nodes = {
                spot.node: NodeSample(
                    spot.since_step,
                    spot.is_leaf,
                    spot.depth,
                    10.0,
                    0.5,
                    10.0,
                    rng.normal(size=(20, 51)).astype(np.float32) if spot.is_leaf else None,
                    (),
                    1.0,
                )
                for spot in log.now.nodes.values()
            }
            log.samples.append(Sample(step, 2 * step // 5, nodes, 0))
    assert len(log.now.leaves()) == n_leaves
    last = {**common, "step": 1000, "node": 0, "path": (), "removed": log.now.below(0)}
    log.add(LinkChange(floor=(0.0, 0.0), third_label="label 2", **last))
    return log
