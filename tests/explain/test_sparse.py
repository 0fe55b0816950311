"""What is said of models whose rows hold few of very many features: exact, by name, and cheap."""

import json
import math
import tracemalloc
from copy import deepcopy
from functools import cache

import numpy as np
import pytest
from scipy.sparse import csr_array

from driftree import DynamicModelTreeClassifier, export_text, report
from driftree.explain.contributions import explain_batch
from driftree.explain.counterfactual.leaf_tasks import SparseSpace
from driftree.explain.over_time import outline, unit_of_effects, weights_over_time
from driftree.explain.sparse import strongest

N_WORDS = 300


def make_rows(n_rows, n_labels=2, *, text=True, sizes=False, seed=1):
    """Messages of a few words, which mean the opposite in the other channel."""
    rng = np.random.default_rng(seed)
    chances = np.cumsum(1 / np.arange(1, N_WORDS + 1) ** 1.05)
    meaning = rng.normal(size=N_WORDS) * 1.5
    for _ in range(n_rows):
        drawn = rng.random(rng.poisson(8) + 1) * chances[-1]
        words = np.unique(np.searchsorted(chances, drawn))
        channel = int(rng.random() < 0.5)
        size = rng.uniform(0.5, 2, len(words)).round(2) if sizes else np.ones(len(words), int)
        score = meaning[words] @ size * (1 if channel else -1)
        label = int(rng.random() < 1 / (1 + math.exp(-score)))
        if n_labels > 2 and rng.random() < 0.2:
            label = 2
        row = {f"w{word}": own for word, own in zip(words, size.tolist(), strict=True)}
        yield row | {"channel": "ab"[channel] if text else channel}, label


@cache
def learn(n_rows, n_labels=2, *, max_features=None, **more):
    model = DynamicModelTreeClassifier(absent="zero", max_features=max_features)
    for row, label in make_rows(n_rows, n_labels, **more):
        model.learn_one(row, label)
    return model


def rows_of(n_rows, **more):
    return [row for row, _ in make_rows(n_rows, seed=9, **more)]


@pytest.fixture(scope="module")
def model():
    return learn(3000)


@pytest.fixture(scope="module")
def wide():
    """A model that knows a hundred thousand words."""
    model = deepcopy(learn(3000))
    for first in range(0, 100_000, 100):
        model.learn_one({f"rare{word}": 1 for word in range(first, first + 100)}, first // 100 % 2)
    return model


# ---------------------------------------------------------------------- why this prediction
@pytest.mark.parametrize("n_labels", [2, 3])
@pytest.mark.parametrize("kind", [{}, {"text": False, "sizes": True}])
@pytest.mark.parametrize("n_rows", [20, 300, 3000])  # no column yet; a few; and a split
def test_contributions_add_up(n_rows, kind, n_labels):
    model = learn(n_rows, n_labels, **kind)
    engine, encoder = model._tree.engine, model._tree.encoder
    assert (model.n_leaves_ > 1) == (n_rows == 3000)
    assert (engine.n_columns > 1) == (n_rows > 20)
    for row in rows_of(30, n_labels=n_labels, **kind):
        why = model.explain_one(row)
        batch = encoder.read_dict(row, learning=False)
        [logits] = engine.logits(*batch.rows)
        if n_labels == 2:
            total = why.intercept + sum(why.contributions.values())
            assert total == pytest.approx(logits[0], abs=1e-9)
        else:
            totals = [why.intercept[k] + sum(own.values()) for k, own in why.contributions.items()]
            assert totals == pytest.approx(logits, abs=1e-9)
        held = {name for name in row if name != "channel" and name not in why.unknown}
        assert held <= why.row.keys()
        assert all(why.row[name] == row[name] for name in held)
        assert why.deviation is None


def test_what_is_not_held_adds_nothing(model):
    why, engine = (
        model.explain_one({"w3": 1, "channel": "a", "nonsense": 1, "odd": "x"}),
        model._tree.engine,
    )
    for j, name in enumerate(model._tree.encoder.display_names):
        if name not in ("w3", "channel == a") and engine.value_column[j] < 0:
            assert why.contributions[name] == 0.0
    assert why.unknown == ("nonsense", "odd == x")
    assert "'nonsense', 'odd == x'" in str(why)
    assert "w3 = 1" in str(why)
    assert len(why.row) < 40


def test_many_rows_are_explained_as_each_is():
    rng = np.random.default_rng(1)
    dense = rng.random((1500, 400)) * (rng.random((1500, 400)) < 0.02)
    dense[:, 0] = rng.normal(size=1500)  # held by all
    X, y = csr_array(dense), dense[:, 0] + 4 * dense[:, 1] > 0.1
    model = DynamicModelTreeClassifier().partial_fit(X, y)
    assert model._tree.engine.value_column.max() > 0
    why = model.explain(X[:40])
    assert np.allclose(
        why.base_values + why.values.sum(axis=1), model.decision_function(X[:40]), atol=1e-9
    )
    held = {f"x{j}" for j in X[:40].tocoo().col}
    assert held <= set(why.feature_names) <= held | set(model._tree.encoder.display_names)
    assert why.values.shape == why.data.shape == why.matrix.shape == (40, len(why.feature_names))
    for i in (0, 7, -1):
        own = {name: value for name, value in why[i].row.items() if value}
        assert own == {f"x{j}": dense[i % 40, j] for j in np.flatnonzero(dense[i % 40])}
        one = model.explain_one(own)
        assert one.contributions == pytest.approx(why[i].contributions, abs=1e-12)
    some = why[np.arange(40) % 2 == 1]
    assert some[3].contributions == why[7].contributions
    assert why[5:9].data.tolist() == why.data[5:9].tolist()


# ---------------------------------------------------------------------- what it knows
def test_text_and_rules_name_the_strongest_words(model):
    engine, names = model._tree.engine, model._tree.encoder.row_face.sparse_names()
    text = export_text(model)
    for rule, leaf in zip(model.rules(), model.leaf_models(), strict=True):
        ids, weights = engine.sparse_weights(rule.leaf)
        first = names[ids[np.abs(weights[:, 0]).argmax()]]
        assert rule.weights[1][0].name == first == next(iter(leaf.effects[1]))
        assert f" * {first}" in text
        assert f"{first} (" in str(rule)
        assert "per unit" not in str(rule)
        assert len(leaf.weights[1]) == len(ids) + engine.n_columns - 1
        assert f"+ {len(leaf.weights[1]) - 3:,} weaker" in text
        assert leaf.n_weaker == 0
        told = outline(model)[rule.leaf].effects[1]
        assert next(iter(told)) == first
        assert len(told) == 10 + engine.n_columns - 1
    assert "from 0 to its usual size" in unit_of_effects(model)


@pytest.mark.parametrize("n_labels", [2, 3])
@pytest.mark.parametrize("kind", [{}, {"text": False, "sizes": True}])
def test_the_exported_tree_predicts_as_the_model_does(n_labels, kind):
    model = learn(3000, n_labels, **kind)
    data = json.loads(json.dumps(model.to_dict(), allow_nan=False))
    encoder = model._tree.encoder
    for row in rows_of(30, n_labels=n_labels, **kind):
        flat = {f"{k} == {v}" if isinstance(v, str) else k: v for k, v in row.items()}
        flat = {k: 1 if isinstance(v, str) else v for k, v in flat.items()}
        [expected] = model._tree.engine.logits(*encoder.read_dict(row, learning=False).rows)
        assert read_exported(data, flat) == pytest.approx(expected, abs=1e-9)


def read_exported(data, row):
    """Return the logits by what `explain.tree_data` says of the data, where nothing is bent."""
    node, inputs, sparse = data["tree"], data["inputs"], data["sparse"]
    while "condition" in node:
        test = node["condition"]
        value = row.get(test["feature"])
        passes = test["missing_passes"] if value is None else value <= test["value"]
        node = node["left" if passes else "right"]
    limits = zip(sparse["low"], sparse["high"], strict=True)
    limits = dict(zip(sparse["names"], limits, strict=True))
    logits = []
    for model in node["models"]:
        scales = {own["name"]: own for own in inputs}
        values = {name: row.get(name, own["if_missing"]) for name, own in scales.items()}
        total = model["intercept"]
        for own in model["inputs"]:
            low, high = scales[own["name"]]["low"], scales[own["name"]]["high"]
            value = values[own["name"]]
            total += own["weight"] * (value if low is None else min(max(value, low), high))
        for curve in model["curves"]:
            total += np.interp(values[curve["name"]], curve["knots"], curve["values"])
        for name in row.keys() & model["sparse"].keys():
            low, high = limits[name]
            total += model["sparse"][name] * min(max(row[name], low), high)
        logits.append(total)
    return logits


def test_importance_counts_how_often_a_word_comes(model):
    importance = model.feature_importance()
    assert next(iter(importance)) == "channel == a"
    assert sum(name.startswith("w") for name in importance) <= 100 + 40
    engine, encoder = model._tree.engine, model._tree.encoder
    word = next(name for name in importance if name not in encoder.names)
    [place] = encoder.row_face.sparse_ids([word], learning=False, centred=False)
    share = engine.sparse_weight[place] / engine.clock
    shares = {leaf.leaf: leaf.share for leaf in model.leaf_models()}
    effect = sum(shares[leaf.leaf] * abs(leaf.effects[1][word]) for leaf in model.leaf_models())
    expected = effect * 2 * math.sqrt(share * (1 - share))
    assert importance[word].weight == pytest.approx(expected)


def test_forgotten_names_are_told(model, tmp_path):
    small = learn(600, max_features=100)
    count = small._tree.engine.n_given_up
    words = f"{count:,} rare names were forgotten"
    assert words in export_text(small)
    assert words in small._repr_mimebundle_()["text/html"]
    assert words in report(small, path=tmp_path / "small.html").read_text()
    assert "forgotten" not in export_text(model)
    assert small.to_dict()["sparse"]["forgotten"] == count


def test_names_that_look_alike_are_told_apart():
    model = DynamicModelTreeClassifier(absent="zero")
    for i in range(200):
        model.learn_one({1: 1, "w": 1} if i % 2 else {"1": 1, (2, i): 1}, i % 2)
    why = model.explain_one({1: 1, "1": 1})
    assert {"1", "'1'"} <= why.row.keys()
    assert len(model.leaf_models()[0].weights[1]) == model._tree.encoder.row_face.n_sparse


@pytest.mark.parametrize(("most", "expected"), [(0, []), (2, [1, 3]), (9, [1, 3, 2, 0])])
def test_strongest(most, expected):
    assert strongest(np.array([0.5, -3.0, 1.0, 3.0]), most).tolist() == expected


def test_one_label_and_no_words():
    model = DynamicModelTreeClassifier(absent="zero")
    model.learn_one({"w": 1}, "yes")
    assert model.explain_one({"w": 1}).prediction == "yes"
    assert model.leaf_models()[0].weights == {}
    model.learn_one({}, "no")
    assert "leaf 0" in export_text(model)
    assert model.explain_one({}).row == {}


# ---------------------------------------------------------------------- what would change it
@pytest.mark.parametrize("n_labels", [2, 3])
@pytest.mark.parametrize("kind", [{}, {"text": False, "sizes": True}])
def test_counterfactuals_hold(n_labels, kind):
    model = learn(3000, n_labels, **kind)
    for row in rows_of(12, n_labels=n_labels, **kind):
        found = model.counterfactual(row)
        assert found
        assert model.predict_one(found.x) == found.target != model.predict_one(row)
        assert model.predict_proba_one(found.x)[found.target] == found.probability
        assert {name for name in found.x if found.x[name] != row.get(name, 0)} == set(found.changes)


def test_no_single_change_is_nearer(model):
    is_far = 0
    for row in rows_of(40):
        found, label = model.counterfactual(row), model.predict_one(row)
        assert found.exact
        assert found.distance**2 == pytest.approx(len(found.changes))
        if len(found.changes) < 2:
            continue
        is_far += 1
        space = SparseSpace(model._tree.encoder, row)
        for j in set(range(len(space.values))) - space.derived:
            for value in space.choices(j) - {space.values[j]}:
                other = space.values.copy()
                other[j] = value
                assert model.predict_one(space.row(other, [j])) == label
    assert is_far


def test_fixed_words_and_levels_stay(model):
    row = next(one for one in rows_of(40) if "channel" in model.counterfactual(one).changes)
    other = model.counterfactual(row, fixed=["channel", "w299"])
    assert "channel" not in other.changes
    assert other.x["channel"] == row["channel"]
    again = model.counterfactual(row, ranges={"channel": [row["channel"]]})
    assert again.changes == other.changes
    last = model.counterfactual(row, fixed=["channel", *other.changes])
    assert not last.changes.keys() & other.changes.keys()
    with pytest.raises(ValueError, match="fixed names 'nonsense'"):
        model.counterfactual(row, fixed=["nonsense"])
    assert "'nonsense'" in str(model.counterfactual(row | {"nonsense": 1}))


def test_forgotten_words_of_a_row_may_be_fixed():
    small = learn(600, max_features=100)
    row = next(one for one in rows_of(40) if "w39" in one)
    assert "w39" in small.explain_one(row).unknown
    fixed = small.counterfactual(row, fixed=["w39"])
    assert fixed == small.counterfactual(row)
    assert fixed.x["w39"] == 1
    with pytest.raises(ValueError, match="fixed names 'w39'"):
        small.counterfactual({"w1": 1}, fixed=["w39"])


# ---------------------------------------------------------------------- very many words
def test_the_report_stays_small(model, wide, tmp_path):
    small, large = (report(one, path=tmp_path / "report.html").read_text() for one in (model, wide))
    assert wide._tree.encoder.row_face.n_sparse > 100_000
    assert len(large) < len(small) + 10_000
    first = model.rules()[0].weights[1][0].name
    assert f'"{first}"' in small


def test_no_array_of_all_words_and_rows(wide, tmp_path):
    """An array of both would take 800 MB, one of the words takes 1 MB."""
    rows, encoder = rows_of(1000), wide._tree.encoder
    batch = encoder.sparse.read_dicts(rows, learning=False)
    tracemalloc.start()
    try:
        why = explain_batch(wide._tree, encoder, batch)
        assert len(why.feature_names) < 2 * N_WORDS
        assert why[-1].contributions
        assert len(wide.explain_one(rows[0]).row) < 80
        assert wide.counterfactual(rows[0])
        assert len(wide.feature_importance()) < 200
        assert len(export_text(wide)) < 2000
        report(wide, path=tmp_path / "wide.html")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 40e6


def test_pictures_name_words(model):
    pytest.importorskip("matplotlib")
    from driftree.show import plot_contributions, plot_timeline, plot_tree, plot_weights_over_time

    first = model.rules()[0].weights[1][0].name
    assert first in {text.get_text() for text in plot_tree(model).texts}
    row = {"w3": 1, "w200": 1, "channel": "a"}
    ticks = [
        text.get_text() for text in plot_contributions(model.explain_one(row)).get_yticklabels()
    ]
    assert "w3 = 1" in ticks
    plot_timeline(model)
    plot_weights_over_time(model)
    assert set(weights_over_time(model).effects) == set(model._tree.encoder.column_names()[1:])
