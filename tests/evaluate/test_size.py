"""Splits, and splits and parameters as the paper counts them, on trees made by hand."""

from types import SimpleNamespace

import pytest
from river import dummy, ensemble, forest, tree
from sklearn.linear_model import SGDClassifier

from driftree import DynamicModelTreeClassifier
from driftree.evaluate import LEARNERS, Size, make_learner, measure_size
from driftree.evaluate.scores import unwrapped
from driftree.streams import sea
from driftree.streams.rows import Rows


def leaf():
    return SimpleNamespace()


def branch(*children):
    return SimpleNamespace(children=children)


# Three inner nodes, four leaves, three conditions on the longest path:
#        *
#      /   \
#     leaf   *
#          /   \
#        leaf   *
#              / \
#           leaf leaf
BY_HAND = branch(leaf(), branch(leaf(), branch(leaf(), leaf())))


@pytest.mark.parametrize(
    ("leaf_prediction", "n_classes", "expected"),
    [
        ("mc", 2, {"n_paper_splits": 3, "n_parameters": 3 + 4}),
        ("mc", 5, {"n_paper_splits": 3, "n_parameters": 3 + 4}),
        ("nba", 2, {"n_paper_splits": 3 + 4, "n_parameters": 3 + 4 * 10}),
        ("nba", 5, {"n_paper_splits": 3 + 4 * 5, "n_parameters": 3 + 4 * 10 * 4}),
    ],
)
def test_a_tree_made_by_hand(leaf_prediction, n_classes, expected):
    model = SimpleNamespace(_root=BY_HAND, leaf_prediction=leaf_prediction)
    assert measure_size(model, n_features=10, n_classes=n_classes) == Size(
        n_splits=3, n_nodes=7, depth=3, **expected
    )


def test_the_figures_of_the_paper_follow_from_its_rule():
    """VFDT on Covertype: 54 features, 7 classes; the paper's means of splits and parameters."""
    n_inner = 356.8  # splits of VFDT (MC)
    n_leaves = n_inner + 1
    assert n_inner + 7 * n_leaves == pytest.approx(2861.1, abs=0.5)  # splits of VFDT (NBA)
    assert n_inner + n_leaves * 54 * 6 == pytest.approx(116_270, rel=1e-3)  # its parameters


@pytest.mark.parametrize("name", ["vfdt-mc", "vfdt-nba", "ht-ada", "efdt"])
def test_rivers_trees_are_walked(name):
    model = make_learner(name)
    for X, y in sea(4000):
        rows = Rows(X, y)
        for x, label in zip(rows.dicts, rows.labels, strict=True):
            model.learn_one(x, label)
    size = measure_size(model, n_features=3, n_classes=2)
    tree = unwrapped(model)
    n_inner, n_leaves = tree.n_branches, tree.n_leaves
    assert n_inner > 0
    assert size.n_nodes == n_inner + n_leaves
    assert size.depth == tree.height - 1
    has_models = name == "vfdt-nba"
    assert size.n_splits == n_inner
    assert size.n_paper_splits == n_inner + (n_leaves if has_models else 0)
    assert size.n_parameters == n_inner + n_leaves * (3 if has_models else 1)


@pytest.mark.parametrize(
    "model",
    [
        forest.ARFClassifier(n_models=3, seed=1, leaf_prediction="mc"),
        ensemble.LeveragingBaggingClassifier(
            tree.HoeffdingTreeClassifier(leaf_prediction="mc"), n_models=3, seed=1
        ),
    ],
)
def test_an_ensemble_is_the_sum_of_its_trees(model):
    for X, y in sea(3000):
        rows = Rows(X, y)
        for x, label in zip(rows.dicts, rows.labels, strict=True):
            model.learn_one(x, label)
    parts = [measure_size(part, 3, 2) for part in model.models]
    assert len(parts) == 3
    size = measure_size(model, 3, 2)
    assert size.n_splits > 3
    for name in ("n_splits", "n_paper_splits", "n_parameters", "n_nodes"):
        assert getattr(size, name) == sum(getattr(part, name) for part in parts)
    assert size.depth == max(part.depth for part in parts)


def test_models_without_a_tree():
    X, y = next(sea(500, batch_rows=500))
    linear = SGDClassifier(loss="log_loss", random_state=1).fit(X, y)
    assert measure_size(linear, 3, 2) == Size(0, 1, n_parameters=3, n_nodes=1, depth=0)
    assert measure_size(linear, 3, 4) == Size(0, 4, n_parameters=9, n_nodes=1, depth=0)
    assert measure_size(dummy.PriorClassifier(), 3, 2) == Size(0, 0, 1, 1, 0)
    assert measure_size(object(), 3, 2) is None
    ours = DynamicModelTreeClassifier().partial_fit(X, y)
    assert measure_size(ours, 99, 99) == Size(0, 1, 3, 1, 0)


def test_an_untaught_learner_has_a_size():
    sizes = {name: measure_size(make_learner(name), 3, 2) for name in LEARNERS}
    n_trees = {"arf3": 0, "levbag3": 3}  # the forest makes its trees when it sees the first row
    for name, size in sizes.items():
        assert (size.n_nodes, size.depth) == (n_trees.get(name, 1), 0)
