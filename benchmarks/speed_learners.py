"""The learners that are timed: how each is made, and how it takes its rows.

Every learner has its own defaults, and the rows in the form that it takes, made before the clock
starts: dicts, arrays, data frames, or CapyMOA's instances. What a learner makes of them is its own
time: CapyMOA hands an instance to Java when it is first used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from capymoa_peers import load
from river.forest import ARFClassifier
from river.linear_model import LogisticRegression
from river.multiclass import OneVsRestClassifier
from river.preprocessing import StandardScaler
from river.tree import (
    ExtremelyFastDecisionTreeClassifier,
    HoeffdingAdaptiveTreeClassifier,
    HoeffdingTreeClassifier,
    HoeffdingTreeRegressor,
)
from sklearn.linear_model import SGDClassifier
from speed_streams import SEED, Block

from driftree import (
    DynamicModelForestClassifier,
    DynamicModelTreeClassifier,
    DynamicModelTreeRegressor,
)

BASE = "River HT nba"  # what all others are compared with,
NUMBER_BASE = "River HTR adaptive"  # and where numbers are predicted
MODES = ("dict", "batch1", "batch10", "batch100", "batch1000")
ROWS = "rows"  # the mode of learners that know single rows only
LEAST_ROWS = 50  # of a block, for the slowest learners

Feed = list[tuple[Any, Any]]  # rows or batches, with their labels
Learn = Callable[[Any, Feed], Any]


class Form(NamedTuple):
    """How rows are handed over: made from a block, learnt, and predicted then learnt."""

    make: Callable[[Block, int], Feed]
    teach: Learn
    walk: Learn  # returns the predictions, single or in arrays


class Learner(NamedTuple):
    """A learner, the forms in which it takes single rows and batches, and how much it is given."""

    build: Callable[[Block], Any]  # the first rows tell the number of features and classes
    rows: Form | None
    batches: Form | None = None
    shares: Mapping[str, float] = MappingProxyType({})  # of a block's rows, by mode; else all
    count_leaves: Callable[[Any], int] | None = None


class Contestant(NamedTuple):
    """A learner in one mode."""

    name: str
    mode: str
    learner: Learner

    def count_rows(self, block_rows: int) -> int:
        """Return how many of a block's first rows it is given: whole batches."""
        share = self.learner.shares.get(self.mode, 1.0)
        n_rows = max(LEAST_ROWS, round(share * block_rows))
        return min(block_rows, n_rows - n_rows % self.batch_rows())

    def batch_rows(self) -> int:
        """Return the rows of a batch."""
        return int(self.mode.removeprefix("batch")) if self.mode.startswith("batch") else 1

    def form(self) -> Form:
        """Return the form in which it takes its rows."""
        form = self.learner.batches if self.mode.startswith("batch") else self.learner.rows
        assert form is not None
        return form


def choose_contestants(learners: dict[str, Learner], modes: Sequence[str]) -> list[Contestant]:
    """List the learners in the modes they have; those that know single rows only race once."""
    contestants = []
    for name, learner in learners.items():
        own = [mode for mode in modes if mode != "dict" or learner.rows]
        if learner.batches is None:
            own = [ROWS]
        contestants += [Contestant(name, mode, learner) for mode in own]
    return contestants


# ---------------------------------------------------------------------- dicts and arrays
def make_dicts(block: Block, batch_rows: int) -> Feed:
    """Pair dicts with plain labels."""
    return list(zip(block.rows, block.labels, strict=True))


def teach_dicts(model: Any, feed: Feed) -> None:
    """Learn rows without predicting them."""
    for x, label in feed:
        model.learn_one(x, label)


def walk_dicts(model: Any, feed: Feed) -> list[Any]:
    """Predict a row, then learn it."""
    predicted = []
    for x, label in feed:
        predicted.append(model.predict_one(x))
        model.learn_one(x, label)
    return predicted


def make_arrays(block: Block, batch_rows: int) -> Feed:
    """Cut the arrays into batches."""
    starts = range(0, len(block.y), batch_rows)
    return [(block.X[i : i + batch_rows], block.y[i : i + batch_rows]) for i in starts]


def teach_arrays(model: Any, feed: Feed) -> None:
    """Learn batches without predicting them, since nothing can be predicted before the first."""
    for X, y in feed:
        model.partial_fit(X, y)


def walk_arrays(model: Any, feed: Feed) -> list[Any]:
    """Predict a batch, then learn it."""
    predicted = []
    for X, y in feed:
        predicted.append(model.predict(X))
        model.partial_fit(X, y)
    return predicted


DICTS = Form(make_dicts, teach_dicts, walk_dicts)
ARRAYS = Form(make_arrays, teach_arrays, walk_arrays)


# ---------------------------------------------------------------------- River's data frames
def make_frames(block: Block, batch_rows: int) -> Feed:
    """Cut the block into data frames."""
    names = list(block.rows[0])
    return [
        (pd.DataFrame(X, columns=names), pd.Series(y)) for X, y in make_arrays(block, batch_rows)
    ]


def teach_frames(model: Any, feed: Feed) -> None:
    """Learn data frames without predicting them."""
    for X, y in feed:
        model.learn_many(X, y)


def walk_frames(model: Any, feed: Feed) -> list[Any]:
    """Predict a data frame, then learn it."""
    predicted = []
    for X, y in feed:
        predicted.append(model.predict_many(X))
        model.learn_many(X, y)
    return predicted


FRAMES = Form(make_frames, teach_frames, walk_frames)


# ---------------------------------------------------------------------- models
def build_logistic(block: Block) -> Any:
    """Make River's logistic regression of scaled features, one per class where there are more."""
    linear = LogisticRegression()
    scaler = StandardScaler()
    # Else River 0.26 fails where a column is constant: its variance may be rounded to below 0.
    scaler.learn_one(dict.fromkeys(block.rows[0], 0.5))
    return scaler | (OneVsRestClassifier(linear) if block.n_classes > 2 else linear)


def build_sgd(block: Block) -> SGDClassifier:
    """Make scikit-learn's linear model; it has to know all classes before it learns."""
    model = SGDClassifier(loss="log_loss", random_state=SEED)
    return model.partial_fit(block.X[:1], block.y[:1], classes=np.arange(block.n_classes))


def tree_leaves(model: Any) -> int:
    """Count the leaves of a tree of driftree's or River's."""
    return int(model.n_leaves_ if hasattr(model, "n_leaves_") else model.n_leaves)


def river_tree(build: Callable[[], Any], share: float = 1.0) -> Learner:
    """Describe a tree of River's."""
    return Learner(lambda _: build(), DICTS, None, {ROWS: share}, tree_leaves)


def driftree_tree(build: Callable[[], Any]) -> Learner:
    """Describe a tree of ours."""
    return Learner(lambda _: build(), DICTS, ARRAYS, {}, tree_leaves)


# driftree's are next to the base, with which they are compared: little time lies between them.
LEARNERS: dict[str, Learner] = {
    "driftree default": driftree_tree(DynamicModelTreeClassifier),
    "driftree paper": driftree_tree(DynamicModelTreeClassifier.paper),
    "driftree forest(5)": driftree_tree(DynamicModelForestClassifier),
    "driftree forest(10)": driftree_tree(partial(DynamicModelForestClassifier, 10)),
    BASE: river_tree(partial(HoeffdingTreeClassifier, leaf_prediction="nba")),
    "River HT mc": river_tree(partial(HoeffdingTreeClassifier, leaf_prediction="mc")),
    "River HAT": river_tree(partial(HoeffdingAdaptiveTreeClassifier, seed=SEED), 0.2),
    "River EFDT": river_tree(ExtremelyFastDecisionTreeClassifier, 0.05),
    "River ARF(10)": Learner(
        lambda _: ARFClassifier(n_models=10, seed=SEED),
        DICTS,
        None,
        {ROWS: 0.05},
        lambda forest: sum(tree.n_leaves for tree in forest),
    ),
    "River logistic": Learner(build_logistic, DICTS, FRAMES, {"batch1": 0.02, "batch10": 0.1}),
    "sklearn SGD": Learner(build_sgd, None, ARRAYS, {"batch1": 0.02, "batch10": 0.2}),
}
NUMBER_LEARNERS: dict[str, Learner] = {
    "driftree regressor": driftree_tree(DynamicModelTreeRegressor),
    "driftree max_bends=0": driftree_tree(partial(DynamicModelTreeRegressor, max_bends=0)),
    NUMBER_BASE: river_tree(partial(HoeffdingTreeRegressor, leaf_prediction="adaptive")),
}


# ---------------------------------------------------------------------- CapyMOA
def load_capymoa() -> dict[str, Learner]:
    """Start Java and return CapyMOA's trees; raise ImportError with what to do where it cannot."""
    classifiers = load("classifier")
    return {
        "CapyMOA HT": moa_tree(classifiers.HoeffdingTree),
        "CapyMOA EFDT": moa_tree(classifiers.EFDT),
    }


def moa_tree(build: Callable[..., Any]) -> Learner:
    """Describe a tree of CapyMOA's."""
    form = Form(make_instances, teach_instances, walk_instances)

    def build_for(block: Block) -> Any:
        return build(make_schema(block), random_seed=SEED)

    return Learner(build_for, form, count_leaves=moa_leaves)


def make_schema(block: Block) -> Any:
    """Describe the columns to MOA."""
    from capymoa.stream import Schema

    labels = [str(label) for label in range(block.n_classes)]
    return Schema.from_custom([*block.rows[0], "label"], "label", {"label": labels})


def make_instances(block: Block, batch_rows: int) -> Feed:
    """Wrap rows as CapyMOA does."""
    from capymoa.core import LabeledInstance

    schema = make_schema(block)
    pairs = zip(block.X, block.labels, strict=True)
    return [(LabeledInstance.from_array(schema, x, label), label) for x, label in pairs]


def teach_instances(model: Any, feed: Feed) -> None:
    """Learn rows without predicting them."""
    for instance, _ in feed:
        model.train(instance)


def walk_instances(model: Any, feed: Feed) -> list[Any]:
    """Predict a row, then learn it."""
    predicted = []
    for instance, _ in feed:
        predicted.append(model.predict(instance))
        model.train(instance)
    return predicted


def moa_leaves(model: Any) -> int:
    """Count the leaves in the tree's description; the counter of MOA's EFDT runs below 0."""
    from java.lang import StringBuilder

    text = StringBuilder()
    model.moa_learner.getModelDescription(text, 0)
    return str(text.toString()).count("Leaf [")
