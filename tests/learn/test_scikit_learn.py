"""The face towards scikit-learn: its own checks, its tools, and what a call may change."""

import copy
import pickle

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import (
    check_classifier_not_supporting_multiclass,
    parametrize_with_checks,
)
from sklearn.utils.validation import check_is_fitted

from driftree import DynamicModelTreeClassifier, FIMTDDClassifier

EXPECTED_FAILURES = {
    "check_estimator_tags_renamed": "River's base class owns an unrelated `_more_tags`",
}
ORDER_MATTERS = {
    "check_sample_weight_equivalence_on_dense_data": "it shuffles rows that are learnt in order",
}
MODELS = {
    "measured": DynamicModelTreeClassifier,
    "paper": DynamicModelTreeClassifier.paper,
    "FIMT-DD": FIMTDDClassifier,
}
every_model = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)


def expected_failures(model):
    return EXPECTED_FAILURES | (ORDER_MATTERS if isinstance(model, FIMTDDClassifier) else {})


@parametrize_with_checks(
    [make() for make in MODELS.values()], expected_failed_checks=expected_failures
)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def draw(n_rows, *, seed=1, n_features=3):
    """An exclusive or: it takes a split."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_features))
    return X, np.where((X[:, 0] > 0) ^ (X[:, 1] > 0), "yes", "no")


def state_of(model):
    learnt = dict(model.__getstate__()["_learnt"])
    arrays = learnt.pop("arrays")
    return {name: (array.dtype, array.tobytes()) for name, array in arrays.items()}, learnt


# ---------------------------------------------------------------------- its tools
def test_a_threshold_is_for_two_labels():
    model = DynamicModelTreeClassifier(threshold={"recall": 0.8})
    assert not sklearn.utils.get_tags(model).classifier_tags.multi_class
    assert sklearn.utils.get_tags(DynamicModelTreeClassifier()).classifier_tags.multi_class
    check_classifier_not_supporting_multiclass("tree", model)


def test_pipeline_and_set_output():
    X, y = draw(3000)
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(colour=np.where(y == "yes", "u", "v"))
    scale = make_column_transformer(
        (StandardScaler(), ["a", "b", "c"]),
        remainder="passthrough",
        verbose_feature_names_out=False,
    )
    pipeline = make_pipeline(scale, DynamicModelTreeClassifier()).set_output(transform="pandas")
    pipeline.fit(frame[:2000], y[:2000])
    assert pipeline.score(frame[2000:], y[2000:]) > 0.99  # it reads the text
    assert pipeline[-1].feature_names_in_.tolist() == ["a", "b", "c", "colour"]
    assert pipeline.predict(frame[:5]).tolist() == y[:5].tolist()


def test_model_selection():
    X, y = draw(1200)
    search = GridSearchCV(DynamicModelTreeClassifier(), {"max_depth": [0, 5]}, cv=2)
    search.fit(np.vstack([X] * 3), np.hstack([y] * 3))
    assert search.best_params_ == {"max_depth": 5}
    scores = cross_val_score(
        DynamicModelTreeClassifier.paper(learning_rate=1.0), X, X[:, 2] > 0, cv=3
    )
    assert scores.min() > 0.9


def test_calibration():
    X, y = draw(2000)
    calibrated = CalibratedClassifierCV(DynamicModelTreeClassifier(), cv=2).fit(X, y)
    proba = calibrated.predict_proba(X)
    assert calibrated.score(X, y) > 0.9
    np.testing.assert_allclose(proba.sum(axis=1), 1)


@every_model
def test_clone_has_the_parameters_and_nothing_else(make):
    X, y = draw(50)
    model = make(categorical=[2], max_depth=3).fit(X.round(), y)
    other = clone(model)
    assert other.get_params() == model.get_params()
    assert not other.__sklearn_is_fitted__()
    with pytest.raises(NotFittedError):
        other.predict(X)
    with pytest.raises(AttributeError, match="has learnt nothing yet"):
        _ = other.classes_


def test_metadata_routing():
    X, y = draw(300)
    weights = np.where(y == "yes", 0.0, 1.0)
    with sklearn.config_context(enable_metadata_routing=True):
        model = (
            DynamicModelTreeClassifier()
            .set_fit_request(sample_weight=True)
            .set_partial_fit_request(sample_weight=True, classes=True)
        )
        assert model.get_metadata_routing().partial_fit.requests["sample_weight"] is True
        pipeline = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), model)
        pipeline.fit(X, y, sample_weight=weights)
        assert pipeline.classes_.tolist() == ["no"]
        search = GridSearchCV(model.set_score_request(sample_weight=True), {"max_depth": [0]}, cv=2)
        search.fit(X, y, sample_weight=weights)
        assert search.best_estimator_.classes_.tolist() == ["no"]


# ---------------------------------------------------------------------- what is predicted
@every_model
def test_predictions_agree_with_each_other(make):
    rng = np.random.default_rng(3)
    X, y = draw(6000)
    y = np.where(rng.random(len(y)) < 0.3, rng.choice(["yes", "no"], len(y)), y)
    for labels in (y, np.where(X[:, 2] > 1, "maybe", y)):
        model = make().fit(X, labels)
        proba = model.predict_proba(X)
        assert model.classes_.tolist() == sorted(set(labels))
        np.testing.assert_allclose(proba.sum(axis=1), 1)
        np.testing.assert_array_equal(model.classes_[proba.argmax(axis=1)], model.predict(X))
        np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), proba)
        decision = model.decision_function(X)
        codes = (decision > 0).astype(int) if decision.ndim == 1 else decision.argmax(axis=1)
        np.testing.assert_array_equal(model.classes_[codes], model.predict(X))
        leaves = set(model._tree.leaves())
        assert set(model.apply(X)) <= leaves
        assert len(leaves) == model.n_leaves_ == (model.n_nodes_ + 1) // 2


def test_decision_function_under_a_noise_floor():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10_000, 2))
    y = np.where(rng.random(len(X)) < 0.3, 1, X.sum(axis=1) > 0).astype(int)
    model = DynamicModelTreeClassifier(epsilon=0.5, max_depth=0).fit(X, y)
    assert [type(event).__name__ for event in model.events_] == ["LinkChange"]
    np.testing.assert_array_equal(model.decision_function(X) > 0, model.predict(X) == 1)


@pytest.mark.parametrize("name", MODELS)
def test_learnt_attributes_are_not_there_before_learning(name):
    model = MODELS[name]()
    learnt = [one for one in dir(type(model)) if one.endswith("_") and not one.startswith("_")]
    assert {"classes_", "n_nodes_", "n_splits_", "n_rows_seen_"} <= {*learnt}
    for one in (*learnt, "n_features_in_", "feature_names_in_"):
        assert not hasattr(model, one)
    with pytest.raises(AttributeError, match="has learnt nothing yet"):
        _ = model.n_leaves_
    with pytest.raises(NotFittedError):
        check_is_fitted(model)
    model.learn_one({"a": 1.0}, "yes")
    assert all(hasattr(model, one) for one in learnt)
    check_is_fitted(model)


def test_sizes():
    X, y = draw(4000)
    model, lines = DynamicModelTreeClassifier(), DynamicModelTreeClassifier(max_bends=0)
    assert model.memory_usage() == 0
    for one in (model, lines):
        one.partial_fit(X, y)
        inner = one.n_leaves_ - 1
        assert inner >= 1
        assert one.n_splits_ == inner
        assert one.n_paper_splits_ == inner + one.n_leaves_
        engine = one._tree.engine
        bends = sum(len(engine.bends(int(engine.model[leaf]))) for leaf in one._tree.leaves())
        assert one.n_parameters_ == inner + 3 * one.n_leaves_ + bends
    assert bends == 0
    assert model.n_rows_seen_ == 4000
    assert model.memory_usage() > 1000


# ---------------------------------------------------------------------- weights
@every_model
def test_weight_two_is_the_row_twice_and_zero_is_no_row(make):
    X, y = draw(900)
    X[:100, 1] = np.nan
    weights = np.random.default_rng(2).integers(0, 4, len(X))
    y[weights == 0] = "never seen"
    X[weights == 0, 2] = np.inf
    weighted, repeated = make(), make()
    for rows in np.array_split(np.arange(len(X)), 3):
        weighted.partial_fit(X[rows], y[rows], sample_weight=weights[rows])
        again = np.repeat(rows, weights[rows])
        repeated.partial_fit(X[again], y[again])
    assert state_of(weighted) == state_of(repeated)
    assert weighted.classes_.tolist() == ["no", "yes"]
    assert weighted.n_rows_seen_ == weights.sum()
    again = np.repeat(np.arange(len(X)), weights)
    assert state_of(make().fit(X, y, sample_weight=weights)) == state_of(
        make().fit(X[again], y[again])
    )


def test_fractions_of_a_row():
    X, y = draw(40)
    half = DynamicModelTreeClassifier().fit(X, y, sample_weight=0.5)
    assert half._tree.engine.clock == 20
    heavy = DynamicModelTreeClassifier().fit(X, y, sample_weight=np.full(40, 100.0))
    assert heavy._tree.engine.clock == 4000
    mixed = DynamicModelTreeClassifier().fit(X, y, sample_weight=np.full(40, 2.25))
    assert (mixed._tree.engine.clock, mixed.n_rows_seen_) == (90, 120)


# ---------------------------------------------------------------------- copies in mid-stream
WAYS = {
    "pickle": lambda model, _: pickle.loads(pickle.dumps(model)),
    "deepcopy": lambda model, _: copy.deepcopy(model),
    "copy": lambda model, _: copy.copy(model),
    "river": lambda model, _: model.clone(include_attributes=True),
    "joblib": lambda model, path: joblib.load(joblib.dump(model, path / "model")[0]),
}


BOLD = {
    "measured": {"epsilon": 0.01},
    "paper": {"epsilon": 0.01, "gain_step": 1.0},
    "FIMT-DD": {"tie_threshold": 0.2},
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_copy_continues_as_the_original(name, way, tmp_path):
    X, y = draw(5000)
    model = MODELS[name](**BOLD[name])
    model.partial_fit(X[:1300], y[:1300])
    for i in range(1300, 1500):
        model.learn_one({f"x{j}": X[i, j] for j in range(3)} | {"new": "abc"[i % 3]}, y[i])
    before = pickle.dumps(model)
    twin = way(model, tmp_path)
    assert state_of(twin) == state_of(model)
    for learner in (twin, model):
        learner.partial_fit(X[1500:4500], y[1500:4500])
        learner.learn_one({"x0": 1.0, "newer": True, "new": "d"}, "maybe")
        assert learner.n_leaves_ > 1
        assert pickle.loads(before).classes_.tolist() == ["no", "yes"]
        if learner is twin:  # and the original knows nothing of it
            assert pickle.dumps(model) == before
    assert state_of(twin) == state_of(model)
    assert twin.n_features_in_ == model.n_features_in_
    np.testing.assert_array_equal(twin.predict_proba(X), model.predict_proba(X))
    assert getattr(twin, "events_", None) == getattr(model, "events_", None)


# ---------------------------------------------------------------------- all or nothing
WRONG = {
    "infinity": ([[1.0, 2.0], [3.0, np.inf]], ["a", "b"], {}, "infinity.*'x1', row 1.*use NaN"),
    "text": ([[1.0, 2.0], ["red", 3.0]], ["a", "b"], {}, "'x0' is numeric.*row 1 holds 'red'"),
    "object": ([[1.0, 2.0], [{}, 3.0]], ["a", "b"], {}, "'x0', row 1.*real number, got {}"),
    "width": ([[1.0]], ["a"], {}, "X has 1 features, but .* 2 features as input: give the same"),
    "short y": ([[1.0, 2.0], [3.0, 4.0]], ["a"], {}, "X has 2 rows, but y has 1 labels"),
    "no y": ([[1.0, 2.0]], None, {}, "target y is None"),
    "None in y": ([[1.0, 2.0]], [None], {}, "label of row 0 is None; omit the row"),
    "list in y": ([[1.0, 2.0], [3.0, 4.0]], [[1], "a"], {}, r"row 0 holds \[1\].*not hashable"),
    "NaN in classes": ([[1.0, 2.0]], ["a"], {"classes": ["a", np.nan]}, "contains NaN"),
    "short weights": ([[1.0, 2.0]], ["a"], {"sample_weight": [1, 2]}, r"one number per row, 1 in"),
    "negative": ([[1.0, 2.0]], ["a"], {"sample_weight": [-1]}, "row 0 has the weight -1"),
    "NaN weight": ([[1.0, 2.0]], ["a"], {"sample_weight": [np.nan]}, "row 0 has the weight nan"),
    "text weight": ([[1.0, 2.0]], ["a"], {"sample_weight": ["much"]}, "must hold numbers, got"),
    "ragged": ([[1.0, 2.0], [3.0]], ["a", "b"], {}, "row 1 has 1 cells, but row 0 has 2"),
    "dates": (np.array([["2020", "2021"]], "M8[D]"), ["a"], {}, "convert them to numbers"),
}


@every_model
@pytest.mark.parametrize(("X", "y", "more", "words"), WRONG.values(), ids=WRONG)
def test_a_wrong_batch_changes_nothing(make, X, y, more, words):
    model = make().partial_fit([[1.0, 2.0], [2.0, 1.0]], ["a", "b"])
    before = pickle.dumps(model)
    with pytest.raises((ValueError, TypeError), match=words):
        model.partial_fit(X, y, **more)
    assert pickle.dumps(model) == before


@pytest.mark.parametrize("name", [name for name in WRONG if name != "width"])
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_a_wrong_first_batch_leaves_the_estimator_unfitted(name, method):
    X, y, more, _ = WRONG[name]
    model = DynamicModelTreeClassifier()
    parameters = dict(vars(model))
    if method == "fit" and "classes" in more:
        return
    with pytest.raises((ValueError, TypeError)):
        getattr(model, method)(X, y, **more)
    assert vars(model) == parameters
    with pytest.raises(NotFittedError):
        model.predict([[1.0, 2.0]])


def test_a_failed_fit_keeps_the_old_model_and_a_good_one_forgets_it():
    X, y = draw(300)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = DynamicModelTreeClassifier().fit(frame, y)
    before = pickle.dumps(model)
    with pytest.raises(ValueError, match="infinity"):
        model.fit(np.full((3, 1), np.inf), [0, 1, 0])
    assert pickle.dumps(model) == before
    model.fit(X[:, :1], y == "yes")
    assert model.classes_.tolist() == [False, True]
    assert (model.n_features_in_, model.n_rows_seen_) == (1, 300)
    assert not hasattr(model, "feature_names_in_")


def test_wrong_parameters_are_named_before_anything_is_learnt():
    for parameters, words in [
        ({"max_depth": -1}, "max_depth must be from 0"),
        ({"categorical": "colour"}, r"write \['colour'\]"),
        ({"categorical": [7]}, "`categorical` names 7, but the features are 'x0', 'x1'"),
        ({"categorical": ["colour"]}, "`categorical` names 'colour'"),
    ]:
        model = DynamicModelTreeClassifier(**parameters)
        with pytest.raises((ValueError, TypeError), match=words):
            model.partial_fit([[1.0, 2.0]], ["a"])
        assert not model.__sklearn_is_fitted__()


def test_an_empty_batch_changes_nothing():
    model = DynamicModelTreeClassifier().partial_fit([[1.0, 2.0]], ["a"])
    before = pickle.dumps(model)
    model.partial_fit(np.empty((0, 2)), [])
    model.partial_fit([[1.0, 2.0]], ["b"], sample_weight=[0])
    assert pickle.dumps(model) == before
    for X in (np.empty((0, 2)), pd.DataFrame({"a": []}), np.empty((2, 0))):
        with pytest.raises(ValueError, match=r"0 (sample|feature)\(s\)"):
            DynamicModelTreeClassifier().partial_fit(X, [1] * len(X))
    with pytest.raises(ValueError, match="at least one non-zero"):
        DynamicModelTreeClassifier().fit([[1.0]], ["a"], sample_weight=[0])


# ---------------------------------------------------------------------- labels
def test_labels_of_any_type_at_any_time():
    model = DynamicModelTreeClassifier()
    model.partial_fit([[1.0], [2.0]], [1, 0], classes=[0, 1, 2])
    assert model.classes_.tolist() == [0, 1, 2]
    model.partial_fit([[3.0]], ["three"])
    model.partial_fit([[4.0], [5.0]], [(4, 5), "five"])
    assert model.classes_.tolist() == [0, 1, 2, "three", (4, 5), "five"]
    assert model.predict_proba([[3.0]]).shape == (1, 6)
    assert model.predict([[3.0]])[0] in model.classes_.tolist()


@pytest.mark.parametrize(
    "y",
    [
        pd.Series(["b", "a", "b"], dtype="category"),
        pd.Series(["b", "a", "b"], dtype="string"),
        np.array(["b", "a", "b"], dtype=object),
        np.array(["b", "a", "b"]),
        ["b", "a", "b"],
        ("b", "a", "b"),
        pl.Series(["b", "a", "b"]),
        pa.array(["b", "a", "b"]),
        pa.array(["b", "a", "b"]).dictionary_encode(),
        pa.chunked_array([["b", "a"], ["b"]]),
    ],
)
def test_labels_from_anywhere_are_the_same(y):
    X = [[1.0], [2.0], [3.0]]
    model = DynamicModelTreeClassifier().partial_fit(X, y)
    same = DynamicModelTreeClassifier().partial_fit(X, ["b", "a", "b"])
    assert state_of(model) == state_of(same)
    assert model.classes_.tolist() == ["a", "b"]
    assert model.score(X, y) >= 2 / 3


def test_real_numbers_are_no_classes():
    with pytest.raises(ValueError, match="continuous"):
        DynamicModelTreeClassifier().partial_fit([[1.0], [2.0]], [0.5, 0.7])


# ---------------------------------------------------------------------- both faces on one model
def test_arrays_have_names_too():
    X, y = draw(400)
    model = DynamicModelTreeClassifier()
    for row, label in zip(X, y, strict=True):
        model.learn_one({"x2": row[2], "x0": row[0], "x1": row[1]}, label)
    for row, expected in zip(X[:5], model.predict_proba(X[:5]), strict=True):
        one = model.predict_proba_one({"x1": row[1], "x2": row[2], "x0": row[0]})
        assert list(one.values()) == expected.tolist()


def test_an_array_without_names_does_not_pass_for_named_features():
    model = DynamicModelTreeClassifier()
    model.learn_one({"age": 3.0, "height": 1.0}, "child")
    for call in (lambda: model.predict([[1.0, 2.0]]), lambda: model.partial_fit([[1.0, 2.0]], [1])):
        with pytest.raises(ValueError, match=r"knows its features by name .'age', 'height'."):
            call()
    frame = pd.DataFrame({"height": [1.0], "age": [3.0]})
    assert model.predict(frame).tolist() == ["child"]


def test_learning_by_name_goes_on_after_fit():
    X, y = draw(600)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = DynamicModelTreeClassifier().fit(frame, y)
    model.learn_one({"a": 1.0, "b": -1.0, "c": 0.0, "d": "new"}, "yes")
    model.learn_many(frame[["c", "a"]], y)
    assert model.predict(frame).shape == (600,)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        np.testing.assert_array_equal(model.predict(X), model.predict(frame))
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame.rename(columns={"a": "z"}))
