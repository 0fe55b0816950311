"""Importance, against losses and weights taken from outside."""

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from driftree import DynamicModelTreeClassifier
from driftree.explain.contributions import feature_importance
from driftree.explain.describe import leaf_models
from readable_models import FEEDS, MODELS, just_split, learn, one_label


def make_nested(n_rows, seed):
    """x0 turns the slope of x2, and where x0 is positive so does x1; x3 is nothing.

    Labels are drawn with these odds, so that the leaves' models settle.
    """
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n_rows, 4))
    slope = np.where(X[:, 0] <= 0, 6.0, np.where(X[:, 1] <= 0, -6.0, 0.0))
    return X, rng.random(n_rows) < 1 / (1 + np.exp(-slope * X[:, 2]))


@pytest.fixture(scope="module")
def nested():
    model = DynamicModelTreeClassifier(model_window=20_000, max_bends=0)
    return model.partial_fit(*make_nested(40_000, 1))


def log_loss(logits, y):
    return np.logaddexp(0, np.where(y, -logits, logits))


def test_earned_is_what_each_split_saves_on_new_rows(nested):
    """Every node's model and the leaves' are tried on rows that the tree has never seen."""
    X, y = make_nested(20_000, 2)
    tree = nested._tree
    engine = tree.engine
    assert {tree.path(leaf)[0].feature for leaf in tree.leaves()} == {"x0"}
    assert nested.n_leaves_ == 3
    leaf_loss = log_loss(nested.decision_function(X), y)
    inner = [int(engine.parent[leaf]) for leaf in tree.leaves()]
    saved = {}
    for node in set(inner):
        here = np.ones(len(X), bool)
        for condition in tree.path(node):
            below = X[:, int(condition.feature[1])] <= condition.value
            here &= below if condition.operator == "<=" else ~below
        own = log_loss(engine.inputs_at(node, X) @ engine.weights(node)[0], y)
        saved[node] = 1000 * (own - leaf_loss)[here].sum() / len(X)
    [lower] = set(inner) - {0}
    importance = feature_importance(nested)
    assert importance["x1"].earned == pytest.approx(saved[lower], rel=0.15)
    assert importance["x0"].earned == pytest.approx(saved[0] - saved[lower], rel=0.15)
    assert importance["x2"].earned == importance["x3"].earned == 0.0


def test_the_strongest_come_first(nested):
    names = list(feature_importance(nested))
    assert set(names[:2]) == {"x0", "x2"}
    assert names[-1] == "x3"


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_all_that_is_earned_is_what_the_tree_saves_against_one_model(make):
    engine = make()._tree.engine
    total = 1000 * (engine.own_loss[0] - engine.subtree_loss[0]) / engine.evidence[0]
    importance = feature_importance(make())
    assert sum(own.earned for own in importance.values()) == pytest.approx(total, abs=1e-9)
    assert set(importance) == set(make()._tree.encoder.display_names)


def test_weight_is_the_mean_effect_over_the_leaves(nested):
    leaves = leaf_models(nested)
    for name, own in feature_importance(nested).items():
        mean = sum(leaf.share * abs(leaf.effects[True][name]) for leaf in leaves)
        assert own.weight == pytest.approx(mean)


def test_a_truth_value_weighs_the_same_as_category_and_as_number():
    """A category of two levels and a 0/1 number are the same; so is a fair one with more labels."""
    rng = np.random.default_rng(1)
    x = rng.random(6000) < 0.5
    y = rng.random(6000) < np.where(x, 0.8, 0.3)
    weights = [
        feature_importance(DynamicModelTreeClassifier(max_depth=0).partial_fit({"x": own}, y))[
            "x"
        ].weight
        for own in (x.astype(float), x, np.where(x, "yes", "no").astype(object))
    ]
    odds = np.log(0.8 / 0.2) - np.log(0.3 / 0.7)
    assert weights == pytest.approx([odds] * 3, rel=0.15)


def test_being_missing_counts_if_it_says_more_than_the_number():
    rng = np.random.default_rng(1)
    x = rng.normal(size=4000)
    y = rng.random(4000) < 0.2
    x[y] = np.nan
    model = DynamicModelTreeClassifier(max_depth=0).partial_fit({"x": x}, y)
    [leaf] = leaf_models(model)
    assert feature_importance(model)["x"].weight == leaf.effects[True]["x is missing"] > 3


def test_more_labels_count_on_average():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(2000, 2))
    y = np.digitize(X[:, 0], [-0.5, 0.5])
    model = DynamicModelTreeClassifier(max_depth=0).partial_fit(X, y)
    [leaf] = leaf_models(model)
    mean = np.mean([abs(leaf.effects[label]["x0"]) for label in range(3)])
    assert feature_importance(model)["x0"].weight == pytest.approx(mean)


def test_same_from_dicts_arrays_and_frames():
    ours, *others = [feature_importance(learn(feed)) for feed in FEEDS]
    assert all(list(theirs.items()) == list(ours.items()) for theirs in others)


def test_special_models():
    assert feature_importance(one_label())["x"] == (0.0, 0.0)
    assert np.isfinite(list(feature_importance(just_split()).values())).all()
    with pytest.raises(NotFittedError):
        feature_importance(DynamicModelTreeClassifier())


def test_a_sparse_model_without_weights_has_no_importances():
    model = DynamicModelTreeClassifier(absent="zero")
    model.learn_one({"a": 1.0}, "only label")
    assert model.feature_importances_.sum() == 0
    assert "feature_importances_" in dir(model)
