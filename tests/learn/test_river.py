"""The face towards River: its own checks, its tools, and data frames of every kind."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from river import checks, compose, datasets, ensemble, evaluate, metrics, preprocessing
from river.base import Classifier, MiniBatchClassifier
from scipy.sparse import csr_array

from driftree import DynamicModelTreeClassifier, FIMTDDClassifier
from driftree.learn.columns import ColumnReader
from driftree.streams import InputWarning

MODELS = {
    "measured": DynamicModelTreeClassifier,
    "paper": DynamicModelTreeClassifier.paper,
    "FIMT-DD": FIMTDDClassifier,
}
BATCH_IS_A_STEP = {
    "check_learn_many_matches_learn_one": "a batch is one time step in the paper, a set of rows",
}
SKIPPED = {"measured": BATCH_IS_A_STEP, "paper": BATCH_IS_A_STEP, "FIMT-DD": {}}
every_model = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)


def state_of(model):
    learnt = dict(model.__getstate__()["_learnt"])
    arrays = learnt.pop("arrays")
    return {name: (array.dtype, array.tobytes()) for name, array in arrays.items()}, learnt


@pytest.mark.parametrize("name", MODELS)
def test_rivers_own_checks(name):
    model = MODELS[name]()
    assert model._unit_test_skips() == set(SKIPPED[name])
    checks.check_estimator(model)


def test_rivers_test_parameters_are_the_two_settings():
    settings = [
        DynamicModelTreeClassifier(**p) for p in DynamicModelTreeClassifier._unit_test_params()
    ]
    expected = [MODELS[name]() for name in ("measured", "paper")]
    assert [m.get_params() for m in settings] == [m.get_params() for m in expected]


# ---------------------------------------------------------------------- its tools
def test_pipeline_and_progressive_validation():
    pipeline = preprocessing.StandardScaler() | DynamicModelTreeClassifier()
    assert isinstance(pipeline, compose.Pipeline)
    assert isinstance(pipeline, MiniBatchClassifier)
    metric = metrics.Accuracy() + metrics.LogLoss()
    evaluate.progressive_val_score(datasets.Phishing(), pipeline, metric)
    accuracy, log_loss = metric.get()
    assert accuracy > 0.86
    assert log_loss < 0.33
    twin = pipeline.clone(include_attributes=True)
    x, _ = next(iter(datasets.Phishing()))
    assert twin.predict_proba_one(x) == pipeline.predict_proba_one(x)


def test_bagging():
    bagging = ensemble.ADWINBaggingClassifier(
        DynamicModelTreeClassifier(model_window=200), n_models=3, seed=1
    )
    metric = metrics.Accuracy()
    evaluate.progressive_val_score(datasets.Phishing().take(500), bagging, metric)
    assert metric.get() > 0.83


def test_isinstance_and_tags():
    model = DynamicModelTreeClassifier()
    assert isinstance(model, Classifier)
    assert model._multiclass
    assert model._supervised
    assert repr(model) == "DynamicModelTreeClassifier()"
    model.learn_one({"a": 1.0}, 1)
    assert model._raw_memory_usage == model.memory_usage() > 0


def test_clone_takes_an_empty_tuple_and_new_parameters():
    for categorical in ((), ("a",), np.array(["a"])):
        model = DynamicModelTreeClassifier(categorical=categorical)
        assert model.clone({"max_depth": 1}).max_depth == 1
    model.learn_one({"a": 1.0}, 1)
    assert model.clone().predict_one({"a": 1.0}) is None


# ---------------------------------------------------------------------- rows
def test_before_anything_was_learnt():
    model = DynamicModelTreeClassifier()
    assert model.predict_one({"a": 1.0}) is None
    assert model.predict_proba_one({"a": 1.0}) == {}
    frame = pd.DataFrame({"a": [1.0, 2.0]}, index=["u", "v"])
    assert model.predict_many(frame).tolist() == [None, None]
    proba = model.predict_proba_many(frame)
    assert proba.shape == (2, 0)
    assert proba.index.tolist() == ["u", "v"]


@every_model
def test_a_known_row_never_leaves_the_kernels(make, monkeypatch):
    model = make()
    rows = [{"a": 1.0, "b": "red"}, {"a": None, "b": "blue"}, {"b": None}, {"a": 2, "b": True}]
    for i in range(8):
        model.learn_one(rows[i % 4], i % 3)

    def fail(*_, **__):
        raise AssertionError("read by Python")

    monkeypatch.setattr(ColumnReader, "_read_columns", fail)
    for x in [*rows, {}, {"a": np.float64("nan")}, {"a": np.int32(3), "b": np.str_("red")}]:
        model.learn_one(x, 1)
        assert model.predict_one(x) in (0, 1, 2)
        assert list(model.predict_proba_one(x)) == [0, 1, 2]
    assert model.predict_one({"b": "never seen", "c": "unknown"}) in (0, 1, 2)


@every_model
def test_weights_of_single_rows(make):
    model, twin = make(), make()
    model.learn_one({"a": 1.0}, "x", w=3)
    twin.learn_many(pd.DataFrame({"a": [1.0] * 3}), ["x"] * 3)
    assert state_of(model) == state_of(twin)
    model.learn_one({"b": 1.0}, "y", w=0)
    assert state_of(model) == state_of(twin)
    with pytest.raises(ValueError, match="weight -2"):
        model.learn_one({"a": 1.0}, "x", w=-2)


WRONG_ROWS = {
    "text": ({"a": "tall"}, 1, "column 'a' is numeric, but row 0 holds 'tall'"),
    "infinity": ({"a": -np.inf}, 1, "infinity.*column 'a'"),
    "huge": ({"a": 10**400}, 1, "infinity.*column 'a'"),
    "object": ({"a": [1.0]}, 1, "column 'a', row 0: .* number, got .1.0. of type 'list'"),
    "level": ({"b": ["red"]}, 1, "column 'b', row 0 holds .* not hashable"),
    "date": ({"a": pd.Timestamp("2020-01-01")}, 1, "column 'a', row 0: .*dates"),
    "None": ({"a": 1.0}, None, "label of row 0 is None"),
    "NaN": ({"a": 1.0}, np.nan, "label of row 0 is nan"),
    "unhashable": ({"a": 1.0}, [1], "y, row 0 holds .1. of type 'list', which is not hashable"),
    "no dict": ([1.0], 1, "a row must be a dict of feature names to values, got .1.0."),
}


@every_model
@pytest.mark.parametrize(("x", "y", "words"), WRONG_ROWS.values(), ids=WRONG_ROWS)
def test_a_wrong_row_changes_nothing(make, x, y, words):
    model = make()
    parameters = dict(vars(model))
    if "a" not in x and "b" not in x:
        with pytest.raises((TypeError, ValueError), match=words):
            model.learn_one(x, y)
        assert vars(model) == parameters
    model.learn_one({"a": 1.0, "b": "red"}, 1)
    model.learn_one({"a": 2.0, "b": "blue"}, 2)
    before = pickle.dumps(model)
    with pytest.raises((TypeError, ValueError), match=words):
        model.learn_one(x, y)
    assert pickle.dumps(model) == before
    if isinstance(y, int) and "c" not in x:
        for predict in (model.predict_one, model.predict_proba_one):
            with pytest.raises((TypeError, ValueError), match=words):
                predict(x)


# ---------------------------------------------------------------------- frames
BACKENDS = {
    "pandas": (pd.DataFrame, pd.DataFrame, pd.Series),
    "polars": (pl.DataFrame, pl.DataFrame, pl.Series),
    "pyarrow": (pa.table, pa.Table, pa.ChunkedArray),
}
every_backend = pytest.mark.parametrize(
    ("build", "frame_type", "series_type"), BACKENDS.values(), ids=BACKENDS
)


def draw(n_rows=200, seed=0):
    rng = np.random.default_rng(seed)
    income = rng.normal(50, 20, n_rows)
    colour = rng.choice(["red", "green", None], n_rows)
    owner = rng.random(n_rows) < 0.5
    label = np.where(income > 50, "rich", "poor")
    age = rng.integers(1, 90, n_rows)
    data = {"income": income, "age": age, "colour": colour.tolist(), "owner": owner}
    return {name: list(values) for name, values in data.items()}, label.tolist()


def reverse(data):
    return {name: data[name] for name in reversed(data)}


@every_model
@every_backend
def test_frames_go_in_and_come_out_as_they_are(make, build, frame_type, series_type):
    data, y = draw()
    model, plain = make(), make()
    labels = build({"y": y})["y"]
    model.learn_many(build(data), labels)
    plain.learn_many(pd.DataFrame(data), y)
    assert state_of(model) == state_of(plain)
    model.learn_many(build(reverse(data)), labels, [2] * len(y))
    plain.learn_many(pd.DataFrame(data), y, w=np.full(len(y), 2))
    assert state_of(model) == state_of(plain)
    chosen = model.predict_many(build(reverse(data)))
    proba = model.predict_proba_many(build(reverse(data)))
    assert isinstance(chosen, series_type)
    assert isinstance(proba, frame_type)
    chosen = pd.Series(chosen.to_pylist() if series_type is pa.ChunkedArray else list(chosen))
    assert chosen.tolist() == plain.predict(pd.DataFrame(data)).tolist()
    proba = {name: np.asarray(proba[name]) for name in ("poor", "rich")}
    rows = pd.DataFrame(data).to_dict("records")
    for i in (0, 7, 199):
        one = plain.predict_proba_one(rows[i])
        assert {name: values[i] for name, values in proba.items()} == one


@every_backend
def test_empty_frames(build, frame_type, series_type):
    data, y = draw(20)
    model = DynamicModelTreeClassifier()
    empty = build(data)[:0] if frame_type is not pa.Table else build(data).slice(0, 0)
    model.learn_many(empty, [])
    assert not model.__sklearn_is_fitted__()
    model.learn_many(build(data), y)
    before = pickle.dumps(model)
    model.learn_many(empty, [])
    assert pickle.dumps(model) == before
    assert len(model.predict_many(empty)) == 0
    assert model.predict_proba_many(empty).shape == (0, 2)


def test_pandas_index_and_labels_are_kept():
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [0, 1, 0]}, index=["u", "v", "w"])
    model = DynamicModelTreeClassifier()
    model.learn_many(frame, pd.Series([True, False, True], index=["w", "v", "u"]))
    chosen, proba = model.predict_many(frame), model.predict_proba_many(frame)
    assert chosen.index.tolist() == proba.index.tolist() == ["u", "v", "w"]
    assert proba.columns.tolist() == [False, True]
    assert chosen.dtype == bool
    model.learn_many(frame, [("tuple", 1), 2, "text"])
    assert model.predict_proba_many(frame).columns.tolist() == [
        False,
        True,
        ("tuple", 1),
        2,
        "text",
    ]
    assert len(model.predict_many(frame)) == 3
    with pytest.raises(TypeError, match=r"labels of several types .* pandas"):
        model.predict_many(pl.DataFrame({"a": [1.0]}))


@every_backend
def test_features_come_and_go(build, frame_type, series_type):
    data, y = draw()
    model = DynamicModelTreeClassifier()
    model.learn_many(build({"income": data["income"]}), y)
    assert model.n_parameters_ == 1
    model.learn_many(build({"colour": data["colour"], "age": data["age"]}), y)
    assert list(model._tree.encoder.names) == ["income", "colour", "age"]
    model.learn_one({"owner": True}, "rich")
    assert len(model.predict_many(build({"owner": data["owner"]}))) == 200
    with pytest.warns(InputWarning, match="the rows hold no feature that the model knows"):
        assert len(model.predict_many(build({"unheard of": data["owner"]}))) == 200


WRONG_FRAMES = {
    "text": ({"a": ["1", "2"]}, [0, 1], "column 'a' is numeric, but row 0 holds '1'"),
    "text below": ({"b": ["red", "blue"], "a": [None, "x"]}, [0, 1], "'a' .* row 1 holds 'x'"),
    "infinity": ({"a": [1.0, np.inf]}, [0, 1], "infinity.*column 'a', row 1"),
    "short": ({"a": [1.0, 2.0]}, [0], "X has 2 rows, but y has 1 labels: give one per row"),
    "None": ({"a": [1.0, 2.0]}, [0, None], "label of row 1 is None"),
}


@every_backend
@pytest.mark.parametrize(("data", "y", "words"), WRONG_FRAMES.values(), ids=WRONG_FRAMES)
def test_a_wrong_frame_changes_nothing(build, frame_type, series_type, data, y, words):
    model = DynamicModelTreeClassifier()
    model.learn_many(build({"a": [1.0, 2.0], "b": ["red", "green"]}), [0, 1])
    before = pickle.dumps(model)
    with pytest.raises(ValueError, match=words):
        model.learn_many(build(data), y)
    assert pickle.dumps(model) == before


@every_model
@pytest.mark.parametrize(
    "y",
    [
        pd.DataFrame({"y": [0, 1]}),
        pd.DataFrame({"y": [0, 1], "z": [0, 1]}),
        pl.DataFrame({"y": [0, 1]}),
        pa.table({"y": [0, 1]}),
        csr_array([[0], [1]]),
    ],
    ids=lambda y: f"{type(y).__module__} {y.shape}",
)
def test_a_table_is_no_series_of_labels(make, y):
    model = make()
    model.learn_many({"a": [1.0, 2.0]}, [0, 1])
    before = pickle.dumps(model)
    with pytest.raises(TypeError, match=r"y must be a sequence of labels, got .* give one column"):
        model.learn_many({"a": [1.0, 2.0]}, y)
    assert pickle.dumps(model) == before


def test_labels_are_plain_objects():
    day, red = np.timedelta64(1, "ns"), pa.scalar("red")
    model = DynamicModelTreeClassifier()
    model.learn_many({"a": [1.0, 2.0, 3.0]}, [day, red, "red"])
    model.learn_one({"a": 2.0}, red)
    model.learn_one({"a": 2.0}, np.str_("red"))
    assert model.classes_.tolist() == [day, "red"]
    assert [type(label) for label in model.classes_] == [np.timedelta64, str]
    for label in (np.ma.masked, pa.scalar(None)):
        with pytest.raises(ValueError, match="the label of row 0 is None"):
            model.learn_one({"a": 2.0}, label)


@pytest.mark.parametrize("build", [pl.DataFrame, pa.table])
def test_labels_of_the_same_text_do_not_share_a_column(build):
    model = DynamicModelTreeClassifier()
    frame = {"a": [1.0, 2.0]}
    model.learn_many(frame, [1, "1"])
    assert list(model.predict_proba_many(frame)) == list(model.classes_)
    assert model.predict_proba_many(pd.DataFrame(frame)).shape == (2, 2)
    with pytest.raises(TypeError, match=r"labels with the same text \(\[1, '1'\]"):
        model.predict_proba_many(build(frame))


def test_frames_that_are_none():
    model = DynamicModelTreeClassifier()
    twice = pd.DataFrame([[1.0, 2.0]], columns=["a", "a"])
    for call in (model.learn_many, model.partial_fit):
        with pytest.raises(ValueError, match="column 'a' appears twice: rename"):
            call(twice, [1])
    with pytest.raises(ValueError, match="column 'a' appears twice: rename"):
        model.learn_many(pa.table([[1.0], [2.0]], names=["a", "a"]), [1])
    for X in (np.ones((1, 2)), pl.LazyFrame({"a": [1.0]})):
        with pytest.raises(TypeError, match=r"a data frame .* is needed, got .*: arrays go to"):
            model.learn_many(X, [1])
    assert not model.__sklearn_is_fitted__()
