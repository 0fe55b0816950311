"""The tree as JSON and as DOT."""

import datetime
import json
import re

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from driftree import DynamicModelTreeClassifier
from driftree.explain.describe import leaf_models
from driftree.explain.export import to_dict, to_dot
from driftree.explain.rules import rules
from readable_models import FEEDS, MODELS, just_split, learn, many, one_label

ALL_MODELS = {**MODELS, "just split": just_split}


def predict(data, row):
    """Route a row by the exported data alone; return the leaf and the first model's log-odds."""
    node = data["tree"]
    while "condition" in node:
        test = node["condition"]
        value = row[test["feature"]]
        goes_left = value <= test["value"] if test["operator"] == "<=" else value == test["value"]
        node = node["left" if goes_left else "right"]
    [model] = node["models"]
    total = model["intercept"]
    for own in model["inputs"]:
        feature, _, level = own["name"].partition(" == ")
        total += own["weight"] * (row[feature] == float(level) if level else row[feature])
    return node["node"], total


def test_the_exported_tree_predicts_as_the_model_does():
    model = learn()
    data = json.loads(json.dumps(to_dict(model), allow_nan=False))
    rng = np.random.default_rng(5)
    X = np.floor(rng.uniform([-1, 1000, 0, 0], [1, 9000, 4, 2], size=(50, 4)))
    X[:, 0] /= 2
    expected = zip(model.apply(X), model.decision_function(X), strict=True)
    for row, (leaf, logit) in zip(X, expected, strict=True):
        found, total = predict(data, {f"x{j}": value for j, value in enumerate(row)})
        assert found == leaf
        assert total == pytest.approx(logit, abs=1e-8)


@pytest.mark.parametrize("make", ALL_MODELS.values(), ids=ALL_MODELS)
def test_json_holds_all_leaves_without_nan(make):
    model = make()
    data = json.loads(json.dumps(to_dict(model), allow_nan=False))
    assert (data["format"], data["version"]) == ("driftree.tree", 1)
    assert (data["rows"], data["setting"]) == (model.n_rows_seen_, model.setting)
    assert data["features"] == model._encoder.display_names
    leaves, rest = [], [data["tree"]]
    while rest:
        node = rest.pop()
        assert sum(node["probabilities"]) == pytest.approx(1.0)
        assert len(node["probabilities"]) == len(data["labels"]) == len(model.classes_)
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
    odd = [datetime.date(2024, 1, 1), (1, "two"), float("inf"), 3, True]
    model = DynamicModelTreeClassifier(categorical=[("day",)])
    rng = np.random.default_rng(1)
    for i in range(4000):
        x, z = rng.normal(size=2).tolist()
        label = odd[i] if i < 5 else odd[(x + z > 0) ^ (i % 2)]
        model.learn_one({("day",): odd[i % 2], "x": x, "z": z}, label)
    data = json.loads(json.dumps(to_dict(model), allow_nan=False))
    assert data["labels"] == ["2024-01-01", "(1, 'two')", "inf", 3, True]
    assert data["features"] == ["('day',)", "x", "z"]
    assert data["tree"]["condition"]["feature"] == "('day',)"
    assert data["tree"]["condition"]["value"] in data["labels"][:2]


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
            likely = max(rule.weights, key=lambda label: rule.probabilities[label])
            assert sum(line[:1] in ("+", "-") for line in label.split("\n")) == len(
                rule.weights[likely]
            )


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
