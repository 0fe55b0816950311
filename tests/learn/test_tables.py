"""A dict of columns is as good as a data frame."""

import numpy as np
import polars
import pyarrow
import pytest

from driftree import DynamicModelTreeClassifier, DynamicModelTreeRegressor
from driftree.learn.tables import plain_columns

pandas = pytest.importorskip("pandas")


def make_columns(n_rows=2000, seed=1):
    rng = np.random.default_rng(seed)
    columns = {
        "age": rng.normal(size=n_rows),
        "car": rng.choice(np.array(["van", "bus", None], dtype=object), size=n_rows),
        "children": rng.integers(0, 5, n_rows),
    }
    columns["age"][::17] = np.nan
    return columns, np.where((columns["age"] > 0) | (columns["car"] == "van"), "yes", "no")


@pytest.mark.parametrize("names", [["age", "car", "children"], ["age", "children"]])
def test_the_model_is_that_of_the_data_frame(names):
    columns, y = make_columns()
    columns = {name: columns[name] for name in names}
    frame = pandas.DataFrame(columns)
    ours = DynamicModelTreeClassifier().partial_fit(columns, y)
    theirs = DynamicModelTreeClassifier().partial_fit(frame, y)
    assert ours.feature_names_in_.tolist() == theirs.feature_names_in_.tolist() == names
    assert ours.n_features_in_ == len(names)
    np.testing.assert_array_equal(ours.predict_proba(columns), theirs.predict_proba(frame))
    np.testing.assert_array_equal(ours.predict_proba(frame), theirs.predict_proba(columns))


def test_lists_are_columns_too():
    columns, y = make_columns(300)
    lists = {name: column.tolist() for name, column in columns.items()}
    ours = DynamicModelTreeClassifier().fit(lists, y)
    np.testing.assert_array_equal(ours.predict(lists), ours.predict(columns))


def test_rows_of_no_weight_are_left_out():
    columns, y = make_columns(300)
    weights = np.ones(300)
    weights[:100] = 0
    kept = {name: column[100:] for name, column in columns.items()}
    ours = DynamicModelTreeClassifier().partial_fit(columns, y, sample_weight=weights)
    theirs = DynamicModelTreeClassifier().partial_fit(kept, y[100:])
    np.testing.assert_array_equal(ours.predict_proba(columns), theirs.predict_proba(columns))


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda columns: {"age": columns["age"]}, ValueError, "X has 1 features"),
        (lambda columns: dict(reversed(columns.items())), ValueError, "names should match"),
        (lambda columns: columns | {"age": columns["age"][:5]}, ValueError, "'age': 5"),
        (lambda _: {"age": 1.0, "car": "van", "children": 2}, TypeError, "learn_one"),
        (lambda _: {}, ValueError, "0 sample"),
    ],
)
def test_mistakes_are_named_and_change_nothing(change, error, words):
    columns, y = make_columns(300)
    model = DynamicModelTreeClassifier().partial_fit(columns, y)
    before = model.predict_proba(columns)
    with pytest.raises(error, match=words):
        model.predict(change(columns))
    with pytest.raises(error, match=words):
        model.partial_fit(change(columns), y)
    np.testing.assert_array_equal(model.predict_proba(columns), before)


def test_text_in_a_column_of_numbers_is_named():
    columns, y = make_columns(300)
    model = DynamicModelTreeClassifier().partial_fit(columns, y)
    wrong = columns | {"age": np.array(["old"] * 300, dtype=object)}
    with pytest.raises((TypeError, ValueError), match="age"):
        model.partial_fit(wrong, y)


def test_columns_may_come_and_go_in_many():
    columns, y = make_columns(600)
    model = DynamicModelTreeClassifier()
    assert model.predict_many(columns).tolist() == [None] * 600
    model.learn_many({"age": columns["age"][:300]}, y[:300])
    model.learn_many({name: column[300:] for name, column in columns.items()}, y[300:])
    labels = model.predict_many({"car": columns["car"]})
    proba = model.predict_proba_many({"car": columns["car"]})
    assert list(proba) == ["no", "yes"]
    assert labels.tolist() == np.where(proba["yes"] > proba["no"], "yes", "no").tolist()


NAMES = {
    "numbers": (1, 2, 0),
    "tuples": (("age", 1), ("car",), (2.5, ("b", None))),
    "mixed": ("age", 7, ("car", "old")),
    "text": ("age", "car", "children"),
}
every_kind_of_names = pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)


def as_rows(columns):
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


@every_kind_of_names
@pytest.mark.parametrize("as_table", [dict, as_rows])
def test_dicts_are_matched_by_names_of_any_type(names, as_table):
    columns, y = make_columns(600)
    columns = dict(zip(names, columns.values(), strict=True))
    model = DynamicModelTreeClassifier().partial_fit(as_table(columns), y)
    assert model.feature_names_in_.tolist() == list(names)
    rows = as_rows(columns)
    expected = [model.predict_proba_one(row)["yes"] for row in rows]
    assert np.mean((np.array(expected) > 0.5) == (y == "yes")) > 0.9
    backwards = dict(reversed(columns.items()))
    np.testing.assert_array_equal(model.predict_proba(as_rows(backwards))[:, 1], expected)
    np.testing.assert_array_equal(model.predict_proba_many(backwards)["yes"], expected)
    with pytest.raises(ValueError, match="names should match"):
        model.predict(backwards)
    with pytest.raises(ValueError, match="names should match"):
        model.predict(pandas.DataFrame(as_rows(backwards)).set_axis(list(backwards), axis=1))


@every_kind_of_names
def test_in_lists_of_dicts_names_may_be_absent_but_not_new(names):
    columns, y = make_columns(600)
    columns = dict(zip(names, columns.values(), strict=True))
    model = DynamicModelTreeClassifier().partial_fit(as_rows(columns), y)
    some = {name: columns[name] for name in names[1:]}
    np.testing.assert_array_equal(model.predict(as_rows(some)), model.predict_many(some))
    for name in (99, (9, 9), "new"):
        with pytest.raises(ValueError, match=r"the rows have features .*expecting"):
            model.predict([{names[0]: 1.0, names[1]: "van", name: 2}])
    assert [*model._tree.encoder.names] == list(names)
    model.partial_fit(as_rows(dict(reversed(columns.items()))), y)
    model.learn_one({names[2]: 1, names[0]: 0.5}, "yes")
    assert [*model._tree.encoder.names] == list(names)


@every_kind_of_names
def test_rows_learnt_as_a_batch_are_those_learnt_in_many(names):
    columns, y = make_columns(600)
    rows = as_rows(dict(zip(names, columns.values(), strict=True)))
    by_place, by_name = DynamicModelTreeClassifier(), DynamicModelTreeClassifier()
    by_place.partial_fit(rows, y)
    by_name.learn_many(rows, y)
    np.testing.assert_array_equal(by_place.predict_proba(rows), by_name.predict_proba(rows))


def test_columns_without_names_are_called_as_those_of_arrays():
    columns, y = make_columns(300)
    numbered = {place: columns[name] for place, name in enumerate(["age", "children"])}
    model = DynamicModelTreeClassifier().partial_fit(pandas.DataFrame(numbered), y)
    expected = model.predict_proba(np.column_stack([*numbered.values()]))
    called = {f"x{place}": column for place, column in numbered.items()}
    for given in (numbered, called):
        np.testing.assert_array_equal(model.predict_proba(given), expected)
        backwards = as_rows(dict(reversed(given.items())))
        np.testing.assert_array_equal(model.predict_proba(backwards), expected)
    for other in ({"age": 0.5, "children": 1}, {1: 0.5, 2: 1}, {0: 0.5}):
        with pytest.raises(ValueError, match=r"the rows have features .*expecting 'x0', 'x1'"):
            model.predict([other])


def test_a_frame_without_names_is_matched_by_position():
    X, y = quick_rows()
    model = DynamicModelTreeClassifier().partial_fit(X, y)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        found = model.predict_proba(pandas.DataFrame(X.to_numpy()))
    np.testing.assert_array_equal(found, model.predict_proba(X))


# ---------------------------------------------------------------------- without all checks
def quick_rows():
    rng = np.random.default_rng(1)
    X = pandas.DataFrame(rng.normal(size=(600, 3)), columns=["age", "size", "price"])
    return X, np.where(X["age"] + X["size"] > 0, "yes", "no")


FRAMES = {
    "pandas": lambda X: X,
    "polars": polars.from_pandas,
    "pyarrow": lambda X: pyarrow.Table.from_pandas(X, preserve_index=False),
    "record batch": lambda X: pyarrow.RecordBatch.from_pandas(X, preserve_index=False),
}
KINDS = {
    "float64": lambda X: X,
    "float32": lambda X: X.astype(np.float32),
    "integers": lambda X: (100 * X).astype(np.int64),
    "mixed": lambda X: X.assign(size=(100 * X["size"]).astype(np.int32)),
    "nullable": lambda X: X.astype("Float64"),
    "with gaps": lambda X: X.mask(X > 1.5),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("as_labels", [np.asarray, pandas.Series, list, lambda y: y.astype(object)])
def test_known_frames_are_learnt_as_dicts_of_columns_are(kind, as_labels):
    X, y = quick_rows()
    X = KINDS[kind](X)
    pieces = [slice(start, start + 25) for start in range(0, len(X), 25)]
    quick, checked = DynamicModelTreeClassifier(), DynamicModelTreeClassifier()
    for piece in pieces:
        labels = as_labels(y[piece])
        quick.partial_fit(X[piece], labels)
        checked.partial_fit(X[piece].to_dict("list"), labels)
    np.testing.assert_array_equal(quick.predict_proba(X), checked.predict_proba(X.to_dict("list")))
    assert list(quick.events_) == list(checked.events_)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("library", FRAMES)
def test_known_frames_of_all_libraries_are_read_alike(library, kind):
    X, y = quick_rows()
    X = KINDS[kind](X)
    frame, arrays = FRAMES[library], X.to_dict("list")
    by_place, by_name = DynamicModelTreeClassifier(), DynamicModelTreeClassifier()
    expected = DynamicModelTreeClassifier()
    for piece in (slice(start, start + 25) for start in range(0, len(X), 25)):
        by_place.partial_fit(frame(X[piece]), y[piece])
        by_name.learn_many(frame(X[piece]), y[piece])
        expected.partial_fit(X[piece].to_dict("list"), y[piece])
    shares = expected.predict_proba(arrays)
    np.testing.assert_array_equal(by_place.predict_proba(frame(X)), shares)
    np.testing.assert_array_equal(
        np.asarray(by_name.predict_proba_many(frame(X))["yes"]), shares[:, 1]
    )
    labels = np.asarray(by_name.predict_many(frame(X))).tolist()
    assert labels == expected.predict(arrays).tolist()


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_a_known_frame_is_not_checked_again(library, monkeypatch):
    X, y = quick_rows()
    X = FRAMES[library](X)
    model = DynamicModelTreeClassifier().partial_fit(X, y)
    monkeypatch.setattr("driftree.learn.estimator.check_rows", None)
    model.partial_fit(X, y)
    model.partial_fit(X, pandas.Series(y))
    assert len(model.predict(X)) == len(X)


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_a_known_frame_is_learnt_and_predicted_by_name_without_checks(library, monkeypatch):
    X, y = quick_rows()
    X = FRAMES[library](X)
    model = DynamicModelTreeClassifier()
    model.learn_many(X, y)
    monkeypatch.setattr("driftree.learn.estimator.read_rows", None)
    monkeypatch.setattr("driftree.learn.encoding.Encoder.read", None)
    model.learn_many(X, pandas.Series(y))
    assert model._tree.engine.n_rows == 2 * len(X)
    assert len(model.predict_many(X)) == len(model.predict_proba_many(X)) == len(X)


def test_a_regressor_takes_known_frames_at_once(monkeypatch):
    X, _ = quick_rows()
    model = DynamicModelTreeRegressor().partial_fit(X, X["age"])
    monkeypatch.setattr("driftree.learn.estimator.check_rows", None)
    model.partial_fit(X, X["size"])
    assert len(model.predict(X)) == len(X)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X: X[["size", "age", "price"]], "order"),
        (lambda X: X.rename(columns={"age": "years"}), "Feature names unseen"),
        (lambda X: X.assign(more=1.0), "has 4 features"),
        (lambda X: X.mask(X > 1.5, np.inf), "infinit"),
    ],
)
def test_other_frames_are_checked(change, message):
    X, y = quick_rows()
    model = DynamicModelTreeClassifier().partial_fit(X, y)
    other = change(X)
    with pytest.raises(ValueError, match=message):
        model.partial_fit(other, y[: len(other)])
    with pytest.raises(ValueError, match=message):
        model.predict(other)


@pytest.mark.parametrize("label", ["maybe", None, float("nan"), ["yes"]])
def test_new_and_missing_labels_are_checked(label):
    X, y = quick_rows()
    model = DynamicModelTreeClassifier().partial_fit(X, y)
    y = y.astype(object)
    y[7] = label
    if label == "maybe":
        assert model.partial_fit(X, y).classes_.tolist() == ["no", "yes", "maybe"]
        return
    with pytest.raises((ValueError, TypeError), match=r"row 7|label"):
        model.partial_fit(X, y)


@pytest.mark.parametrize("method", ["partial_fit", "learn_many"])
def test_plain_columns_are_read_as_those_with_types_of_pandas_are(method):
    X, y = quick_rows()
    X["city"] = np.where(X["age"] > 0.5, "Rome", np.where(X["size"] > 0, "Oslo", None))
    X["is_new"], X["year"] = X["price"] > 0, 2000 + np.arange(len(X)) % 7
    X.loc[::9, "price"] = np.nan
    typed = X.astype({"city": "string", "is_new": "boolean", "year": "Int16"})
    assert plain_columns(X) is not None
    assert plain_columns(typed) is None
    plain, general = DynamicModelTreeClassifier(), DynamicModelTreeClassifier()
    for piece in (slice(start, start + 25) for start in range(0, len(X), 25)):
        getattr(plain, method)(X[piece], y[piece])
        getattr(general, method)(typed[piece], y[piece])
    np.testing.assert_array_equal(plain.predict_proba(X), general.predict_proba(typed))
    assert list(plain.events_) == list(general.events_)


def test_two_columns_of_one_name_are_no_plain_columns():
    twice = pandas.DataFrame([[1.0, 2.0]], columns=["a", "a"])
    assert plain_columns(twice) is None
    with pytest.raises(ValueError, match="appears twice"):
        DynamicModelTreeClassifier().partial_fit(twice, ["yes"])
