"""The renewed model of a leaf: what it is, when it counts, and where there is none."""

import math
from dataclasses import replace

import numpy as np
import pytest

import stored
from driftree import DynamicModelTreeClassifier, DynamicModelTreeRegressor
from driftree.learn import constants
from driftree.learn.storage import ModelFileError, container, models


def make_line(n, seed=1, *, turns_at=None):
    """Labels by a line, which is another one from some row on."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6))
    before, after = rng.normal(size=(2, 6))
    is_before = np.arange(n) < (n if turns_at is None else turns_at)
    y = np.where(is_before, X @ before, X @ after) + 0.3 * rng.normal(size=n) > 0
    return X, y.astype(int)


def learn(model, X, y, *, step=20):
    for start in range(0, len(X), step):
        rows = slice(start, start + step)
        if isinstance(model, DynamicModelTreeClassifier):
            model.partial_fit(X[rows], y[rows], classes=[0, 1])
        else:
            model.partial_fit(X[rows], y[rows])
    return model


def errors(model, X, y, step=20):
    """Predict before learning, and count the rows that were wrong."""
    wrong = 0
    for start in range(0, len(X), step):
        rows = slice(start, start + step)
        wrong += int((model.predict(X[rows]) != y[rows]).sum())
        model.partial_fit(X[rows], y[rows])
    return wrong


def without_renewal(monkeypatch):
    for name in ("MEASURED", "MEASURED_NUMBERS"):
        off = replace(getattr(constants, name), renew_rows=math.inf)
        monkeypatch.setattr(constants, name, off)


def renewed_of(model, leaf=0):
    return model._tree.engine.renewed(leaf)


def test_it_comes_with_the_rows_that_make_a_look_worth_while():
    X, y = make_line(2000)
    model = learn(DynamicModelTreeClassifier(), X[:180], y[:180])
    assert renewed_of(model).model == -1
    learn(model, X[180:600], y[180:600])
    assert renewed_of(model).model >= 0


def test_a_model_that_wins_has_one_at_once():
    """In calm times the next look may be a thousand rows later."""
    rng = np.random.default_rng(1)
    X, angle = rng.normal(size=(4000, 3)), np.arange(4000) / 500
    y = 5 * (np.cos(angle) * X[:, 0] + np.sin(angle) * X[:, 1]) + X[:, 2]
    model, n_won = DynamicModelTreeRegressor(follow_target=False, max_depth=0), 0
    for start in range(0, len(X), 20):
        learn(model, X[start : start + 20], y[start : start + 20])
        if len(model.events_) > n_won:
            n_won = len(model.events_)
            assert renewed_of(model).model >= 0
    assert n_won > 0


def test_what_a_leaf_says_is_one_linear_model_of_both():
    X, y = make_line(1400, turns_at=1300)
    model = learn(DynamicModelTreeClassifier(), X, y)
    engine = model._tree.engine
    explanation = model.explain(X[:20])
    total = explanation.base_values + explanation.values.sum(axis=1)
    np.testing.assert_allclose(total, engine.logits(X[:20])[:, 0], rtol=1e-9, atol=1e-9)

    leads = [-8.0, renewed_of(model).lead, 8.0]
    arrays, weights = engine.arrays(), []
    for lead in leads:
        arrays["model.renewed_lead"][int(engine.model[0])] = lead
        engine.restore(arrays)
        weights.append(engine.weights(0))
    low, share, high = (1 / (1 + math.exp(-lead)) for lead in leads)
    assert np.abs(weights[2] - weights[0]).max() > 0.1  # the second has moved on
    part = (share - low) / (high - low)
    np.testing.assert_allclose(weights[1], (1 - part) * weights[0] + part * weights[2], atol=1e-9)


def test_an_abrupt_change_costs_fewer_errors_with_it(monkeypatch):
    def n_errors():
        wrong = 0
        for seed in range(5):
            X, y = make_line(3600, seed, turns_at=3000)
            model = learn(DynamicModelTreeClassifier(), X[:3000], y[:3000])
            wrong += errors(model, X[3000:], y[3000:])
        return wrong

    with_it = n_errors()
    without_renewal(monkeypatch)
    assert with_it < 0.9 * n_errors()


def turned_over(n, seed=1):
    """Labels by a line; of the last 300 rows, the other label."""
    X, y = make_line(n, seed)
    y[-300:] = 1 - y[-300:]
    return X, y


def test_where_a_leaf_is_worse_than_no_model_it_starts_from_zero():
    X, y = turned_over(2000)
    model = learn(DynamicModelTreeClassifier(), X[:1700], y[:1700])
    engine = model._tree.engine
    assert renewed_of(model).harm == 0
    model._tree.evidence.models.restart(0)
    assert renewed_of(model).lead != 0  # no harm, so it was not
    while renewed_of(model).born != engine.rows[0] or renewed_of(model).lead != 0:
        start = int(engine.rows[0])
        assert start < 1760
        rows = slice(start, start + 5)
        model.partial_fit(X[rows], y[rows])
    assert renewed_of(model).harm == 0
    own = engine.arrays()
    own["model.renewed_lead"][int(engine.model[0])] = -8.0
    engine.restore(own)
    first = engine.weights(0)
    own["model.renewed_lead"][int(engine.model[0])] = 8.0
    engine.restore(own)
    assert np.abs(engine.weights(0)).max() < 0.01 < np.abs(first).max()


def test_so_labels_that_turn_over_cost_fewer_errors(monkeypatch):
    def n_errors():
        wrong = 0
        for seed in range(5):
            X, y = turned_over(2000, seed)
            model = learn(DynamicModelTreeClassifier(), X[:1700], y[:1700])
            wrong += errors(model, X[1700:], y[1700:], step=5)
        return wrong

    with_it = n_errors()
    never = replace(constants.MEASURED, renewed_harm=math.inf)
    monkeypatch.setattr(constants, "MEASURED", never)
    assert with_it < 0.9 * n_errors()


def test_files_from_before_there_was_harm_are_read():
    X, y = turned_over(1705)
    arrays = learn(DynamicModelTreeClassifier(), X, y)._tree.engine.arrays()
    del arrays["model.renewed_harm"]
    model = learn(DynamicModelTreeClassifier(), X[:1], y[:1])
    model._tree.engine.restore(arrays)
    assert renewed_of(model).model >= 0
    assert renewed_of(model).harm == 0


def test_numbers_follow_as_well(monkeypatch):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(4000, 3))
    slopes = np.where(np.arange(4000)[:, None] < 3000, [1.0, 2.0, 0.0], [-2.0, 0.0, 1.0])
    y = (X * slopes).sum(axis=1) + 0.1 * rng.normal(size=4000)

    def error():
        model = learn(DynamicModelTreeRegressor(), X[:3000], y[:3000])
        off = []
        for start in range(3000, 4000, 20):
            rows = slice(start, start + 20)
            off.append(np.abs(model.predict(X[rows]) - y[rows]))
            model.partial_fit(X[rows], y[rows])
            assert renewed_of(model).harm == 0  # it has no meaning for them
        return np.mean(off)

    with_it = error()
    without_renewal(monkeypatch)
    assert with_it < error()


def test_races_do_not_see_it(monkeypatch):
    """Splits, curves and prunes, and what they had to prove, are the same without it."""
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, size=(8000, 3))
    y = ((X[:, 0] > 0) ^ (X[:, 1] > 0)).astype(int)
    told = learn(DynamicModelTreeClassifier(), X, y).events_
    assert told
    without_renewal(monkeypatch)
    assert told == learn(DynamicModelTreeClassifier(), X, y).events_


@pytest.mark.parametrize(
    "model",
    [DynamicModelTreeClassifier(max_bends=0), DynamicModelTreeClassifier(absent="zero")],
    ids=["without bends", "sparse"],
)
def test_some_trees_have_none(model):
    X, y = make_line(1500)
    learn(model, X, y)
    assert all(renewed_of(model, leaf).model == -1 for leaf in model._tree.leaves())


def test_wide_tables_have_none():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(600, 140))
    model = learn(DynamicModelTreeClassifier(), X, (X[:, 0] > 0).astype(int), step=200)
    assert renewed_of(model).model == -1


def test_an_inner_node_has_none():
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, size=(8000, 2))
    model = learn(DynamicModelTreeClassifier(), X, ((X[:, 0] > 0) ^ (X[:, 1] > 0)).astype(int))
    engine = model._tree.engine
    assert engine.left[0] >= 0
    assert renewed_of(model).model == -1
    with pytest.raises(ValueError, match="only a leaf"):
        engine.renew(0)


def test_a_file_goes_on_with_it_to_the_bit():
    X, y = make_line(1500, turns_at=1200)
    model = learn(DynamicModelTreeClassifier(), X[:1300], y[:1300])
    assert renewed_of(model).model >= 0
    again = stored.from_bytes(stored.to_bytes(model))
    for one in (model, again):
        learn(one, X[1300:], y[1300:])
    assert stored.to_bytes(model) == stored.to_bytes(again)
    np.testing.assert_array_equal(model.predict_proba(X), again.predict_proba(X))


@pytest.mark.parametrize("place", ["another's", "its own", "nowhere"])
def test_a_file_with_a_renewed_model_out_of_place_is_refused(place):
    X, y = make_line(800)
    model = learn(DynamicModelTreeClassifier(), X, y)
    contents, arrays = container.from_bytes(stored.to_bytes(model), models.KIND)
    arrays = dict(arrays)
    own = int(arrays["node.model"][0])
    named = arrays["model.renewed_model"].copy()
    there = {"another's": int(arrays["challenger"][0]), "its own": own, "nowhere": 10**6}
    named[own] = there[place]
    arrays["model.renewed_model"] = named
    with pytest.raises(ModelFileError, match=r"renewed_model|challenger"):
        stored.from_bytes(container.to_bytes(models.KIND, contents, arrays))
