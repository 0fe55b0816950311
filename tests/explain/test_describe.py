"""The tree as data, whatever face the rows came through."""

import math

import numpy as np
import pandas as pd
import pytest

from driftree import DynamicModelTreeClassifier, DynamicModelTreeRegressor, FIMTDDClassifier
from driftree.explain.describe import leaf_models
from driftree.explain.over_time import outline
from driftree.explain.text import export_text
from driftree.learn.events import Shift
from readable_models import (
    MODELS,
    feed_arrays,
    feed_mixed_frames,
    learn,
    make_numbers,
    make_rows,
    numbers,
)


@pytest.fixture(scope="module")
def model():
    X, y = make_rows(4000)
    return DynamicModelTreeClassifier(categorical=("x2",)).partial_fit(
        pd.DataFrame(X, columns=["x0", "x1", "x2", "x3"]), y
    )


def logit_of(leaf, label, row):
    """The model by hand: one number per numeric feature, 0 or 1 for a level."""
    inputs = {"x0": row[0], "x1": row[1], "x3": row[3], f"x2 == {row[2]:g}": 1.0}
    return leaf.intercept[label] + sum(
        leaf.curves[label][name](value)
        if name in leaf.curves[label]
        else leaf.weights[label][name] * value
        for name, value in inputs.items()
    )


def test_frames_with_columns_in_another_order_give_the_same_conditions_and_weights():
    arrays, frames = learn(feed_arrays), learn(feed_mixed_frames)
    assert frames.n_leaves_ == arrays.n_leaves_
    for ours, theirs in zip(leaf_models(arrays), leaf_models(frames), strict=True):
        assert ours.path == theirs.path
        assert ours.rows == theirs.rows
        [label] = ours.weights
        assert theirs.weights[label] == pytest.approx(ours.weights[label], rel=1e-6)
        assert theirs.effects[label] == pytest.approx(ours.effects[label], rel=1e-6)


@pytest.mark.parametrize("parameters", [{"max_bends": 0}, {"setting": "paper"}])
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


def test_shares_are_of_the_rows_since_a_threshold_moved():
    """A border moves from 0.3 to 0.7 in the second third of the rows."""
    rng = np.random.default_rng(2)
    X, edge = rng.uniform(size=(30_000, 3)), np.interp(np.arange(30_000), [1e4, 2e4], [0.3, 0.7])
    y = 10 * np.where(X[:, 0] < edge, X[:, 1], 1 - X[:, 2]) + rng.normal(0, 0.3, 30_000)
    model, wrong = DynamicModelTreeRegressor(follow_target=False), []
    for start in range(0, len(X), 200):
        model.partial_fit(X[start : start + 200], y[start : start + 200])
        if start > 10_000 and start % 1000 == 0:
            reached = model.apply(X[:5000])
            shares = {leaf.leaf: leaf.share for leaf in leaf_models(model)}
            if not any(map(math.isnan, shares.values())):  # as of new leaves
                wrong.append(max(abs(np.mean(reached == leaf) - shares[leaf]) for leaf in shares))
                assert sum(shares.values()) == pytest.approx(1.0)
    assert sum(isinstance(event, Shift) for event in model.events_) > 5
    assert np.median(wrong) < 0.03
    assert max(wrong[10:]) < 0.05


def test_weights_come_strongest_first():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(2000, 3)) * [1e6, 1.0, 1e-6]
    y = X @ [1e-6, 0.2, 4e6] > 0
    model = DynamicModelTreeClassifier(max_depth=0, max_bends=0).partial_fit(X, y)
    [leaf] = leaf_models(model)
    [weights] = leaf.weights.values()
    assert list(weights) == ["x2", "x0", "x1"]


def test_more_than_two_labels_have_one_logit_each():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(1000, 2))
    y = np.array(["low", "middle", "high"])[np.digitize(X[:, 0], [-0.5, 0.5])]
    model = DynamicModelTreeClassifier(max_depth=0, max_bends=0).partial_fit(X, y)
    [leaf] = leaf_models(model)
    logits = [
        leaf.intercept[label] + X[:20] @ [leaf.weights[label]["x0"], leaf.weights[label]["x1"]]
        for label in model.classes_
    ]
    np.testing.assert_allclose(np.transpose(logits), model.decision_function(X[:20]), atol=1e-8)


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_effects_are_the_weights_of_inputs_on_one_scale(make):
    """Whatever a unit is, its effect is that of two standard deviations, or the whole range."""
    model = make()
    engine = model._tree.engine
    units = dict.fromkeys(model._tree.encoder.column_names(), 1.0)
    units |= dict(zip(model._tree.encoder.display_names, 1 / engine.scale_factor, strict=True))
    for leaf in leaf_models(model):
        for label, weights in leaf.weights.items():
            effects = leaf.effects[label]
            assert set(effects) == {*weights, *leaf.curves[label]}
            assert [name for name in effects if name in weights] == list(weights)
            assert sorted(effects.values(), key=abs, reverse=True) == list(effects.values())
            for name, weight in weights.items():
                assert effects[name] == pytest.approx(weight * units[name])


def test_mean_and_error_of_a_leaf_are_those_of_its_rows():
    model, (columns, y) = numbers(), make_numbers()
    predicted = model.predict(columns)
    places = model.apply(columns)
    assert model.n_leaves_ > 1
    for leaf in leaf_models(model):
        here = np.flatnonzero(places == leaf.leaf)[-500:]
        assert leaf.mean == pytest.approx(predicted[here].mean(), abs=8)
        # It was measured before the rows were learnt, and partly before the leaf was made.
        assert leaf.error == pytest.approx((y - predicted)[here].std(), rel=0.7)


def test_an_effect_is_that_of_two_standard_deviations():
    X = np.random.default_rng(1).normal(size=(2000, 2)) * [1e3, 1.0]
    model = DynamicModelTreeClassifier(max_depth=0, max_bends=0).partial_fit(X, X[:, 0] > X[:, 1])
    [leaf] = leaf_models(model)
    for name, deviation in zip(("x0", "x1"), X.std(axis=0), strict=True):
        assert leaf.effects[True][name] == pytest.approx(
            2 * deviation * leaf.weights[True][name], rel=0.01
        )


def test_levels_that_the_path_rules_out_have_no_weight():
    """Vans are judged the other way round; elsewhere buses do better than trams."""
    rng = np.random.default_rng(1)
    model = DynamicModelTreeClassifier()
    for a, b, car in zip(*rng.normal(size=(2, 6000)), rng.integers(0, 3, 6000), strict=True):
        score = a + b + 2 * (car == 1)
        x = {"a": a, "b": b, "car": ("van", "bus", "tram")[car]}
        model.learn_one(x, bool(score < 0 if car == 0 else score > 0))
    vans, others = leaf_models(model)
    label = model.classes_[1]
    assert [str(leaf.path[0]) for leaf in (vans, others)] == ["car == 'van'", "car != 'van'"]
    names = ["car == 'van'", "car == 'bus'", "car == 'tram'"]
    assert [vans.weights[label][name] for name in names] == [0.0, 0.0, 0.0]
    van, bus, tram = (others.weights[label][name] for name in names)
    assert van == 0.0
    assert bus == pytest.approx(-tram)
    assert abs(bus) > 1.0
    for name, leaf in zip(names, (vans, others, others), strict=True):
        x = {"a": 0.5, "b": 0.5, "car": name.split("'")[1]}
        why, weights = model.explain_one(x), leaf.weights[label]
        assert why.contributions["car"] == pytest.approx(weights[name])
        by_hand = leaf.intercept[label] + 0.5 * (weights["a"] + weights["b"]) + weights[name]
        assert by_hand == pytest.approx(why.intercept + sum(why.contributions.values()))


@pytest.mark.parametrize("read", [leaf_models, export_text, outline])
@pytest.mark.parametrize("other", [FIMTDDClassifier(), DynamicModelTreeClassifier, None])
def test_other_models_are_refused(read, other):
    with pytest.raises(TypeError, match="of a DynamicModelTreeClassifier"):
        read(other)
