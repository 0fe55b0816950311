"""Where rows are costly, what does not predict learns fewer of them; up to 128 columns none is."""

from dataclasses import replace

import numpy as np
import pytest

from driftree import DynamicModelTreeClassifier
from driftree.learn import constants

ALWAYS_DOUBLE = replace(constants.MEASURED, single_columns=2**31 - 1)
NEVER = replace(ALWAYS_DOUBLE, costly_columns=2**31 - 1)


def draw(n_rows, n_columns, seed=1):
    """A line that few inputs have a part in, and much noise: there is nothing to split."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_columns))
    return X, (X[:, :5].sum(axis=1) + 2 * rng.normal(size=n_rows) > 0).astype(int)


def learn(monkeypatch, numbers, X, y, **parameters):
    monkeypatch.setattr(constants, "MEASURED", numbers)
    model = DynamicModelTreeClassifier(**parameters)
    for start in range(0, len(X), 100):
        model.partial_fit(X[start : start + 100], y[start : start + 100], classes=[0, 1])
    return model._tree.engine


@pytest.mark.parametrize("n_columns", [20, 100, 127])
def test_up_to_128_columns_nothing_changes(monkeypatch, n_columns):
    X, y = draw(800, n_columns)
    usual = constants.MEASURED
    engine, plain = learn(monkeypatch, usual, X, y), learn(monkeypatch, NEVER, X, y)
    assert not engine.is_costly
    arrays, expected = engine.arrays(), plain.arrays()
    assert arrays.keys() == expected.keys()
    for name, values in arrays.items():
        assert np.array_equal(values, expected[name], equal_nan=values.dtype.kind == "f"), name


def test_without_bends_nothing_is_costly():
    X, y = draw(200, 150)
    model = DynamicModelTreeClassifier(max_bends=0).partial_fit(X, y)
    assert not model._tree.engine.is_costly


def test_trials_of_costly_rows_look_at_some_of_them(monkeypatch):
    """Old ones that do not earn: those that were ahead for a while have looked at more."""
    X, y = draw(2000, 130)
    usual, shares = constants.MEASURED, {}
    for numbers in (usual, NEVER):
        monkeypatch.setattr(constants, "MEASURED", numbers)
        model, own = DynamicModelTreeClassifier(), shares.setdefault(numbers is usual, [])
        for start in range(0, len(X), 100):
            model.partial_fit(X[start : start + 100], y[start : start + 100], classes=[0, 1])
            engine = model._tree.engine
            for trial in engine.trials(0):
                age = engine.node(0).rows - trial.born
                if trial.node_loss <= trial.trial_loss and age >= 600:
                    own.append((trial.n_left + trial.n_right) / age)
        assert engine.is_costly == (numbers is usual)
    assert min(shares[True]) < 0.6
    assert set(shares[False]) == {1.0}


def test_one_split_is_tried_at_a_time_where_rows_are_costly(monkeypatch):
    X, y = draw(600, 130)
    engine = learn(monkeypatch, constants.MEASURED, X, y)
    n_earning = sum(trial.node_loss > trial.trial_loss for trial in engine.trials(0))
    assert 1 <= len(engine.trials(0)) <= 1 + n_earning
    assert len(learn(monkeypatch, NEVER, X, y).trials(0)) == 3


@pytest.mark.parametrize("batch", [1, 3, 100])
def test_half_of_the_matrix_is_as_good_as_all_of_it(monkeypatch, batch):
    X, y = draw(300, 150)
    found = []
    for numbers in (ALWAYS_DOUBLE, NEVER):
        monkeypatch.setattr(constants, "MEASURED", numbers)
        model = DynamicModelTreeClassifier(max_nodes=1)
        for start in range(0, len(X), batch):
            model.partial_fit(X[start : start + batch], y[start : start + batch], classes=[0, 1])
        engine = model._tree.engine
        found.append(engine.curvature_inverse(int(engine.model[0])))
    half, whole = found
    assert np.array_equal(half, half.T)
    np.testing.assert_allclose(half, whole, rtol=1e-9, atol=1e-12)
    assert np.abs(half - np.diag(np.diag(half))).max() > 1e-3  # there is something off the diagonal
    assert np.array_equal(half, whole) == (batch < 4)


# ---------------------------------------------------------------------- single precision
def matrix_of(engine):
    return engine.curvature_inverse(int(engine.model[0]))


def is_single(engine):
    numbers = matrix_of(engine) / engine.arrays()["model.scale"][int(engine.model[0])]
    return bool(np.allclose(numbers, numbers.astype(np.float32), rtol=1e-15, atol=0))


@pytest.mark.parametrize("n_columns", [100, 150])
def test_many_columns_have_their_matrix_in_single_precision(monkeypatch, n_columns):
    X, y = draw(600, n_columns)
    engine = learn(monkeypatch, constants.MEASURED, X, y, max_nodes=1)
    double = learn(monkeypatch, ALWAYS_DOUBLE, X, y, max_nodes=1)
    assert is_single(engine) == (n_columns == 150)
    assert not is_single(double)
    np.testing.assert_allclose(matrix_of(engine), matrix_of(double), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(engine.logits(X), double.logits(X), rtol=1e-3, atol=1e-3)


def test_single_precision_halves_the_memory_of_a_matrix(monkeypatch):
    X, y = draw(300, 150)
    single = learn(monkeypatch, constants.MEASURED, X, y, max_nodes=1).memory_usage()
    double = learn(monkeypatch, ALWAYS_DOUBLE, X, y, max_nodes=1).memory_usage()
    assert double - single > 4 * 150**2


def test_files_hold_doubles_of_any_precision(monkeypatch):
    """So files of before single precision can be read, and what is read back is the same."""
    X, y = draw(600, 150)
    engine = learn(monkeypatch, constants.MEASURED, X, y)
    arrays = engine.arrays()
    assert arrays["model.numbers"].dtype == np.float64
    twin = learn(monkeypatch, constants.MEASURED, X[:10], y[:10])
    twin.restore(arrays)
    twin.check()
    assert is_single(twin)
    assert np.array_equal(twin.logits(X), engine.logits(X))
    for name, values in twin.arrays().items():
        assert values.tobytes() == arrays[name].tobytes(), name
    older = learn(monkeypatch, ALWAYS_DOUBLE, X, y)
    twin.restore(older.arrays())
    assert is_single(twin)
    np.testing.assert_allclose(twin.logits(X), older.logits(X), rtol=1e-6, atol=1e-6)


def test_a_table_that_becomes_wide_changes_its_precision():
    X, y = draw(400, 150)
    model = DynamicModelTreeClassifier(max_nodes=1)
    columns = {f"x{j}": X[:, j] for j in range(150)}
    some = {name: cells[:200] for name, cells in list(columns.items())[:100]}
    model.learn_many(some, y[:200])
    engine = model._tree.engine
    before = matrix_of(engine)
    assert not is_single(engine)
    model.learn_many({name: cells[200:201] for name, cells in columns.items()}, y[200:201])
    assert is_single(engine)
    engine.check()
    after = matrix_of(engine)[:101, :101]
    np.testing.assert_allclose(after, before, rtol=0.2, atol=0.02)  # but for one row
