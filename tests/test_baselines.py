"""FIMT-DD: its figures against values by hand and by NumPy, and what it does on streams."""

import importlib.util
import math
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from river import checks
from sklearn.utils.estimator_checks import parametrize_with_checks

from driftree import FIMTDDClassifier, FIMTDDRegressor, load
from driftree.baselines import SplitPoint, hoeffding_bound
from driftree.learn._kernels import MAX_KEYS, FimtddEngine, page_hinkley

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
NAN = math.nan
EXPECTED_FAILURES = {
    "check_estimator_tags_renamed": "River's base class owns an unrelated `_more_tags`",
    "check_sample_weight_equivalence_on_dense_data": "it shuffles rows that are learnt in order",
}


def make_engine(X, y, weights=None, *, n_classes=2, categorical=False, max_nodes=7):
    """An engine that will never be due, and has learnt the rows; 0 classes: y are numbers."""
    engine = FimtddEngine(
        n_classes,
        learning_rate=0.01,
        grace_period=math.inf,
        drift_tolerance=0.005,
        drift_threshold=50.0,
        drift_rows=30,
        max_nodes=max_nodes,
        has_labels=n_classes > 0,
    )
    X = np.array(X, dtype=np.float64).reshape(len(y), -1)
    for j in range(X.shape[1]):
        engine.add_feature(categorical, True)
        engine.add_missing(j)
    weights = np.ones(len(y)) if weights is None else np.array(weights, dtype=np.float64)
    assert engine.learn(X, np.array(y, dtype=np.float64), weights) == len(y)
    return engine


def state_of(model):
    arrays = model.__getstate__()["_learnt"]["arrays"]
    return {name: (array.dtype, array.tobytes()) for name, array in arrays.items()}


# ---------------------------------------------------------------------- reduction of the deviation
SPLITS = {
    # sd .5; both sides pure
    "pure": ([1, 2, 3, 4], [0, 0, 1, 1], 0.5, ("<=", 2)),
    # p = 3/5, sd .4899; x <= 1 leaves 4/5 of the rows with p = 3/4, sd .4330
    "first of equals": (
        [1, 2, 3, 4, 5],
        [0, 1, 1, 1, 0],
        math.sqrt(0.24) - 0.8 * math.sqrt(0.1875),
        ("<=", 1),
    ),
    # sd (.5 + 2 * .4330) / 3 in all; right half (0 + .5 + .5) / 3
    "three classes": (
        [1, 2, 3, 4],
        [0, 0, 1, 2],
        (0.5 + 2 * math.sqrt(0.1875)) / 3 - 0.5 / 3,
        ("<=", 2),
    ),
    # the same rows as "pure", two of them missing: nothing else tells the classes apart
    "missing": ([NAN, 2, 2, NAN], [1, 0, 0, 1], 0.5, ("missing", -math.inf)),
    # missing values go right: left p = 0, right p = 2/3 of 3/4
    "missing go right": (
        [1, 3, NAN, 3],
        [0, 1, 1, 0],
        0.5 - 0.75 * math.sqrt(2) / 3,
        ("<=", 1),
    ),
    # x == 1 against the others
    "level": ([0, 1, 2, 1], [0, 1, 0, 1], 0.5, ("==", 1)),
    # numbers, in deviations of all: both sides have none left
    "numbers": ([1, 2, 3, 4], [1e6, 1e6, 1e6 + 3, 1e6 + 3], 1.0, ("<=", 2)),
    # sd 2.5 in all; x <= 3 leaves 0 and 1 with sd .5, and 5 and 6 as well
    "numbers on both sides": (
        [3, 1, 9, 7],
        [0.5, 1.5, 5.5, 6.5],
        1 - 0.5 / math.sqrt(6.5),
        ("<=", 3),
    ),
    "numbers of a level": ([0, 1, 2, 1], [-2.0, 7.5, -2.0, 7.5], 1.0, ("==", 1)),
}


@pytest.mark.parametrize(("x", "y", "reduction", "condition"), SPLITS.values(), ids=SPLITS)
def test_the_reduction_of_the_deviation_by_hand(x, y, reduction, condition):
    n_classes = max(y) + 1 if len(set(y)) > 1 and max(y) < 3 and min(y) >= 0 else 0
    engine = make_engine(x, y, n_classes=n_classes, categorical=condition[0] == "==")
    (best,) = (SplitPoint(*point) for point in engine.best_splits(0))
    unit = engine.target_scale / np.std(y) if n_classes == 0 else 1.0
    assert best.reduction * unit == pytest.approx(reduction)
    operator = "==" if best.equality else "missing" if best.missing_left else "<="
    assert (operator, best.threshold) == condition


@pytest.mark.parametrize("y", [[0, 1, 0, 1], [0, 0, 0, 0]])
def test_nothing_to_gain_is_no_split(y):
    assert make_engine([1, 1, 2, 2], y).best_splits(0) == []


def deviation(y, weights, n_classes):
    if not len(y):
        return 0.0
    if n_classes == 0:
        mean = np.average(y, weights=weights)
        return math.sqrt(np.average((y - mean) ** 2, weights=weights))
    kinds = [1] if n_classes == 2 else range(n_classes)
    shares = [np.average(y == k, weights=weights) for k in kinds]
    return float(np.mean([math.sqrt(p * (1 - p)) for p in shares]))


def naive_best(x, y, weights, *, n_classes, categorical):
    """The largest reduction over all thresholds (or levels) and "is missing"."""
    values = np.unique(x[~np.isnan(x)])
    sides = [np.isnan(x)] + [(x == v) if categorical else (x <= v) for v in values]
    reductions = [0.0]
    for side in sides:
        share = weights[side].sum() / weights.sum()
        reductions.append(
            deviation(y, weights, n_classes)
            - share * deviation(y[side], weights[side], n_classes)
            - (1 - share) * deviation(y[~side], weights[~side], n_classes)
        )
    return max(reductions)


@st.composite
def rows(draw):
    n_classes = draw(st.integers(2, 4))
    values = st.one_of(st.sampled_from([NAN, -0.0, 0.0, 1.0, 2.0, 3.0]), st.floats(-9, 9, width=16))
    if draw(st.booleans()):
        values = st.sampled_from([NAN, 0.0, 1.0, 2.0, 3.0])  # codes of levels
    row = st.tuples(values, st.integers(0, n_classes - 1), st.sampled_from([0.25, 1.0, 3.0]))
    x, y, weights = map(np.array, zip(*draw(st.lists(row, min_size=1, max_size=40)), strict=True))
    _, y = np.unique(y, return_inverse=True)
    order = {label: code for code, label in enumerate(dict.fromkeys(y.tolist()))}
    return x, np.array([order[label] for label in y]), weights


@given(rows(), st.booleans())
def test_split_points_equal_the_naive_computation(drawn, categorical):
    x, y, weights = drawn
    n_classes = max(2, int(y.max()) + 1)
    engine = make_engine(x, y, weights, n_classes=n_classes, categorical=categorical)
    keys, counts = engine.split_points(0, 0)
    np.testing.assert_array_equal(keys, np.unique(x[~np.isnan(x)]))
    expected = [[weights[(x <= key) & (y == k)].sum() for k in range(n_classes)] for key in keys]
    np.testing.assert_array_equal(counts, np.reshape(expected, (-1, n_classes)))
    naive = naive_best(x, y, weights, n_classes=n_classes, categorical=categorical)
    best = engine.best_splits(0)
    assert (best[0][0] if best else 0.0) == pytest.approx(naive, abs=1e-8)


@given(rows(), st.booleans(), st.floats(-1e6, 1e6), st.sampled_from([1e-9, 0.3, 1e9]))
def test_split_points_of_numbers_equal_the_naive_computation(drawn, categorical, shift, scale):
    x, y, weights = drawn
    y = scale * (y + shift)
    engine = make_engine(x, y, weights, n_classes=0, categorical=categorical)
    keys, sums = engine.split_points(0, 0)
    np.testing.assert_array_equal(keys, np.unique(x[~np.isnan(x)]))
    expected = [weights[x <= key].sum() for key in keys]
    np.testing.assert_array_equal(sums[:, 0], expected)
    spread = deviation(y, weights, 0)
    if spread <= 1e-9 * abs(shift * scale):  # too far from 0 to tell numbers apart
        return
    unit = engine.target_scale
    naive = naive_best(x, y / unit, weights, n_classes=0, categorical=categorical)
    best = engine.best_splits(0)
    assert (best[0][0] if best else 0.0) == pytest.approx(naive, abs=1e-6)


@pytest.mark.parametrize("order", ["shuffled", "sorted"])
def test_thresholds_are_the_first_distinct_values_with_exact_counts(order):
    rng = np.random.default_rng(0)
    x = rng.normal(size=2000) if order == "shuffled" else np.arange(2000.0)
    y = np.concatenate([[0, 1], rng.integers(0, 2, 1998)])
    keys, counts = make_engine(x, y).split_points(0, 0)
    np.testing.assert_array_equal(keys, np.sort(x[:MAX_KEYS]))
    expected = [[((x <= key) & (y == k)).sum() for k in (0, 1)] for key in keys]
    np.testing.assert_array_equal(counts, expected)


# ---------------------------------------------------------------------- the Hoeffding bound
def test_the_bound_by_hand():
    assert hoeffding_bound(0.01, 200) == pytest.approx(0.10730, abs=1e-5)  # sqrt(4.60517 / 400)
    assert hoeffding_bound(1.0, 5) == 0
    assert hoeffding_bound(0.01, 921) > 0.05 > hoeffding_bound(0.01, 922)


FIRST_SPLITS = {  # columns, parameters, rows at the first split
    "a clear winner at the first look": ("signal noise", {}, 200),
    "no rival": ("signal", {}, 200),
    "the look comes later": ("signal noise", {"grace_period": 350}, 350),
    "a tie is broken when the bound is below 0.05": ("signal signal", {}, 1000),
    "and earlier where that suffices": ("signal signal", {"tie_threshold": 0.08}, 400),
    "a tie that is never broken": ("signal signal", {"tie_threshold": 0}, None),
    "no room": ("signal", {"max_nodes": 2}, None),
    "no depth": ("signal", {"max_depth": 0}, None),
    "nothing to find": ("constant constant", {}, None),
}


@pytest.mark.parametrize(
    ("columns", "parameters", "n_rows"), FIRST_SPLITS.values(), ids=FIRST_SPLITS
)
def test_when_a_leaf_is_split(columns, parameters, n_rows):
    rng = np.random.default_rng(1)
    source = {
        "signal": rng.normal(size=2000),
        "noise": rng.normal(size=2000),
        "constant": np.ones(2000),
    }
    X = np.column_stack([source[name] for name in columns.split()])
    model = FIMTDDClassifier(**parameters)
    last = (n_rows or 2001) - 1
    y = source["signal"] > 0
    model.partial_fit(X[:last], y[:last])
    assert model.n_nodes_ == 1
    if n_rows is None:
        return
    before = model._tree.engine.weights(0)
    expected = model.predict_proba(X)
    model.partial_fit(X[last:n_rows], y[last:n_rows])
    assert (model.n_nodes_, model.depth_) == (3, 1)
    assert (model.n_splits_, model.n_paper_splits_) == (1, 3)
    engine = model._tree.engine
    left, right = engine.weights(int(engine.left[0])), engine.weights(int(engine.right[0]))
    np.testing.assert_array_equal(left, right)  # both start with the leaf's model
    np.testing.assert_allclose(left, before, atol=0.02)  # which has learnt one more row
    np.testing.assert_allclose(model.predict_proba(X), expected, atol=0.02)


# ---------------------------------------------------------------------- Page-Hinkley
def test_page_hinkley_by_hand():
    # means 0, 0, 1/3, 1/2; sums -.1, -.2, -.2 + 2/3 - .1, that + 1/2 - .1; the least is -.2
    found = page_hinkley(np.array([0.0, 0.0, 1.0, 1.0]), 0.1)
    np.testing.assert_allclose(found, [0, 0, 2 / 3 - 0.1, 2 / 3 + 0.3], atol=1e-12)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50), st.floats(0, 0.5))
def test_page_hinkley_equals_the_naive_computation(errors, tolerance):
    means = np.cumsum(errors) / np.arange(1, len(errors) + 1)
    sums = np.cumsum(errors - means - tolerance)
    expected = sums - np.minimum(np.minimum.accumulate(sums), 0)
    np.testing.assert_allclose(page_hinkley(np.array(errors), tolerance), expected, atol=1e-9)


def test_inner_nodes_test_the_error_of_the_leaves_below():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(900, 2))
    y = X[:, 0] > 0
    model = FIMTDDClassifier(tie_threshold=0.0, grace_period=300).partial_fit(X[:300], y[:300])
    assert model.n_nodes_ == 3
    errors = []
    for row, label in zip(X[300:550], y[300:550], strict=True):
        x = {"x0": row[0], "x1": row[1]}
        errors.append(1 - model.predict_proba_one(x)[bool(label)])
        model.learn_one(x, bool(label))
    engine = model._tree.engine
    assert engine.rows[0] == 250
    assert engine.error_mean[0] == pytest.approx(np.mean(errors), rel=0.05)
    expected = page_hinkley(np.array(errors), 0.005)[-1]
    assert engine.error_sum[0] - engine.least_sum[0] == pytest.approx(expected, rel=0.05, abs=0.1)


# ---------------------------------------------------------------------- streams
def uniform(n_rows, n_features=2, seed=1):
    return np.random.default_rng(seed).uniform(-1, 1, size=(n_rows, n_features))


def hits(model, X, y, size=200):
    """Predict, then learn; return whether each row was right."""
    right = []
    for start in range(0, len(y), size):
        part = slice(start, start + size)
        if start:
            right.append(model.predict(X[part]) == y[part])
        model.partial_fit(X[part], y[part])
    return np.concatenate(right)


def test_an_exclusive_or_is_split_and_learnt():
    X = uniform(20_000)
    model = FIMTDDClassifier(learning_rate=0.05)
    assert hits(model, X, (X[:, 0] > 0) ^ (X[:, 1] > 0))[-2000:].mean() > 0.95
    assert model.n_leaves_ > 2


def test_three_classes_and_categories():
    rng = np.random.default_rng(3)
    color = np.array(["red", "green", "blue", None])[rng.integers(0, 4, 6000)]
    frame = pd.DataFrame({"size": rng.normal(size=6000), "color": color})
    y = np.where(color == "green", "a", np.where(frame["size"] > 0, "b", "c"))
    model = FIMTDDClassifier()
    for start in range(0, 6000, 500):
        model.learn_many(frame[start : start + 500], y[start : start + 500])
    assert model.score(frame, y) > 0.95
    paths = {
        str(condition) for leaf in model._tree.leaves() for condition in model._tree.path(leaf)
    }
    assert "color == 'green'" in paths


def test_a_drift_deletes_the_branch_and_is_learnt_again():
    X = uniform(12_000)
    y = np.abs(X[:, 0]) > 0.5
    y[6000:] = ~y[6000:]
    model = FIMTDDClassifier()
    before = hits(model, X[:6000], y[:6000])
    n_leaves = model.n_leaves_
    assert before[-1000:].mean() > 0.9
    sizes = []
    for start in range(6000, 12_000, 50):
        model.partial_fit(X[start : start + 50], y[start : start + 50])
        sizes.append(model.n_leaves_)
    assert min(sizes) < n_leaves
    assert np.mean(model.predict(X[9000:]) == y[9000:]) > 0.9
    steady = FIMTDDClassifier(drift_threshold=math.inf).partial_fit(X[:6000], y[:6000])
    n_leaves = steady.n_leaves_
    steady.partial_fit(X[6000:], y[6000:])
    assert steady.n_leaves_ >= n_leaves


def test_a_new_leaf_starts_with_the_mean_model_of_its_branch():
    X = uniform(3000)
    model = FIMTDDClassifier().partial_fit(X, np.abs(X[:, 0]) > 0.5)
    tree = model._tree
    engine, leaves = tree.engine, tree.leaves()
    assert len(leaves) > 2
    shares = [float(engine.rows[leaf]) for leaf in leaves]
    expected = np.average([engine.weights(leaf) for leaf in leaves], axis=0, weights=shares)
    engine.delete_branch(0)
    assert tree.leaves() == [0]
    assert engine.rows[0] == 0
    np.testing.assert_allclose(engine.weights(0), expected)
    with pytest.raises(ValueError, match="a leaf has no branch"):
        engine.delete_branch(0)
    model.partial_fit(X, np.abs(X[:, 0]) > 0.5)
    assert model.n_leaves_ > 2


@pytest.mark.parametrize("size", [1, 7, 450, 1500, 3000])
def test_a_batch_is_its_rows_in_order(size):
    X = uniform(3000, 3)
    X[::5, 1] = NAN
    y = np.where(np.abs(X[:, 0]) > 0.5, "b", "c")
    y[0], y[1500:] = "a", np.where(X[1500:, 2] > 0.5, "a", y[1500:])
    whole, parts = FIMTDDClassifier(), FIMTDDClassifier()
    whole.fit(X, y)
    assert whole.n_leaves_ > 2
    for start in range(0, 3000, size):
        parts.partial_fit(X[start : start + size], y[start : start + size], classes=["a", "b", "c"])
    assert state_of(whole) == state_of(parts)
    late = FIMTDDClassifier()  # labels become known only when they come
    for start in range(0, 3000, 1500):
        late.learn_many(
            pd.DataFrame(X[start:][:1500], columns=["x0", "x1", "x2"]), y[start:][:1500]
        )
    assert late.classes_.tolist() == whole.classes_.tolist()
    np.testing.assert_array_equal(late.predict_proba(X), whole.predict_proba(X))


def test_a_label_that_never_came_is_improbable():
    model = FIMTDDClassifier().partial_fit([[1.0], [2.0]], ["b", "b"], classes=["a", "b"])
    assert model.predict_proba([[1.0]]).tolist() == [[0, 1]]
    model.partial_fit([[1.0]], ["a"])
    assert 0 < model.predict_proba([[1.0]])[0, 0] < 1
    model.partial_fit([[1.0]], ["a"], classes=["a", "b", "c"])
    assert model.predict_proba([[1.0]])[0, 2] == 0
    assert model.decision_function([[1.0]]).shape == (1, 3)
    model.partial_fit([[1.0]] * 300, ["c"] * 300)
    assert model.predict([[1.0]]).tolist() == ["c"]


def test_caps_hold():
    X = uniform(30_000)
    y = (np.floor(4 * X[:, 0]) + np.floor(4 * X[:, 1])) % 2 == 0
    model = FIMTDDClassifier(max_nodes=10).fit(X, y)
    assert model.n_nodes_ == 9
    assert FIMTDDClassifier(max_depth=2).fit(X, y).depth_ == 2
    # 5 leaves, 2 features, 256 thresholds of 4 doubles; vectors hold at most twice what they need
    assert model.memory_usage() < 2 * 5 * 2 * MAX_KEYS * 32 + 10_000


def test_many_classes_do_not_take_much_more_memory():
    X, y = uniform(6000), np.arange(6000) % 1000
    model = FIMTDDClassifier(max_nodes=1).partial_fit(X, y)
    keys = 2 * 16 * 1002 * 8  # two features, 16 thresholds, 1,000 classes
    assert model.memory_usage() < 3 * keys
    assert model.predict_proba(X[:3]).shape == (3, 1000)


def test_a_split_without_room_changes_nothing():
    X = np.linspace(0, 1, 50)[:, None]
    engine = make_engine(X, X[:, 0] > 0.5, max_nodes=2)
    before = engine.probabilities(X)
    with pytest.raises(ValueError, match="no room for two more nodes"):
        engine.split(0, 0, 0.5, False, False)
    np.testing.assert_array_equal(engine.probabilities(X), before)


# ---------------------------------------------------------------------- numbers
@parametrize_with_checks([FIMTDDRegressor()], expected_failed_checks=lambda _: EXPECTED_FAILURES)
def test_scikit_learns_own_checks_of_a_regressor(estimator, check):
    check(estimator)


def test_rivers_own_checks_of_a_regressor():
    checks.check_estimator(FIMTDDRegressor())


def draw_numbers(n_rows, seed=1):
    """Two lines that meet in an edge, and noise."""
    X = np.random.default_rng(seed).uniform(-1, 1, (n_rows, 3))
    return X, 30 * np.abs(X[:, 0]) + X[:, 1] + np.random.default_rng(seed + 1).normal(size=n_rows)


def test_numbers_are_split_and_learnt():
    X, y = draw_numbers(8000)
    model = FIMTDDRegressor().partial_fit(X[:7000], y[:7000])
    assert model.n_leaves_ > 2
    assert model.score(X[7000:], y[7000:]) > 0.95
    row = {"x0": 0.5, "x1": 0.0, "x2": 0.0}
    assert model.predict_one(row) == pytest.approx(15, abs=2)
    assert model.predict_one(row) == model.predict([[0.5, 0.0, 0.0]])[0]


@pytest.mark.parametrize(("factor", "shift"), [(1e-9, 0.0), (-250.0, 1e4), (1e12, 1e12)])
def test_the_unit_of_the_target_does_not_matter(factor, shift):
    X, y = draw_numbers(3000)
    model, other = FIMTDDRegressor(), FIMTDDRegressor()
    model.partial_fit(X, y)
    other.partial_fit(X, factor * y + shift)
    assert other.n_leaves_ == model.n_leaves_ > 2
    expected = factor * model.predict(X) + shift
    np.testing.assert_allclose(other.predict(X), expected, atol=1e-6 * np.ptp(expected))


def test_a_drift_of_numbers_deletes_the_branch():
    X, y = draw_numbers(12_000)
    y[6000:] = -5 * y[6000:]
    model = FIMTDDRegressor().partial_fit(X[:6000], y[:6000])
    n_leaves, sizes = model.n_leaves_, []
    for start in range(6000, 12_000, 50):
        model.partial_fit(X[start : start + 50], y[start : start + 50])
        sizes.append(model.n_leaves_)
    assert min(sizes) < n_leaves
    assert model.score(X[10_000:], y[10_000:]) > 0.9


def test_a_target_that_never_varies_is_predicted():
    model = FIMTDDRegressor().partial_fit(np.arange(500.0)[:, None], np.full(500, 7.5))
    assert model.predict([[1.0], [9e9]]).tolist() == [7.5, 7.5]
    assert model.n_leaves_ == 1


def test_many_inputs_do_not_make_it_diverge():
    X = np.random.default_rng(1).normal(size=(2000, 400))
    y = X[:, 0] + 0.1 * np.random.default_rng(2).normal(size=2000)
    model = FIMTDDRegressor(learning_rate=0.1).partial_fit(X[:1500], y[:1500])
    assert np.abs(model.predict(X[1500:])).max() < 100


@pytest.mark.parametrize("size", [1, 450, 3000])
def test_a_batch_of_numbers_is_its_rows_in_order(size):
    X, y = draw_numbers(3000)
    whole, parts = FIMTDDRegressor().fit(X, y), FIMTDDRegressor()
    for start in range(0, 3000, size):
        parts.partial_fit(X[start : start + size], y[start : start + size])
    assert state_of(whole) == state_of(parts)


def test_a_saved_regressor_continues_bit_for_bit(tmp_path):
    X, y = draw_numbers(6000)
    model = FIMTDDRegressor(max_nodes=31).partial_fit(X[:3000], y[:3000])
    model.save(tmp_path / "model.dmt")
    loaded = load(tmp_path / "model.dmt")
    for one in (model, loaded):
        one.partial_fit(X[3000:], y[3000:])
    assert state_of(loaded) == state_of(model)
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


@pytest.mark.skipif(
    not (importlib.util.find_spec("capymoa") and shutil.which("java")), reason="needs CapyMOA"
)
@pytest.mark.parametrize("stream", ["friedman_gra", "planes_2d"])
def test_errors_are_those_of_capymoa_at_the_same_risk_and_step(stream, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    import capymoa_peers
    import regression
    from regression_streams import STREAMS

    rows = STREAMS[stream](10_000)
    theirs = capymoa_peers.Regressor(
        "FIMTDD",
        rows.X,
        split_confidence=0.01,
        learning_ratio=0.09,  # its inputs are in three deviations: 3^2 times 0.01
        learning_ratio_const=True,
    )
    ours = FIMTDDRegressor()
    errors = [np.abs(regression.go(one, rows)[0] - rows.y).mean() for one in (ours, theirs)]
    assert errors[0] == pytest.approx(errors[1], rel=0.1)
