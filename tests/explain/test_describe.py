"""The tree as data and as text, whatever face the rows came through."""

import math

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.exceptions import NotFittedError

from driftree import DynamicModelTreeClassifier, export_text
from driftree.explain import leaf_models

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


def learn(feed=feed_arrays, **parameters):
    model = DynamicModelTreeClassifier(categorical=("x2",), **parameters)
    feed(model, *make_rows())
    return model


@pytest.fixture(scope="module")
def model():
    X, y = make_rows(4000)
    return DynamicModelTreeClassifier(categorical=("x2",)).partial_fit(
        pd.DataFrame(X, columns=["x0", "x1", "x2", "x3"]), y
    )


def logit_of(leaf, label, row):
    """The linear model by hand: one number per numeric feature, 0 or 1 for a level."""
    inputs = {"x0": row[0], "x1": row[1], "x3": row[3], f"x2 == {row[2]:g}": 1.0}
    weights = leaf.weights[label]
    return leaf.intercept[label] + sum(weights[name] * value for name, value in inputs.items())


def test_same_text_from_dicts_arrays_and_frames():
    texts = {export_text(learn(feed)) for feed in (feed_dicts, feed_arrays, feed_frames)}
    assert len(texts) == 1
    [text] = texts
    assert "|--- x0 <= " in text
    assert "(x2 == " in text


def test_frames_with_columns_in_another_order_give_the_same_conditions_and_weights():
    arrays, frames = learn(feed_arrays), learn(feed_mixed_frames)
    assert frames.n_leaves_ == arrays.n_leaves_
    for ours, theirs in zip(leaf_models(arrays), leaf_models(frames), strict=True):
        assert ours.path == theirs.path
        assert ours.rows == theirs.rows
        [label] = ours.weights
        assert theirs.weights[label] == pytest.approx(ours.weights[label], rel=1e-6)


@pytest.mark.parametrize("parameters", [{}, {"setting": "paper", "epsilon": 1e-7}])
def test_weights_are_in_the_users_units(parameters):
    X, y = make_rows(3000)
    model = DynamicModelTreeClassifier(**parameters).partial_fit(X, y)
    label = model.classes_[1]
    leaves = {leaf.leaf: leaf for leaf in leaf_models(model)}
    for row, leaf, logit in zip(X[:50], model.apply(X), model.decision_function(X), strict=False):
        weights = leaves[leaf].weights[label]
        mine = leaves[leaf].intercept[label] + sum(
            weights[f"x{j}"] * value for j, value in enumerate(row)
        )
        assert mine == pytest.approx(logit, abs=1e-8)


def test_levels_have_weights_of_their_own(model):
    X, _ = make_rows(200, seed=2)
    frame = pd.DataFrame(X, columns=["x0", "x1", "x2", "x3"])
    label = model.classes_[1]
    leaves = {leaf.leaf: leaf for leaf in leaf_models(model)}
    for row, leaf, logit in zip(
        X.tolist(), model.apply(frame), model.decision_function(frame), strict=True
    ):
        assert logit_of(leaves[leaf], label, row) == pytest.approx(logit, abs=1e-8)


def test_weights_of_a_category_are_differences_to_their_mean(model):
    for leaf in leaf_models(model):
        [weights] = leaf.weights.values()
        levels = [weight for name, weight in weights.items() if name.startswith("x2 == ")]
        assert len(levels) == 4
        assert sum(levels) == pytest.approx(0.0, abs=1e-9)


def test_shares_sum_to_one_and_agree_with_the_rows(model):
    leaves = leaf_models(model)
    assert len(leaves) == model.n_leaves_ > 1
    assert sum(leaf.share for leaf in leaves) == pytest.approx(1.0)
    X, _ = make_rows(4000, seed=3)
    reached = model.apply(pd.DataFrame(X, columns=["x0", "x1", "x2", "x3"]))
    for leaf in leaves:
        assert np.mean(reached == leaf.leaf) == pytest.approx(leaf.share, abs=0.05)
        assert len(leaf.path) > 0


def test_weights_come_strongest_first():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(2000, 3)) * [1e6, 1.0, 1e-6]
    y = X @ [1e-6, 0.2, 4e6] > 0
    [leaf] = leaf_models(DynamicModelTreeClassifier(max_depth=0).partial_fit(X, y))
    [weights] = leaf.weights.values()
    assert list(weights) == ["x2", "x0", "x1"]


def test_max_weights_and_width_shape_the_text(model):
    short = export_text(model, max_weights=0)
    assert "*" not in short
    assert "weaker" in short
    narrow = export_text(model, max_weights=5, width=60)
    assert max(map(len, narrow.splitlines())) <= 60
    assert " ".join(narrow.replace("|", " ").split()) == " ".join(
        export_text(model, max_weights=5, width=10_000).replace("|", " ").split()
    )


@pytest.mark.parametrize(
    ("parameters", "message"),
    [({"max_weights": -1}, "max_weights must be at least 0"), ({"digits": 0}, "digits")],
)
def test_bad_parameters_are_refused(model, parameters, message):
    with pytest.raises(ValueError, match=message):
        export_text(model, **parameters)


def test_nothing_learnt_is_an_error():
    with pytest.raises(NotFittedError):
        export_text(DynamicModelTreeClassifier())


def test_missing_values_are_mentioned_only_where_there_were_any():
    X, y = make_rows(3000)
    text = export_text(DynamicModelTreeClassifier().partial_fit(X, y))
    assert "missing" not in text
    X[::3, 0] = math.nan
    model = DynamicModelTreeClassifier().partial_fit(X, y)
    assert "x0 is missing" in "".join(leaf_models(model)[0].weights[model.classes_[1]])
    assert "x1 is missing" not in export_text(model, max_weights=9)


def test_a_leaf_that_has_seen_nothing_says_so():
    model, n_seen = DynamicModelTreeClassifier(categorical=("x2",)), 0
    for row, label in zip(*make_rows(), strict=True):
        model.partial_fit(row[None], [label])
        n_seen += "no rows yet" in export_text(model)
        if model.events_:
            break
    assert n_seen == 1
    assert all(math.isnan(leaf.share) for leaf in leaf_models(model))


def test_more_than_two_labels_have_one_logit_each():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(1000, 2))
    y = np.array(["low", "middle", "high"])[np.digitize(X[:, 0], [-0.5, 0.5])]
    model = DynamicModelTreeClassifier(max_depth=0).partial_fit(X, y)
    [leaf] = leaf_models(model)
    logits = [
        leaf.intercept[label] + X[:20] @ [leaf.weights[label]["x0"], leaf.weights[label]["x1"]]
        for label in model.classes_
    ]
    np.testing.assert_allclose(np.transpose(logits), model.decision_function(X[:20]), atol=1e-8)
    assert export_text(model).count("logit of ") == 3


def test_one_label_has_no_odds():
    model = DynamicModelTreeClassifier()
    model.learn_one({"x": 1.0}, "yes")
    assert export_text(model) == "|--- leaf 0: 100% of rows"


def test_a_noise_floor_is_said():
    rng = np.random.default_rng(1)
    X = rng.uniform(size=(20_000, 2))
    y = (X.sum(axis=1) > 1) ^ (rng.random(len(X)) < 0.1)
    model = DynamicModelTreeClassifier().partial_fit(X, y)
    floors = {leaf.floor for leaf in leaf_models(model)}
    assert all(0.02 < sum(floor) < 0.3 for floor in floors)
    assert "of labels look random" in export_text(model)
