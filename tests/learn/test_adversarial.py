"""Streams that mean ill: whatever finite numbers come, all that is learnt and said stays finite."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driftree import DynamicModelTreeClassifier, FIMTDDClassifier
from quick import examples, of_setting
from states import MODELS, check_probabilities, infinite_arrays

quickly = pytest.mark.usefixtures("quick_pace")  # from the first test of this kind to the last one

N_ROWS = 1500
LARGEST = np.finfo(float).max
EXTREMES = np.array(
    [
        *(0.0, 5e-324, -5e-324, 1e-300, 1e-160, 1.0, -1.0, 2.0, 1e15, 1e15 + 2, 1e75),
        *(1e150, -1e150, 1e155, 1e160, 1e300, -1e300, LARGEST, -LARGEST),
    ]
)
RASH = {
    "measured": of_setting("measured", epsilon=1.0),
    "paper": of_setting("paper", epsilon=1.0, gain_step=2.0),
    "FIMT-DD": {"grace_period": 20, "delta": 1.0, "drift_threshold": 1.0, "max_nodes": 9},
}


def make_model(name, **parameters):
    kind = FIMTDDClassifier if name == "FIMT-DD" else DynamicModelTreeClassifier
    return kind(**{**RASH[name], **parameters})


def xor(X):
    return (X[:, 0] > 0) ^ (X[:, 1] > 0)


def scaled(factor):
    def draw(rng):
        X = np.clip(rng.normal(size=(N_ROWS, 3)) / 4, -1, 1) * factor
        return X, xor(X), None

    return draw


def spread(low, high):
    """Weights of all sizes."""

    def draw(rng):
        X = rng.normal(size=(N_ROWS, 3))
        return X, xor(X), 10.0 ** rng.uniform(low, high, N_ROWS)

    return draw


def draw_separable(rng):
    X = rng.normal(size=(N_ROWS, 3))
    y = X[:, 0] > 0
    X[:, 0] += np.where(y, 1e6, -1e6)
    return X, y, None


def draw_separable_classes(rng):
    X = rng.normal(size=(N_ROWS, 4)) * 1e3
    return X, X.argmax(axis=1), None


def draw_collinear(rng):
    x = rng.normal(size=(N_ROWS, 1))
    X = np.hstack([x, x, 2 * x, -x, x + 1e-12, np.ones_like(x), 1e9 * x])
    return X, x[:, 0] > rng.normal(size=N_ROWS), None


def draw_constant(rng):
    return np.full((N_ROWS, 3), LARGEST), rng.integers(0, 3, N_ROWS), None


def draw_alternating(_):
    return np.ones((N_ROWS, 2)), np.arange(N_ROWS) % 2, None


def draw_growing(rng):
    """From the smallest numbers to the largest, and back."""
    size = 10.0 ** np.concatenate([np.linspace(-320, 307, N_ROWS // 2)] * 2)
    size[N_ROWS // 2 :] = size[: N_ROWS // 2][::-1]
    X = np.clip(rng.normal(size=(N_ROWS, 3)), -5, 5) * size[:, None]
    return X, xor(X), None


def draw_extremes(rng):
    X = rng.choice(EXTREMES, size=(N_ROWS, 3))
    X[rng.random(X.shape) < 0.1] = np.nan
    return X, rng.integers(0, 3, N_ROWS), None


def draw_outliers(rng):
    X, y, _ = scaled(1.0)(rng)
    X[::97, 0], X[50::97, 0] = LARGEST, -LARGEST
    return X, y, None


def draw_weightless(rng):
    """Sides of splits that hold next to nothing."""
    X = rng.choice(EXTREMES[:9], size=(N_ROWS, 3))
    return X, rng.integers(0, 3, N_ROWS), rng.choice([1.0, 1e-300, 5e-324], N_ROWS)


def draw_heavy_extremes(rng):
    X, y, _ = draw_extremes(rng)
    return X, y, 10.0 ** rng.uniform(-12, 12, N_ROWS)


STREAMS = {
    "separable": draw_separable,
    "separable, four classes": draw_separable_classes,
    "1e300": scaled(1e300),
    "1e-300": scaled(1e-300),
    "denormal": scaled(2e-322),
    "the largest": scaled(LARGEST),
    "constant": draw_constant,
    "collinear": draw_collinear,
    "alternating": draw_alternating,
    "growing": draw_growing,
    "extremes": draw_extremes,
    "outliers": draw_outliers,
    "weights from 1e-12 to 1e12": spread(-12, 12),
    "all weights there are": spread(-323, 15),
    "weightless": draw_weightless,
    "heavy extremes": draw_heavy_extremes,
}


def check(model, X):
    """All that was learnt is finite, and what is said of any row makes sense."""
    assert infinite_arrays(model) == []
    n_features = model._tree.engine.n_features
    strange = np.resize(EXTREMES, (len(EXTREMES), n_features))
    matrix = np.vstack([X[:, :n_features], strange])
    proba = model._tree.engine.probabilities(np.ascontiguousarray(matrix))
    check_probabilities(proba)
    assert np.isfinite(model._tree.engine.logits(np.ascontiguousarray(matrix))).all()


# ---------------------------------------------------------------------- one label for a long time
def learn_flip(name, n_rows, *, row_by_row):
    """A label that never changes, then another one: the model must follow."""
    rng = np.random.default_rng(1)
    model = MODELS[name]()
    X = rng.normal(size=(n_rows, 3))
    y = np.arange(n_rows) >= n_rows * 9 // 10
    rows = [{"x0": a, "x1": b, "x2": c} for a, b, c in X[-100:].tolist()]
    if row_by_row:
        for (a, b, c), label in zip(X.tolist(), y.tolist(), strict=True):
            model.learn_one({"x0": a, "x1": b, "x2": c}, label)
    else:
        for start in range(0, n_rows, 500):
            model.partial_fit(X[start : start + 500], y[start : start + 500])
    check(model, X[-100:])
    proba = [model.predict_proba_one(row) for row in rows]
    check_probabilities([[*of_row.values()] for of_row in proba])
    assert min(of_row[True] for of_row in proba) > 0.5


@pytest.mark.parametrize("row_by_row", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_a_label_that_flips_after_50_000_rows(name, row_by_row):
    learn_flip(name, 50_000, row_by_row=row_by_row)


@pytest.mark.slow
@pytest.mark.parametrize("row_by_row", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_a_label_that_flips_after_a_million_rows(name, row_by_row):
    learn_flip(name, 1_000_000, row_by_row=row_by_row)


# ---------------------------------------------------------------------- streams
def learn_batches(model, X, y, w, size=50):
    for start in range(0, len(X), size):
        rows = slice(start, start + size)
        model.partial_fit(X[rows], y[rows], sample_weight=None if w is None else w[rows])
        if start % 250 == 0:
            check(model, X[rows])
            check_probabilities(model.predict_proba(X[rows]))
    check(model, X)


def learn_rows(model, X, y, w):
    for i, (x, label) in enumerate(zip(X.tolist(), y.tolist(), strict=True)):
        row = {f"x{j}": value for j, value in enumerate(x)}
        model.learn_one(row, label, 1.0 if w is None else float(w[i]))
        if i % 50 == 0:
            check_probabilities([*model.predict_proba_one(row).values()])
            assert model.predict_one(row) in model.classes_
        if i % 250 == 0:
            check(model, X[i : i + 1])
    check(model, X)


@quickly
@pytest.mark.parametrize("learn", [learn_batches, learn_rows])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("stream", STREAMS)
def test_numbers_stay_finite(stream, name, learn):
    X, y, w = STREAMS[stream](np.random.default_rng(1))
    model = make_model(name)
    learn(model, X, y, w)
    for event in getattr(model, "events_", ()):
        assert "nan" not in str(event)


@quickly
@pytest.mark.parametrize("factor", [1e300, 1e-300, LARGEST])
@pytest.mark.parametrize("name", MODELS)
def test_absurd_scales_are_still_learnt(name, factor):
    """Splits only compare, and the scale of the inputs has limits that it does not pass."""
    X, _, _ = scaled(factor)(np.random.default_rng(1))
    y = X[:, 0] > 0
    model = make_model(name)
    for start in range(0, N_ROWS, 50):
        model.partial_fit(X[start : start + 50], y[start : start + 50])
    assert model.score(X, y) > 0.9


# ---------------------------------------------------------------------- anything goes
anything = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 10**6),
        "n_features": st.integers(1, 4),
        "n_classes": st.integers(1, 4),
        "values": st.lists(st.sampled_from(EXTREMES.tolist()), min_size=1, max_size=6),
        "weights": st.none() | st.lists(st.sampled_from([1, 5e-324, 1e-12, 0.3, 2.5, 1e12, 1e15])),
    }
)
# As far as parameters may go
BOUNDS = {
    "measured": {"evidence_window": [1, 200, np.inf], "model_window": [1, 60, np.inf]},
    "paper": {"learning_rate": [1e-300, 0.05, 1e6], "gain_step": [1e-300, 0.5, 1e6]},
    "FIMT-DD": {"learning_rate": [1e-300, 0.01, 1e6]},
}


@quickly
@pytest.mark.parametrize("name", MODELS)
@examples(40)
@given(stream=anything, data=st.data())
def test_any_values_any_weights_any_parameters(name, stream, data):
    rng = np.random.default_rng(stream["seed"])
    own = {key: data.draw(st.sampled_from(values)) for key, values in BOUNDS[name].items()}
    model = make_model(name, **own)
    for _ in range(40):
        n = int(rng.choice([1, 3, 25]))
        X = rng.choice(stream["values"], size=(n, stream["n_features"]))
        y = rng.integers(0, stream["n_classes"], n)
        w = rng.choice(stream["weights"], n) if stream["weights"] else None
        model.partial_fit(X, y, sample_weight=w)
        check_probabilities(model.predict_proba(X))
    assert set(infinite_arrays(model)) <= {"restless_until"}  # that of an endless window
