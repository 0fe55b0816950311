"""What is exported predicts what the model predicts, or is refused with a reason."""

import functools
import json
import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from river.compose import Pipeline
from river.preprocessing import StandardScaler
from scipy import sparse
from sklearn.exceptions import NotFittedError
from typer.testing import CliRunner

import driftree
from driftree import (
    DynamicModelForestClassifier,
    DynamicModelForestRegressor,
    DynamicModelTreeClassifier,
    DynamicModelTreeRegressor,
    Loss,
    cli,
    to_code,
    to_onnx,
)
from driftree.export import recipe as recipe_module
from driftree.export.recipe import Level, Missing, Number, recipe_of
from driftree.learn.encoding import Encoder
from exported import (
    COMPILER,
    MAKERS,
    WITH_INTERVALS,
    make_model,
    predict,
    predict_interval,
    run_c,
    run_onnx,
    run_python,
    run_sql,
)
from quick import examples
from readable_models import noisy

pytestmark = pytest.mark.usefixtures("quick_pace")
models = st.builds(make_model, st.sampled_from(list(MAKERS)), st.integers(0, 10**6))
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")
LANGUAGES = ("python", "c", "sql")
SPLIT_BY_A_HINGE = 23, "forest gaussian"


def assert_same(found, expected, digits=1e-12):
    scale = np.abs(expected).max(initial=1.0)
    found = np.reshape(found, (len(expected), -1))[:, : expected.shape[1]]
    assert found / scale == pytest.approx(expected / scale, abs=digits, rel=0)


def answer_of(found):
    """The last of the outputs of a graph that has all numbers."""
    return next(
        found[name] for name in ("probabilities", "quantiles", "prediction") if name in found
    )


# ---------------------------------------------------------------------- the same predictions
@examples(60)
@given(models)
def test_python_and_sql_and_onnx_say_the_same(case):
    assert_all_say_the_same(*case)


def assert_all_say_the_same(model, rows):
    """Python, SQL and ONNX predict what the model does."""
    expected = predict(model, rows)
    assert_same(run_python(model, rows), expected)
    assert_same(run_sql(model, rows), expected)
    found = run_onnx(model, rows)
    assert_same(answer_of(found), expected)
    if "label" in found:
        assert found["label"].tolist() == [model.predict_one(row) for row in rows]
    else:
        assert_same(found["prediction"], np.array([[model.predict_one(row)] for row in rows]))


def test_a_split_by_a_hinge():
    seed, kind = SPLIT_BY_A_HINGE
    model, rows = make_model(kind, seed)
    is_by_hinge = [
        split.feature >= len(member.features)
        for member in recipe_of(model).members
        for split in member.splits.values()
    ]
    assert any(is_by_hinge)
    assert_all_say_the_same(model, rows)


@needs_compiler
@examples(12)
@given(models)
def test_c_says_the_same(tmp_path_factory, case):
    model, rows = case
    assert_same(run_c(model, rows, tmp_path_factory.mktemp("c")), predict(model, rows))


@examples(30)
@given(
    st.builds(make_model, st.sampled_from(WITH_INTERVALS), st.integers(0, 10**6)),
    st.sampled_from([0.5, 0.8, 0.87, 0.99]),
)
def test_intervals_are_those_of_the_model(case, level):
    model, rows = case
    expected = predict_interval(model, rows, level)
    assert (expected[:, 2] > expected[:, 1]).all()
    assert_same(run_python(model, rows, interval=level), expected)
    assert_same(run_sql(model, rows, interval=level), expected)
    found = run_onnx(model, rows, interval=level)
    assert_same(np.column_stack([found[one] for one in ("prediction", "lower", "upper")]), expected)


@needs_compiler
@pytest.mark.parametrize("kind", ["forest gaussian", "forest poisson"])
def test_intervals_of_a_forest_with_negative_shares(kind, tmp_path):
    model, rows = make_model(kind, 3)
    arrays = model._tree.core.stack.arrays()
    arrays["weights"][:] = [3.0, -2.5, 0.5]
    model._tree.core.stack.restore(arrays)
    expected = predict_interval(model, rows, 0.9)
    assert_same(run_python(model, rows, interval=0.9), expected)
    assert_same(run_sql(model, rows, interval=0.9), expected)
    assert_same(run_c(model, rows, tmp_path, interval=0.9), expected)
    found = run_onnx(model, rows, interval=0.9)
    assert_same(np.column_stack([found[one] for one in ("prediction", "lower", "upper")]), expected)


@needs_compiler
@pytest.mark.parametrize("kind", WITH_INTERVALS)
def test_intervals_in_c(kind, tmp_path):
    model, rows = make_model(kind, 3)
    assert_same(run_c(model, rows, tmp_path, interval=0.9), predict_interval(model, rows, 0.9))


def test_these_models_have_all_that_a_model_can_have():
    found = set()
    for i, kind in [*enumerate([*MAKERS] * 5), SPLIT_BY_A_HINGE]:
        recipe = recipe_of(make_model(kind, i)[0]).members[-1]
        splits, leaves = recipe.splits.values(), recipe.leaves.values()
        has_codes = any(own.levels for own in recipe.features) and kind.startswith("paper")
        parts = {
            recipe.link: True,
            "number": any(isinstance(own, Number) for own in recipe.inputs),
            "gap": any(isinstance(own, Missing) for own in recipe.inputs),
            "level": any(isinstance(own, Level) for own in recipe.inputs),
            "other level": any(own == Level(own.feature, 32) for own in recipe.inputs),
            "equality": any(split.is_equality for split in splits),
            "is missing": any(split.threshold == -math.inf for split in splits),
            "missing left": any(split.missing_left for split in splits),
            "bend": any(leaf.bends for leaf in leaves),
            "floor": recipe.has_floor,
            "frozen": any(own.frozen is not None for own in recipe.features),
            "levels as numbers": has_codes,
            "hinge": any(own.feature >= len(recipe.features) for own in recipe.inputs),
            "split by a hinge": any(split.feature >= len(recipe.features) for split in splits),
        }
        found |= {name for name, is_there in parts.items() if is_there}
        missing = parts.keys() - found
    links = {"certain", "logistic", "softmax", "identity", "log", "quantiles"}
    assert not missing | (links - found)


@pytest.mark.parametrize(
    "kind", ["measured 3", "paper 2", "gaussian", "poisson", "forest 3", "forest gaussian"]
)
def test_single_precision(kind):
    model, rows = make_model(kind, 3)
    rows = [
        {k: float(np.float32(v)) if isinstance(v, float) else v for k, v in row.items()}
        for row in rows[:60]
    ]
    found = answer_of(run_onnx(model, rows, "float32"))
    assert found.dtype == np.float32
    assert_same(found, predict(model, rows), digits=1e-5)


def test_levels_in_single_precision():
    levels = [0.1, 0.3, 1e9 + 1]
    model = learnt({"x": levels}, categorical=["x"])
    rows = [{"x": level} for level in [*levels, None, 7.0]]
    assert np.ptp(predict(model, rows)) > 0.05
    assert_same(run_onnx(model, rows, "float32")["probabilities"], predict(model, rows), 1e-5)
    with pytest.raises(ValueError, match="'x' are the same in float32"):
        to_onnx(learnt({"x": [1e9, 1e9 + 1]}, categorical=["x"]), dtype="float32")


@pytest.mark.parametrize("kind", ["FIMT-DD 3", "measured 2", "poisson", "forest 2"])
def test_a_model_without_any_input(kind):
    model = MAKERS[kind]()
    if hasattr(model, "follow_target"):
        model.follow_target = False
    for i in range(30):
        model.learn_one({"constant": 7.5}, i % 2)
    assert not any(member.inputs for member in recipe_of(model).members)
    assert_all_say_the_same(model, [{"constant": 7.5}, {"constant": None}, {"constant": 8.0}])


def test_numbers_that_single_precision_rounds_to_0():
    """ONNX Runtime drops an addition of one constant that float32 rounds to 0."""
    rng, model = np.random.default_rng(1), DynamicModelTreeRegressor(follow_target=False)
    rows = [{"x": 1e-60 * x} for x in rng.normal(3.0, size=300).tolist()]
    for row in rows:
        model.learn_one(row, 10 * row["x"] - 5e-60)
    assert_same(run_onnx(model, rows)["prediction"] / 1e-60, predict(model, rows) / 1e-60)


@needs_compiler
@pytest.mark.parametrize("loss", ["gaussian", "quantile"])
def test_a_target_that_never_varied(loss, tmp_path):
    """No input is used, which a compiler warns of unless it is told."""
    model = DynamicModelTreeRegressor(loss, follow_target=False)
    rows = [{"a": float(i), "b": "xy"[i % 2]} for i in range(40)]
    for x in rows:
        model.learn_one(x, 42.0)
    n_outputs = 1 if loss == "gaussian" else 3
    assert (run_c(model, rows[:3], tmp_path)[:, :n_outputs] == 42.0).all()
    assert (run_sql(model, rows[:3]) == 42.0).all()
    assert (run_python(model, rows[:3]) == 42.0).all()


def test_long_sums():
    rng, model = np.random.default_rng(1), DynamicModelTreeClassifier()
    rows = [dict(enumerate(levels)) for levels in rng.integers(0, 30, size=(100, 150)).tolist()]
    rows = [{f"c{j}": f"l{level}" for j, level in row.items()} for row in rows]
    for row in rows:
        model.learn_one(row, row["c0"] < "l2")
    assert len(recipe_of(model).inputs) > 3000
    assert_same(run_python(model, rows[:3]), predict(model, rows[:3]))
    short = DynamicModelTreeClassifier()
    rows = [{name: row[name] for name in [*row][:45]} for row in rows]
    for row in rows:
        short.learn_one(row, row["c0"] < "l2")
    assert len(recipe_of(short).inputs) > 1000
    assert_same(run_sql(short, rows[:3]), predict(short, rows[:3]))


def test_a_forest_whose_features_came_one_after_the_other(tmp_path):
    rng, forest = np.random.default_rng(1), DynamicModelForestClassifier(3)
    rows = []
    for i in range(600):
        a, b, c = rng.normal(size=3).tolist()
        row = {"a": a, "b": b}
        row |= {"c": c} if i >= 150 else {}
        row |= {"car": "van" if c > 0 else "bus"} if i >= 300 else {}
        rows.append(row | {"d": a * c} if i >= 450 else row)
        forest.learn_one(rows[-1], "yes" if a * b + a * c > 0 else "no")
    rows = [dict.fromkeys(rows[-1]) | row for row in rows[::10]]
    expected = predict(forest, rows)
    hinges = recipe_of(forest).hinges
    assert {end for hinge in hinges.values() for end in hinge.ends} == {0, 1, 2, 4}
    assert_same(run_python(forest, rows), expected)
    assert_same(run_sql(forest, rows), expected)
    assert_same(run_onnx(forest, rows)["probabilities"], expected)
    if COMPILER:
        assert_same(run_c(forest, rows, tmp_path), expected)


def test_a_curve_with_a_knot_at_each_value(tmp_path):
    rng = np.random.default_rng(1)
    code = rng.integers(0, 9, size=4000)
    y = np.array([3.0, -3, 2, -2, 3, -3, 2, -2, 3])[code] + 0.3 * rng.normal(size=4000)
    X = np.column_stack([code, rng.normal(size=4000)]).astype(float)
    model = DynamicModelTreeRegressor(max_nodes=1).partial_fit(X, y)
    engine = model._tree.engine
    knots = {value for bend in engine.bends(int(engine.model[0])) for value in bend[1:]}
    assert knots >= set(range(1, 8))
    rows = [{"x0": x, "x1": 0.5} for x in (*range(9), -1.0, 3.7, 12.0, None)]
    expected = predict(model, rows)
    assert_same(run_python(model, rows), expected)
    assert_same(run_sql(model, rows), expected)
    assert_same(answer_of(run_onnx(model, rows)), expected)
    if COMPILER:
        assert_same(run_c(model, rows, tmp_path), expected)


def test_a_forest_with_a_threshold_predicts_by_it():
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(2000, 2))
    y = np.where(X[:, 0] + rng.normal(size=2000) > 2, "fraud", "fine")
    wish = {"recall": 0.9, "positive": "fraud"}
    forest = DynamicModelForestClassifier(2, threshold=wish).partial_fit(X, y)
    rows = [{"x0": a, "x1": b} for a, b in X[:100].tolist()]
    found = run_onnx(forest, rows)
    assert found["label"].tolist() == [forest.predict_one(row) for row in rows]
    assert "fraud" in found["label"]
    assert_same(found["probabilities"], predict(forest, rows))


def test_a_noise_floor():
    rows = [{"x0": a, "x1": b} for a, b in np.random.default_rng(1).uniform(size=(50, 2))]
    assert recipe_of(noisy()).has_floor
    for run in (run_python, run_sql):
        assert_same(run(noisy(), rows), predict(noisy(), rows))
    assert_same(run_onnx(noisy(), rows)["probabilities"], predict(noisy(), rows))


@pytest.mark.parametrize("link", ["identity", "log"])
def test_a_loss_of_ones_own(link):
    def error(y, p):
        return (np.exp(p) if link == "log" else p) - y

    square = Loss(
        f"square of {link}",
        lambda y, p: error(y, p) ** 2 / 2,
        error,
        lambda y, p: np.ones_like(y),
        link=link,
    )
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 2))
    model = DynamicModelTreeRegressor(square).fit(X, np.exp(X[:, 0] / 2))
    rows = [{"x0": a, "x1": b} for a, b in X[:20].tolist()]
    expected = predict_interval(model, rows, 0.9)
    assert_same(run_python(model, rows, interval=0.9), expected)
    assert_same(run_sql(model, rows, interval=0.9), expected)
    assert_same(run_onnx(model, rows)["prediction"], predict(model, rows))


# ---------------------------------------------------------------------- recent targets
@pytest.fixture
def told_levels(monkeypatch):
    """Let rows say what the recent targets were, which models refuse."""
    monkeypatch.setattr(Encoder, "_check_own", lambda *_: None)


@pytest.mark.parametrize("loss", ["gaussian", "poisson"])
@pytest.mark.usefixtures("told_levels")
def test_recent_targets_are_what_they_were_or_what_one_says(loss, tmp_path):
    rng, model = np.random.default_rng(1), DynamicModelTreeRegressor(loss)
    rows = [{"x": x} for x in rng.normal(size=300).tolist()]
    for i, row in enumerate(rows):
        model.learn_one(row, math.exp(row["x"] / 3 + math.sin(i / 10)))
    frozen = [own.name for own in recipe_of(model).features if own.frozen is not None]
    assert len(frozen) == 3
    told = [row | dict.fromkeys(frozen, 2.5) for row in rows]
    expected = predict(model, told)
    assert np.abs(expected - predict(model, rows)).max() > 1e-3
    assert_same(run_python(model, told), expected)
    levels = {name: np.full((len(rows), 1), 2.5) for name in frozen}
    assert_same(run_onnx(model, rows, **levels)["prediction"], expected)
    one_for_all = {name: np.full((1, 1), 2.5) for name in frozen}
    assert_same(run_onnx(model, rows, **one_for_all)["prediction"], expected)
    if COMPILER:
        assert_same(run_c(model, told, tmp_path), expected)


@pytest.mark.parametrize("kind", [DynamicModelTreeRegressor, DynamicModelForestRegressor])
def test_recent_targets_are_missing_after_a_batch_that_did_not_show_them(kind, tmp_path):
    rng, model = np.random.default_rng(1), kind()
    rows = [{"x": x} for x in rng.normal(size=250).tolist()]
    y = [row["x"] + math.sin(i / 10) for i, row in enumerate(rows)]
    for row, number in zip(rows[:200], y, strict=False):
        model.learn_one(row, number)
    model.learn_many({"x": [row["x"] for row in rows[200:]]}, y[200:])
    expected = predict(model, rows)
    assert_same(run_python(model, rows), expected)
    assert_same(run_sql(model, rows), expected)
    assert_same(run_onnx(model, rows)["prediction"], expected)
    if COMPILER:
        assert_same(run_c(model, rows, tmp_path), expected)


@pytest.mark.usefixtures("told_levels")
def test_the_limits_of_recent_targets_are_their_own():
    model = DynamicModelTreeRegressor()
    for i in range(300):
        model.learn_one({"x": float(i % 7)}, 100.0 + i % 5)
    x = {"x": 3.0, "last y": 5000.0}
    [inputs] = [own for own in model.to_dict()["inputs"] if own["name"] == "last y"]
    assert inputs["high"] > 500.0
    assert_same(run_python(model, [x]), predict(model, [x]))


# ---------------------------------------------------------------------- names
HOSTILE = ['a"b', "it's", "new\nline", "back\\", "*/ // -- ??/", "?", "ö\u202e", "{0}", "row", "X"]


@pytest.fixture(scope="module")
def hostile():
    model = DynamicModelTreeClassifier(epsilon=1.0)
    rng = np.random.default_rng(1)
    for _ in range(300):
        row = {name: rng.normal() for name in HOSTILE[::2]}
        row |= {name: str(rng.choice(HOSTILE)) for name in HOSTILE[1::2]}
        label = HOSTILE[(row["it's"] in HOSTILE[:5]) + 2 * (row['a"b'] > 0)]
        model.learn_one(row, label)
    return model


def test_names_and_levels_may_be_any_text(hostile, tmp_path):
    rows = [dict.fromkeys(HOSTILE[::2], 0.5) | dict.fromkeys(HOSTILE[1::2], one) for one in HOSTILE]
    expected = predict(hostile, rows)
    assert_same(run_python(hostile, rows), expected)
    assert_same(run_sql(hostile, rows), expected)
    if COMPILER:
        assert_same(run_c(hostile, rows, tmp_path), expected)


def test_a_feature_of_text_may_have_a_name_of_the_graph():
    model = DynamicModelTreeClassifier()
    for i in range(50):
        model.learn_one({"X": "ab"[i % 2], "label": i % 3}, i % 2)
    assert [one.name for one in to_onnx(model).graph.input] == ["feature X", "X"]


def test_an_input_of_a_graph_has_a_name_of_its_own():
    texts = {"": ["a", "b"], ":Cast0": ["c", "d"], ":constant0": ["e", "f"]}
    names = [one.name for one in to_onnx(learnt(texts | {"x": [1.0, 2.0]})).graph.input]
    assert names == ["feature ", "feature :Cast0", "feature :constant0", "X"]


def test_a_query_tells_its_columns_from_those_of_the_table():
    rng, model = np.random.default_rng(1), DynamicModelTreeClassifier(epsilon=1.0)
    rows = [{"_v1": a, "_1": b, "__leaf": c} for a, b, c in rng.normal(size=(300, 3)).tolist()]
    for row in rows:
        model.learn_one(row, row["_v1"] * row["__leaf"] > 0)
    assert_same(run_sql(model, rows), predict(model, rows))
    forest = DynamicModelForestClassifier(3)
    for row in rows:
        forest.learn_one(row, row["_v1"] * row["__leaf"] > 0)
    assert_same(run_sql(forest, rows), predict(forest, rows))
    assert 'FROM "_1"\n' in (query := to_code(learnt({"x": [1.0, 2.0]}), "sql", name="_1"))
    assert "WITH __1 AS" in query


def test_predictions_have_columns_of_their_own():
    model = DynamicModelTreeRegressor(follow_target=False)
    for i in range(50):
        model.learn_one({"Prediction": i % 7, "lower": i % 3}, float(i % 7))
    query = to_code(model, "sql", interval=0.9)
    assert [line.split(" AS ")[-1] for line in query.splitlines()[-4:-1]] == [
        '"prediction by the model"',
        '"lower by the model"',
        '"upper"',
    ]
    near = DynamicModelTreeRegressor("quantile", quantiles=(0.1234567, 0.12345678))
    near.learn_one({"x": 1.0}, 1.0)
    assert '"quantile 0.1234567"' in (query := to_code(near, "sql"))
    assert '"quantile 0.12345678"' in query


def test_labels_keep_their_type_in_onnx_or_become_text():
    def labels(*given):
        model = DynamicModelTreeClassifier()
        for i in range(30):
            model.learn_one({"x": float(i)}, given[i % len(given)])
        return run_onnx(model, [{"x": 1.0}])["label"].dtype

    assert labels(3, 5) == np.int64
    assert labels(True, False) == np.bool_
    assert labels("a", "b") == np.object_
    assert labels("a", 1) == np.object_


def test_functions_and_tables_have_the_name_that_is_wanted():
    model, _ = make_model("measured 2", 1)
    assert "\ndef score(row):" in to_code(model, "python", name="score")
    assert "\nvoid score(" in to_code(model, "c", name="score")
    assert '\nFROM "the rows"\n' in to_code(model, "sql", name="the rows")
    for language, name in [
        ("python", "a b"),
        ("python", "if"),
        ("python", "exp"),
        ("python", "max"),
        ("c", "1st"),
        ("c", "double"),
        ("c", "isnan"),
        ("c", "ö"),
        ("sql", ""),
    ]:
        with pytest.raises(ValueError, match="cannot be named"):
            to_code(model, language, name=name)


def test_a_graph_says_what_its_columns_are():
    model, _ = make_model("measured 3", 2)
    told = {one.key: json.loads(one.value) for one in to_onnx(model).metadata_props}
    features = [own for own in recipe_of(model).features if not own.has_text]
    assert told["columns"] == [own.text for own in features]
    assert told["labels"] == model.classes_.tolist()


def test_a_loaded_model_is_exported_as_the_saved_one(tmp_path):
    for kind in ("measured 2", "gaussian", "FIMT-DD 3", "forest 3"):
        model, _ = make_model(kind, 4)
        model.save(tmp_path / "model.dmt")
        again = driftree.load(tmp_path / "model.dmt")
        assert [to_code(model, one) for one in LANGUAGES] == [
            to_code(again, one) for one in LANGUAGES
        ]


# ---------------------------------------------------------------------- refused
def learnt(x, labels=("a", "b"), **parameters):
    model = DynamicModelTreeClassifier(**parameters)
    for i in range(20):
        model.learn_one({name: own[i % len(own)] for name, own in x.items()}, labels[i % 2])
    return model


def refuses(model, targets, words, kind=ValueError):
    for target in targets:
        with pytest.raises(kind, match=words):
            to_onnx(model) if target == "onnx" else to_code(model, target)


def test_what_cannot_be_exported_is_refused_with_a_reason():
    everywhere = ("onnx", *LANGUAGES)
    model = DynamicModelTreeClassifier().partial_fit(sparse.eye(20, format="csr"), [0, 1] * 10)
    refuses(model, everywhere, "sparse rows")
    refuses(learnt({"x": [1.0]}, absent="zero"), everywhere, "sparse rows")
    refuses(DynamicModelTreeClassifier(), everywhere, "not fitted", NotFittedError)
    refuses(Pipeline(StandardScaler(), learnt({"x": [1.0]})), everywhere, "Pipeline", TypeError)
    refuses(learnt({}), everywhere, "without features")
    forest = DynamicModelForestClassifier(absent="zero").partial_fit([[0.0, 1.0], [1.0, 0]], [0, 1])
    refuses(forest, everywhere, "sparse rows")
    mixed = learnt({"x": ["a", 1]}, categorical=["x"])
    refuses(mixed, ("onnx", "c", "sql"), "'x' mixes the level 1|'x' mixes the level 'a'")
    assert "{'a': 0, 1: 1}" in to_code(mixed, "python")
    refuses(
        learnt({"x": [2**53 + 1, 1]}, categorical=["x"]), ("onnx", "c", "sql"), "double can hold"
    )
    refuses(learnt({1: [1.0], "1": [2.0]}), ["sql"], "several features .* the column '1'")
    infinite = learnt({"x": [math.inf, 1.0]}, categorical=["x"])
    refuses(infinite, ["sql"], "the level inf is not finite")
    assert "numbers[0] == INFINITY" in to_code(infinite, "c")
    refuses(learnt({"x": ["", "a"]}), ("onnx",), "the empty text is a level")
    refuses(learnt({"x": ["a\0", "a"]}), ("c", "sql"), "NUL")
    refuses(learnt({"x": [1.0]}, [frozenset(), frozenset([1])]), ("python",), "cannot be written")
    X = np.random.default_rng(1).normal(size=(2000, 3))
    diverged = DynamicModelTreeRegressor.paper(learning_rate=5.0).partial_fit(X, X.sum(axis=1))
    refuses(diverged, everywhere, "has diverged")
    with pytest.raises(ValueError, match="one of python, c, sql, got 'java'"):
        to_code(learnt({"x": [1.0]}), "java")
    with pytest.raises(ValueError, match="one of float64, float32, got 'int8'"):
        to_onnx(learnt({"x": [1.0]}), dtype="int8")


def test_intervals_that_are_not_there_are_refused():
    for kind, level, words in [
        ("measured 2", 0.9, "a DynamicModelTreeClassifier has no intervals"),
        ("FIMT-DD numbers", 0.9, "a FIMTDDRegressor has no intervals"),
        ("forest 2", 0.9, "a DynamicModelForestClassifier has no intervals"),
        ("quantile", 0.9, "the quantiles are exported"),
        ("forest quantile", 0.9, "the quantiles are exported"),
        ("gaussian", 0.3, "level must be from 0.5 to 0.99"),
    ]:
        model, _ = make_model(kind, 1)
        for export in (to_onnx, functools.partial(to_code, language="c")):
            with pytest.raises(ValueError, match=words):
                export(model, interval=level)


def test_a_query_that_no_database_takes_is_refused():
    X = np.random.default_rng(1).normal(size=(300, 10))
    forest = DynamicModelForestClassifier(30).partial_fit(X, X[:, 0] > 0)
    refuses(forest, ["sql"], "columns, but databases allow about 1,600")


def test_a_tree_that_is_too_deep_is_refused(monkeypatch):
    monkeypatch.setattr(recipe_module, "MAX_DEPTH", 0)
    model, _ = make_model("FIMT-DD 2", 0)
    refuses(model, ("onnx", *LANGUAGES), f"{model.depth_} conditions deep")


def test_without_the_package_onnx_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match="pip install onnx"):
        to_onnx(learnt({"x": [1.0]}))


# ---------------------------------------------------------------------- the command
def run(*arguments):
    return CliRunner(env={"COLUMNS": "120"}).invoke(cli.app, ["export", *map(str, arguments)])


def test_the_label_of_a_graph_is_that_of_the_threshold():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(2000, 2))
    y = np.where(rng.normal(X[:, 0] - 2) > 0, "fraud", "fine")
    model = DynamicModelTreeClassifier(threshold={"recall": 0.9, "positive": "fraud"})
    for start in range(0, 2000, 100):
        model.partial_fit(X[start : start + 100], y[start : start + 100])
    rows = [dict(zip(("x0", "x1"), row, strict=True)) for row in X.tolist()]
    found = run_onnx(model, rows)["label"].tolist()
    assert found == model.predict(X).tolist()
    assert found != model.classes_[model.predict_proba(X).argmax(axis=1)].tolist()


def test_the_command_writes_what_the_functions_return(tmp_path):
    model, path, out = learnt({"x": [1.0, 2.0]}), tmp_path / "model.dmt", tmp_path / "out"
    model.save(path)
    for language in LANGUAGES:
        assert run(path, "--to", language).stdout == to_code(model, language)
        assert run(path, "--to", language, "-o", out, "--overwrite").exit_code == 0
        assert out.read_text() == to_code(model, language)
    assert run(path, "--to", "onnx", "-o", tmp_path / "m.onnx", "--dtype", "float32").exit_code == 0
    expected = to_onnx(model, dtype="float32").SerializeToString()
    assert (tmp_path / "m.onnx").read_bytes() == expected
    assert "name a file" in run(path, "--to", "onnx").output
    assert "has no intervals" in run(path, "--to", "c", "--interval", 0.9).output
    assert "--overwrite" in run(path, "--to", "c", "-o", out).output
