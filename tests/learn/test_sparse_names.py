"""Names of sparse features: which may be, which come twice, and which are evicted."""

import math
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

import driftree
from driftree import (
    DynamicModelForestClassifier,
    DynamicModelForestRegressor,
    DynamicModelTreeClassifier,
    DynamicModelTreeRegressor,
)
from driftree.learn import memory
from driftree.learn.storage.bounds import SPARSE_NAMES
from driftree.learn.storage.models import _unpack_sparse_names
from states import reborn, state_hash

ALL = [
    DynamicModelTreeClassifier,
    DynamicModelTreeRegressor,
    DynamicModelForestClassifier,
    DynamicModelForestRegressor,
]


def baskets(n, n_names=2000):
    rng = np.random.default_rng(1)
    rows = [{f"w{j}": 1 for j in (n_names * rng.random(6) ** 2).astype(int)} for _ in range(n)]
    return rows, [int(sum(math.sin(int(name[1:])) for name in row) > 0) for row in rows]


def learn(model, rows, labels, by):
    if by == "learn_many":
        model.learn_many(rows, labels)
    else:
        for row, label in zip(rows, labels, strict=True):
            model.learn_one(row, label)


def names_of(model):
    return model._tree.encoder.row_face.sparse_names()


# ---------------------------------------------------------------------- eviction
@pytest.mark.parametrize("by", ["learn_one", "learn_many"])
@pytest.mark.parametrize("make", ALL)
def test_eviction_does_not_depend_on_who_looks(make, by):
    """Names of equal frequency are evicted by their place; places are given again."""
    rows, labels = baskets(600)
    parameters = {"max_features": 150} | ({"n_trees": 3} if "Forest" in make.__name__ else {})
    alone, pickled, saved, asked = (make(**parameters) for _ in range(4))
    for i in range(0, 600, 40):
        for model in (alone, pickled, saved, asked):
            learn(model, rows[i : i + 40], labels[i : i + 40], by)
        pickled, saved = pickle.loads(pickle.dumps(pickled)), reborn(saved)
        asked.predict_many(rows[i : i + 80])
        names_of(asked)
    assert alone._tree.encoder.sparse.engine.n_given_up > 150
    expected = [alone.predict_one(row) for row in rows]
    for model in (pickled, saved, asked):
        assert names_of(model) == names_of(alone)
        assert [model.predict_one(row) for row in rows] == expected


def test_free_places_of_older_files_are_given_in_their_order():
    text = np.frombuffer(b'["a",[],"b",[]]', dtype=np.uint8)
    found = _unpack_sparse_names({SPARSE_NAMES: text})
    assert found == {"sparse_names": ["a", None, "b", None], "free_places": [3, 1]}


def test_a_loaded_model_of_many_labels_has_room_for_as_few_names(monkeypatch):
    monkeypatch.setattr(memory, "MOST_BYTES", 1_000_000)
    rows, _ = baskets(400)
    model = DynamicModelTreeClassifier(absent="zero")
    model.learn_many(rows[:50], [f"label {i}" for i in range(50)])
    loaded = reborn(model)
    for i, row in enumerate(rows):
        for own in (model, loaded):
            own.learn_one(row, f"label {i % 50}")
    assert names_of(model) == names_of(loaded)
    assert loaded._tree.encoder.row_face.n_sparse <= 1_000_000 // (6 * 4 * (1 + 3 * 50))


def test_trees_of_a_forest_have_as_few_names_as_the_first(monkeypatch):
    monkeypatch.setattr(memory, "MOST_BYTES", 1_000_000)
    rows, _ = baskets(400)
    model = DynamicModelForestClassifier(absent="zero", n_trees=3)
    for i in range(0, 400, 50):
        model.learn_many(rows[i : i + 50], [f"label {i}" for i in range(50)])
    for tree in model._tree.trees:
        assert tree.encoder.row_face.n_sparse <= 1_000_000 // (6 * 4 * (1 + 3 * 50))


@pytest.mark.parametrize("make", ALL)
def test_what_has_learnt_nothing_says_so(make):
    for asked in (
        lambda: make().explain_one({"w1": 1}),
        lambda: make().feature_importance(),
        lambda: make().predict([{"w1": 1}]),
    ):
        with pytest.raises(NotFittedError):
            asked()


# ---------------------------------------------------------------------- odd names
@pytest.mark.parametrize("make", ALL)
@pytest.mark.parametrize(
    "odd",
    [
        {"a": "b", "a == b": 2.0},
        {"a == b": 2.0, "a": "b"},
        {"a": "b == c", "a == b": "c"},
        {1: "x", "1": "x"},
        {"a": np.str_("b"), "a == b": np.float32(2)},
    ],
)
def test_a_text_may_have_the_name_of_another_feature(make, odd):
    """Such a row once made a model that could not be loaded."""
    rows, labels = baskets(40)
    one, many = make(absent="zero"), make(absent="zero")
    for row, label in zip(rows, labels, strict=True):
        one.learn_one(row | odd, label)
        many.learn_many([row | odd], [label])
    assert names_of(one) == names_of(many)
    assert len({*names_of(one)}) == len(names_of(one)) == one._tree.encoder.row_face.n_sparse
    assert reborn(one).predict_one(odd) == one.predict_one(odd) == many.predict_many([odd])[0]


@pytest.mark.parametrize("make", [DynamicModelTreeClassifier, DynamicModelForestClassifier])
@pytest.mark.parametrize("name", [None, math.nan, np.float64("nan"), "long" * 300])
def test_some_names_are_refused(make, name):
    """None is what a place without a name has."""
    rows, labels = baskets(40)
    model = make(absent="zero")
    model.learn_many(rows, labels)
    before, names = state_hash(model) if make is ALL[0] else None, names_of(model)
    for refused in (
        lambda: model.learn_one({"w1": 1, name: 1}, 0),
        lambda: model.learn_one({"w1": 1, name: "text"}, 0),
        lambda: model.learn_many([{"new": 1}, {name: 1.5}], [0, 1]),
        lambda: model.learn_many({"new": [1, 2], name: [1, 2]}, [0, 1]),
        lambda: model.learn_many(pd.DataFrame([[1, 2]], columns=["new", name]), [0]),
        lambda: model.learn_many(pd.DataFrame([["a", 2]], columns=["new", name]), [0]),
    ):
        with pytest.raises(ValueError, match=r"a feature('s name has| is named)"):
            refused()
        assert names_of(model) == names
        assert before is None or state_hash(model) == before
    assert model.predict_proba_one({"w1": 1, name: 1}) == model.predict_proba_one({"w1": 1})


@pytest.mark.parametrize("make", [DynamicModelTreeRegressor, DynamicModelForestRegressor])
def test_no_row_has_a_name_of_the_models_own(make):
    rows, labels = baskets(40)
    model = make(absent="zero")
    model.learn_many(rows, labels)
    names, own = names_of(model), {"last y": 1.0, "new": 1.0}
    for refused in (
        lambda: model.learn_one(own, 0.0),
        lambda: model.learn_many([{"new": 1.0}, own], [0.0, 1.0]),
        lambda: model.learn_many(pd.DataFrame([own]), [0.0]),
        lambda: model.predict_many([own]),
    ):
        with pytest.raises(ValueError, match="the rows have a feature 'last y'"):
            refused()
        assert names_of(model) == names


def test_forest_regressors_of_sparse_rows_are_saved(tmp_path):
    rows, labels = baskets(100)
    model = DynamicModelForestRegressor()
    model.learn_many(rows, labels)
    model.save(tmp_path / "model.dmt")
    loaded = driftree.load(tmp_path / "model.dmt")
    for own in (model, loaded):
        own.learn_many(rows, labels)
    assert loaded.predict_many(rows).tolist() == model.predict_many(rows).tolist()
