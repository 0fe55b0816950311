"""The outline: the tree as one object, now and at an earlier step."""

import math

import numpy as np
import pytest

from driftree import DynamicModelTreeClassifier
from driftree.explain.describe import leaf_models
from driftree.explain.over_time import outline, unit_of_effects
from readable_models import MODELS, just_split, learn, many


@pytest.mark.parametrize("name", MODELS)
def test_leaves_are_those_of_leaf_models(name):
    model = MODELS[name]()
    nodes = outline(model)
    found = [node for node in nodes.values() if node.left < 0]
    assert [node.node for node in found] == [leaf.leaf for leaf in leaf_models(model)]
    for node, leaf in zip(found, leaf_models(model), strict=True):
        assert node.share == pytest.approx(leaf.share, nan_ok=True)
        assert node.effects == leaf.effects
        assert (node.mean, node.error) == (leaf.mean, leaf.error)
        if leaf.rows and leaf.mean is None:
            assert sum(node.probabilities.values()) == pytest.approx(1.0)
        else:
            assert node.probabilities is None
    for node in nodes.values():
        if node.left >= 0:
            assert node.condition is not None
            assert {nodes[node.left].depth, nodes[node.right].depth} == {node.depth + 1}
            children = nodes[node.left].share + nodes[node.right].share
            assert math.isnan(children) or children == pytest.approx(node.share)
            assert node.effects  # inner nodes have a model too


def test_the_past_has_the_tree_of_its_step_and_the_effects_of_its_samples():
    model = many()
    for event in model.events_[::15]:
        nodes, spots = outline(model, step=event.step), model.tree_at(event.step).nodes
        assert list(nodes) == list(spots)
        assert all(nodes[node].condition == spots[node].condition for node in nodes)
        shares = [node.share for node in nodes.values() if node.left < 0]
        if not any(map(math.isnan, shares)):
            assert sum(shares) == pytest.approx(1.0)
    before = outline(model, step=0)
    assert list(before) == [0]
    assert before[0].probabilities is None


def test_a_new_leaf_has_the_effects_of_its_first_sample():
    model = learn()
    split = model.events_[0]
    nodes = outline(model, step=split.step)
    assert nodes[split.node].condition == split.condition
    for child in (split.left, split.right):
        first = next(
            sample.nodes[child]
            for sample in model._tree.history.samples
            if sample.step > split.step
        )
        values = np.sort(list(next(iter(nodes[child].effects.values())).values()))
        assert len(values) == first.weights.shape[1] - 1
        assert nodes[child].share > 0


def test_a_leaf_without_rows_has_neither_share_nor_labels_yet():
    nodes = outline(just_split())
    assert [math.isnan(node.share) for node in nodes.values()] == [False, True, True]
    assert [node.probabilities is None for node in nodes.values()] == [False, True, True]


def test_the_unit_depends_on_the_setting():
    X = np.random.default_rng(1).uniform(size=(20, 1))
    for model, words in (
        (DynamicModelTreeClassifier(), "2 standard deviations"),
        (DynamicModelTreeClassifier.paper(), "least to its largest"),
    ):
        assert words in unit_of_effects(model.partial_fit(X, X[:, 0] > 0.5))
