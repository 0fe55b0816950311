"""Real data as it comes: what becomes of names, categories, missing values and levels."""

import math
import pickle
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from driftree import DynamicModelTreeClassifier
from driftree.learn._kernels import MAX_LEVELS

MODELS = {
    "measured": DynamicModelTreeClassifier,
    "paper": DynamicModelTreeClassifier.paper,
}
both_settings = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
NAN = float("nan")


def state_of(model):
    learnt = dict(model.__getstate__()["_learnt"])
    arrays = learnt.pop("arrays")
    return {name: (array.dtype, array.tobytes()) for name, array in arrays.items()}, learnt


def levels_of(model):
    encoder = model._tree.encoder
    return dict(zip(encoder.names, encoder.levels, strict=True))


def object_array(rows):
    array = np.empty((len(rows), len(rows[0])), dtype=object)
    for i, row in enumerate(rows):
        array[i] = row
    return array


# ---------------------------------------------------------------------- the faces agree
NUMBERS = st.one_of(st.floats(-1e6, 1e6), st.integers(-5, 5), st.none(), st.just(NAN))
TEXTS = st.one_of(st.sampled_from(["red", "green", "blue"]), st.none())
FLAGS = st.one_of(st.booleans(), st.none())
ROWS = st.lists(
    st.tuples(NUMBERS, TEXTS, FLAGS, NUMBERS, st.sampled_from(["a", "b", "c"])),
    min_size=1,
    max_size=25,
)
NAMES = ["x0", "x1", "x2", "x3"]


@both_settings
@settings(max_examples=30)
@given(rows=ROWS)
def test_one_row_is_one_row(make, rows):
    by_dict, by_array, by_frame = make(), make(), make()
    for *x, y in rows:
        by_dict.learn_one(dict(zip(NAMES, x, strict=True)), y)
        by_array.partial_fit(object_array([x]), [y])
        by_frame.learn_many(pd.DataFrame(object_array([x]), columns=NAMES), [y])
    assert state_of(by_dict) == state_of(by_array) == state_of(by_frame)
    X = object_array([x for *x, _ in rows])
    proba = by_array.predict_proba(X)
    for (*x, _), expected in zip(rows, proba, strict=True):
        row = dict(zip(NAMES, x, strict=True))
        assert list(by_dict.predict_proba_one(row).values()) == expected.tolist()
        assert by_dict.predict_one(row) == by_array.classes_[expected.argmax()]


@both_settings
@settings(max_examples=30)
@given(rows=st.lists(ROWS, min_size=1, max_size=4))
def test_a_frame_is_an_array_with_names(make, rows):
    by_array, by_frame, by_polars = make(), make(), make()
    for batch in rows:
        *columns, y = zip(*batch, strict=True)
        numbers = {
            name: [NAN if v is None else float(v) for v in columns[j]]
            for name, j in (("x0", 0), ("x3", 3))
        }
        data = numbers | {"x1": list(columns[1]), "x2": list(columns[2])}
        by_array.partial_fit(
            object_array(list(zip(*(data[n] for n in NAMES), strict=True))), list(y)
        )
        by_frame.learn_many(pd.DataFrame({n: pd.Series(data[n], dtype=object) for n in NAMES}), y)
        schema = {"x0": pl.Float64, "x3": pl.Float64, "x1": pl.String, "x2": pl.Boolean}
        by_polars.learn_many(pl.DataFrame(data, schema=schema).select(NAMES), pl.Series(y))
    assert state_of(by_array) == state_of(by_frame) == state_of(by_polars)


@both_settings
def test_numbers_with_gaps(make):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 4))
    X[rng.random(X.shape) < 0.2] = np.nan
    X[0, 1] = np.nan
    y = np.nan_to_num(X[:, 0]) > 0
    rows = [dict(zip(NAMES, row, strict=True)) for row in X.tolist()]
    one, single, many, batch = make(), make(), make(), make()
    for i in range(300):
        one.learn_one(rows[i], y[i])
        single.partial_fit(X[i : i + 1], y[i : i + 1])
    assert state_of(one) == state_of(single)
    for start in (0, 300, 600):
        part = slice(start, start + 300)
        many.learn_many(pd.DataFrame(X[part], columns=NAMES), y[part])
        batch.partial_fit(X[part], y[part])
    assert state_of(many) == state_of(batch)
    np.testing.assert_array_equal(many.predict(X), batch.predict(X))


def test_the_order_of_the_columns_does_not_matter():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(500, 3)), columns=["a", "b", "c"])
    frame["d"] = rng.choice(["u", "v"], 500)
    y = frame["a"] > 0
    model, twin = DynamicModelTreeClassifier(), DynamicModelTreeClassifier()
    for learner, order in ((model, ["a", "b", "c", "d"]), (twin, ["d", "b", "a", "c"])):
        learner.learn_many(frame, y)
        learner.learn_many(frame[order], y)
    assert state_of(model) == state_of(twin)
    assert model.predict_many(frame[["c", "d", "a", "b"]]).equals(model.predict_many(frame))


# ---------------------------------------------------------------------- what is categorical
def test_text_and_truth_values_are_found():
    model = DynamicModelTreeClassifier()
    model.learn_one({"n": 1, "t": "u", "b": True, "bytes": b"x", "np": np.bool_(0), "f": 0.5}, 1)
    assert levels_of(model) == {
        "n": None,
        "t": {"u": 0},
        "b": {True: 0},
        "bytes": {b"x": 0},
        "np": {False: 0},
        "f": None,
    }


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"c": pd.Categorical([3, 1, None, 3])}),
        pd.DataFrame({"c": pd.Categorical([3, 1, None, 3], ordered=True)}),
        pd.DataFrame({"c": pd.Categorical(["u", "v", None, "u"])}),
        pd.DataFrame({"c": pd.array(["u", "v", None, "u"], dtype="string")}),
        pd.DataFrame({"c": pd.array([True, False, None, True], dtype="boolean")}),
        pd.DataFrame({"c": pd.Series(["u", "v", NAN, "u"], dtype=object)}),
        pl.DataFrame({"c": pl.Series(["u", "v", None, "u"], dtype=pl.Categorical)}),
        pl.DataFrame({"c": pl.Series(["u", "v", None, "u"], dtype=pl.Enum(["v", "u"]))}),
        pl.DataFrame({"c": [True, False, None, True]}),
    ],
)
@pytest.mark.parametrize("method", ["learn_many", "fit"])
def test_categorical_columns_of_frames_are_found(frame, method):
    model = DynamicModelTreeClassifier()
    getattr(model, method)(frame, [1, 0, 1, 1])
    levels = levels_of(model)["c"]
    assert list(levels.values()) == [0, 1]
    assert next(iter(levels)) in (3, "u", True)
    assert len(model._tree.encoder.column_names()) == 4  # intercept, two levels, missing
    assert model.predict(frame).tolist() == [1, 0, 1, 1]


@both_settings
@pytest.mark.parametrize("categorical", [["x1"], [1], (np.int64(1),), np.array([1])])
def test_categorical_by_name_and_by_position(make, categorical):
    X = np.array([[1.0, 7.0], [2.0, 3.0], [3.0, 7.0]])
    y = [0, 1, 0]
    models = [make(categorical=categorical) for _ in range(3)]
    models[0].fit(X, y)
    models[1].learn_many(pd.DataFrame(X, columns=["x0", "x1"]), y)
    models[2].learn_one({"x0": 1.0, "x1": 7.0}, 0)
    for model in models:
        assert model._tree.engine.is_categorical.tolist() == [0, 1]
        has_levels = model.setting == "measured"
        assert (levels_of(model)["x1"] is not None) == has_levels
    assert models[0].predict(X).tolist() == models[1].predict(X).tolist()


@both_settings
@pytest.mark.parametrize(
    ("categorical", "words"),
    [
        ([False, True], r"got \[False, True\]: the positions of a mask are numpy.flatnonzero"),
        (np.array([False, True]), "the positions of a mask"),
        ([["x1"]], "categorical, row 0 holds .* not hashable"),
        ((place for place in [1]), "must be a sequence of feature names or positions"),
    ],
)
def test_what_names_no_features_is_not_categorical(make, categorical, words):
    model = make(categorical=categorical)
    with pytest.raises(TypeError, match=words):
        model.fit([[1.0, 7.0], [2.0, 3.0]], [0, 1])
    with pytest.raises(TypeError, match=words):
        model.learn_one({"x0": 1.0, "x1": 7.0}, 0)
    assert not model.__sklearn_is_fitted__()


def test_a_name_wins_over_a_position():
    model = DynamicModelTreeClassifier(categorical=[1])
    model.learn_one({1: 5, 0: 5, 2: 5}, "a")
    assert levels_of(model) == {1: {5: 0}, 0: None, 2: None}


def test_the_first_value_decides_and_none_says_nothing():
    model = DynamicModelTreeClassifier()
    model.learn_one({"a": 1.0, "b": None}, 0)
    assert levels_of(model) == {"a": None}
    model.learn_one({"a": 1.0, "b": "text"}, 0)
    model.learn_one({"a": True, "b": 3}, 1)
    assert levels_of(model) == {"a": None, "b": {"text": 0, 3: 1}}
    before = pickle.dumps(model)
    with pytest.raises(ValueError, match=r"column 'a' .* row 2 holds '\?': convert it to a number"):
        model.learn_many(pd.DataFrame({"a": [1.0, None, "?"]}), [0, 0, 1])
    assert pickle.dumps(model) == before
    with pytest.raises(ValueError, match="'new' is numeric, but row 1 holds 'x'"):
        model.learn_many(pd.DataFrame({"new": [1.0, "x"]}), [0, 1])
    assert pickle.dumps(model) == before


def test_text_among_numbers_gets_advice_that_helps():
    rows, labels = [{"a": 1.5}, {"a": "red"}], [0, 1]
    DynamicModelTreeClassifier(categorical=["a"]).learn_many(rows, labels)
    with pytest.raises(ValueError, match="or name the column in `categorical` from the start"):
        DynamicModelTreeClassifier().learn_many(rows, labels)
    with pytest.raises(ValueError, match="or make all its values text from the start"):
        DynamicModelTreeClassifier.paper(categorical=["a"]).learn_many(rows, labels)
    as_text = [{name: str(value) for name, value in row.items()} for row in rows]
    DynamicModelTreeClassifier.paper(categorical=["a"]).learn_many(as_text, labels)


@both_settings
@pytest.mark.parametrize("missing", [NAN, np.float32("nan"), None, pd.NA, pd.NaT, np.ma.masked])
def test_missing_values_of_every_kind_are_the_same(make, missing):
    rows = [{"a": 1.0, "b": "u"}, {"a": 2.0, "b": "v"}]
    model, twin = make(), make()
    for learner, gap in ((model, {"a": missing, "b": missing}), (twin, {})):
        for i in range(30):
            learner.learn_one((rows[0], gap, rows[1])[i % 3], i % 2)
    assert state_of(model) == state_of(twin)
    gap = {"a": missing, "b": missing}
    assert model.predict_proba_one(gap) == twin.predict_proba_one({})
    assert model.predict_one(gap) == twin.predict_one({})
    frame = pd.DataFrame({"a": [missing], "b": [missing]}, dtype=object)
    assert model.predict_proba(frame).tolist() == [list(twin.predict_proba_one({}).values())]


# What "str" means before pandas 3 makes a text of None.
TEXT_TYPES = ["str", "string"] if int(pd.__version__.partition(".")[0]) >= 3 else ["string"]


@pytest.mark.parametrize("dtype", [*TEXT_TYPES, "category", "boolean"])
def test_a_column_of_text_is_no_number_even_if_all_of_it_is_missing(dtype):
    model = DynamicModelTreeClassifier()
    model.learn_many(pd.DataFrame({"a": [1.0, 2.0], "c": pd.array([None, None], dtype)}), [0, 1])
    assert levels_of(model) == {"a": None}
    value = True if dtype == "boolean" else "u"
    model.learn_many(pd.DataFrame({"c": pd.array([None, value], dtype)}), [0, 1])
    assert levels_of(model) == {"a": None, "c": {value: 0}}


def test_a_missing_value_has_a_meaning_of_its_own():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 1))
    y = rng.random(2000) < 0.5
    X[y, 0] = np.nan
    model = DynamicModelTreeClassifier().fit(X, y)
    assert model.score(X, y) == 1
    assert "x0 is missing" in model._tree.encoder.column_names()


def test_features_that_appear_and_vanish():
    rng = np.random.default_rng(0)
    model = DynamicModelTreeClassifier()
    for i in range(900):
        a, b = rng.normal(size=2)
        x = {"a": a} if i < 300 else {"a": a, "b": b} if i < 600 else {"b": b}
        model.learn_one(x, a > 0 if i < 600 else b > 0)
    assert model.predict_one({"b": 2.0}) is True
    assert model.predict_one({"b": -2.0}) is False
    assert model._tree.encoder.column_names() == ["intercept", "a", "b", "a is missing"]


# ---------------------------------------------------------------------- many levels, fast
@both_settings
def test_levels_beyond_the_last_share_one(make):
    names = [f"level {i}" for i in range(MAX_LEVELS + 5)]
    rows = [{"c": name, "a": float(i)} for i, name in enumerate(names)]
    one, single, many = make(), make(), make()
    for x in rows:
        one.learn_one(x, 1)
        single.learn_many(pd.DataFrame([x]), [1])
    many.learn_many(pd.DataFrame(rows), [1] * len(rows))
    assert state_of(one) == state_of(single)
    assert len(levels_of(many)["c"]) == MAX_LEVELS
    assert levels_of(one) == levels_of(many)
    if make is DynamicModelTreeClassifier:
        assert "c == 'any other level'" in one._tree.encoder.column_names()
        assert sorted(one._tree.encoder.column_names()) == sorted(many._tree.encoder.column_names())
    for model in (one, many):
        model.learn_one({"c": names[0], "a": 0.0}, 0)
        assert model.predict_proba_one({"c": names[-1]}) == model.predict_proba_one({"c": "new"})
        assert model.predict_proba(pd.DataFrame({"c": ["new"], "a": [None]})).tolist() == [
            list(model.predict_proba_one({"c": "new"}).values())
        ]


def test_masked_cells_and_scalars_of_pyarrow_are_plain_values():
    model, same = DynamicModelTreeClassifier(), DynamicModelTreeClassifier()
    rows = [("red", 1.0), ("blue", 2.0), (None, None), ("red", 4.0)]
    odd = [pa.scalar("red"), np.str_("blue"), pa.scalar(None), "red"], [1, pa.scalar(2), None, 4]
    masked = ["red", "blue", np.ma.masked, "red"], [1.0, 2.0, np.ma.masked, 4.0]
    same.learn_many([{"c": c, "n": n} for c, n in rows], [0, 1, 0, 1])
    for cells, numbers in (odd, masked):
        model = DynamicModelTreeClassifier()
        pairs = zip(cells, numbers, strict=True)
        model.learn_many([{"c": c, "n": n} for c, n in pairs], [0, 1, 0, 1])
        assert levels_of(model) == {"c": {"red": 0, "blue": 1}, "n": None}
        assert state_of(model) == state_of(same)
        row = {"c": cells[2], "n": numbers[2]}
        assert model.predict_proba_one(row) == same.predict_proba_one({})


@pytest.mark.parametrize("name", [NAN, pd.NA, pd.NaT])
def test_a_missing_name_is_refused(name):
    model = DynamicModelTreeClassifier()
    with pytest.raises(ValueError, match=r"a column is named .*: give it a name, or remove it"):
        model.learn_one({name: 1.0}, 0)
    assert not model.__sklearn_is_fitted__()


def test_levels_are_plain_values_in_order_of_appearance():
    values = ["b", "a", None, "c", "b"]
    expected = {"b": 0, "a": 1, "c": 2}
    for column in (values, np.array(values, dtype=object), pd.Categorical(values)):
        model = DynamicModelTreeClassifier()
        model.learn_many(pd.DataFrame({"c": column}), [0, 1, 0, 1, 0])
        assert levels_of(model)["c"] == expected
        assert {type(level) for level in levels_of(model)["c"]} == {str}
    model = DynamicModelTreeClassifier().fit(np.array([["b"], ["a"], ["c"]]), [0, 1, 0])
    assert levels_of(model)["x0"] == expected
    assert {type(level) for level in levels_of(model)["x0"]} == {str}


def test_numpys_new_text_is_text():
    X = np.array([["u"], ["v"], [None]], dtype=np.dtypes.StringDType(na_object=None))
    y = np.array(["no", "yes", "no"])
    model = DynamicModelTreeClassifier().fit(X, y.astype(np.dtypes.StringDType()))
    same = DynamicModelTreeClassifier().fit(X.astype(object), y)
    assert state_of(model) == state_of(same)
    assert model.predict(X).tolist() == same.predict([["u"], ["v"], [None]]).tolist()


def test_lists_and_arrays_of_mixed_values_keep_their_kinds():
    rows = [[1, "u", True, 2.5], [2, "v", False, None]]
    for X in (rows, object_array(rows)):
        model = DynamicModelTreeClassifier().fit(X, ["a", "b"])
        assert levels_of(model) == {
            "x0": None,
            "x1": {"u": 0, "v": 1},
            "x2": {True: 0, False: 1},
            "x3": None,
        }
        assert model.predict(X).tolist() == ["a", "b"]


def test_whole_and_other_numbers_are_numbers():
    X = np.array([[1, 0], [2, 1]])
    expected = state_of(DynamicModelTreeClassifier().fit(X.astype(float), [0, 1]))
    for dtype in (np.int8, np.uint64, np.float32, np.int64, object):
        assert state_of(DynamicModelTreeClassifier().fit(X.astype(dtype), [0, 1])) == expected
    for order in ("F", "C"):
        fortran = np.asarray(X.astype(float), order=order)
        assert state_of(DynamicModelTreeClassifier().fit(fortran, [0, 1])) == expected


def test_a_row_without_features():
    model = DynamicModelTreeClassifier()
    model.learn_one({}, "a")
    assert model.predict_proba_one({}) == {"a": 1.0}
    model.learn_one({"b": None}, "c")
    proba = model.predict_proba_one({"unknown": 1})
    assert math.isclose(sum(proba.values()), 1)
    model.learn_one({"b": 1.0}, "a")
    assert model._tree.encoder.feature_names == ["b"]


# ---------------------------------------------------------------------- always missing, then text
@both_settings
def test_a_feature_that_was_always_missing_may_turn_out_to_be_text(make):
    late, early = make(), make()
    for learner, gap in ((late, NAN), (early, None)):
        for i in range(700):
            x = {"a": (i * 7 % 5) - 2.0, "b": gap if i < 350 else "uvw"[i % 3]}
            learner.learn_one(x, i % 3 == 0)
    assert levels_of(late) == levels_of(early) == {"a": None, "b": {"w": 0, "u": 1, "v": 2}}
    assert late._tree.engine.is_categorical.tolist() == [0, 1]
    if make is DynamicModelTreeClassifier:
        assert [late.predict_one({"b": level}) for level in "uvw"] == [True, False, False]
    first = pd.DataFrame({"a": [1.0, 2.0], "b": [NAN, NAN]})
    then = pd.DataFrame({"a": [1.0, 2.0], "b": [None, "u"]})
    for learn in ("learn_many", "partial_fit"):
        model = make()
        getattr(model, learn)(first, [0, 1])
        getattr(model, learn)(then, [0, 1])
        assert levels_of(model)["b"] == {"u": 0}
        with pytest.raises(ValueError, match="'a' is numeric"):
            getattr(model, learn)(pd.DataFrame({"a": ["u"], "b": ["u"]}), [0])
        copy = pickle.loads(pickle.dumps(model))
        assert state_of(copy) == state_of(model)
        assert copy.predict_proba(then).tolist() == model.predict_proba(then).tolist()


def test_names_that_look_alike_stay_apart():
    """Names, levels and inputs that are the same as text are told apart by what they are."""
    rng = np.random.default_rng(1)
    model = DynamicModelTreeClassifier(categorical=["code"])
    names = [1, "1", "code", "age", "age is missing", "code == 0.1235"]
    for i, row in enumerate(rng.normal(size=(2000, len(names))).tolist()):
        x = dict(zip(names, row, strict=True))
        x["code"] = (0.12345, 0.12346)[i % 2]
        x["age"] = None if i % 3 else x["age"]
        model.learn_one(x, (x[1] > 0) ^ (x["1"] > 0))
    encoder = model._tree.encoder
    assert encoder.display_names == ["1", "'1'", *names[2:]]
    assert {condition.feature for event in model.events_ for condition in [event.condition]} <= {
        "1",
        "'1'",
    }
    columns = encoder.column_names()
    assert len(set(columns)) == len(columns) == model._tree.engine.n_columns
    assert {"code == 0.12345", "code == 0.12346", "age is missing", "'age is missing'"} <= {
        *columns
    }


def test_names_that_would_break_or_turn_a_line_are_shown_as_python_writes_them():
    model = DynamicModelTreeClassifier()
    model.learn_one({"two\nlines": 1.0, "\u202eturned": 2.0, "größe": 3.0}, "yes")
    assert model._tree.encoder.display_names == ["two\\nlines", "\\u202eturned", "größe"]
    assert model.predict_one({"two\nlines": 1.0}) == "yes"


@pytest.mark.parametrize("absent", ["missing", "zero"])
def test_a_signaling_nan_of_decimal_is_missing(absent):
    rows = [{"a": 1.0, "b": Decimal("sNaN")}, {"a": 2.0, "b": 3.0}] * 5
    plain = [{name: value for name, value in row.items() if name == "a"} for row in rows[::2]]
    model = DynamicModelTreeClassifier(absent=absent)
    model.learn_many(rows, [0, 1] * 5)
    model.learn_one(rows[0], 0)
    assert model.predict_proba_one(rows[0]) == model.predict_proba_one(plain[0])
    model.fit(np.array([[row["a"], row["b"]] for row in rows], dtype=object), [0, 1] * 5)
