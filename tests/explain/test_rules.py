"""Leaves as rules."""

import math

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from driftree import DynamicModelTreeClassifier
from driftree.explain.describe import leaf_models
from driftree.explain.rules import rules
from driftree.explain.text import write_number
from readable_models import (
    FEEDS,
    MODELS,
    just_split,
    learn,
    make_rows,
    many,
    noisy,
    numbers,
    one_label,
)


def test_same_rules_from_dicts_arrays_and_frames():
    ours, *others = [rules(learn(feed)) for feed in FEEDS]
    assert len(ours) > 1
    assert all(theirs == ours for theirs in others)
    assert "x2 == " in str(ours[0].weights)


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_rules_say_what_the_leaf_models_say(make):
    model = make()
    for rule, leaf in zip(rules(model, max_weights=2), leaf_models(model), strict=True):
        assert (rule.leaf, rule.path, rule.rows, rule.floor) == (
            (leaf.leaf, leaf.path, leaf.rows, leaf.floor)
        )
        assert rule.share == pytest.approx(leaf.share, nan_ok=True)
        assert list(rule.probabilities) == list(getattr(model, "classes_", ()))
        assert (rule.mean, rule.error, rule.unit) == (leaf.mean, leaf.error, leaf.unit)
        if rule.mean is None:
            assert sum(rule.probabilities.values()) == pytest.approx(1.0)
        assert list(rule.weights) == list(leaf.weights)
        for label, weights in rule.weights.items():
            strongest = list(leaf.effects[label])[: len(weights)]
            assert [own.name for own in weights] == strongest
            assert 0 < len(weights) <= 2
            for own in weights:
                assert own.curve == leaf.curves[label].get(own.name)
                if own.curve is None:
                    assert own.weight == leaf.weights[label][own.name]
                assert own.effect == leaf.effects[label][own.name]
        assert (rule.since_step is None) == (getattr(model._tree, "history", None) is None)


def test_a_rule_of_a_regressor_says_mean_error_and_what_moves_the_number():
    for rule in rules(numbers()):
        text = str(rule)
        assert f": {write_number(rule.mean, rule.unit)} on average, predicted with an" in text
        assert "y rises with" in text or "y falls with" in text or ", y " in text
        assert "log-odds" not in text


def test_probabilities_are_the_labels_of_the_rows_that_reached_the_leaf():
    """With a window that long nothing fades, and with labels in order no leaf is like another."""
    X, y = make_rows(2000)
    model = DynamicModelTreeClassifier(evidence_window=1e12, max_bends=0)
    labels = {}
    for row, label in zip(X, y, strict=True):
        if (n := len(getattr(model, "events_", []))) == 1:
            labels.setdefault(int(model.apply(row[None])[0]), []).append(label)
        model.partial_fit(row[None], [label])
    assert n == 1
    for rule in rules(model):
        assert rule.probabilities[True] == pytest.approx(np.mean(labels[rule.leaf]))
        assert rule.rows == len(labels[rule.leaf])


def test_a_new_leaf_has_the_probabilities_of_the_node_above():
    model = just_split()
    counts = model._tree.engine.class_rows(0)
    for rule in rules(model):
        assert math.isnan(rule.share)
        assert "(no rows yet)" in str(rule)
        assert list(rule.probabilities.values()) == pytest.approx(list(counts / counts.sum()))


def test_a_rule_in_words():
    rng = np.random.default_rng(1)
    model = DynamicModelTreeClassifier(max_depth=0)
    model.learn_one({"age": 50.0, "income": 20.0, "car": None}, "no")
    for age, income in rng.uniform([20, 0], [80, 90], size=(1000, 2)).tolist():
        row = {"age": age, "income": income, "car": "van" if income % 2 < 1 else None}
        model.learn_one(row, "yes" if age < income else "no")
    [rule] = rules(model, max_weights=2)
    income, age = rule.weights["yes"]
    assert str(rule) == (
        f"Always (100% of rows): no {rule.probabilities['no']:.0%}, "
        f"yes {rule.probabilities['yes']:.0%}. "
        f"Log-odds of yes rise with income ({income.weight:+.3g} per unit), "
        f"and fall with age ({age.weight:+.3g} per unit)."
    )
    [whole] = rules(model, max_weights=9)
    kinds = {own.name: own.is_number for own in whole.weights["yes"]}
    assert kinds == {"income": True, "age": True, "car == 'van'": False, "car is missing": False}
    [van] = [own for own in whole.weights["yes"] if own.name == "car == 'van'"]
    assert f"car == 'van' ({van.weight:+.3g})" in str(whole)


def test_special_models_in_words():
    assert str(rules(one_label())[0]) == "Always (100% of rows): yes 100%."
    assert "of labels look random." in str(rules(noisy())[0])
    rule = rules(many())[0]
    assert str(rule).count("The logit of ") == 3
    n_seen = sum(share > 0 for share in rule.probabilities.values())
    assert f", {n_seen - 3} other labels " in str(rule)


def test_since_when_comes_from_the_history():
    model = just_split()
    split = model.events_[-1]
    first = rules(model)[0]
    assert (first.since_step, first.since_row) == (split.step, split.n_rows)
    assert str(first).endswith(f"In place since row {split.n_rows:,}.")
    model = DynamicModelTreeClassifier(keep_history=False).partial_fit([[1.0], [2.0]], [0, 1])
    assert {(rule.since_step, rule.since_row) for rule in rules(model)} == {(None, None)}


def test_refusals():
    with pytest.raises(NotFittedError):
        rules(DynamicModelTreeClassifier())
    with pytest.raises(ValueError, match="max_weights must be at least 0, got -1"):
        rules(one_label(), max_weights=-1)
    with pytest.raises(TypeError, match="max_weights must be a whole number, got None"):
        rules(one_label(), max_weights=None)


def test_labels_that_never_came_to_a_leaf_are_not_listed():
    model = DynamicModelTreeClassifier().partial_fit([[1.0], [2.0]], [0, 1], classes=range(6))
    assert str(rules(model)[0]).startswith("Always (100% of rows): 0 50%, 1 50%.")
