"""Sparse features: rows that hold few of many; what is not held is 0."""

import copy
import datetime
import math
import pickle
from types import MappingProxyType

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
from river import compose, feature_extraction
from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer
from sklearn.pipeline import make_pipeline

import driftree
from driftree import (
    DynamicModelForestClassifier,
    DynamicModelTreeClassifier,
    DynamicModelTreeRegressor,
)
from driftree.learn import memory
from driftree.learn.sparse import look_sparse

N_WORDS = 400


def messages(n, seed=1, channel=False, n_labels=2):
    """Words of which each has a meaning; in channel b the opposite one."""
    rng = np.random.default_rng(seed)
    effect = np.random.default_rng(7).normal(size=(n_labels, N_WORDS))
    X, y = [], []
    for _ in range(n):
        words = np.unique((N_WORDS * rng.random(8) ** 2).astype(int))
        sign = 1 if not channel or rng.random() < 0.5 else -1
        X.append({f"w{word}": 1 + int(rng.random() < 0.1) for word in words})
        if channel:
            X[-1]["channel"] = "a" if sign == 1 else "b"
        y.append(int((sign * effect[:, words].sum(axis=1)).argmax()))
    return X, y


class Word(str):
    """A text whose comparison might do anything, for all that the kernels know."""

    __slots__ = ()


def learnt(X, y, **parameters):
    model = DynamicModelTreeClassifier(**parameters)
    for x, label in zip(X, y, strict=True):
        model.learn_one(x, label)
    return model


def to_matrix(X, names=None):
    names = names or {f"w{j}": j for j in range(N_WORDS)}
    matrix = scipy.sparse.lil_array((len(X), len(names)))
    for i, x in enumerate(X):
        for name, value in x.items():
            matrix[i, names[name]] = value
    return matrix.tocsr()


# ---------------------------------------------------------------------- what absent means
def test_the_first_dicts_tell_whether_absent_is_zero():
    X, y = messages(20)
    assert learnt(X, y)._tree.parameters.absent == "zero"
    plain = [{"age": i, "income": 2 * i} for i in range(20)]
    assert learnt(plain, y)._tree.parameters.absent == "missing"
    assert learnt(X, y, absent="missing")._tree.parameters.absent == "missing"
    assert learnt(plain, y, absent="zero")._tree.parameters.absent == "zero"


def test_a_model_starts_again_when_its_first_dicts_turn_out_to_be_sparse():
    X, y = messages(300)
    found, told = learnt(X, y), learnt(X[1:], y[1:], absent="zero")
    assert found.n_rows_seen_ == told.n_rows_seen_ == 299
    assert {*found.classes_} == {*y}
    p, q = found.predict_proba_one(X[0]), told.predict_proba_one(X[0])
    assert p == pytest.approx(q, abs=1e-9)


def test_the_first_words_are_no_reason_for_a_warning(recwarn):
    model = DynamicModelTreeClassifier()
    for x, label in zip(*messages(20), strict=True):
        model.predict_one(x)
        model.learn_one(x, label)
    assert not recwarn.list


def test_labels_of_the_rows_before_stay_known():
    model = DynamicModelTreeClassifier()
    model.learn_one({"a": 1, "b": 1}, "rare")
    model.learn_one({"c": 1, "d": 1}, "often")
    assert model._tree.parameters.absent == "zero"
    assert model.classes_.tolist() == ["rare", "often"]


def test_later_rows_with_other_keys_do_not_make_features_sparse():
    model = learnt([{"a": i, "b": -i} for i in range(12)], [0, 1] * 6)
    model.learn_one({"c": 1, "d": 2}, 0)
    assert model._tree.parameters.absent == "missing"


def test_what_is_zero_missing_or_absent_is_the_same():
    X, y = messages(200)
    model = learnt(X, y)
    plain = model.predict_proba_one(X[0])
    more = X[0] | {"w0 never": 0, "other": None, "third": float("nan"), "fourth": 0.0}
    assert model.predict_proba_one(more) == plain
    before = model._tree.encoder.row_face.n_sparse
    model.learn_one(more, 1)
    assert model._tree.encoder.row_face.n_sparse == before


def test_sparse_rows_have_new_names_and_few_of_those_before():
    assert look_sparse([["a", "b"]], ["c"])
    assert not look_sparse([["a", "b"]], ["a", "c"])
    assert not look_sparse([["a"]], ["a", "b", "c", "d"])
    assert look_sparse([["c"], ["a", "b"]], [])
    assert not look_sparse([["a", "b"], ["a", "c"], ["b"]], [])


def test_where_nothing_is_left_to_learn_no_feature_is_prominent():
    X, _ = messages(300)
    model = DynamicModelTreeRegressor(absent="zero")
    model.learn_many(X, [7.0] * len(X))
    assert model._tree.engine.sparse_feature.max() < 0
    assert model.predict_one(X[0]) == pytest.approx(7.0)


@pytest.mark.parametrize("absent", ["none", 1, ""])
def test_absent_must_be_one_of_two_words(absent):
    with pytest.raises(ValueError, match="absent must be 'missing', 'zero' or None"):
        DynamicModelTreeClassifier(absent=absent).learn_one({"a": 1}, 0)


# ---------------------------------------------------------------------- learning
def test_a_row_is_learnt_as_the_formulas_say():
    """Two learners per input: Adagrad with a step of 0.5, and Newton with a diagonal."""
    model = DynamicModelTreeClassifier(absent="zero", max_depth=0)
    model.learn_one({"a": 2.0}, "no")
    model.learn_one({"a": 2.0, "b": 1.0}, "yes")
    weights = dict(zip(*named_weights(model), strict=True))
    assert weights["b"] > weights["a"]
    engine = model._tree.engine
    assert engine.sparse_weight.tolist() == [2, 1]
    assert engine.sparse_mean.tolist() == [2, 1]


def named_weights(model):
    names = model._tree.encoder.row_face.sparse_names()
    ids, weights = model._tree.engine.sparse_weights(0)
    return [names[i] for i in ids], weights[:, 0].tolist()


def test_it_learns_words():
    X, y = messages(4000)
    model = learnt(X[:3000], y[:3000])
    right = [model.predict_one(x) == label for x, label in zip(X[3000:], y[3000:], strict=True)]
    assert np.mean(right) > 0.85


def test_it_learns_three_labels_of_which_one_comes_late():
    X, y = messages(4000, n_labels=3)
    order = np.argsort(np.array(y) == 2, kind="stable")
    first = [i for i in order[:500] if y[i] < 2]
    model = learnt([X[i] for i in first], [y[i] for i in first])
    for x, label in zip(X[:3000], y[:3000], strict=True):
        model.learn_one(x, label)
    right = [model.predict_one(x) == label for x, label in zip(X[3000:], y[3000:], strict=True)]
    assert np.mean(right) > 0.8


@pytest.mark.parametrize("channel", ["text", "number"])
def test_a_split_finds_what_words_depend_on(channel):
    """A word of much meaning depends on the channel, too, and may be found first: not often."""
    n_found, scores = 0, []
    for seed in range(1, 6):
        X, y = messages(6000, seed, channel=True)
        if channel == "number":
            X = [x | {"channel": int(x["channel"] == "a")} for x in X]
        model = learnt(X[:5000], y[:5000])
        right = [model.predict_one(x) == label for x, label in zip(X[5000:], y[5000:], strict=True)]
        n_found += model.n_leaves_ == 2 and "split by channel" in str(model.events_[0])
        scores.append(np.mean(right))
    assert n_found >= 4
    assert np.median(scores) > 0.78


def test_what_most_rows_hold_gets_a_column_and_no_prediction_changes():
    rng = np.random.default_rng(1)
    model = DynamicModelTreeClassifier(absent="zero")
    for _ in range(199):
        x = {"age": 40 + 5 * rng.normal(), f"w{rng.integers(50)}": 1}
        model.learn_one(x, int(x["age"] > 40))
    rows = [{"age": age, "w1": 1} for age in (30.0, 38.0, 41.0, 55.0)]
    before = [model.predict_proba_one(x)[1] for x in rows]
    tree = model._tree
    tree.encoder.sparse.look(tree.encoder.known)
    assert tree.encoder.feature_names == ["age"]
    assert tree.engine.value_column.tolist() == [1]
    after = [model.predict_proba_one(x)[1] for x in rows]
    # The old input was limited to 1.5 times the usual size, the new one to 3 deviations.
    np.testing.assert_allclose(after[1:3], before[1:3], atol=0.02)
    for _ in range(2000):
        x = {"age": 40 + 5 * rng.normal(), f"w{rng.integers(50)}": 1}
        model.learn_one(x, int(x["age"] > 40))
    assert model.predict_one({"age": 43.0}) == 1
    assert model.predict_one({"age": 37.0}) == 0


def test_rows_weights_and_batches_agree():
    X, y = messages(300)
    matrix = to_matrix(X)
    pairs = np.repeat(np.arange(300), 2)
    twice = DynamicModelTreeClassifier().fit(matrix[pairs], np.array(y)[pairs])
    weighted = DynamicModelTreeClassifier().fit(matrix, y, sample_weight=np.full(300, 2))
    np.testing.assert_allclose(twice.predict_proba(matrix), weighted.predict_proba(matrix))


# ---------------------------------------------------------------------- tables
def test_matrices_frames_and_dicts_are_read_alike():
    X, y = messages(400)
    matrix = to_matrix(X)
    frame = pd.DataFrame(matrix.toarray(), columns=[f"x{j}" for j in range(N_WORDS)])
    sparse = DynamicModelTreeClassifier(absent="zero").fit(matrix, y)
    dense = DynamicModelTreeClassifier(absent="zero").fit(frame.to_numpy(), y)
    named = DynamicModelTreeClassifier(absent="zero").fit(frame, y)
    polars = DynamicModelTreeClassifier(absent="zero").fit(pl.DataFrame(frame), y)
    expected = sparse.predict_proba(matrix)
    np.testing.assert_array_equal(dense.predict_proba(frame.to_numpy()), expected)
    np.testing.assert_array_equal(polars.predict_proba(frame), named.predict_proba(frame))
    rows = [sparse.predict_proba_one({f"x{w[1:]}": v for w, v in x.items()}) for x in X[:50]]
    np.testing.assert_array_equal([[row[0], row[1]] for row in rows], expected[:50])


def test_a_list_of_dicts_is_learnt_like_its_rows():
    X, y = messages(400)
    many = DynamicModelTreeClassifier()
    for i in range(0, 400, 50):
        many.learn_many(X[i : i + 50], y[i : i + 50])
    assert many._tree.parameters.absent == "zero"
    assert not many._tree.encoder.sparse.is_wide
    told = DynamicModelTreeClassifier(absent="zero")
    for i in range(0, 400, 50):
        told.learn_many(pd.DataFrame(X[i : i + 50]), y[i : i + 50])
    one = [many.predict_proba_one(x)[1] for x in X[:50]]
    np.testing.assert_array_equal(many.predict_proba_many(X[:50])[1], one)
    np.testing.assert_array_equal(many.predict_proba(X[:50])[:, 1], one)
    np.testing.assert_allclose(told.predict_proba_many(X[:50])[1], one)
    assert (many.predict_many(X) == y).mean() > 0.8


def test_a_list_of_dicts_is_never_made_a_table():
    """Which would have as many cells as rows times names."""
    n = 20_000
    model = DynamicModelTreeClassifier()
    model.learn_many([{f"w{i}": 1, f"v{i}": 2} for i in range(n)], [0, 1] * (n // 2))
    assert model._tree.encoder.row_face.n_sparse == 2 * n
    assert len(model.predict_many([{f"w{i}": 1} for i in range(n)])) == n


@pytest.mark.parametrize("by", ["learn_many", "fit", "partial_fit"])
def test_a_list_of_dicts_is_never_made_a_table_where_absent_is_zero(by):
    n = 20_000
    rows, y = [{f"w{i}": 1, f"v{i}": 2} for i in range(n)], [0, 1] * (n // 2)
    model = DynamicModelTreeClassifier(absent="zero")
    getattr(model, by)(rows, y)
    assert model._tree.encoder.row_face.n_sparse == 2 * n
    assert len(model.predict(rows)) == n


def test_names_that_a_model_does_not_know_are_not_made_columns():
    rows = [{"age": i, "when": datetime.date(2024, 1, 1 + i)} for i in range(30)]
    model = DynamicModelTreeClassifier(absent="missing")
    model.learn_many(rows, [0, 1] * 15)
    others = [rows[i % 30] | {f"w{i}": 1, f"v{i}": "text"} for i in range(20_000)]
    assert model.predict_many(others)[:30].tolist() == model.predict_many(rows).tolist()


def test_a_list_of_dicts_is_fitted_like_its_table():
    X, y = messages(300, channel=True)
    X = [x | {"none": None} if i % 3 else x | {"zero": 0} for i, x in enumerate(X)]
    model = DynamicModelTreeClassifier(absent="zero").fit(X, y).partial_fit(X[:50], y[:50])
    frame = pd.DataFrame(X)
    told = DynamicModelTreeClassifier(absent="zero").fit(frame, y)
    told.partial_fit(frame[:50], y[:50])
    assert model.feature_names_in_.tolist() == list(frame)
    np.testing.assert_array_equal(model.predict_proba(X), told.predict_proba(frame))
    with pytest.raises(ValueError, match="expecting"):
        model.predict([{"unknown": 1}])
    assert model.fit(X[:5], y[:5]).n_features_in_ == len({name for x in X[:5] for name in x})


@pytest.mark.parametrize("call", ["fit", "partial_fit"])
def test_names_of_sparse_rows_may_be_numbers_and_tuples(call):
    rows, y = messages(300)
    words = dict.fromkeys(word for row in rows for word in row)
    names = {word: i if i % 2 else ("n", str(i)) for i, word in enumerate(words)}
    renamed = [{names[word]: n for word, n in row.items()} for row in rows]
    ours = getattr(DynamicModelTreeClassifier(absent="zero"), call)(renamed, y)
    theirs = getattr(DynamicModelTreeClassifier(absent="zero"), call)(rows, y)
    backwards = [dict(reversed(row.items())) for row in renamed]
    np.testing.assert_array_equal(ours.predict_proba(backwards), theirs.predict_proba(rows))
    assert {*ours._tree.encoder.row_face.sparse_names()} == {*names.values()}


def test_rows_of_weight_0_do_not_tell_what_absent_is():
    rows = [{"age": 1, "income": 2}, {"free": 1, "cash": 1}, {"age": 3, "income": 1}]
    model = DynamicModelTreeClassifier()
    model.learn_many(rows, [0, 1, 1], w=[1, 0, 1])
    assert model._tree.parameters.absent == "missing"


def test_dicts_with_the_same_names_have_missing_values():
    rows = [{"age": i, "income": i % 7} for i in range(50)] + [{"age": 1}]
    model = DynamicModelTreeClassifier()
    model.learn_many(rows, [0, 1, 0] * 17)
    assert model._tree.parameters.absent == "missing"
    named = DynamicModelTreeClassifier()
    named.learn_many(pd.DataFrame(rows), [0, 1, 0] * 17)
    np.testing.assert_array_equal(model.predict_proba(rows), named.predict_proba(rows))


def test_sparse_columns_of_pandas_are_sparse_rows():
    """As River's BagOfWords makes them of batches."""
    X, y = messages(300)
    matrix, names = to_matrix(X), [f"w{j}" for j in range(N_WORDS)]
    frame = pd.DataFrame.sparse.from_spmatrix(matrix, columns=names)
    model, told = DynamicModelTreeClassifier(), DynamicModelTreeClassifier(absent="zero")
    for i in range(0, 300, 60):  # other columns in each batch
        some = frame.iloc[i : i + 60]
        some = some.loc[:, some.any().to_numpy()]
        model.learn_many(some, y[i : i + 60])
        told.learn_many(some.sparse.to_dense(), y[i : i + 60])
    assert model._tree.parameters.absent == "zero"
    assert isinstance(model.predict_many(frame), pd.Series)
    np.testing.assert_array_equal(
        model.predict_proba_many(frame)[1], [told.predict_proba_one(x)[1] for x in X]
    )
    fitted = DynamicModelTreeClassifier().fit(frame, y)
    plain = DynamicModelTreeClassifier().fit(matrix, y)
    np.testing.assert_array_equal(fitted.predict_proba(frame), plain.predict_proba(matrix))
    few = frame.iloc[:, :5]
    dense = DynamicModelTreeClassifier().fit(few.sparse.to_dense(), y)
    assert dense._tree.parameters.absent == "missing"
    expected = dense.predict_proba(few.sparse.to_dense())
    np.testing.assert_array_equal(dense.predict_proba(few), expected)  # not stored is 0, too


@pytest.mark.parametrize("absent", [None, "zero"])
def test_rows_that_hold_nothing(absent):
    X, y = messages(100)
    model = DynamicModelTreeClassifier(absent=absent)
    none = pd.DataFrame(index=range(3))
    model.learn_many(none, [0, 1, 0])
    assert model._tree.parameters.absent == (absent or "missing")
    model = DynamicModelTreeClassifier(absent=absent)
    model.learn_many([], [])
    assert model.predict_many([]).tolist() == []
    model.learn_many(X, y)
    model.learn_many([], [])
    assert model.n_rows_seen_ == 100
    assert model.predict_many([]).tolist() == []
    assert [*model.predict_proba_many([])] == [0, 1]
    expected = [model.predict_proba_one({})[1]] * 3
    assert model.predict_proba_many([{}] * 3)[1].tolist() == expected
    assert model.predict_proba_many(none)[1].tolist() == expected
    model.learn_many(none, [0, 1, 0])
    model.learn_many([{}] * 3, [0, 1, 0])
    assert model.n_rows_seen_ == 106
    fitted = DynamicModelTreeClassifier(absent=absent).fit(X, y)
    assert fitted.predict_proba([{}, X[0]]).shape == (2, 2)
    with pytest.raises(ValueError, match=r"0 feature\(s\) \(shape=\(2, 0\)\)"):
        DynamicModelTreeClassifier(absent=absent).fit([{}, {}], [0, 1])


def test_a_wide_table_as_a_sparse_matrix_and_rows_without_cells():
    rng = np.random.default_rng(1)
    X = rng.normal(3, 1, size=(80, 600)) * (rng.random((80, 600)) < 0.7)
    model = DynamicModelTreeClassifier().fit(X, (X[:, 0] > 3).astype(int))
    assert model._tree.encoder.sparse.is_wide
    expected = model.predict_proba(X)
    np.testing.assert_array_equal(model.predict_proba(scipy.sparse.csr_array(X)), expected)
    empty = model.predict_proba_one({})[1]
    assert model.predict_proba_many([{}, {}])[1].tolist() == [empty, empty]
    model.learn_many([{}, {}], [0, 1])
    assert model.n_rows_seen_ == 82
    model.learn_many([{"new": 1.0}], [0], w=0)
    assert model._tree.encoder.row_face.n_sparse == 600


@pytest.mark.parametrize("make", [pd.Series, MappingProxyType, lambda row: row | {"no": pd.NA}])
def test_zeros_of_a_wide_table_are_numbers_in_rows_of_any_kind(make):
    rng = np.random.default_rng(1)
    X = rng.normal(3, 1, size=(80, 600)) * (rng.random((80, 600)) < 0.7)
    y = (X[:, 0] > 3).astype(int)
    model, told = (DynamicModelTreeClassifier().fit(X, y) for _ in range(2))
    rows = [{f"x{j}": value for j, value in enumerate(row)} for row in X[:5].tolist()]
    for row in rows:
        expected = told.predict_proba_one(row)
        assert model.predict_proba_one(make(row)) == expected
        model.learn_one(make(row | {"new": 0.0}), 1)
        told.learn_one(row, 1)
    np.testing.assert_array_equal(model.predict_proba(X), told.predict_proba(X))
    assert model._tree.encoder.row_face.n_sparse == 600


@pytest.mark.parametrize("make", [dict, MappingProxyType])
@pytest.mark.parametrize("learner", [DynamicModelTreeClassifier, DynamicModelForestClassifier])
def test_new_numbers_of_a_wide_table_are_centred_in_single_rows_too(learner, make):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(80, 600))
    ours, told = (learner().fit(X, (X[:, 0] > 0).astype(int)) for _ in range(2))
    numbers = rng.normal(30, 1, 300).tolist()
    first, *rest = ({"new": x, "x1": x % 1} for x in numbers)
    ours.learn_one(make(first), 1)
    told.learn_many([first], [1])
    for row in rest:
        assert ours.predict_proba_one(row) == told.predict_proba_one(row)
        ours.learn_one(make(row), int(row["new"] > 30))
        told.learn_one(row, int(row["new"] > 30))
    assert ours.predict_one({"new": 31}) != ours.predict_one({"new": 29})
    ours.learn_one(make({"word": "free", "newer": 2, "when": datetime.date(2024, 1, 1)}), 1)
    face, flags = ours._tree.encoder.row_face, ours._tree.engine.sparse_is_centred
    plain = {name for name, own in zip(face.sparse_names(), flags, strict=True) if not own}
    assert plain == {"word == free", "when: weekday == Monday"}


@pytest.mark.parametrize("n_columns", [4, 600])
@pytest.mark.parametrize("kind", [object, "Int64"])
def test_columns_without_names_are_the_same_ones_whatever_their_types(n_columns, kind):
    """Names that are no text are no names for scikit-learn's methods: position counts."""
    rng = np.random.default_rng(1)
    X = pd.DataFrame(rng.integers(0, 5, (60, n_columns)))
    y = (X[0] > 2).astype(int)
    model = DynamicModelTreeClassifier(absent="zero" if n_columns == 4 else None).fit(X, y)
    other = X.copy()
    other[1] = other[1].astype(kind)
    np.testing.assert_array_equal(model.predict_proba(other), model.predict_proba(X))


def test_a_wide_table_of_objects_is_that_of_its_numbers():
    rng = np.random.default_rng(1)
    X = rng.normal(3, 1, size=(60, 600)) * (rng.random((60, 600)) < 0.7)
    X[3, 4] = np.nan
    y = (X[:, 0] > 3).astype(int)
    told = DynamicModelTreeClassifier().fit(X, y)
    objects = X.astype(object)
    objects[3, 4] = None
    for given in (objects, objects.tolist()):
        model = DynamicModelTreeClassifier().fit(given, y)
        assert model._tree.encoder.sparse.is_wide
        np.testing.assert_array_equal(model.predict_proba(given), told.predict_proba(X))
    objects[:, 6] = "text"
    assert DynamicModelTreeClassifier().fit(objects, y)._tree.encoder.sparse is None


def test_names_stay_as_they_are_when_somebody_asks_for_them():
    X, y = messages(200)
    model = DynamicModelTreeClassifier(absent="zero")
    for i in range(0, 200, 50):  # names that occur in several rows of a batch
        model.learn_many(X[i : i + 50], y[i : i + 50])
        names = model._tree.encoder.row_face.sparse_names()
        assert len(set(names)) == len(names) == model._tree.encoder.row_face.n_sparse
        assert None not in names
        names.append("mine")


def test_zeros_that_are_stored_are_absent():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 40)) * (rng.random((300, 40)) < 0.1)
    y = (X[:, 0] + X[:, 1] > 0).astype(int)
    plain, stored = scipy.sparse.csr_array(X), scipy.sparse.csr_array(X)
    stored.data[::3] = 0
    plain.data[::3] = 0
    plain.eliminate_zeros()
    expected = DynamicModelTreeClassifier().fit(plain, y)
    model = DynamicModelTreeClassifier().fit(stored, y)
    np.testing.assert_array_equal(model.predict_proba(stored), expected.predict_proba(plain))
    assert len(stored.data) > len(plain.data)  # what was given is unchanged


def test_a_model_of_plain_rows_takes_a_sparse_matrix_as_plain():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 4)) * (rng.random((300, 4)) < 0.5)
    y = (X[:, 0] > 0).astype(int)
    model = DynamicModelTreeClassifier().fit(X, y)
    sparse = model.predict_proba(scipy.sparse.csr_matrix(X))
    np.testing.assert_array_equal(sparse, model.predict_proba(X))


@pytest.mark.parametrize("form", ["csr_matrix", "csc_array", "coo_matrix", "lil_matrix"])
def test_sparse_matrices_of_any_form(form):
    X, y = messages(200)
    matrix = to_matrix(X)
    expected = DynamicModelTreeClassifier().fit(matrix, y).predict_proba(matrix)
    other = getattr(scipy.sparse, form)(matrix)
    model = DynamicModelTreeClassifier().fit(other, y)
    np.testing.assert_array_equal(model.predict_proba(other), expected)


def test_infinite_numbers_are_refused_and_change_nothing():
    X, y = messages(100)
    model = learnt(X, y)
    before = model.predict_proba_one(X[0])
    with pytest.raises(ValueError, match="infinity"):
        model.learn_one({"w1": float("inf")}, 1)
    with pytest.raises(TypeError, match="list"):
        model.learn_one({"w1": [1]}, 1)
    matrix = to_matrix(X)
    matrix.data[matrix.indptr[3]] = np.inf
    name = f"x{matrix.indices[matrix.indptr[3]]}"
    with pytest.raises(ValueError, match=f"infinity .*column '{name}', row 3;"):
        DynamicModelTreeClassifier().fit(matrix, y)
    weights = np.arange(100) > 2
    with pytest.raises(ValueError, match=f"infinity .*column '{name}', row 3;"):
        DynamicModelTreeClassifier().fit(matrix, y, sample_weight=weights)
    assert model.predict_proba_one(X[0]) == before


@pytest.mark.parametrize("weights", [None, [1, 0, 1, 1, 1, 1]])
@pytest.mark.parametrize("make", [list, pd.DataFrame])
def test_an_error_in_sparse_rows_says_which_row(make, weights):
    rows = [{"a": 1.0, "t": "x"} for _ in range(6)]
    rows[4]["a"] = math.inf
    model = DynamicModelTreeClassifier(absent="zero")
    with pytest.raises(ValueError, match=r"infinity .*column 'a', row 4;"):
        model.learn_many(make(rows), [0, 1] * 3, weights)
    rows[4]["a"] = [1]
    with pytest.raises(TypeError, match="column 'a', row 4:"):
        model.learn_many(make(rows), [0, 1] * 3, weights)


@pytest.mark.parametrize("forest", [False, True])
def test_no_name_of_a_refused_row_stays(forest):
    X, y = messages(60)
    make = driftree.DynamicModelForestClassifier if forest else DynamicModelTreeClassifier
    model = make(absent="zero")
    model.learn_many(X, y)
    names = model._tree.encoder.row_face.sparse_names
    before = names()
    new = [{"new": 1}, {"newer": 1}]
    for refused in (
        lambda: model.learn_one(new[0], [0]),
        lambda: model.learn_one(new[0], [0], 0.5),
        lambda: model.learn_one(new[0], math.nan),
        lambda: model.learn_one(new[0], 0, -1.0),
        lambda: model.learn_one(new[0] | {"odd": math.inf}, 0),
        lambda: model.learn_many(new, [[0, 0], [1, 1]]),
        lambda: model.learn_many(new, [0]),
        lambda: model.learn_many([*new, {"w1": math.inf}], [0, 1, 0]),
        lambda: model.learn_many(pd.DataFrame({"new": [1, 1]}), [0, math.nan]),
    ):
        with pytest.raises((TypeError, ValueError)):
            refused()
        assert names() == before


@pytest.mark.parametrize("name", [None, math.nan, "x" * 1001])
@pytest.mark.parametrize("by", ["learn_one", "learn_many", "columns", "sparse frame"])
def test_names_that_cannot_be_kept_are_refused(name, by):
    """None marks a name that has gone, NaN would be new in every row."""
    model = learnt(*messages(60))
    before = model._tree.encoder.row_face.sparse_names()
    names = pd.Index(["w1", name], dtype=object)
    frame = pd.DataFrame(np.ones((2, 2)), columns=names)
    calls = {
        "learn_one": lambda: model.learn_one({"w1": 1, name: 1}, 0),
        "learn_many": lambda: model.learn_many([{"w1": 1, name: 1}, {name: 2}], [0, 1]),
        "columns": lambda: model.learn_many({"w1": [1, 1], name: [1, 1]}, [0, 1]),
        "sparse frame": lambda: model.learn_many(frame.astype(pd.SparseDtype(float, 0)), [0, 1]),
    }
    with pytest.raises(ValueError, match=r"give it a name|at most 1,000"):
        calls[by]()
    assert model._tree.encoder.row_face.sparse_names() == before
    row, plain = {"w1": 1, name: 1}, {"w1": 1}
    assert model.predict_proba_one(row) == model.predict_proba_one(plain)


@pytest.mark.parametrize(
    "row",
    [
        {"a": "b", "a == b": 3},
        {"a == b": 3, "a": "b"},
        {"a": "b == c", "a == b": "c"},
        {1: "b", "1": "b"},
        {"a": Word("b"), "a == b": 3},
    ],
)
def test_a_text_may_have_the_name_of_another_feature(row):
    """Of the two values the last counts, as in any dict."""
    X, y = messages(100)
    model, twin = learnt(X, y), learnt(X, y)
    for label in (0, 1, 1):
        model.learn_one(row, label)
        twin.learn_one(MappingProxyType(row), label)
        model.learn_many([row, {"w1": 1}], [label, 0])
        twin.learn_many([MappingProxyType(row), {"w1": 1}], [label, 0])
    model._tree.engine.check()
    assert model.predict_proba_one(row) == twin.predict_proba_one(MappingProxyType(row))
    assert copy.deepcopy(model).predict_proba_one(row) == model.predict_proba_one(row)


def test_labels_that_take_too_much_memory_leave_no_name(monkeypatch):
    X, y = messages(60)
    model = learnt(X, y)
    before = model._tree.encoder.row_face.sparse_names()
    monkeypatch.setattr(memory, "MOST_BYTES", 100_000)
    with pytest.raises(ValueError, match="1,002 classes would take"):
        model.learn_many([{f"new {i}": 1} for i in range(1000)], [f"id {i}" for i in range(1000)])
    assert model._tree.encoder.row_face.sparse_names() == before


def test_more_labels_leave_room_for_fewer_names(monkeypatch):
    X, y = messages(300, n_labels=2)
    model = learnt(X, y)
    n_before = model._tree.encoder.row_face.n_sparse
    monkeypatch.setattr(memory, "MOST_BYTES", 1_000_000)
    model.learn_many(X[:50], [f"label {i}" for i in range(50)])
    n_after = model._tree.encoder.row_face.n_sparse
    assert n_after < n_before
    assert 6 * 4 * (1 + 3 * 52) * n_after <= 1_000_000
    model.learn_one({f"late {i}": 1 for i in range(200)}, 0)
    assert 6 * 4 * (1 + 3 * 52) * model._tree.encoder.row_face.n_sparse <= 1_000_000
    assert model.predict_one(X[0]) in model.classes_


def test_rivers_and_scikit_learns_text_pipelines():
    texts = ["free entry win cash now", "see you at home", "win free cash", "are you home"] * 50
    y = [1, 0, 1, 0] * 50
    for words in (feature_extraction.BagOfWords(), feature_extraction.TFIDF()):
        pipeline = compose.Pipeline(words, DynamicModelTreeClassifier())
        for text, label in zip(texts, y, strict=True):
            pipeline.learn_one(text, label)
        assert pipeline.predict_one("free cash") == 1
        assert pipeline.predict_one("home") == 0
    for vectorizer in (HashingVectorizer(n_features=2**18), TfidfVectorizer()):
        model = make_pipeline(vectorizer, DynamicModelTreeClassifier()).fit(texts, y)
        assert model.predict(["free cash", "home"]).tolist() == [1, 0]


# ---------------------------------------------------------------------- bounds
def test_rare_names_give_way():
    rng = np.random.default_rng(1)
    model = DynamicModelTreeClassifier(absent="zero", max_features=100)
    for i in range(2000):
        good = int(rng.random() < 0.5)
        model.learn_one({f"never seen again {i}": 1, "good" if good else "bad": 1}, good)
    names = model._tree.encoder.row_face.sparse_names()
    assert sum(name is not None for name in names) <= 100
    assert {"good", "bad"} <= set(names)
    assert model._tree.engine.n_given_up > 1800
    assert model.predict_one({"good": 1}) == 1
    model._tree.engine.check()


def test_names_that_gave_way_are_forgotten_in_rows_that_come_again():
    """Names of the row before are not looked for, unless they have gone."""
    model = DynamicModelTreeClassifier(absent="zero", max_features=16)
    row = {"rare": 1, "seldom": 2}
    for label in (0, 1, 1):
        model.learn_one(row, label)
    assert model.predict_proba_one(row) != model.predict_proba_one({})
    for i in range(40):
        model.learn_one({f"w{i % 12}": 1, f"often{i % 3}": 1}, i % 2)
    model.predict_one(row)
    known = model._tree.encoder.row_face.sparse_names()
    for i in range(100):
        model.learn_one({f"new{i}": 1, "often0": 1}, 1)
        if "rare" not in (known := model._tree.encoder.row_face.sparse_names()):
            break
        model.predict_one(row)
    assert "rare" not in known
    twin = {"".join(list(name)): value for name, value in row.items()}  # other objects
    assert model.predict_proba_one(row) == model.predict_proba_one(twin)
    model.learn_one(row, 0)
    assert "rare" in model._tree.encoder.row_face.sparse_names()


def test_a_row_that_changed_since_its_prediction_is_read_again():
    """What a predicted row holds is remembered until it is learnt, as long as it stays the same."""
    X, y = messages(300)
    kept = DynamicModelTreeClassifier(absent="zero")
    copied = DynamicModelTreeClassifier(absent="zero")
    for i, (x, label) in enumerate(zip(X, y, strict=True)):
        row = dict(x)
        kept.predict_one(row)
        if i % 3 == 0:
            row[next(iter(row))] = 2.5  # another value,
        elif i % 3 == 1:
            row[f"late{i % 7}"] = 1  # another name,
        else:
            row |= {"last": row.pop(next(iter(row)))}  # or another order and a name for another
        kept.learn_one(row, label)
        copied.learn_one({"".join(list(name)): value for name, value in row.items()}, label)
        assert kept.predict_proba_one(row) == copied.predict_proba_one(dict(row))


@pytest.mark.parametrize("odd", [Word, np.str_, lambda name: (name, name)])
def test_names_and_values_that_may_run_code_are_read_like_plain_ones(odd):
    X, y = messages(300, channel=True)
    plain = DynamicModelTreeClassifier(absent="zero")
    other = DynamicModelTreeClassifier(absent="zero")
    for i, (x, label) in enumerate(zip(X, y, strict=True)):
        row = x | {"place": "web" if i % 3 else "app", "none": None}
        odd_row = {odd(name): value for name, value in x.items()}
        odd_row[next(iter(odd_row))] = np.float32(1)
        odd_row |= {"place": Word(row["place"]), "none": math.nan}
        row[next(iter(row))] = 1
        assert plain.predict_proba_one(row) == other.predict_proba_one(odd_row)
        plain.learn_one(row, label)
        other.learn_one(odd_row, label)


def test_a_row_of_more_names_than_there_may_be_is_learnt():
    model = DynamicModelTreeClassifier(absent="zero", max_features=10)
    for i in range(20):
        model.learn_one({f"w{j}": 1 for j in range(i, i + 15)}, i % 2)
    assert model._tree.encoder.row_face.n_sparse <= 10
    matrix = scipy.sparse.csr_array(np.random.default_rng(1).integers(0, 2, (50, 1000)))
    model = DynamicModelTreeClassifier(max_features=10).fit(matrix, [0, 1] * 25)
    assert model._tree.encoder.row_face.n_sparse == 10


def test_parameters_are_the_weights_of_what_was_met():
    model = learnt(*messages(300), max_depth=0)
    columns = model._tree.engine.n_columns - 1
    assert model.n_parameters_ == len(model._tree.encoder.row_face.sparse_names())
    assert columns < 5  # of them


def test_memory_grows_with_what_rows_hold():
    X, y = messages(1000)
    small = learnt(X, y).memory_usage()
    model = learnt([x | {f"once {i}": 1} for i, x in enumerate(X)], y)
    assert model.memory_usage() - small < 1000 * 400


# ---------------------------------------------------------------------- copies
@pytest.mark.parametrize("how", ["file", "pickle", "copy"])
def test_a_copy_learns_on_bit_by_bit(how, tmp_path):
    X, y = messages(4000, channel=True)
    model = learnt(X[:2500], y[:2500], max_features=380)
    if how == "file":
        model.save(tmp_path / "model.dmt")
        other = driftree.load(tmp_path / "model.dmt")
    else:
        other = pickle.loads(pickle.dumps(model)) if how == "pickle" else copy.deepcopy(model)
    for x, label in zip(X[2500:], y[2500:], strict=True):
        model.learn_one(x, label)
        other.learn_one(x, label)
    assert [model.predict_proba_one(x) for x in X[:100]] == [
        other.predict_proba_one(x) for x in X[:100]
    ]
    assert [str(event) for event in model.events_] == [str(event) for event in other.events_]


def test_names_of_any_kind_come_back(tmp_path):
    model = DynamicModelTreeClassifier(absent="zero")
    odd = ["\ud800", "a == b", ("free", "entry"), 3, b"x", True, "é\n"]
    for i, name in enumerate(odd * 10):
        model.learn_one({name: 1}, i % 2)
    model.save(tmp_path / "model.dmt")
    loaded = driftree.load(tmp_path / "model.dmt")
    assert loaded._tree.encoder.row_face.sparse_names() == odd


def test_a_large_vocabulary_takes_little_room_in_a_file(tmp_path):
    model = DynamicModelTreeClassifier(absent="zero")
    for i in range(0, 20_000, 20):
        model.learn_one({f"word {j}": 1 for j in range(i, i + 20)}, i // 20 % 2)
    model.save(tmp_path / "model.dmt")
    assert (tmp_path / "model.dmt").stat().st_size < 20_000 * 100  # 10 MB for 100,000


def test_sums_of_sparse_rows_may_be_made_elsewhere():
    X, y = messages(1000)
    model = learnt(X[:500], y[:500])
    twin = copy.deepcopy(model)
    batch = model._tree.encoder.sparse.read_dicts(X[500:600], learning=False)
    targets, ones = np.array(y[500:600], dtype=float), np.ones(100)
    sums = model._tree.engine.accumulate(batch.matrix, targets, ones, batch.sparse)
    assert sums.n_rows == 100
    assert model.predict_proba_one(X[0]) == twin.predict_proba_one(X[0])  # nothing changed
    model._tree.engine.absorb(sums)
    assert model.n_rows_seen_ == 599  # the first row showed that they are sparse


class TellingName:
    """A name of a feature whose comparison does something, if it is asked to."""

    act = None

    def __init__(self, text):
        self.text = text

    def __hash__(self):
        return hash(self.text)

    def __eq__(self, other):
        if TellingName.act is not None:
            TellingName.act()
        return isinstance(other, TellingName) and self.text == other.text


@pytest.mark.parametrize("by", ["learn_one", "learn_many"])
def test_code_of_a_name_may_look_at_a_model_but_not_learn(by, monkeypatch):
    def row(*names):
        return {TellingName(name): float(i) for i, name in enumerate(names, 1)}

    def learn(model, x):
        if by == "learn_one":
            model.learn_one(x, 1)
        else:
            model.learn_many({name: [value] for name, value in x.items()}, [1])

    model, twin = (DynamicModelTreeClassifier(absent="zero") for _ in range(2))
    for i in range(100):
        for own in (model, twin):
            own.learn_one(row(f"w{i % 7}", f"w{i % 11}"), i % 2)
    many = row(*(f"new {i}" for i in range(5000)))  # for which all names move to other places
    monkeypatch.setattr(TellingName, "act", lambda: twin.learn_one(many, 1))
    before = pickle.dumps(model)
    with pytest.raises(RuntimeError, match="cannot learn while"):
        learn(twin, row("a", "w3", "b", "w4"))
    monkeypatch.setattr(TellingName, "act", lambda: twin.predict_one({"c": 1.0, "d": 2.0}))
    learn(model, row("a", "w3", "b", "w4"))
    learn(twin, row("a", "w3", "b", "w4"))
    monkeypatch.setattr(TellingName, "act", None)
    assert pickle.dumps(model) != before
    for x in (row("a"), row("b"), row("w3", "w4")):
        assert model.predict_proba_one(x) == twin.predict_proba_one(x)


# ---------------------------------------------------------------------- declared categories
@pytest.mark.parametrize("forest", [False, True])
@pytest.mark.parametrize("how", ["one", "many", "frame", "matrix"])
def test_numbers_of_declared_features_are_levels(how, forest):
    rng = np.random.default_rng(1)
    zips = rng.integers(1, 6, 400)
    y = np.isin(zips, [2, 4]).astype(int)
    rows = [{"zip": int(z), f"w{rng.integers(50)}": 1} for z in zips]
    kind = driftree.DynamicModelForestClassifier if forest else DynamicModelTreeClassifier
    model = kind(absent="zero", categorical=["x0" if how == "matrix" else "zip"])
    for i in range(0, 400, 50):
        part, labels = rows[i : i + 50], y[i : i + 50]
        if how == "one":
            for row, label in zip(part, labels.tolist(), strict=True):
                model.learn_one(row, label)
        elif how == "many":
            model.learn_many(part, labels)
        elif how == "frame":
            model.learn_many(pd.DataFrame(part), labels)
        else:
            model.partial_fit(scipy.sparse.csr_array(zips[i : i + 50, None]), labels)
    name = "x0" if how == "matrix" else "zip"
    names = [n for n in model._tree.encoder.row_face.sparse_names() if str(n).startswith(name)]
    assert sorted(names) == [f"{name} == {z}" for z in range(1, 6)]
    assert [model.predict_one({name: z}) for z in range(1, 6)] == [0, 1, 0, 1, 0]
    assert [model.predict_one({name: z}) for z in (2.0, np.int64(4), "2")] == [1, 1, 1]
    copied = pickle.loads(pickle.dumps(model))
    copied.learn_one({name: 9}, 1)
    assert f"{name} == 9" in copied._tree.encoder.row_face.sparse_names()
    assert copied.predict_one({name: 4}) == 1


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, dict, np.asarray])
def test_0_is_a_level_of_declared_features_in_tables_too(make):
    rng = np.random.default_rng(1)
    codes, v = rng.integers(0, 3, 300).astype(float), rng.normal(size=300)
    y = (codes == 0).astype(int)
    names = ["x0", "x1"] if make is np.asarray else ["code", "v"]

    def table(n):
        if make is np.asarray:
            return np.column_stack([codes, v])[:n]
        return make({names[0]: codes[:n], names[1]: v[:n]})

    rows = pd.DataFrame({names[0]: codes, names[1]: v}).to_dict("records")
    model = DynamicModelTreeClassifier(absent="zero", categorical=names[:1])
    model.partial_fit(table(300), y)
    one = [model.predict_proba_one(row)[1] for row in rows[:20]]
    np.testing.assert_array_equal(model.predict_proba(table(20))[:, 1], one)
    assert f"{names[0]} == 0" in model._tree.encoder.row_face.sparse_names()
    assert (model.predict(table(300)) == y).all()


@pytest.mark.parametrize("method", ["fit", "partial_fit", "learn_many"])
@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, dict])
@pytest.mark.parametrize("forest", [False, True])
def test_features_of_sparse_rows_may_be_declared_by_position(forest, make, method, tmp_path):
    rng = np.random.default_rng(1)
    columns = {"v": rng.normal(size=200), "code": rng.integers(0, 3, 200)}
    y = (columns["code"] == 1).astype(int)
    kind = driftree.DynamicModelForestClassifier if forest else DynamicModelTreeClassifier
    model, told = (kind(absent="zero", categorical=own) for own in ([1], ["code"]))
    for own in (model, told):
        getattr(own, method)(make(columns), y)
    row = {"code": 0, "v": 1.0}
    model.save(tmp_path / "model.dmt")
    for own in (model, driftree.load(tmp_path / "model.dmt"), pickle.loads(pickle.dumps(model))):
        assert own.predict_proba_one(row) == told.predict_proba_one(row)
        own.learn_one(row | {"code": 7}, 1)
        assert "code == 7" in own._tree.encoder.row_face.sparse_names()


@pytest.mark.parametrize("categorical", [["zz"], [7]])
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize(
    "make",
    [pd.DataFrame, np.asarray, scipy.sparse.csr_array, lambda X: [{"a": x} for x in X[0].tolist()]],
)
def test_declared_features_of_sparse_rows_must_exist(make, method, categorical):
    model = DynamicModelTreeClassifier(absent="zero", categorical=categorical)
    with pytest.raises(ValueError, match=f"`categorical` names {categorical[0]!r}"):
        getattr(model, method)(make(np.eye(3)), [0, 1, 0])
    assert not model.__sklearn_is_fitted__()


def test_a_wide_table_with_declared_features_is_learnt_jointly():
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.integers(1, 6, 60), rng.normal(size=(60, 520))])
    y = np.isin(X[:, 0], [2, 4])
    model = DynamicModelTreeClassifier(categorical=[0]).partial_fit(X, y)
    assert model._tree.parameters.absent == "missing"
    assert model._tree.encoder.levels[0] is not None
