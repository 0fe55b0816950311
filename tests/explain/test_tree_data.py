"""The tree as JSON and as DOT."""

import datetime
import json
import math
import re

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from driftree import DynamicModelTreeClassifier, DynamicModelTreeRegressor
from driftree.explain.describe import leaf_models
from driftree.explain.rules import rules
from driftree.explain.tree_data import to_dict, to_dot
from readable_models import FEEDS, MODELS, just_split, learn, many, noisy, one_label

ALL_MODELS = {**MODELS, "just split": just_split}


# ---------------------------------------------------------------------- a model without the library
def is_missing(value):
    return value is None or (isinstance(value, float) and math.isnan(value))


def levels_of(data, feature):
    inputs = [own for own in data["inputs"] if own["feature"] == feature]
    return [level for own in inputs for level in own.get("levels") or [own.get("level")]]


def goes_left(data, test, value):
    if is_missing(value):
        return test["missing_passes"]
    if test["value"] == "any other level":
        return value not in levels_of(data, test["feature"])
    if test["operator"] == "is missing":
        return False
    return value <= test["value"] if test["operator"] == "<=" else value == test["value"]


def input_of(own, value, known):
    """Return an input, and whether it says which level the value is."""
    if own["kind"] == "missing":
        return float(is_missing(value)), is_missing(value)
    if own["kind"] == "level":
        return float(value == own["level"]), value == own["level"]
    if own["kind"] == "other level":
        is_other = not is_missing(value) and value not in known
        return float(is_other), is_other
    if is_missing(value):
        value = own["if_missing"]
    elif own["levels"] is not None:
        value = own["levels"].index(value) if value in own["levels"] else 32
    if own["low"] is not None:
        value = min(max(value, own["low"]), own["high"])
    return value, True


def height(curve, value, if_missing):
    if is_missing(value):
        value = if_missing
    knots, values = curve["knots"], curve["values"]
    value = min(max(value, knots[0]), knots[-1])
    k = max(1, sum(knot < value for knot in knots))
    share = (value - knots[k - 1]) / (knots[k] - knots[k - 1])
    return values[k - 1] + share * (values[k] - values[k - 1])


def score(data, row):
    """Return the leaf and the probabilities by the exported data and its documentation alone.

    Of a regressor, the leaf and the number.
    """
    node = data["tree"]
    while "condition" in node:
        test = node["condition"]
        node = node["left" if goes_left(data, test, row.get(test["feature"])) else "right"]
    logits = []
    inputs = {own["name"]: own for own in data["inputs"]}
    for model in node["models"]:
        logit, found = model["intercept"], set()
        for part in model["inputs"]:
            own = inputs[part["name"]]
            known = levels_of(data, own["feature"])
            value, is_found = input_of(own, row.get(own["feature"]), known)
            logit += part["weight"] * value
            found |= {own["feature"]} if is_found else set()
        for curve in model["curves"]:
            if_missing = inputs[curve["name"]]["if_missing"]
            logit += height(curve, row.get(curve["feature"]), if_missing)
        logits.append(logit + sum(v for name, v in model["unknown"].items() if name not in found))
    if data["link"] == "identity":
        return node["node"], sorted(logits)
    if data["link"] == "log":
        low, high = data["limits"]
        return node["node"], [math.exp(min(max(logit, low), high)) for logit in logits]
    if len(data["labels"]) == 1:
        return node["node"], [1.0]
    if len(logits) == 1:
        low, high = node["floor"]
        second = high + (1 - low - high) * (1 + math.tanh(logits[0] / 2)) / 2
        return node["node"], [1 - second, second]
    odds = [math.exp(logit - max(logits)) for logit in logits]
    return node["node"], [own / sum(odds) for own in odds]


def make_columns(n_rows, seed=1):
    rng = np.random.default_rng(seed)
    columns = {
        "x": rng.normal(size=n_rows),
        "year": rng.normal(2007, 5, n_rows),
        "time": rng.normal(1.7e9, 1e5, n_rows),
        "flag": rng.integers(0, 2, n_rows).astype(float),
        "same": np.full(n_rows, 3.0),
        "car": rng.choice(np.array(["van", "bus", "no", None], object), n_rows),
        "town": np.array([f"t{k:02}" for k in rng.integers(0, 40, n_rows)], object),
        "whole": rng.choice(np.array(["a", "b"], object), n_rows),
    }
    logit = 2 * columns["x"] + 0.2 * (columns["year"] - 2007) * np.where(columns["flag"], 3, -3)
    logit += 4 * (columns["car"] == "van") + (columns["time"] - 1.7e9) / 1e5
    columns["year"][::9] = math.nan
    return columns, logit + rng.logistic(size=n_rows)


def make_far_rows():
    """Rows as learnt, and some with values that are missing, far out or never seen."""
    columns, _ = make_columns(60, seed=2)
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    for name, odd in (
        ("x", (None, 50.0, -1e4)),
        ("year", (None, 0.0, 1e9)),
        ("time", (None, 0.0)),
        ("flag", (None, 7.0, 0.5)),
        ("same", (None, 4.0)),
        ("car", (None, "tram")),
        ("town", (None, "t99", "t39")),
        ("whole", (None, "c")),
    ):
        rows += [rows[k] | {name: value} for k in range(6) for value in odd]
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def learn_columns(n_labels, **settings):
    columns, logit = make_columns(12_000)
    if n_labels is None:
        model = DynamicModelTreeRegressor(**settings or {"absent": "missing"})
        for *values, number in zip(*columns.values(), (1e4 + 100 * logit).tolist(), strict=True):
            model.learn_one(dict(zip(columns, values, strict=True)), number)
        return model
    y = np.digitize(logit, {1: [], 2: [0.0], 3: [-2.0, 2.0]}[n_labels])
    model = DynamicModelTreeClassifier(**settings)
    for rows in np.split(np.arange(len(y)), 60):
        model.partial_fit({name: own[rows] for name, own in columns.items()}, y[rows])
    return model


PAPER = {"setting": "paper", "epsilon": 0.5, "gain_step": 2.0, "max_nodes": 15}


@pytest.mark.parametrize("settings", [{}, PAPER], ids=["measured", "paper"])
@pytest.mark.parametrize("n_labels", [1, 2, 3, None], ids=lambda own: own or "numbers")
def test_the_exported_tree_predicts_as_the_model_does(n_labels, settings):
    model = learn_columns(n_labels, **settings)
    assert n_labels == 1 or model.n_leaves_ > 1
    assert_same_predictions(model, make_far_rows())


def test_an_exported_noise_floor_predicts_as_the_model_does():
    rows = np.random.default_rng(5).uniform(-9, 9, size=(50, 2)).tolist()
    assert any(leaf.floor[0] for leaf in leaf_models(noisy()))
    assert_same_predictions(noisy(), [{"x0": x0, "x1": x1} for x0, x1 in rows])


@pytest.mark.parametrize(("numbers", "seed"), [(False, 9), (True, 1)])
def test_missing_values_of_a_curve_predict_as_the_model_does(numbers, seed):
    """Also where the leaf's conditions say that they are missing, and its model keeps the bends."""
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(-1, 1, (2, 1000))
    are_missing = rng.random(1000) < 0.4
    y = np.where(are_missing, 4 * b, 5 * np.abs(a) - 2.5 - 4 * b) + rng.logistic(0, 0.3, 1000)
    rows = [{"b": own} for own in b.tolist()]
    for i in np.flatnonzero(~are_missing).tolist():
        rows[i]["a"] = float(a[i])
    make = DynamicModelTreeRegressor if numbers else DynamicModelTreeClassifier
    model = make(epsilon=0.1)
    for row, target in zip(rows, y.tolist(), strict=True):
        model.learn_one(row, target if numbers else target > 0)
    engine = model._tree.engine
    bent = {j for node in model._tree.leaves() for j, *_ in engine.bends(int(engine.model[node]))}
    assert model._tree.encoder.display_names.index("a") in bent
    assert_same_predictions(model, rows[-100:])


def test_a_curve_of_the_last_target_predicts_as_the_model_does():
    model, y = DynamicModelTreeRegressor(max_depth=0), 0.3
    noise = np.random.default_rng(1).uniform(0.9, 1.0, 1000)
    for size in noise.tolist():
        y = 4 * size * y * (1 - y)
        model.learn_one({}, y)
    [leaf] = model.leaf_models()
    assert "last y" in leaf.curves["y"]
    assert_same_predictions(model, [{}])


def test_a_last_target_far_out_predicts_as_the_model_does():
    model = DynamicModelTreeRegressor("poisson")
    counts = np.random.default_rng(1).poisson(5.0, 400).tolist()
    for i, y in enumerate([*counts, 100_000]):
        model.learn_one({"x": float(i % 7)}, y + (i % 7))
    last, *_ = model.to_dict()["inputs"]
    assert last["if_missing"] > last["high"]
    assert_same_predictions(model, [{"x": 3.0}, {"x": None}])


def test_a_limited_count_predicts_as_the_model_does():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(3000, 2))
    y = rng.poisson(np.exp(2.5 * X[:, 0] - 1))
    model = DynamicModelTreeRegressor("poisson", follow_target=False).partial_fit(X, y)
    assert_same_predictions(model, [{"x0": x, "x1": x / 6} for x in (-6.0, 0.5, 6.0)])


def test_numbers_beyond_a_million_ranges_predict_as_the_model_does():
    model = DynamicModelTreeRegressor.paper()
    for x in np.random.default_rng(1).uniform(-3, 3, 1000).tolist():
        model.learn_one({"x": x, "huge": x * 1e307}, x)
    rows = [{"x": x, "huge": 1e306} for x in (-1e300, -1e9, 1e5, 1e12)]
    assert_same_predictions(model, rows)


def assert_same_predictions(model, rows):
    data = json.loads(json.dumps(to_dict(model), allow_nan=False))
    for row in rows:
        leaf, found = score(data, row)
        assert leaf == model.explain_one(row).leaf
        if data["link"] != "logistic":
            assert found[len(found) // 2] == pytest.approx(model.predict_one(row), rel=1e-9)
            continue
        expected = model.predict_proba_one(row)
        assert dict(zip(data["labels"], found, strict=True)) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("make", ALL_MODELS.values(), ids=ALL_MODELS)
def test_json_holds_all_leaves_without_nan(make):
    model = make()
    data = json.loads(json.dumps(to_dict(model), allow_nan=False))
    assert (data["format"], data["version"]) == ("driftree.tree", 2)
    assert (data["rows"], data["setting"]) == (model.n_rows_seen_, model.setting)
    assert data["features"] == model._tree.encoder.display_names
    leaves, rest = [], [data["tree"]]
    while rest:
        node = rest.pop()
        if data["link"] == "identity":
            assert (node["probabilities"], data["labels"]) == ([], [])
            assert node["error"] > 0
        else:
            assert sum(node["probabilities"]) == pytest.approx(1.0)
            assert len(node["probabilities"]) == len(data["labels"]) == len(model.classes_)
            assert (node["mean"], node["error"]) == (None, None)
        if "condition" in node:
            assert node["condition"]["feature"] in data["features"]
            rest += [node["right"], node["left"]]
        else:
            leaves.append(node)
    for node, leaf, rule in zip(leaves, leaf_models(model), rules(model), strict=True):
        assert (node["node"], node["rows"], node["floor"]) == (
            (leaf.leaf, leaf.rows, list(leaf.floor))
        )
        assert node["share"] == (None if np.isnan(leaf.share) else leaf.share)
        assert node["probabilities"] == list(rule.probabilities.values())
        assert (node["mean"], node["error"]) == (rule.mean, rule.error)
        assert (node["since_step"], node["since_row"]) == (rule.since_step, rule.since_row)
        models = zip(node["models"], leaf.weights.items(), strict=True)
        for own, (label, weights) in models:
            assert own["intercept"] == leaf.intercept[label]
            inputs = {part["name"]: (part["weight"], part["effect"]) for part in own["inputs"]}
            assert inputs == {n: (w, leaf.effects[label][n]) for n, w in weights.items()}


def test_same_from_dicts_arrays_and_frames():
    ours, *others = [to_dict(learn(feed)) for feed in FEEDS]
    assert all(theirs == ours for theirs in others)
    assert len({to_dot(learn(feed)) for feed in FEEDS}) == 1


def test_labels_and_levels_that_json_does_not_know_become_text():
    odd = [datetime.date(2024, 1, 1), (1, "two"), 2.5j, 3, True]
    model = DynamicModelTreeClassifier(categorical=[("day",)])
    rng = np.random.default_rng(1)
    for i in range(4000):
        x, z = rng.normal(size=2).tolist()
        label = odd[i] if i < 5 else odd[(x + z > 0) ^ (i % 2)]
        model.learn_one({("day",): odd[1 + i % 2], "x": x, "z": z}, label)
    data = json.loads(json.dumps(to_dict(model), allow_nan=False))
    assert data["labels"] == ["2024-01-01", "(1, 'two')", "2.5j", 3, True]
    assert data["features"] == ["('day',)", "x", "z"]
    assert data["tree"]["condition"]["feature"] == "('day',)"
    assert data["tree"]["condition"]["value"] in data["labels"][1:3]


# ---------------------------------------------------------------------- DOT
QUOTED = r'"((?:[^"\\\n]|\\.)*)"'
STATEMENT = re.compile(
    r"    (?:(?:graph|node|edge|n\d+)(?: -> n\d+)?) "
    rf"\[(?:\w+=(?:\w+|{QUOTED})(?:, (?=\w))?)+\];"
)


def labels_of(dot):
    """Read DOT as its grammar is; return {node: label as it will be drawn}."""
    first, *statements, last = dot.split("\n")
    assert (first, last) == ("digraph driftree {", "}")
    labels = {}
    for line in statements:
        assert STATEMENT.fullmatch(line), line
        found = re.match(rf"    n(\d+) \[label={QUOTED}", line)
        if found:
            text = re.sub(r"\\([ln])", "\n", found[2].replace(r"\\", "\0"))
            labels[int(found[1])] = (
                text.replace(r"\"", '"').replace("\0", "\\").replace("&amp;", "&")
            )
    return labels


@pytest.mark.parametrize("make", ALL_MODELS.values(), ids=ALL_MODELS)
def test_dot_is_well_formed_and_has_every_node_and_edge(make):
    model = make()
    dot = to_dot(model)
    labels = labels_of(dot)
    assert len(labels) == model.n_nodes_
    assert dot.count(" -> ") == model.n_nodes_ - 1
    for rule in rules(model):
        label = labels[rule.leaf]
        assert ("no rows yet" if np.isnan(rule.share) else "% of rows") in label
        if rule.weights:
            likely = max(rule.weights, key=lambda label: rule.probabilities.get(label, 1.0))
            lines = [own for own in rule.weights[likely] if own.curve is None]
            assert sum(line[:1] in ("+", "-") for line in label.split("\n")) == len(lines)


def test_text_from_data_is_drawn_as_it_is():
    label = labels_of(to_dot(many()))[0]
    assert label.startswith('<script>"')
    assert any('"></b> label\\l ' in text for text in labels_of(to_dot(many())).values())
    model = DynamicModelTreeClassifier()
    model.learn_one({'&amp; "\\N"\n<x>\\': 1.0}, "no")
    model.learn_one({'&amp; "\\N"\n<x>\\': 9.0}, "ü\\")
    text = labels_of(to_dot(model))[0]
    assert '&amp; "\\N"\\n<x>\\\n' in text
    assert "log-odds of ü\\:" in text


def test_max_weights_limits_dot():
    assert "log-odds" not in to_dot(learn(), max_weights=0)
    with pytest.raises(ValueError, match="max_weights must be at least 0"):
        to_dot(one_label(), max_weights=-1)


@pytest.mark.parametrize("export", [to_dict, to_dot])
def test_nothing_learnt_is_an_error(export):
    with pytest.raises(NotFittedError):
        export(DynamicModelTreeClassifier())
