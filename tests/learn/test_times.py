"""Dates and times as features in every container; rows with nothing known; models in words."""

import datetime as dt
import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.feature_selection import RFE

import driftree
from driftree import (
    DynamicModelTreeClassifier,
    DynamicModelTreeRegressor,
    FIMTDDClassifier,
)
from driftree.evaluate import prequential
from driftree.streams import InputWarning

N_ROWS = 600
WHEN = pd.date_range("2024-01-01", periods=N_ROWS, freq="5h")
LABELS = np.where(WHEN.hour > 12, "late", "early")
FRAME = pd.DataFrame({"a": np.random.default_rng(1).normal(size=N_ROWS), "when": WHEN})
PARTS = {"a", "when: days", "when: hour", "when: weekday"}


def kinds():
    yield "pandas", FRAME
    yield "zones", FRAME.assign(when=WHEN.tz_localize("Asia/Tokyo"))
    yield "polars", pl.from_pandas(FRAME)
    yield "pyarrow", pa.Table.from_pandas(FRAME)
    yield "columns", {"a": FRAME["a"].to_numpy(), "when": WHEN.to_numpy()}
    yield "lists", {"a": FRAME["a"].tolist(), "when": WHEN.to_pydatetime().tolist()}
    yield "dicts", FRAME.to_dict("records")
    yield "objects", FRAME.astype(object)


@pytest.mark.parametrize("make", [DynamicModelTreeClassifier, FIMTDDClassifier])
@pytest.mark.parametrize(("kind", "X"), list(kinds()), ids=[kind for kind, _ in kinds()])
def test_times_are_learnt_from_every_container(make, kind, X):
    model = make().fit(X, LABELS)
    assert model._tree.encoder.names.keys() == PARTS
    assert model.n_features_in_ == 2
    expected = make().fit(FRAME, LABELS)
    np.testing.assert_array_equal(model.predict_proba(X), expected.predict_proba(FRAME))


def test_rows_are_learnt_and_predicted_with_their_times(tmp_path):
    model = DynamicModelTreeClassifier()
    for x, label in zip(FRAME.to_dict("records"), LABELS, strict=True):
        model.learn_one(x, label)
    assert model._tree.encoder.names.keys() == PARTS  # and not taken for sparse rows
    late, early = ({"when": dt.datetime(2024, 2, 1, hour)} for hour in (22, 2))
    assert (model.predict_one(late), model.predict_one(early)) == ("late", "early")
    assert "when: hour = 22" in str(model.explain_one(late))
    found = model.counterfactual(late, target="early")
    assert model.predict_one(found.x) == "early"
    model.save(tmp_path / "model.dmt")
    for again in (driftree.load(tmp_path / "model.dmt"), pickle.loads(pickle.dumps(model))):
        assert again.predict_proba_one(late) == model.predict_proba_one(late)


def test_a_missing_time_is_missing_in_all_parts():
    X = FRAME.assign(when=WHEN.where(np.arange(N_ROWS) % 3 > 0))
    model = DynamicModelTreeClassifier().fit(X, LABELS)
    for gap in (None, pd.NaT, np.datetime64("NaT")):
        assert model.predict_proba_one({"a": 0.0, "when": gap}) == model.predict_proba_one(
            {"a": 0.0}
        )


@pytest.mark.parametrize("by", ["learn_one", "learn_many", "frame"])
@pytest.mark.parametrize("gap", [dt.date(2024, 2, 29), None])
def test_rows_with_a_time_are_not_sparse(by, gap):
    """The model has the parts of a time, lists of dicts and gaps its own name."""
    rows = [{"d": dt.date(2024, 2, 1), "price": 1.0}, {"d": gap, "price": 2.0}]
    model = DynamicModelTreeClassifier()
    for label, row in enumerate(rows):
        if by == "learn_one":
            model.learn_one(row, label)
        else:
            model.learn_many([row] if by == "learn_many" else pd.DataFrame([row]), [label])
    assert model._tree.parameters.absent == "missing"
    assert model.n_rows_seen_ == 2


def test_a_part_of_a_time_is_no_other_feature():
    row = {"when": WHEN[0], "when: days": 3.0}
    calls = {
        "learn_one": (row, 0),
        "learn_many": ([row, row], [0, 1]),
        "fit": (pd.DataFrame([row, row]), [0, 1]),
    }
    model = DynamicModelTreeClassifier()
    for method, given in calls.items():
        with pytest.raises(ValueError, match="'when: days' is a feature, and a part of the time"):
            getattr(model, method)(*given)
    assert not model.__sklearn_is_fitted__()
    model.learn_one({"when": WHEN[0]}, 0)
    with pytest.raises(ValueError, match="'when: days' is a feature, and a part of the time"):
        model.predict_one(row)


def test_dates_have_no_hour_and_times_of_day_no_date():
    model = DynamicModelTreeClassifier()
    model.learn_one({"day": dt.date(2024, 2, 29), "opens": dt.time(9, 30)}, "yes")
    assert list(model._tree.encoder.names) == ["day: days", "day: weekday", "opens: hour"]
    with pytest.raises(TypeError, match="column 'day' holds dates or times, but also 3"):
        DynamicModelTreeClassifier().learn_many({"day": [dt.date(2024, 2, 29), 3]}, [0, 1])


def test_sparse_rows_have_times_too():
    model = DynamicModelTreeClassifier(absent="zero")
    model.learn_one({"word": 1, "at": dt.datetime(2024, 2, 29, 12)}, "yes")
    known = {"word", "at: days", "at: hour", "at: weekday == Thursday"}
    assert set(model._tree.encoder.row_face.sparse_names()) == known


# ---------------------------------------------------------------------- nothing known
@pytest.mark.parametrize("make", [DynamicModelTreeClassifier, DynamicModelTreeRegressor])
def test_a_row_of_which_nothing_is_known_warns_once(make):
    model = make()
    for i in range(50):
        model.learn_one({"age": float(i)}, i % 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for x in ({}, {"age": None}, {"age": 1.0, "new": 2}, {"age": 1.0, "at": dt.date.today()}):
            model.predict_one(x)
    with pytest.warns(InputWarning, match="it knows 'age', but they hold 'Age'") as caught:
        found = model.predict_one({"Age": 30.0})
    assert len(caught) == 1
    assert found == model.predict_one({}) == model.predict_one({"Age": 3.0})  # and not again


def test_words_that_are_all_new_are_no_mistake():
    model = DynamicModelTreeClassifier(absent="zero")
    model.learn_one({"win": 1}, "spam")
    assert model.predict_one({"lunch": 1}) == "spam"


# ---------------------------------------------------------------------- what models are
def test_a_model_says_what_it_is_and_knows():
    assert str(DynamicModelTreeClassifier()) == "DynamicModelTreeClassifier()"
    model = DynamicModelTreeClassifier(max_nodes=7).fit(FRAME, LABELS)
    lines = str(model).splitlines()
    assert lines[:2] == [
        "DynamicModelTreeClassifier(max_nodes=7)",
        "Predicts 2 labels (early, late) from 4 features "
        "(a, when: days, when: hour, when: weekday).",
    ]
    assert lines[2].startswith("600 rows learnt; ")
    assert repr(model) == lines[0]
    number = DynamicModelTreeRegressor()
    number.learn_one({"age": 1.0}, 2.0)
    assert str(number).splitlines()[1] == "Predicts a number from 1 feature (age)."


@pytest.mark.parametrize("absent", [None, "zero"])
def test_importances_are_by_column_and_sum_to_1(absent):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(2000, 5))
    y = X[:, 3] > 0
    model = DynamicModelTreeClassifier(absent=absent).fit(X, y)
    assert model.feature_importances_.shape == (5,)
    assert model.feature_importances_.sum() == pytest.approx(1)
    assert model.feature_importances_.argmax() == 3
    if absent is None:
        found = RFE(DynamicModelTreeClassifier(), n_features_to_select=1).fit(X, y)
        assert found.support_.tolist() == [False, False, False, True, False]


def test_importances_of_a_time_are_those_of_its_parts():
    model = DynamicModelTreeClassifier().fit(FRAME, LABELS)
    assert model.feature_importances_.shape == (2,)
    assert model.feature_importances_[1] > 0.9


@pytest.mark.parametrize("make", [DynamicModelTreeClassifier, DynamicModelTreeRegressor])
def test_prequential_opens_tables_and_paths(make, tmp_path):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(500, 2))
    y = (X[:, 0] > 0).astype(int) if make is DynamicModelTreeClassifier else X[:, 0]
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y})
    frame.to_csv(tmp_path / "table.csv", index=False)
    for stream in ((X, y), frame, tmp_path / "table.csv", str(tmp_path / "table.csv")):
        records = list(prequential(make(), stream))
        assert [record.n_rows for record in records] == [200, 300, 400, 500]
