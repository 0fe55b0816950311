"""Bends: what a curve is worth, and that a model with curves keeps all promises of one with lines.

The numbers themselves are compared with the oracle (test_oracle.py).
"""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stored
from driftree import DynamicModelTreeClassifier, ModelFileError
from driftree.learn import constants
from driftree.learn.events import Bend, Unbend
from driftree.learn.model_trials import curve_pieces, curves_of
from driftree.learn.storage import container, models
from exported import run_python
from quick import engine_of, examples, make_stream, make_tree, make_weights, of_setting, streams


def make_curved(n_rows, seed=1, n_labels=2):
    """Labels that depend on how far a number is from 0, which no line can tell."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 3))
    far = np.abs(X[:, 0]) + 0.3 * rng.normal(size=n_rows)
    return X, np.digitize(far, [0.7, 1.3][: n_labels - 1])


def log_loss(model, X, y):
    return -np.log(model.predict_proba(X)[np.arange(len(y)), y]).mean()


def state(model):
    return {name: array.tobytes() for name, array in engine_of(model).arrays().items()}


def bends_of(model, node=0):
    engine = engine_of(model)
    return engine.bends(int(engine.model[node]))


# ---------------------------------------------------------------------- what they are for
@pytest.mark.parametrize("n_labels", [2, 3])
def test_a_curve_is_found_and_told(n_labels):
    X, y = make_curved(3000, n_labels=n_labels)
    model = DynamicModelTreeClassifier(max_nodes=1).partial_fit(X[:2000], y[:2000])
    lines = DynamicModelTreeClassifier(max_nodes=1, max_bends=0).partial_fit(X[:2000], y[:2000])
    (event,) = (event for event in model.events_ if isinstance(event, Bend))
    assert "x0" in {curve.feature for curve in event.curves}
    assert event.gain >= event.threshold
    assert event.removed == ()
    assert 0 in {feature for feature, _, _ in bends_of(model)}
    assert log_loss(model, X[2000:], y[2000:]) < 0.8 * log_loss(lines, X[2000:], y[2000:])


def test_curves_that_earn_nothing_go():
    X, y = make_curved(3000)
    model = DynamicModelTreeClassifier(max_nodes=1, evidence_window=2000).partial_fit(X, y)
    assert bends_of(model)
    X, _ = make_curved(30_000, seed=2)
    model.partial_fit(X, (X[:, 1] > 0).astype(int))
    assert any(isinstance(event, Unbend) for event in model.events_)
    assert 0 not in {feature for feature, _, _ in bends_of(model)}


def test_no_more_bends_than_allowed():
    X, y = make_curved(2000)
    for most in (0, 1, 2, 5):
        model = DynamicModelTreeClassifier(max_bends=most, max_nodes=3).partial_fit(X, y)
        engine = engine_of(model)
        for node in range(engine.n_nodes):
            assert len(bends_of(model, node)) <= most
            trial = engine.bend_trial(node)
            assert trial.model < 0 or len(engine.bends(trial.model)) <= most


def make_codes(n_rows, n_levels, seed=1):
    """Labels by two codes, whose values mean what they like, and a line."""
    rng = np.random.default_rng(seed)
    codes, z = rng.integers(0, n_levels, size=(n_rows, 2)), rng.normal(size=n_rows)
    worth = rng.normal(scale=2, size=(2, n_levels))
    log_odds = worth[0, codes[:, 0]] + worth[1, codes[:, 1]] + z
    y = rng.random(n_rows) < 1 / (1 + np.exp(-2 * log_odds))
    return np.column_stack([codes, z]).astype(float), y.astype(int)


@pytest.mark.parametrize("n_levels", [3, 9])
def test_a_feature_of_few_values_gets_a_knot_at_each(n_levels):
    X, y = make_codes(6000, n_levels)
    model = DynamicModelTreeClassifier(max_nodes=1).partial_fit(X, y)
    curves = curves_of(bends_of(model))
    assert curves[0] == curves[1] == list(range(n_levels - 1))
    as_categories = DynamicModelTreeClassifier(max_nodes=1, categorical=[0, 1]).partial_fit(X, y)
    assert model.score(X, y) > as_categories.score(X, y) - 0.02


def test_knots_at_each_value_take_only_the_room_that_is_left(monkeypatch):
    X, y = make_codes(6000, 9)
    model = DynamicModelTreeClassifier(max_nodes=1, max_bends=14).partial_fit(X, y)
    sizes = [len(knots) - 1 for knots in curves_of(bends_of(model)).values()]
    assert sorted(sizes) == [4, 4, 4]  # one more of seven would need three more
    monkeypatch.setattr(constants, "MEASURED", replace(constants.MEASURED, most_levels=8))
    model = DynamicModelTreeClassifier(max_nodes=1).partial_fit(X[:700], y[:700])
    assert {len(knots) - 1 for knots in curves_of(bends_of(model)).values()} == {4}


@pytest.mark.parametrize(("max_bends", "n_fine"), [(128, 2), (40, 1), (20, 0)])
def test_curves_of_codes_become_finer_once_they_have_won(max_bends, n_fine):
    X, y = make_codes(6000, 25)
    model = DynamicModelTreeClassifier(max_nodes=1, max_bends=max_bends).partial_fit(X, y)
    values = [float(value) for value in range(25)]
    curves = curves_of(bends_of(model))
    finest = [knots for knots in curves.values() if len(knots) > 5]
    assert len(finest) == n_fine
    for knots in finest:
        assert set(knots) <= set(values)
        assert len(knots) >= 20  # the first hundred rows did not show all
    events = [event for event in model.events_ if isinstance(event, Bend)]
    assert len(events) == 1 + (n_fine > 0)
    pieces = bends_of(model)
    assert len(set(pieces)) == len(pieces) <= max_bends


def test_finer_curves_pay():
    X, y = make_codes(10_000, 25)
    finer, coarse = (DynamicModelTreeClassifier(max_bends=most) for most in (128, 12))
    for start in range(0, 8000, 100):
        rows = slice(start, start + 100)
        finer.partial_fit(X[rows], y[rows])
        coarse.partial_fit(X[rows], y[rows])
    assert finer.score(X[8000:], y[8000:]) > coarse.score(X[8000:], y[8000:]) + 0.1


def test_pieces_that_overlap_are_read_exactly():
    X, y = make_codes(6000, 25)
    model = DynamicModelTreeClassifier(max_nodes=1).partial_fit(X, y)
    pieces = [bend for bend in bends_of(model) if bend[0] == 0]
    assert sum(high - low for _, low, high in pieces) > 25
    rows = np.column_stack([X[:40, :2] + 0.3, X[:40, 2]])
    [leaf], why = model.leaf_models(), model.explain(rows)
    [curves] = leaf.curves.values()
    sums = why.base_values + why.values.sum(axis=1)
    np.testing.assert_allclose(sums, model.decision_function(rows), rtol=0, atol=1e-9)
    for one in why:
        for name, curve in curves.items():
            assert curve(one.row[name]) == pytest.approx(one.contributions[name], abs=1e-9)
    found = run_python(model, [dict(zip(("x0", "x1", "x2"), row, strict=True)) for row in rows])
    np.testing.assert_allclose(found, model.predict_proba(rows), rtol=0, atol=1e-12)


def test_a_feature_that_can_have_no_curve_is_in_nobodys_way():
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.integers(1, 3, 2000), rng.normal(size=2000)])
    y = ((abs(X[:, 1]) < 1) ^ (rng.random(2000) < 0.05)).astype(int)
    model = DynamicModelTreeClassifier(max_nodes=1).partial_fit(X, y)
    assert curve_pieces(0, engine_of(model).edges(0)[0], 4) == []
    assert set(curves_of(bends_of(model))) == {1}


# ---------------------------------------------------------------------- promises
@examples(20)
@given(
    stream=streams,
    batch_rows=st.sampled_from([1, 13, 40]),
    every=st.sampled_from([37, 80]),
    max_bends=st.sampled_from([2, 8]),
)
@pytest.mark.usefixtures("quick_pace")
def test_copies_of_all_kinds_go_on_alike(stream, batch_rows, every, max_bends):
    X, y = make_stream(**stream)
    w = make_weights(stream["seed"], len(X))
    parameters = of_setting("measured", epsilon=1.0, max_bends=max_bends)
    parameters["categorical"] = (1,) if stream["categorical"] else ()
    model, twin = (DynamicModelTreeClassifier(**parameters) for _ in range(2))
    next_copy = every
    makers = [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), reload]
    for start in range(0, len(X), batch_rows):
        rows = slice(start, start + batch_rows)
        for one in (model, twin):
            one.partial_fit(X[rows], y[rows], classes=range(3), sample_weight=w[rows])
        if start >= next_copy:
            twin = makers[next_copy // every % 3](twin)
            next_copy += every
        engine_of(model).check()
    assert state(model) == state(twin)
    assert list(map(str, model.events_)) == list(map(str, twin.events_))


def reload(model):
    return stored.from_bytes(stored.to_bytes(model))


def test_what_is_new_finds_room_beside_the_bends():
    """Features, categories, gaps and labels that come when there are curves already."""
    X, y = make_curved(3000)
    model = DynamicModelTreeClassifier(max_nodes=3)
    rows = [dict(zip("abc", row, strict=True)) for row in X.tolist()]
    model.learn_many({name: X[:2000, i] for i, name in enumerate("abc")}, y[:2000].tolist())
    assert bends_of(model)
    for i, (row, label) in enumerate(zip(rows[2000:], y[2000:].tolist(), strict=True)):
        row[f"new {i // 50}"] = float(i) if i % 2 else f"level {i}"[:7]
        row["late"] = X[i, 0]
        if i % 7 == 0:
            del row["a"]
        before = model.predict_proba_one(row)
        assert sum(before.values()) == pytest.approx(1)
        model.learn_one(row, label if i % 100 else f"label {i}")
        if i % 100 == 0:
            engine_of(model).check()
            again = reload(model)
            assert again.predict_proba_one(row) == model.predict_proba_one(row)


@pytest.mark.parametrize("size", [1e-300, 1e-30, 1e30, 1e160, 1.7e308])
def test_numbers_of_any_size_are_bent_and_saved(size):
    X, y = make_curved(1500)
    X = np.clip(X / 2, -1, 1) * size
    model = DynamicModelTreeClassifier(max_nodes=3).partial_fit(X, y)
    assert np.isfinite(model.predict_proba(X)).all()
    assert state(reload(model)) == state(model)
    if 1e-300 < size < 1e300:
        assert bends_of(model)


def test_a_model_that_is_sure_of_all_can_be_saved():
    """What is known of its sureness fades to nothing, but not below."""
    rng = np.random.default_rng(1)
    y = rng.integers(0, 3, 12_000)
    X = y[:, None] + 0.01 * rng.normal(size=(len(y), 2))
    model = DynamicModelTreeClassifier(max_nodes=1)
    for start in range(0, len(y), 2000):
        rows = slice(start, start + 2000)
        model.partial_fit(X[rows], y[rows], classes=range(3))
        reload(model)
    assert (engine_of(model).arrays()["model.sureness_rows"] >= 0).all()


def test_sums_of_a_tree_with_a_trial_of_bends():
    tree = make_tree(**of_setting("measured"))
    for _ in range(3):
        tree.engine.add_feature(False, True)
    tree.finish()
    X, y = make_curved(600)
    tree.learn(X[:200], y[:200].astype(np.int32), np.ones(200))
    assert tree.engine.bend_trial(0).model >= 0
    trial = tree.engine.bend_trial(0)
    tree.engine.absorb(tree.engine.accumulate(X[200:250], y[200:250].astype(float), np.ones(50)))
    after = tree.engine.bend_trial(0)
    assert after.evidence > trial.evidence
    assert after.node_loss > trial.node_loss
    assert after.trial_loss > trial.trial_loss


def test_the_models_of_a_node_share_its_bent_inputs(monkeypatch):
    """Of 200 rows: what a copy for each model would take is half a megabyte."""
    monkeypatch.setattr(constants, "MEASURED", constants.MeasuredConstants())  # no quick pace
    X, y = make_curved(6000)
    model = DynamicModelTreeClassifier()
    for start in range(0, len(y), 1000):
        model.partial_fit(X[start : start + 1000], y[start : start + 1000])
    assert bends_of(model)
    assert len(engine_of(model).trials(0)) == 3
    assert model.memory_usage() - reload(model).memory_usage() < 350_000


# ---------------------------------------------------------------------- files
def test_a_model_without_bends_has_the_inputs_of_the_tree():
    """A wider one would read the inputs of other rows, and what is behind them."""
    X, y = make_curved(150)
    model = DynamicModelTreeClassifier(max_nodes=1).partial_fit(X, y)
    contents, arrays = container.from_bytes(stored.to_bytes(model), models.KIND)
    arrays = dict(arrays)
    own = int(arrays["node.model"][0])
    assert arrays["model.bend_feature.lengths"][own] == 0
    numbers, lengths = arrays["model.numbers"], arrays["model.numbers.lengths"].copy()
    begin = lengths[:own].sum()
    wide = 16
    matrix = np.zeros((wide, wide))
    matrix[np.arange(4), np.arange(4)] = 1.0
    wider = np.concatenate([np.zeros(3 * wide), matrix.ravel()])
    arrays["model.numbers"] = np.concatenate(
        [numbers[:begin], wider, numbers[begin + lengths[own] :]]
    )
    lengths[own] = len(wider)
    arrays["model.numbers.lengths"] = lengths
    with pytest.raises(ModelFileError, match=r"model\.(numbers|renewed_model)"):
        stored.from_bytes(container.to_bytes(models.KIND, contents, arrays))


def test_the_sides_of_a_trial_have_the_bends_of_the_node():
    """They read its inputs."""
    X, y = make_curved(3000)
    model = DynamicModelTreeClassifier(max_nodes=3).partial_fit(X, y)
    assert bends_of(model)
    contents, arrays = container.from_bytes(stored.to_bytes(model), models.KIND)
    arrays = dict(arrays)
    side = int(arrays["trial.left_model"][arrays["trial.feature"] >= 0][0])
    begin = arrays["model.bend_low.lengths"][:side].sum()
    arrays["model.bend_low"] = arrays["model.bend_low"].copy()
    arrays["model.bend_low"][begin] -= 1.0
    with pytest.raises(ModelFileError, match=r"trial\.left_model"):
        stored.from_bytes(container.to_bytes(models.KIND, contents, arrays))
