"""The regressor: checks of scikit-learn and River, units, losses, files, the target's level."""

import copy
import decimal
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from river import checks
from sklearn.utils.estimator_checks import parametrize_with_checks

import driftree
from driftree import (
    DynamicModelForestRegressor,
    DynamicModelTreeClassifier,
    DynamicModelTreeRegressor,
)
from exported import run_python

MODELS = {
    "measured": DynamicModelTreeRegressor,
    "paper": DynamicModelTreeRegressor.paper,
    "student": lambda: DynamicModelTreeRegressor("student"),
}
every_model = pytest.mark.parametrize("name", MODELS)
EXPECTED_FAILURES = {
    "check_estimator_tags_renamed": "River's base class owns an unrelated `_more_tags`",
}


@parametrize_with_checks(
    [*(make() for make in MODELS.values()), DynamicModelTreeRegressor("poisson")],
    expected_failed_checks=lambda _: EXPECTED_FAILURES,
)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@every_model
def test_rivers_own_checks(name):
    checks.check_estimator(MODELS[name]())


# ---------------------------------------------------------------------- streams
def draw(n, seed=1, noise=0.1):
    """Two lines with a border between them; a missing value and a category now and then."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        a, b, car = rng.normal(), rng.normal(), str(rng.choice(["van", "bus"]))
        y.append((3 * a if b > 0 else -3 * a + 4) + 2 * (car == "van") + noise * rng.normal())
        X.append({"a": a, "b": b, "car": car})
        if rng.random() < 0.05:
            X[-1]["b"] = None
    return X, y


def learnt(X, y, model=None, **parameters):
    model = DynamicModelTreeRegressor(**parameters) if model is None else model
    for x, number in zip(X, y, strict=True):
        model.learn_one(x, number)
    return model


def course(X, y, **parameters):
    """What is predicted of each row before it is learnt."""
    model, found = DynamicModelTreeRegressor(**parameters), []
    for x, number in zip(X, y, strict=True):
        found.append(model.predict_one(x))
        model.learn_one(x, number)
    return np.array(found), model


def error_of(found, y, first):
    return float(np.abs(found - np.array(y))[first:].mean())


# ---------------------------------------------------------------------- learning
@pytest.mark.parametrize("loss", ["gaussian", "student", "quantile"])
def test_it_splits_where_one_line_does_not_do(loss):
    X, y = draw(4000)
    found, model = course(X, y, loss=loss)
    assert model.n_leaves_ >= 2
    assert any("b" in str(event) for event in model.events_)
    assert error_of(found, y, 3000) < 0.5
    straight, _ = course(X, y, loss=loss, max_depth=0, max_bends=0)
    assert error_of(found, y, 3000) < 0.3 * error_of(straight, y, 3000)


def test_one_line_is_one_leaf():
    rng = np.random.default_rng(1)
    X = [dict(zip("abc", x, strict=True)) for x in rng.normal(size=(5000, 3)).tolist()]
    y = [2 * x["a"] - x["b"] + 0.5 * rng.normal() for x in X]
    _, model = course(X, y)
    assert model.n_leaves_ == 1
    assert model._tree.engine.spread(0) == pytest.approx(0.25, rel=0.2)


@pytest.mark.parametrize("loss", ["gaussian", "student", "quantile"])
@pytest.mark.parametrize(("factor", "shift"), [(1e-9, 0.0), (1e12, 0.0), (3.0, 1000.0)])
def test_the_unit_of_the_target_does_not_matter(loss, factor, shift):
    """To rounding; which may decide the row of a change, so that later rows differ a little."""
    X, y = draw(1500)
    plain, _ = course(X, y, loss=loss)
    other, _ = course(X, [factor * number + shift for number in y], loss=loss)
    other = (other - shift) / factor
    np.testing.assert_allclose(other[1:800], plain[1:800], rtol=1e-3, atol=1e-3)
    assert error_of(other, y, 800) == pytest.approx(error_of(plain, y, 800), rel=0.05)


@pytest.mark.parametrize("loss", ["gaussian", "student", "quantile"])
@pytest.mark.parametrize("n_rows", [1, 50])
def test_until_the_target_varies_nothing_depends_on_its_unit(loss, n_rows):
    model = learnt([{"a": float(i)} for i in range(n_rows)], [42.0] * n_rows, loss=loss)
    x = {"a": 1.0}
    if loss == "quantile":
        assert (model.predict_quantiles(pd.DataFrame([x])) == 42.0).all()
    else:
        assert model.predict_interval_one(x) == (42.0, 42.0)
    assert model.predict_one(x) == 42.0
    assert model.explain_one(x).error == 0
    assert driftree.export_text(model).endswith("= 42")
    assert not model.counterfactual(x, above=50).changes
    assert (run_python(model, [x]) == 42.0).all()


def test_a_target_that_never_varies_and_one_that_begins_to():
    model = DynamicModelTreeRegressor()
    for i in range(50):
        model.learn_one({"a": float(i % 7)}, 42.0)
    assert model.predict_one({"a": 3.0}) == pytest.approx(42.0)
    for i in range(500):
        model.learn_one({"a": float(i % 7)}, 42.0 + i % 7)
    assert model.predict_one({"a": 3.0}) == pytest.approx(45.0, abs=0.7)


def test_rows_far_off_do_little_to_students_loss():
    X, y = draw(3000)
    spoilt = [number + (500.0 if i % 100 == 50 else 0.0) for i, number in enumerate(y)]
    robust, _ = course(X, spoilt, loss="student", follow_target=False)
    plain, _ = course(X, spoilt, follow_target=False)
    assert error_of(robust, y, 1000) < 0.5 * error_of(plain, y, 1000)


@pytest.mark.parametrize("loss", ["gaussian", "student", "quantile"])
@pytest.mark.parametrize("outlier", [1e60, -1e100])
def test_predictions_stay_finite_after_any_outlier(loss, outlier):
    X, y = draw(400)
    model = learnt(X, [*y[:300], outlier, *y[301:]], loss=loss)
    assert np.isfinite(model.predict(pd.DataFrame(X))).all()


@pytest.mark.parametrize("outlier", [1e3, 1e5, 1e6])
def test_no_prediction_is_far_beyond_an_outlier_that_it_follows(outlier):
    """Its row changes the weight of the last target, which it is in the next row."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=2000)
    y = 4 * x + rng.normal(size=2000)
    y[1500] = outlier
    found, _ = course([{"x": value} for value in x], y)
    assert np.abs(found).max() < 10 * outlier


@pytest.mark.parametrize("every", [20, 100, 500])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_outliers_that_come_again_and_again_explode_nothing(seed, every):
    """With a spread as small as before them, no row has tested the weights of the level."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(3000, 5))
    y = X @ rng.normal(size=5) + 0.1 * rng.normal(size=3000)
    y[900::every] = 1e6
    found, _ = course([dict(zip("abcde", row, strict=True)) for row in X.tolist()], y)
    mean = np.cumsum(y)[:-1] / np.arange(1, len(y))
    assert np.abs(found).max() < 1e6
    assert np.abs(found - y)[1:].mean() < 3 * np.abs(mean - y[1:]).mean()


@pytest.mark.parametrize("loss", ["gaussian", "student", "quantile"])
def test_batches_without_the_level_follow_a_jump(loss):
    """The weights of the level, which no row tests, must not be told to have caused it."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(4000, 3))
    y = X[:, 0] + rng.normal(size=4000) + 30 * (np.arange(4000) >= 2000)
    model, errors = DynamicModelTreeRegressor(loss), []
    for start in range(0, 4000, 100):
        rows = slice(start, start + 100)
        if start:
            errors.append(np.abs(model.predict(X[rows]) - y[rows]).mean())
        model.partial_fit(X[rows], y[rows])
    assert max(errors) < 35
    assert np.mean(errors[-5:]) < 6
    fitted = DynamicModelTreeRegressor(loss).fit(X, y)
    assert np.abs(fitted.predict(X[-100:]) - y[-100:]).mean() < 6


@pytest.mark.parametrize("at", [500, 1000, 1900])
def test_a_jump_among_the_first_rows_is_followed(at):
    rng = np.random.default_rng(1)
    x = rng.normal(size=at + 400)
    y = x + rng.normal(size=at + 400) + 300 * (np.arange(at + 400) >= at)
    model = DynamicModelTreeRegressor(follow_target=False, max_bends=0)
    for value, target in zip(x, y, strict=True):
        model.learn_one({"x": value}, target)
    assert model.predict_one({"x": 0.0}) > 80


def test_an_outlier_far_beyond_all_others_makes_nothing_forgotten():
    rng = np.random.default_rng(1)
    x = rng.normal(size=1500)
    y = 2 * x + rng.normal(size=1500)
    y[1000] = 1e6
    found, _ = course([{"x": value} for value in x], y, loss="student", follow_target=False)
    assert np.abs(found - y)[1001:1101].mean() < 1.5


def test_another_value_of_a_feature_of_zeros_and_ones_counts_as_a_one():
    rng = np.random.default_rng(1)
    model = DynamicModelTreeRegressor(follow_target=False)
    for _ in range(500):
        flag = float(rng.random() < 0.5)
        model.learn_one({"flag": flag}, 3 * flag + rng.normal())
    one, far = (model.predict_one({"flag": value}) for value in (1.0, 1e5))
    assert far == one > 2


def test_a_row_beyond_the_bound_widens_the_spread_by_its_whole_error():
    rng = np.random.default_rng(1)
    x = rng.normal(size=3000)
    y = 4 * x + 0.1 * rng.normal(size=3000)
    model = learnt([{"x": value} for value in x], y, follow_target=False)
    before = width_of(model)
    model.learn_one({"x": 0.0}, 20.0)  # 200 deviations, whose slope is that of 30
    wider = 200 / np.sqrt(505) * np.exp(0.1 * 0.9)  # by the spread, and by the step of the interval
    assert width_of(model) / before == pytest.approx(wider, rel=0.1)


def width_of(model):
    low, high = model.predict_interval(pd.DataFrame({"x": [0.0]}))[0]
    return high - low


@pytest.mark.parametrize("weight", [1e6, 1e7, 1e12, 1e15])
def test_rows_of_any_weight_leave_the_moments_sound(weight):
    model = DynamicModelTreeRegressor()
    for y, w in [(-3.5, 1), (1000, 1), (1000, weight), (7, weight), (1000, weight), (3, 1)]:
        model.learn_one({"a": y / 2}, y, w)
    assert np.isfinite(model.predict_one({"a": 5.0}))
    copied = pickle.loads(pickle.dumps(model))
    assert copied.predict_one({"a": 5.0}) == model.predict_one({"a": 5.0})


def test_weight_two_is_the_row_twice():
    X, y = draw(300)
    frame, pairs = pd.DataFrame(X), np.repeat(np.arange(300), 2)
    twice = DynamicModelTreeRegressor().fit(frame.iloc[pairs], np.array(y)[pairs])
    weighted = DynamicModelTreeRegressor().fit(frame, y, sample_weight=np.full(300, 2))
    np.testing.assert_allclose(twice.predict(frame), weighted.predict(frame), rtol=1e-6)


@every_model
def test_arrays_frames_and_dicts_are_read_alike(name):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(400, 3))
    y = X @ [1.0, -2.0, 0.5] + 7
    frame = pd.DataFrame(X, columns=["x0", "x1", "x2"])
    models = [MODELS[name]().fit(X, y)]
    models += [MODELS[name]().fit(one, y) for one in (frame, pl.DataFrame(frame))]
    expected = models[0].predict(X)
    np.testing.assert_array_equal(models[1].predict(frame), expected)
    np.testing.assert_array_equal(models[2].predict(frame), expected)
    rows = [models[0].predict_one(dict(zip(frame.columns, x, strict=True))) for x in X[:20]]
    np.testing.assert_allclose(rows, expected[:20])
    assert isinstance(models[0].predict_many(frame), pd.Series)


# ---------------------------------------------------------------------- the target's level
def walk(n, seed=1):
    rng = np.random.default_rng(seed)
    y = np.cumsum(rng.normal(size=n)).tolist()
    return [{"a": rng.normal()} for _ in y], y


def test_it_follows_a_target_that_walks():
    X, y = walk(3000)
    following, _ = course(X, y)
    other, _ = course(X, y, follow_target=False)
    no_change = np.abs(np.diff(y))[500:].mean()
    assert error_of(following, y, 501) < 1.05 * no_change
    assert error_of(other, y, 501) > 2 * no_change


def test_a_level_is_told_within_small_batches_as_it_was_before_them():
    X, y = walk(40)
    model = learnt(X[:20], y[:20])
    frame = pd.DataFrame(X[20:])
    engine = model._tree.engine
    assert engine.absent[0] == y[19]
    model.learn_many(frame[:10], y[20:30])
    assert engine.absent[0] == y[29]


@pytest.mark.parametrize(
    ("loss", "name"), [("gaussian", "last 3 y"), ("poisson", "log(1 + last y)")]
)
def test_a_feature_may_not_have_the_name_of_the_models_own(loss, name):
    X, y = draw(30)
    y = np.abs(y)
    model = learnt(X, y, loss=loss)
    row, frame = X[0] | {name: 1.0}, pd.DataFrame(X).assign(**{name: 1.0})
    calls = [
        lambda: model.learn_one(row, 1.0),
        lambda: model.predict_one(row),
        lambda: model.predict_interval_one(row),
        lambda: model.learn_many(frame, y),
        lambda: model.predict_many(frame),
        lambda: DynamicModelTreeRegressor(loss).fit(frame, y),
        lambda: DynamicModelTreeRegressor(loss).learn_one(row, 1.0),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"rename the feature, or give follow_target=False"):
            call()
    assert model.n_rows_seen_ == 30
    free = DynamicModelTreeRegressor(loss, follow_target=False)
    free.learn_one(row, 1.0)
    assert name in free._tree.encoder.names


def test_large_batches_are_learnt_without_the_level():
    X, y = draw(1000)
    model = DynamicModelTreeRegressor(max_depth=0).fit(pd.DataFrame(X), y)
    engine = model._tree.engine
    levels = engine.value_column[:3]
    assert (engine.weights(0)[:, levels] == 0).all()
    assert engine.absent[0] == y[-1]
    model.learn_many(pd.DataFrame(X[:10]), y[:10])
    assert (engine.weights(0)[:, levels] != 0).all()


def learn_rows_then_batches(model, n_batches=20):
    """Rows one by one, then batches of 100, with a jump before the batches; return their errors."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=1000 + 100 * n_batches)
    y = x + rng.normal(size=len(x)) + 30 * (np.arange(len(x)) >= 1000)
    for value, target in zip(x[:1000], y, strict=False):
        model.learn_one({"x": value}, target)
    errors = []
    for start in range(1000, len(x), 100):
        rows = slice(start, start + 100)
        batch = {"x": x[rows]}
        errors.append(np.abs(model.predict_many(batch) - y[rows]).mean())
        model.learn_many(batch, y[rows])
    return errors, y


@pytest.mark.parametrize(("loss", "most"), [("gaussian", 1.5), ("student", 1.5), ("quantile", 4)])
@pytest.mark.parametrize("kind", [DynamicModelTreeRegressor, DynamicModelForestRegressor])
def test_batches_after_rows_follow_a_jump(kind, loss, most):
    """They leave the weights of the level as they were, and learn the jump by all others."""
    errors, _ = learn_rows_then_batches(kind(loss=loss))
    assert np.mean(errors[-5:]) < most


def test_a_level_that_a_batch_did_not_show_is_hidden_until_rows_show_it(tmp_path):
    model = DynamicModelTreeRegressor()
    _, y = learn_rows_then_batches(model, 2)
    engine, row = model._tree.engine, {"x": 0.5}
    assert np.isnan(engine.absent[:3]).all()
    assert engine.level[0] == y[-1]  # with which the next row is learnt
    assert model.explain_one(row).row["last y"] is None
    model.save(tmp_path / "model.dmt")
    copies = driftree.load(tmp_path / "model.dmt"), pickle.loads(pickle.dumps(model))
    for one in (model, *copies):
        assert one.predict_one(row) == model.predict(pd.DataFrame([row]))[0]
        assert abs(one.predict_one(row) - 30.5) < 5
    for one in (model, *copies):
        with pytest.raises(ValueError, match="is numeric"):
            one.learn_one({"x": "text"}, 30.0)  # refused: nothing changes
        assert np.isnan(one._tree.engine.absent[:3]).all()
        one.learn_one(row, 31.0)
        assert one._tree.engine.absent[0] == 31.0
        one.learn_many(pd.DataFrame([row] * 10), [30.0] * 10)
        assert one._tree.engine.absent[0] == 30.0
    assert model.predict_one(row) == copies[0].predict_one(row) == copies[1].predict_one(row)


def test_rows_after_a_batch_are_learnt_with_the_level():
    X, y = walk(400)
    names = [f"target_last{name}" for name in ("", "_few", "_many")]
    model = learnt(X[:200], y[:200])
    model.learn_many(pd.DataFrame(X[200:300]), y[200:300])
    hidden = copy.deepcopy(model)
    arrays = model._tree.engine.arrays()
    assert arrays.pop("target_hides_level") == [1]  # which older files lack: it is shown
    model._tree.engine.restore(arrays)
    told = [arrays[name][0] for name in names]
    assert model._tree.engine.absent[:3].tolist() == told
    for one in (model, hidden):
        learnt(X[300:], y[300:], one)
    assert pickle.dumps(model._tree.engine.arrays()) == pickle.dumps(hidden._tree.engine.arrays())
    assert "target_hides_level" not in model._tree.engine.arrays()
    with pytest.raises(ValueError, match="target_hides_level"):
        model._tree.engine.restore(arrays | {"target_hides_level": np.array([2], np.uint8)})


def test_the_level_is_no_feature_of_the_users():
    X, y = walk(100)
    model = DynamicModelTreeRegressor().fit(pd.DataFrame(X), y)
    assert model.n_features_in_ == 1
    assert model.feature_names_in_.tolist() == ["a"]


# ---------------------------------------------------------------------- counts and intervals
def test_counts_are_better_told_by_poissons_loss():
    rng = np.random.default_rng(1)
    X = [{"a": a, "b": b} for a, b in rng.normal(size=(4000, 2)).tolist()]
    y = [float(rng.poisson(np.exp(1 + 0.8 * x["a"] - 0.5 * x["b"]))) for x in X]

    def deviance(found):
        rate, count = np.maximum(found, 1e-3)[500:], np.array(y)[500:]
        return np.mean(count * np.log(np.maximum(count, 1e-9) / rate) - (count - rate))

    counts, model = course(X, y, loss="poisson")
    plain, _ = course(X, y)
    assert deviance(counts) < 0.8 * deviance(plain)
    assert (counts[1:] > 0).all()
    with pytest.raises(ValueError, match="must not be negative"):
        model.learn_one({"a": 0.0, "b": 0.0}, -1.0)


@pytest.mark.parametrize("n_zeros", [100, 500, 3000])
def test_counts_after_many_zeros_are_followed(n_zeros):
    rng = np.random.default_rng(n_zeros)
    y = np.append(np.zeros(n_zeros), rng.integers(1, 51, 2000)).astype(float)
    X = [{"a": rng.normal(), "b": rng.normal()} for _ in y]
    predicted, _ = course(X, y, loss="poisson")
    assert np.max(predicted[:n_zeros]) < 2
    recent = predicted[n_zeros + 100 :]
    assert np.median(recent) == pytest.approx(25.5, rel=0.15)
    assert np.min(recent) > 2


def test_quantiles_are_in_order_and_hold_as_many_rows_as_they_say():
    X, y = draw(5000, noise=1.0)
    levels = (0.05, 0.5, 0.9)
    model, found = DynamicModelTreeRegressor("quantile", quantiles=levels), []
    for x, number in zip(X, y, strict=True):
        if model.__sklearn_is_fitted__():
            found.append(model.predict_quantiles(pd.DataFrame([x]))[0])
        model.learn_one(x, number)
    found = np.array(found)
    assert (np.diff(found, axis=1) >= 0).all()
    below = (np.array(y)[1:, None] <= found).mean(axis=0)
    np.testing.assert_allclose(below, levels, atol=0.015)
    with pytest.raises(AttributeError, match='loss="quantile"'):
        learnt(X[:9], y[:9]).predict_quantiles(pd.DataFrame(X[:9]))


@pytest.mark.parametrize("quantiles", [[0.5], [0.1, 0.9]])
@pytest.mark.parametrize("forest", [False, True])
def test_quantiles_have_no_intervals(quantiles, forest):
    kind = DynamicModelForestRegressor if forest else DynamicModelTreeRegressor
    model = kind(loss="quantile", quantiles=quantiles)
    model.fit([[1.0], [2.0]], [1.0, 2.0])
    with pytest.raises(ValueError, match="with loss='quantile', use predict_quantiles"):
        model.predict_interval([[1.0]])
    with pytest.raises(ValueError, match="with loss='quantile', use predict_quantiles"):
        model.predict_interval_one({"x0": 1.0})


def test_the_kernels_have_no_intervals_of_labels():
    model = DynamicModelTreeClassifier().fit([[1.0], [2.0]], ["no", "yes"])
    with pytest.raises(ValueError, match="this loss has no intervals"):
        model._tree.engine.intervals(np.ones((1, 1)), 1.0)


@pytest.mark.parametrize("kind", [DynamicModelTreeRegressor, DynamicModelForestRegressor])
def test_of_two_quantiles_the_upper_one_is_predicted(kind):
    X = np.random.default_rng(1).normal(size=(300, 2))
    model = kind(loss="quantile", quantiles=[0.1, 0.9]).fit(X, X[:, 0])
    np.testing.assert_array_equal(model.predict(X), model.predict_quantiles(X)[:, 1])
    assert model.predict_one({"x0": 0.5, "x1": 0.0}) == model.predict([[0.5, 0.0]])[0]


def test_quantiles_of_another_loss_are_refused():
    with pytest.raises(ValueError, match="belongs to loss='quantile', but the loss is 'gaussian'"):
        DynamicModelTreeRegressor(quantiles=[0.5]).learn_one({"a": 1.0}, 1.0)


def test_offsets_that_cross_learn_from_their_own_quantiles():
    """Put in order, the first would be the lowest, and each would push the others apart."""
    X, y = draw(200)
    model = learnt(X, y, loss="quantile")
    engine = model._tree.engine
    engine.restore(engine.arrays() | {"target_offset": np.array([5.0, 0.0, -5.0])})
    model.learn_one(X[0], y[0])
    first, _, last = engine.offsets
    assert first < 5
    assert last > -5


def test_texts_and_counterfactuals_know_the_offsets_of_quantiles():
    rng = np.random.default_rng(1)
    model = DynamicModelTreeRegressor("quantile", follow_target=False, max_bends=0, max_depth=0)
    for v in rng.uniform(0, 10, size=800).tolist():
        model.learn_one({"v": v}, 3 * v + rng.exponential(5))
    assert (np.abs(model._tree.engine.offsets) > 1e-3).any()
    (leaf,) = model.leaf_models()
    found = model.predict_quantiles(pd.DataFrame({"v": [2.0, 7.0]}))
    for k, name in enumerate(leaf.intercept):
        said = leaf.intercept[name] + leaf.weights[name]["v"] * np.array([2.0, 7.0])
        np.testing.assert_allclose(said, found[:, k], rtol=1e-9)
    changed = model.counterfactual({"v": 2.0}, above=25.0)
    assert model.predict_one(changed.x) == pytest.approx(25.0, abs=0.1)


def test_the_median_gets_away_from_where_it_was():
    """Slopes of this loss are bounded, so that models which were sure would follow too slowly."""
    rng = np.random.default_rng(1)
    X = [{"v": v} for v in rng.normal(size=3000).tolist()]
    y = [x["v"] + 0.1 * rng.normal() + (20 if i >= 1500 else 0) for i, x in enumerate(X)]
    found, _ = course(X, y, loss="quantile", follow_target=False, max_depth=0, max_bends=0)
    assert error_of(found[:2500], y[:2500], 2300) < 0.5


def test_another_unit_of_the_target_is_no_alarm():
    """Times are calm or not by losses, whose level changes with the unit."""
    rng = np.random.default_rng(1)
    X = [{"v": v} for v in rng.normal(size=14_000).tolist()]
    y = [x["v"] + rng.normal() for x in X]
    model = learnt(X[:12_000], y[:12_000], follow_target=False, max_bends=0)
    engine = model._tree.engine
    assert engine.is_calm
    scale, until = engine.target_scale, engine.restless_until
    arrays = engine.arrays()
    arrays["target_squares"] = arrays["target_squares"] * 20  # as if it had come to vary more
    engine.restore(arrays)
    learnt(X[12_000:], y[12_000:], model)
    assert engine.target_scale > 3 * scale
    assert engine.restless_until == until


def test_intervals_hold_as_soon_as_a_constant_target_begins_to_vary():
    """Whether the one value so far was predicted exactly is no reason for narrow intervals."""
    rng = np.random.default_rng(1)
    model, inside = DynamicModelTreeRegressor(), []
    for row in range(3500):
        x, y = {"a": rng.normal()}, rng.normal() if row >= 3000 else 0.0
        low, high = model.predict_interval_one(x, level=0.9)
        inside.append(low <= y <= high)
        model.learn_one(x, y)
    assert np.mean(inside[3000:]) > 0.84


@pytest.mark.parametrize("loss", ["gaussian", "student"])
@pytest.mark.parametrize("level", [0.5, 0.85, 0.9, 0.99])
def test_intervals_hold_also_after_the_noise_has_grown(loss, level):
    X, y = draw(2000)
    more, after = draw(3000, seed=2, noise=2.0)
    model, inside = DynamicModelTreeRegressor(loss), []
    for x, number in zip(X + more, y + after, strict=True):
        low, high = model.predict_interval_one(x, level)
        inside.append(low <= number <= high)
        model.learn_one(x, number)
    assert np.mean(inside) == pytest.approx(level, abs=0.02)
    assert np.mean(inside[3000:]) == pytest.approx(level, abs=0.025)
    ends = model.predict_interval(pd.DataFrame(X[:50]), level)
    assert ends.shape == (50, 2)
    assert (ends[:, 0] < model.predict(pd.DataFrame(X[:50]))).all()
    with pytest.raises(ValueError, match=r"level must be from 0\.5 to 0\.99"):
        model.predict_interval(pd.DataFrame(X[:5]), 1.0)


# ---------------------------------------------------------------------- weights and coverage
WEIGHTS = {
    "alike": lambda rng, noise: rng.uniform(0.05, 5, len(noise)),
    "whole": lambda rng, noise: rng.integers(0, 6, len(noise)).astype(float),
    "grow with the noise": lambda rng, noise: 0.2 + np.abs(noise),
    "fall with the noise": lambda rng, noise: 1 / (0.2 + np.abs(noise)),
    "grow with time": lambda rng, noise: np.linspace(1, 50, len(noise)),
    "3": lambda rng, noise: np.full(len(noise), 3.0),
    "0.1": lambda rng, noise: np.full(len(noise), 0.1),
}
QUANTILES = (0.1, 0.5, 0.9)
LEVELS = np.array([0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99])
LONGER = [1.051271, 1.061837, 1.072508, 1.083287, 1.094174, 1.099659, 1.102963, 1.104066]


def draw_weighted(how, n=4000):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, 2))
    noise = rng.choice([0.3, 3.0], n) * rng.normal(size=n)
    return X, X @ [2.0, -1.0] + noise, WEIGHTS[how](rng, noise)


def make_unfollowing(loss):
    quantiles = QUANTILES if loss == "quantile" else None
    return DynamicModelTreeRegressor(loss, quantiles=quantiles, follow_target=False)


@pytest.mark.parametrize("loss", ["gaussian", "quantile"])
@pytest.mark.parametrize("how", WEIGHTS)
def test_the_weighted_share_of_rows_is_as_told(loss, how):
    X, y, w = draw_weighted(how)
    model, held = make_unfollowing(loss), []
    for i in range(len(X)):
        row = slice(i, i + 1)
        if i and loss == "quantile":
            held.append(y[i] <= model.predict_quantiles(X[row])[0])
        elif i:
            ends = [model.predict_interval(X[row], level)[0] for level in (0.5, 0.9)]
            held.append([low <= y[i] <= high for low, high in ends])
        model.partial_fit(X[row], y[row], sample_weight=w[row])
    told = QUANTILES if loss == "quantile" else (0.5, 0.9)
    shares = np.average(np.array(held)[500:], axis=0, weights=w[501:])
    np.testing.assert_allclose(shares, told, atol=0.02)


def reaches_of(model):
    """What intervals and quantiles have learnt besides the models."""
    engine = model._tree.engine
    return np.concatenate([engine.reaches, engine.offsets])


@pytest.mark.parametrize("kind", [DynamicModelTreeRegressor, DynamicModelForestRegressor])
def test_a_row_moves_the_reach_once_by_its_share_of_the_mean_weight(kind):
    """However many copies of it are learnt."""
    X, y, w = draw_weighted("whole", 205)
    w[:200] += 1
    w[200:] = 2.0, 0.5, 8.0, 100.0, 0.0
    y[200:] += 100.0 ** np.arange(1, 6)  # outside
    model, mean = kind(follow_target=False), w[:200].mean()
    for i in range(len(X)):
        row = slice(i, i + 1)
        trees = [] if i < 200 else getattr(model._tree, "trees", [model._tree])
        before = [tree.engine.reaches for tree in trees]
        model.partial_fit(X[row], y[row], sample_weight=w[row])
        mean += (w[i] - mean) / (i + 1) if w[i] and trees else 0.0
        for tree, reaches in zip(trees, before, strict=True):
            steps = np.log(tree.engine.reaches / reaches)
            np.testing.assert_allclose(steps, 0.1 * LEVELS * min(w[i] / mean, 10), rtol=1e-4)


@pytest.mark.parametrize("weight", [0.1, 3.0])
def test_steps_are_those_of_weight_1_where_all_weights_are_alike(weight):
    X, y, _ = draw_weighted("3", 300)
    y[-1] += 1000
    model = DynamicModelTreeRegressor(follow_target=False)
    model.partial_fit(X[:-1], y[:-1], sample_weight=np.full(299, weight))
    before = model._tree.engine.reaches
    model.partial_fit(X[-1:], y[-1:], sample_weight=[weight])
    np.testing.assert_array_equal(model._tree.engine.reaches, before * LONGER)


@pytest.mark.parametrize("n_before", [0, 300])
def test_files_know_the_mean_weight(n_before, tmp_path):
    X, y, w = draw_weighted("alike", 900)
    w[:n_before] = 1.0
    model = DynamicModelTreeRegressor(follow_target=False)
    for row in range(600):
        model.partial_fit(X[row : row + 1], y[row : row + 1], sample_weight=w[row : row + 1])
        has_weights = "target_weight_mean" in model._tree.engine.arrays()
        assert has_weights == (row >= n_before)  # files without weights are as before
    model.save(tmp_path / "model.dmt")
    again = driftree.load(tmp_path / "model.dmt")
    for one in (model, again):
        one.partial_fit(X[600:], y[600:], sample_weight=w[600:])
    reaches = [one._tree.engine.reaches for one in (model, again)]
    np.testing.assert_array_equal(*reaches)
    arrays = again._tree.engine.arrays()
    assert arrays["target_weight_mean"] == pytest.approx(w.mean(), rel=0.1)
    for name, value in (("rows", -1.0), ("mean", 0.0), ("mean", np.nan)):
        wrong = arrays | {f"target_weight_{name}": np.array([value])}
        with pytest.raises(ValueError, match=f"target_weight_{name}"):
            again._tree.engine.restore(wrong)


# ---------------------------------------------------------------------- copies
@pytest.mark.parametrize("loss", ["gaussian", "student", "poisson", "quantile"])
@pytest.mark.parametrize("how", ["file", "pickle", "copy"])
def test_a_copy_learns_on_bit_by_bit(loss, how, tmp_path):
    X, y = draw(2500)
    y = np.abs(y).tolist()
    model = learnt(X[:1500], y[:1500], loss=loss)
    if how == "file":
        model.save(tmp_path / "model.dmt")
        other = driftree.load(tmp_path / "model.dmt")
    else:
        other = pickle.loads(pickle.dumps(model)) if how == "pickle" else copy.deepcopy(model)
    for x, number in zip(X[1500:], y[1500:], strict=True):
        model.learn_one(x, number)
        other.learn_one(x, number)
    assert [model.predict_one(x) for x in X[:50]] == [other.predict_one(x) for x in X[:50]]
    assert [str(event) for event in model.events_] == [str(event) for event in other.events_]


def check_a_copy(model, X, y, path):
    """A copy predicts the same, and learns on as the model does; so does the model itself."""
    before = model.predict(X)
    model.save(path)
    for other in (pickle.loads(pickle.dumps(model)), driftree.load(path), model):
        np.testing.assert_array_equal(other.predict(X), before)
    other = driftree.load(path)
    for one in (model, other):
        one.partial_fit(X, y)
    np.testing.assert_array_equal(other.predict(X), model.predict(X))


OUTLIERS = [1e10, 1e20, 1e60, 1e100]


@pytest.mark.parametrize("loss", ["gaussian", "student", "poisson", "quantile"])
@pytest.mark.parametrize("outliers", [[one] for one in OUTLIERS] + [OUTLIERS], ids=repr)
def test_a_copy_after_targets_far_off_is_the_same(loss, outliers, tmp_path):
    X, y = np.random.default_rng(1).uniform(size=(2, 400, 3))
    y = y.sum(axis=1)
    model = DynamicModelTreeRegressor(loss).partial_fit(X[:300], y[:300])
    for i, outlier in enumerate(outliers):
        model.partial_fit(X[300 + i : 301 + i], [outlier])
        check_a_copy(model, X[310:], y[310:], tmp_path / "model.dmt")


def test_a_copy_of_a_forest_after_targets_far_off_is_the_same(tmp_path):
    X, y = np.random.default_rng(1).uniform(size=(2, 400, 3))
    model = DynamicModelForestRegressor().partial_fit(X[:300], y[:300].sum(axis=1))
    model.partial_fit(1e50 * X[300:310], 1e99 * y[300:310, 0])
    model.partial_fit(X[310:320], y[310:320, 0])
    check_a_copy(model, X[320:], y[320:, 0], tmp_path / "model.dmt")


@pytest.mark.parametrize("n_rows", [100, 200, 2000])
def test_a_copy_of_a_regressor_that_has_diverged_is_the_same(n_rows, tmp_path):
    """By one pass of gradient descent with too long steps, in the end to NaN."""
    X = np.random.default_rng(1).normal(size=(n_rows, 3))
    y = X.sum(axis=1)
    model = DynamicModelTreeRegressor.paper(learning_rate=3.0).partial_fit(X, y)
    assert not (np.abs(model.predict(X)) < 1e20).all()
    check_a_copy(model, X[:5], y[:5], tmp_path / "model.dmt")


# ---------------------------------------------------------------------- wrong input
WRONG_LEVELS = [0, 1, 0.3, np.nan, None, "0.9", [0.5, 0.9], np.array([0.5, 0.9]), True]


@pytest.mark.parametrize("level", WRONG_LEVELS, ids=repr)
@pytest.mark.parametrize("forest", [False, True])
def test_levels_are_single_numbers(level, forest):
    model = DynamicModelForestRegressor() if forest else DynamicModelTreeRegressor()
    words = r"level must be from 0\.5 to 0\.99, got "
    with pytest.raises(ValueError, match=words):  # before anything is learnt, too
        model.predict_interval_one({"x0": 1.0}, level)
    model.fit([[1.0], [2.0]], [1.0, 2.0])
    with pytest.raises(ValueError, match=words):
        model.predict_interval_one({"x0": 1.0}, level)
    with pytest.raises(ValueError, match=words):
        model.predict_interval([[1.0]], level)


@pytest.mark.parametrize(
    "y",
    [
        np.array(["2024-02-29", "NaT"], dtype="datetime64[ns]"),
        np.array(["2024-02-29", "2024-03-01"], dtype="datetime64[D]"),
        np.array([1, 2], dtype="timedelta64[ns]"),
        pd.Series(pd.to_timedelta([1, 2], unit="D")),
    ],
    ids=lambda y: str(y.dtype),
)
def test_times_are_no_numbers(y):
    model = DynamicModelTreeRegressor()
    X = pd.DataFrame({"a": [1.0, 2.0]})
    for call in (model.fit, model.learn_many, lambda X, y: model.learn_one({"a": 1.0}, y[0])):
        with pytest.raises(ValueError, match="y must hold numbers, but"):
            call(X, y)
    assert not model.__sklearn_is_fitted__()


def test_decimals_are_numbers():
    X, numbers = pd.DataFrame({"a": [1.0, 2.0, 3.0]}), [1.5, 2.25, 4.0]
    decimals = [decimal.Decimal(number) for number in numbers]
    expected = DynamicModelTreeRegressor().fit(X, numbers).predict(X).tolist()
    for y in (decimals, pd.Series(decimals), pl.Series(decimals), pa.array(decimals)):
        assert DynamicModelTreeRegressor().fit(X, y).predict(X).tolist() == expected
        model = DynamicModelTreeRegressor()
        model.learn_many(X, y)
        assert model.predict_many(X).tolist() == expected
    model.learn_one({"a": 4.0}, decimals[0])
    with pytest.raises(ValueError, match="the target of row 0 is nan"):
        model.learn_one({"a": 4.0}, decimal.Decimal("nan"))
    assert model.n_rows_seen_ == 4


@pytest.mark.parametrize("target", [np.nan, np.inf, None, "12", 1e101, [1.0], np.ma.masked])
def test_what_is_no_number_is_refused_and_changes_nothing(target):
    X, y = draw(100)
    model = learnt(X, y)
    before = model.predict_one(X[0])
    with pytest.raises((ValueError, TypeError)):
        model.learn_one(X[0], target)
    with pytest.raises((ValueError, TypeError)):
        model.learn_many(pd.DataFrame(X[:2]), [1.0, target])
    assert model.predict_one(X[0]) == before


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"loss": "hinge"}, "loss must be one of 'gaussian'"),
        ({"loss": "poisson", "setting": "paper"}, "loss must be one of 'gaussian', 'student'"),
        ({"quantiles": (0.5, 1.5)}, "quantiles must be different numbers between 0 and 1"),
        ({"quantiles": (0.5, 0.5)}, "quantiles must be different numbers"),
        ({"quantiles": "median"}, "quantiles must be a sequence of numbers, got 'median'"),
        ({"follow_target": "yes"}, "follow_target must be True, False or None"),
    ],
)
def test_wrong_parameters(parameters, words):
    with pytest.raises((ValueError, TypeError), match=words):
        DynamicModelTreeRegressor(**parameters).learn_one({"a": 1.0}, 1.0)


@pytest.mark.parametrize("quantiles", [[0.1, 0.9], (0.1, 0.9), np.array([0.1, 0.9])], ids=type)
def test_quantiles_are_saved_as_they_were_given(quantiles, tmp_path):
    model = DynamicModelTreeRegressor("quantile", quantiles=quantiles)
    model.fit([[1.0], [2.0], [4.0]], [1.0, 2.0, 3.0]).save(tmp_path / "model.dmt")
    loaded = driftree.load(tmp_path / "model.dmt")
    assert list(loaded.quantiles) == [0.1, 0.9]
    X = [[3.0]]
    np.testing.assert_array_equal(loaded.predict_quantiles(X), model.predict_quantiles(X))


def test_whole_numbers_beyond_float64_are_refused():
    model = DynamicModelTreeRegressor()
    with pytest.raises(ValueError, match="beyond the range of float64"):
        model.learn_one({"a": 1.0}, 10**400)
    with pytest.raises(ValueError, match="beyond the range of float64"):
        model.learn_many([{"a": 1.0}], [-(10**400)])
